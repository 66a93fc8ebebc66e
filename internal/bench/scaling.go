package bench

import (
	"context"
	"errors"
	"fmt"

	"ramet.dev/ramet/internal/progress"
)

// The benchmarks of a scaling run.
const (
	ScaleDirty    = "scale_dirty"
	ScaleSiblings = "scale_siblings"
	ScaleDepth    = "scale_depth"
)

// Scaling names the benchmarks that show how a fork grows with something.
func Scaling() []string { return []string{ScaleDirty, ScaleSiblings, ScaleDepth} }

const (
	maxSiblings = 64
	maxDepth    = 32
	// forkBatch is how many siblings are made at a time.
	forkBatch = 8
)

// dirtyMB are the points of scale_dirty.
func dirtyMB() []int { return []int{1, 16, 64, 256} }

// Point is one point of a scaling run: medians of some forks of one child.
type Point struct {
	X             int                `json:"x"` // what it means is the result's Axis
	N             int                `json:"n"`
	P50MS         float64            `json:"p50_ms"` // until the fork was answered
	FirstAnswerMS float64            `json:"first_answer_ms"`
	PausedMS      float64            `json:"paused_ms"`
	DirtyMB       float64            `json:"dirty_mb"` // copied
	Steps         map[string]float64 `json:"steps,omitempty"`
	Samples       []float64          `json:"samples_ms,omitempty"` // until the answer
	SamplesFirst  []float64          `json:"samples_first_answer_ms,omitempty"`
	SamplesPaused []float64          `json:"samples_paused_ms,omitempty"`
}

// curve collects the points of one result.
type curve struct {
	s     *session
	r     *Result
	n     int // samples of each point
	total int // points that are wanted
}

// point takes the samples of one point. before, when it is not nil, is called
// before each fork, and one fork that is no sample comes first.
func (c *curve) point(ctx context.Context, x int, parent string, before func(context.Context) error) error {
	var samples []Sample
	for i := range c.n + 1 {
		sample, err := bounded(ctx, func(ctx context.Context) (Sample, error) {
			if before != nil {
				if err := before(ctx); err != nil {
					return Sample{}, err
				}
			}
			if err := c.s.startedAhead(ctx); err != nil {
				return Sample{}, err
			}
			return c.s.forkOnce(ctx, parent, 1)
		})
		if err != nil {
			return err
		}
		if i > 0 {
			samples = append(samples, sample)
		}
	}
	c.r.N += len(samples)
	c.r.Points = append(c.r.Points, makePoint(x, samples))
	c.show(ctx, fmt.Sprintf("%d", x))
	return nil
}

func (c *curve) show(ctx context.Context, detail string) {
	progress.Report(ctx, progress.Event{Step: c.r.Name, Detail: detail, Fraction: float64(len(c.r.Points)) / float64(c.total)})
}

// end enters what has ended a curve early.
func (c *curve) end(ctx context.Context, err error) {
	var full *refusedError
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.As(err, &full):
		c.r.refused = full
	default:
		c.r.fail(err)
	}
}

func makePoint(x int, samples []Sample) Point {
	p := Point{X: x, N: len(samples), Samples: took(samples), Steps: stepPercentile(samples, 50)}
	var bytes []float64
	for _, s := range samples {
		p.SamplesFirst = append(p.SamplesFirst, s.Steps[StepFirstAnswer])
		p.SamplesPaused = append(p.SamplesPaused, s.Pause.MS)
		bytes = append(bytes, float64(s.Pause.DirtyBytes))
	}
	p.P50MS, p.FirstAnswerMS, p.PausedMS = median(p.Samples), median(p.SamplesFirst), median(p.SamplesPaused)
	p.DirtyMB = round3(median(bytes) / (1 << 20))
	return p
}

// used makes a sandbox that has run code.
func (s *session) used(ctx context.Context, first code) (string, error) {
	return bounded(ctx, func(ctx context.Context) (string, error) {
		id, _, err := s.create(ctx)
		if err == nil {
			_, err = s.exec(ctx, id, first)
		}
		if err != nil && id != "" {
			_, rerr := s.remove(ctx, id)
			err = errors.Join(err, rerr)
		}
		return id, err
	})
}

