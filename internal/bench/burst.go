package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"ramet.dev/ramet/internal/progress"
)

const (
	// burstClients make sandboxes at the same time.
	burstClients = 4
	// sustainedN is how many creates the sustained rate is taken of.
	sustainedN = 60
	// burstTimeout bounds one round.
	burstTimeout = 5 * time.Minute
)

var errBurstSlow = fmt.Errorf("the creates of a round were not done after %s", burstTimeout)

// burst is one round: clients that make and delete sandboxes until the pool is
// empty, or until the creates after that are enough for a rate.
type burst struct {
	s         *session
	sustained int // creates to make after the pool was empty
	most      int // creates that end the round in any case: the pool is filled as fast as it is emptied

	mu       sync.Mutex
	all      []made  // guarded by mu; in the order in which they ended
	missed   bool    // guarded by mu; the pool was empty
	after    int     // guarded by mu; creates that ended after the first miss had
	over     bool    // guarded by mu
	failures []error // guarded by mu
}

// made is a create.
type made struct {
	Sample
	begin, end time.Time
}

// measureBurst takes rounds until there are n creates that found a full pool, and
// the sustained rate at the end of the last one. Without a pool there is only the
// sustained rate.
func measureBurst(ctx context.Context, s *session, n int, r *Result) {
	rate := &Rate{Clients: burstClients}
	var samples, rest []Sample // rest: without a pool, where there is no burst
	var elapsed time.Duration
	for ctx.Err() == nil {
		// Rounds end when there are enough samples, or when one gave none.
		if err := s.settle(ctx); err != nil {
			if ctx.Err() == nil {
				r.fail(err)
			}
			break
		}
		b := &burst{s: s, most: math.MaxInt}
		if s.pool != nil {
			b.most = 4 * s.pool.size
		}
		last := s.pool == nil || len(samples)+s.pool.left >= n
		if last {
			b.sustained = min(n, sustainedN)
		}
		begin := time.Now()
		b.run(ctx)
		if ctx.Err() == nil && !b.done() {
			b.failures = append(b.failures, errBurstSlow)
		}
		for _, err := range b.failures {
			r.fail(err)
		}
		hits, after, emptyAt := parts(b.all)
		for _, m := range hits {
			samples = append(samples, m.Sample)
		}
		elapsed += until(begin, hits)
		progress.Report(ctx, progress.Event{Step: r.Name, Fraction: min(1, float64(len(samples))/float64(n))})
		if last || len(hits) == 0 || len(b.failures) > 0 {
			rate.sustain(after, emptyAt)
			if s.pool == nil {
				for _, m := range after {
					rest = append(rest, m.Sample)
				}
			}
			break
		}
	}
	rate.BurstN, rate.BurstPerS = len(samples), perSecond(len(samples), elapsed)
	samples = append(samples, rest...)
	r.sum(samples)
	if rate.BurstN+rate.SustainedN > 0 {
		r.Rate = rate
	}
}

// parts cuts a round where the pool was empty: at the first begin of a create
// that missed. A hit that begins later took a machine that had just been made.
func parts(all []made) (hits, after []made, emptyAt time.Time) {
	for _, m := range all {
		if !m.hit() && (emptyAt.IsZero() || m.begin.Before(emptyAt)) {
			emptyAt = m.begin
		}
	}
	for _, m := range all {
		if emptyAt.IsZero() || m.begin.Before(emptyAt) {
			hits = append(hits, m)
		} else {
			after = append(after, m)
		}
	}
	return hits, after, emptyAt
}

// until is the time from begin to the end of the last one.
func until(begin time.Time, all []made) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].end.Sub(begin)
}

// sustain takes over what came after the pool was empty.
func (r *Rate) sustain(after []made, emptyAt time.Time) {
	r.SustainedN = len(after)
	r.SustainedPerS = perSecond(len(after), until(emptyAt, after))
	for _, m := range after {
		if m.hit() {
			r.SustainedHits++
		}
	}
}

func perSecond(n int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return round3(float64(n) / took.Seconds())
}

// run returns when all clients have ended and all their sandboxes are gone.
func (b *burst) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, burstTimeout)
	defer cancel()
	var clients sync.WaitGroup
	for range burstClients {
		clients.Go(func() {
			for ctx.Err() == nil && !b.done() {
				b.once(ctx)
			}
		})
	}
	clients.Wait()
}

func (b *burst) done() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

func (b *burst) once(ctx context.Context) {
	id, sample, err := b.s.create(ctx)
	if err == nil {
		b.record(sample)
		_, err = b.s.remove(ctx, id)
	}
	if err == nil || ctx.Err() != nil {
		return // an interrupted call is no failure; the run removes what it has left
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = append(b.failures, err)
	b.over = b.over || len(b.failures) >= maxFailures
}

// record enters a create that has just ended.
func (b *burst) record(s Sample) {
	end := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, made{Sample: s, begin: end.Add(-s.Took), end: end})
	b.missed = b.missed || !s.hit()
	if b.missed {
		b.after++
		b.over = b.over || b.after >= b.sustained
	} else {
		b.over = b.over || len(b.all) >= b.most
	}
}
