package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

const (
	// poolPoll is the time between looks at a pool that is being filled.
	poolPoll = 50 * time.Millisecond
	// poolStall is how long a pool may go without another machine before it is
	// taken for as full as it gets: the host's memory can be short.
	poolStall = 45 * time.Second
	// poolTimeout bounds one wait in any case.
	poolTimeout = 10 * time.Minute
)

// claimStep is the step that only a create from the pool has, as the API says.
const claimStep = "claim"

// hit says whether a create took a warm machine.
func (s Sample) hit() bool {
	_, found := s.Steps[claimStep]
	return found
}

// warmPool is the server's pool of machines like those that a create without
// wishes gets.
type warmPool struct {
	// size is how many there are when it is full. It shrinks when the server
	// turns out to keep fewer.
	size int
	// left is how many creates it will serve, if nobody else takes some and it is
	// not filled meanwhile.
	left int
	// stall is poolStall but in tests.
	stall time.Duration
}

// findPool looks whether there is a pool.
func (s *session) findPool(ctx context.Context) error {
	p, err := s.poolNow(ctx)
	if err != nil {
		return err
	}
	if p != nil && p.Size > 0 {
		s.pool = &warmPool{size: p.Size, stall: poolStall}
	}
	return nil
}

// poolNow asks the server about the pool; nil when there is none.
func (s *session) poolNow(ctx context.Context) (*v1.Pool, error) {
	c, err := s.c.Capacity(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the warm pool: %w", err)
	}
	i := slices.IndexFunc(c.Pools, isDefault)
	if i < 0 {
		return nil, nil
	}
	return &c.Pools[i], nil
}

func isDefault(p v1.Pool) bool {
	return p.Template == defaultTemplate && p.Vcpus == sandbox.DefaultVCPUs &&
		p.MemoryMb == sandbox.DefaultMemoryMB && p.DiskMb == sandbox.DefaultDiskMB
}

var (
	errNoPool    = errors.New("the server keeps no warm machines any more")
	errPoolEmpty = fmt.Errorf("the pool has had no machine for %s", poolStall)
	errPoolSlow  = fmt.Errorf("the pool has not been full for %s", poolTimeout)
)

// settle waits until the pool is full and nothing is made for it. Without a
// pool it returns at once.
func (s *session) settle(ctx context.Context) error {
	if s.pool == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, poolTimeout, errPoolSlow)
	defer cancel()
	tick := time.NewTicker(poolPoll)
	defer tick.Stop()
	best, since := -1, time.Now()
	for {
		p, err := s.poolNow(ctx)
		switch {
		case err != nil:
			return err
		case p == nil:
			return errNoPool
		case p.Ready >= s.pool.size && p.Warming == 0:
			s.pool.left = p.Ready
			return nil
		case p.Ready > best:
			best, since = p.Ready, time.Now()
		case time.Since(since) > s.pool.stall && p.Ready == 0:
			return errPoolEmpty
		case time.Since(since) > s.pool.stall:
			s.pool.size = p.Ready
		}
		progress.Report(ctx, progress.Event{Step: s.doing, Detail: fmt.Sprintf("the pool is filled: %d of %d", p.Ready, s.pool.size)})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// batch is the Before of what takes one machine of the pool for each sample:
// when all have been taken, it waits until the pool is full again.
func (s *session) batch(ctx context.Context) error {
	if s.pool == nil || s.pool.left > 0 {
		return nil
	}
	return s.settle(ctx)
}

// createReady is create for what is measured with warm machines where there is
// a pool: a sandbox that had to be booted is removed again, and the error is errApart.
func (s *session) createReady(ctx context.Context) (string, Sample, error) {
	if s.pool != nil {
		s.pool.left--
	}
	id, sample, err := s.create(ctx)
	if err == nil && s.pool != nil && !sample.hit() {
		s.pool.left = 0
		return "", Sample{}, s.apart(ctx, id)
	}
	return id, sample, err
}

// apart removes a sandbox that is no sample.
func (s *session) apart(ctx context.Context, id string) error {
	if _, err := s.remove(ctx, id); err != nil {
		return err
	}
	return errApart
}

// begin says which benchmark is under way. Hits and misses are counted anew.
func (s *session) begin(name string) {
	s.doing = name
	s.hits.Store(0)
	s.misses.Store(0)
}

// split is nil when there is no pool or nothing was created.
func (s *session) split() *PoolSplit {
	p := &PoolSplit{Hits: s.hits.Load(), Misses: s.misses.Load()}
	if s.pool == nil || p.Hits+p.Misses == 0 {
		return nil
	}
	return p
}