// release removes sandboxes after a curve, also when ctx has ended.
func (c *curve) release(ctx context.Context, ids ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if err := c.s.removeAll(ctx, ids); err != nil {
		c.r.fail(err)
	}
}

// scaleDirty forks sandboxes that have written 1 to 256 MB since the fork before.
func scaleDirty(ctx context.Context, s *session, n int, r *Result) {
	r.Axis = "MB written before each fork"
	c := &curve{s: s, r: r, n: n, total: len(dirtyMB())}
	for _, mb := range dirtyMB() {
		if err := c.dirtyPoint(ctx, mb); err != nil {
			c.end(ctx, err)
			return
		}
	}
}

func (c *curve) dirtyPoint(ctx context.Context, mb int) error {
	if err := c.s.settle(ctx); err != nil {
		return err
	}
	id, err := c.s.used(ctx, dirty(mb))
	if err != nil {
		return err
	}
	defer c.release(ctx, id)
	return c.point(ctx, mb, id, func(ctx context.Context) error {
		_, err := c.s.exec(ctx, id, touch)
		return err
	})
}

// scaleSiblings forks a sandbox that has 1, 2, 4 … children which run, up to
// maxSiblings or until a quarter of the host's memory is left.
func scaleSiblings(ctx context.Context, s *session, n int, r *Result) {
	r.Axis = "siblings that run"
	c := &curve{s: s, r: r, n: n, total: 7}
	c.end(ctx, c.siblings(ctx))
}

func (c *curve) siblings(ctx context.Context) (err error) {
	if err := c.s.settle(ctx); err != nil {
		return err
	}
	parent, err := c.s.used(ctx, printOne)
	if err != nil {
		return err
	}
	all := []string{parent}
	defer func() { c.release(ctx, all...) }()
	for want := 1; want <= maxSiblings; want *= 2 {
		for len(all)-1 < want {
			if !memoryLeft() {
				return &refusedError{errors.New("less than a quarter of this host's memory is left")}
			}
			children, err := bounded(ctx, func(ctx context.Context) ([]string, error) {
				children, _, err := c.s.fork(ctx, parent, min(forkBatch, want-len(all)+1))
				return children, err
			})
			if err != nil {
				return err
			}
			all = append(all, children...)
			c.show(ctx, fmt.Sprintf("%d siblings", len(all)-1))
		}
		if err := c.point(ctx, want, parent, nil); err != nil {
			return err
		}
	}
	return nil
}

// scaleDepth forks a child of a child of a child. What is above is deleted as
// soon as it has a child; each generation writes a file before it is forked.
func scaleDepth(ctx context.Context, s *session, n int, r *Result) {
	r.Axis = "depth of the child"
	c := &curve{s: s, r: r, n: n, total: 6}
	c.end(ctx, c.depth(ctx))
}

// generation is what each sandbox of a line runs.
var generation = code{"python", `with open("/root/ramet-bench-depth", "ab") as f: f.write(bytes(65536))
print(1)`, "1\n"}

func (c *curve) depth(ctx context.Context) error {
	if err := c.s.settle(ctx); err != nil {
		return err
	}
	id, err := c.s.used(ctx, generation)
	if err != nil {
		return err
	}
	defer func() { c.release(ctx, id) }()
	for depth, next := 1, 1; ; depth++ {
		if depth == next {
			if err := c.point(ctx, depth, id, nil); err != nil {
				return err
			}
			next *= 2
		}
		if depth == maxDepth {
			return nil
		}
		child, err := bounded(ctx, func(ctx context.Context) (string, error) { return c.s.descend(ctx, id) })
		if child != "" {
			id = child
		}
		if err != nil {
			return err
		}
		c.show(ctx, fmt.Sprintf("depth %d", depth+1))
	}
}

// descend puts a child that has run code in the place of its parent.
func (s *session) descend(ctx context.Context, parent string) (string, error) {
	children, _, err := s.fork(ctx, parent, 1)
	if err != nil {
		return "", err
	}
	_, err = s.exec(ctx, children[0], generation)
	_, rerr := s.remove(ctx, parent)
	return children[0], errors.Join(err, rerr)
}
