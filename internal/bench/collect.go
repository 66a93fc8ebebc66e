package bench

import (
	"context"
	"errors"
	"fmt"

	"ramet.dev/ramet/internal/progress"
)

// turns is into how many parts the samples of a benchmark and of its floor are
// cut. They are taken in turns, so that what else the host does meets both.
const turns = 5

// series is what a probe gave.
type series struct {
	first    *Sample // the cold one; nil when it failed
	samples  []Sample
	failures int
	err      error // the first failure
	refused  error // why the server let no more sandboxes in
	apart    int   // calls that took another way than the one that is measured
}

// errApart says that a call took another way than the one that is measured:
// it has not failed, but is no sample either.
var errApart = errors.New("the create did not take the way that is measured")

// apartSpare is how many calls may be apart besides as many as are samples.
const apartSpare = 20

func (s *series) fail(err error) {
	s.failures++
	if s.err == nil {
		s.err = err
	}
}

// collector takes the samples of one probe: a cold one, some calls that are not
// kept, and n that are.
type collector struct {
	b    Benchmark
	what string // for the one who waits
	n    int
	open opener

	series series
	probe  Probe
	calls  int // so far
	row    int // failures since the last success
	over   bool
}

func newCollector(b Benchmark, what string, n int, open opener) *collector {
	return &collector{b: b, what: what, n: n, open: open}
}

// inTurns takes all samples of all collectors and closes their probes. Each
// turn begins with a full pool, so that the host is not busy with filling it.
func (r *run) inTurns(ctx context.Context, all ...*collector) {
	for _, c := range all {
		defer c.close(ctx)
		c.start(ctx, r.session.settle)
	}
	for turn := 1; turn <= turns; turn++ {
		for _, c := range all {
			if c.over {
				continue
			}
			if err := r.session.settle(ctx); err != nil {
				c.stop(ctx, err)
				continue
			}
			c.take(ctx, 1+c.b.warm+c.n*turn/turns)
		}
	}
}

// stop ends the collecting for a reason that is not a sample's.
func (c *collector) stop(ctx context.Context, err error) {
	c.over = true
	if ctx.Err() == nil {
		c.series.fail(err)
	}
}

func (c *collector) start(ctx context.Context, settle func(context.Context) error) {
	err := settle(ctx)
	var probe Probe
	if err == nil {
		probe, err = bounded(ctx, c.open)
	}
	if err != nil {
		c.stop(ctx, err)
		return
	}
	c.probe = probe
}

// take makes calls until there were total of them.
func (c *collector) take(ctx context.Context, total int) {
	for !c.over && c.calls < total {
		if c.probe.Before != nil {
			if err := c.probe.Before(ctx); err != nil {
				c.stop(ctx, err)
				return
			}
		}
		sample, err := bounded(ctx, c.probe.Once)
		if ctx.Err() != nil {
			c.over = true
			return
		}
		if errors.Is(err, errApart) {
			c.series.apart++
			if c.series.apart > c.n+apartSpare {
				c.stop(ctx, fmt.Errorf("%d calls: %w", c.series.apart, err))
			}
			continue
		}
		var full *refusedError
		if c.b.refusable && errors.As(err, &full) {
			c.series.refused = full
			c.over = true
			return
		}
		i := c.calls
		c.calls++
		progress.Report(ctx, progress.Event{
			Step: c.b.Name, Detail: c.what, Fraction: float64(c.calls) / float64(1+c.b.warm+c.n),
		})
		if err != nil {
			c.series.fail(err)
			c.row++
			c.over = c.row >= maxFailures
			continue
		}
		c.row = 0
		switch {
		case i == 0:
			c.series.first = &sample
		case i > c.b.warm:
			c.series.samples = append(c.series.samples, sample)
		}
	}
}

func (c *collector) close(ctx context.Context) {
	if c.probe.Close == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if err := c.probe.Close(ctx); err != nil {
		c.series.fail(fmt.Errorf("clean up after %s: %w", c.what, err))
	}
}
