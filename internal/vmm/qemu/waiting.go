package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
)

// A process that waits has all of a machine but what makes it one: it maps the golden
// memory, its devices and sockets are there, and its disk is a placeholder.

func prepareSteps() []step {
	return []step{
		{"check snapshot", (*start).checkSnapshot},
		{"plan", (*start).plan},
		{"reserve", (*start).reserve},
		{"hold the disk's place", (*start).holdDisk},
		{"attach memory", (*start).attachMemory},
		{"attach sockets", (*start).attachSockets},
		{"launch", (*start).launch},
		{"connect", (*start).connect},
	}
}

// fillSteps make it a machine.
func fillSteps() []step {
	return []step{
		{"check the waiting process", (*start).checkWaiting},
		{"check snapshot", (*start).checkSnapshot},
		{"insert disk", (*start).insertDisk},
		{"place memory", (*start).placeMemory},
		{"load device state", (*start).loadState},
	}
}

// waiting is a start that has stopped half-way.
type waiting struct{ s *start }

var _ vmm.Preparer = (*Driver)(nil)

// Prepare implements vmm.Preparer.
func (d *Driver) Prepare(ctx context.Context, c vmm.Config) (vmm.Waiting, error) {
	accel, err := d.decideAccel(ctx, c.Source.Image)
	if err != nil {
		return nil, err
	}
	s := d.newStart(c, accel)
	if err := s.run(ctx, prepareSteps()); err != nil {
		return nil, err
	}
	return &waiting{s}, nil
}

// Start implements vmm.Waiting.
func (w *waiting) Start(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	s := w.s
	if err := w.fits(c); err != nil {
		return nil, err
	}
	s.cfg = c
	s.cfg.Dir = filepath.Clean(c.Dir)
	if err := s.run(ctx, fillSteps()); err != nil {
		return nil, err
	}
	return s.m, nil
}

// fits compares what the process has been made for, without changing anything.
func (w *waiting) fits(c vmm.Config) error {
	have := w.s
	m, err := snapshot.Load(c.Source.Snapshot)
	if err != nil {
		return err
	}
	base := ""
	switch {
	case m.DiskOnly() || c.Source.DiskOnly || c.Golden || c.Background:
	case m.Base != nil:
		base = m.Base.MemorySHA256
	case m.Memory != nil:
		base = m.Memory.SHA256
	}
	switch {
	case base == "" || base != have.rec.BaseMemory:
		return fmt.Errorf("%w: it maps another memory", vmm.ErrNotPrepared)
	case c.Source.Image.Hash != have.cfg.Source.Image.Hash || c.Instance != have.cfg.Instance ||
		bootMBOr(m.BootMB) != have.rec.bootMB() || m.VCPUs != have.rec.VCPUs || c.Shape.VCPUs != have.rec.VCPUs:
		return fmt.Errorf("%w: it is of another kind", vmm.ErrNotPrepared)
	}
	return nil
}

// Done implements vmm.Waiting.
func (w *waiting) Done() <-chan struct{} { return w.s.m.Done() }

// Kill implements vmm.Waiting.
func (w *waiting) Kill(ctx context.Context) error { return w.s.m.Kill(ctx) }

// holdDisk gives the machine a disk that is only a size.
func (s *start) holdDisk(context.Context) error {
	s.cmd.NoDiskMB = s.rec.DiskMB
	return nil
}

// checkWaiting refuses a process that died while it waited.
func (s *start) checkWaiting(context.Context) error {
	if err := s.m.Err(); err != nil {
		return err
	}
	if now := s.d.version.now().String(); now != s.rec.QEMUVersion {
		return fmt.Errorf("the waiting process is of QEMU %s: %w", s.rec.QEMUVersion, vmm.ErrGone)
	}
	if err := s.d.cgroups.AllowMemory(strconv.Itoa(s.rec.UID), s.cfg.Shape.MemoryMB); err != nil {
		s.m.log.warn("raise the memory limit", err)
	}
	return nil
}

// insertDisk puts the machine's disk into the place that was held for it.
func (s *start) insertDisk(ctx context.Context) error {
	s.rec.DiskMB, s.rec.PlugMB = s.manifest.DiskMB, s.manifest.PlugMB
	args, files, err := s.makeDisk()
	if err != nil {
		return err
	}
	err = s.addDisk(ctx, args, files)
	if err := errors.Join(err, closeAll(files)); err != nil {
		return err
	}
	top := args[len(args)-1].Node
	path := "/machine/peripheral/" + diskDeviceID + "/virtio-backend"
	if err := s.m.run(ctx, "qom-set", map[string]any{"path": path, "property": "drive", "value": top}, nil); err != nil {
		return err
	}
	if err := s.m.run(ctx, "blockdev-del", map[string]any{"node-name": noDiskNode}, nil); err != nil {
		return err
	}
	rec := s.rec
	return s.m.updateRecord(func(r *record) { *r = rec })
}

func (s *start) addDisk(ctx context.Context, args []diskArg, files []*os.File) error {
	backing := ""
	for i, a := range args {
		of := make([]*os.File, len(a.FDs))
		for k, n := range a.FDs {
			of[k] = files[n]
		}
		set, err := s.m.addFDs(ctx, a.Node, of...)
		if err != nil {
			return err
		}
		node := blockNode(a.Node, a.Format, set, backing, i == len(args)-1)
		if err := s.m.run(ctx, "blockdev-add", node, nil); err != nil {
			return err
		}
		backing = a.Node
	}
	return nil
}

// run runs steps, and undoes all of the start when one fails.
func (s *start) run(ctx context.Context, steps []step) error {
	defer s.give.close()
	for _, step := range steps {
		begin := time.Now()
		if err := step.run(s, ctx); err != nil {
			return s.fail(step.name, err)
		}
		s.d.log.Debug("machine start", "instance", s.cfg.Instance, "step", step.name, "took", time.Since(begin))
	}
	return nil
}
