package gvisor

import (
	"context"
	"fmt"

	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
)

// waiting is a start that has stopped half-way: a sandbox that is made, and has nothing to run yet.
type waiting struct{ s *starting }

var _ vmm.Preparer = (*Driver)(nil)

// Prepare implements vmm.Preparer.
func (d *Driver) Prepare(ctx context.Context, c vmm.Config) (vmm.Waiting, error) {
	s := d.newStarting(c)
	if err := s.run(ctx, makeSteps); err != nil {
		return nil, err
	}
	return &waiting{s}, nil
}

// Start implements vmm.Waiting. Any checkpoint of the image will do; a disk has to be named when
// a sandbox is made.
func (w *waiting) Start(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	s := w.s
	man, err := snapshot.Load(c.Source.Snapshot)
	if err != nil {
		return nil, err
	}
	if man.Driver != driverName {
		return nil, fmt.Errorf("%w: the snapshot is of the driver %s", vmm.ErrNotPrepared, man.Driver)
	}
	if c.Source.DiskOnly || man.DiskOnly() {
		return nil, fmt.Errorf("%w: it takes a checkpoint of memory", vmm.ErrNotPrepared)
	}
	if c.Source.Image.Hash != s.cfg.Source.Image.Hash || c.Instance != s.cfg.Instance || c.Shape.VCPUs != s.cfg.Shape.VCPUs {
		return nil, fmt.Errorf("%w: it is of another kind", vmm.ErrNotPrepared)
	}
	made := s.rec
	next := s.d.newStarting(c)
	s.cfg, s.rec = next.cfg, next.rec
	s.rec.Process = made.Process
	if err := s.run(ctx, append([]step{{"choose a source", (*starting).choose}}, fillSteps...)); err != nil {
		return nil, err
	}
	return s.m, nil
}

// Done implements vmm.Waiting.
func (w *waiting) Done() <-chan struct{} { return w.s.m.Done() }

// Kill implements vmm.Waiting.
func (w *waiting) Kill(ctx context.Context) error { return w.s.m.Kill(ctx) }
