package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/console"
	"ramet.dev/ramet/internal/vmm/machinefile"
)

// Adopt implements vmm.Driver. The process is the recorded one if it has the
// recorded start time in this boot of the host: pids are reused.
func (d *Driver) Adopt(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	c.Dir = filepath.Clean(c.Dir)
	m, err := d.adopt(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("adopt machine %s: %w", c.Instance, err)
	}
	return m, nil
}

func (d *Driver) adopt(ctx context.Context, c vmm.Config) (*Machine, error) {
	var rec record
	err := machinefile.Read(c.Dir, &rec)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", vmm.ErrGone, err)
	}
	if err != nil {
		return nil, err
	}
	if rec.Instance != c.Instance {
		return nil, fmt.Errorf("the record is of instance %s: %w", rec.Instance, vmm.ErrGone)
	}
	m, err := d.reopen(c, rec)
	if err != nil {
		return nil, err
	}
	m.watch()
	if err := m.takeOver(ctx); err != nil {
		return nil, errors.Join(err, m.Release()) // the machine goes on
	}
	return m, nil
}

// reopen makes the Machine of a recorded process. The pidfd is opened before
// the start time is compared, so it is of the process that was compared.
func (d *Driver) reopen(c vmm.Config, rec record) (*Machine, error) {
	if gone, err := rec.IsGone(); err != nil || gone {
		return nil, errors.Join(err, vmm.ErrGone)
	}
	con, err := console.Open(c.Dir, d.cfg.ConsoleBytes)
	if err != nil {
		return nil, err
	}
	m, err := d.newMachine(c, rec, rec.PID, con)
	if err != nil {
		return nil, errors.Join(err, vmm.ErrGone, con.Abandon())
	}
	fail := func(err error) (*Machine, error) {
		return nil, errors.Join(err, con.Abandon(), m.pidfd.Close())
	}
	if gone, err := rec.IsGone(); err != nil || gone {
		return fail(errors.Join(err, vmm.ErrGone))
	}
	if m.memory, err = openMemoryOf(rec.PID); err != nil {
		return fail(err)
	}
	return m, nil
}

// takeOver connects to the monitor, which the earlier server's end has freed.
func (m *Machine) takeOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := m.connect(ctx); err != nil {
		return err
	}
	var status struct{ Running bool }
	if err := m.run(ctx, "query-status", nil, &status); err != nil {
		return err
	}
	m.setRunning(status.Running)
	if err := m.recoverSets(ctx); err != nil {
		return err
	}
	if err := m.endJobs(ctx); err != nil {
		return err
	}
	return m.checkTop(ctx)
}

// recoverSets finds the next free add-fd set, and takes back the file for device state of a
// server that ended in the middle of a save.
func (m *Machine) recoverSets(ctx context.Context) error {
	sets, err := m.fdSets(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	for _, s := range sets {
		m.nextSet = max(m.nextSet, s.id+1)
	}
	m.mu.Unlock()
	for _, s := range sets {
		if s.name != stateSet {
			continue
		}
		if err := m.run(ctx, "remove-fd", map[string]any{"fdset-id": s.id}, nil); err != nil {
			return err
		}
	}
	return nil
}

// checkTop repairs the record of a machine whose server ended between
// putting a new layer on its disk and writing that down.
func (m *Machine) checkTop(ctx context.Context) error {
	var blocks []struct {
		Inserted struct {
			Node string `json:"node-name"`
		} `json:"inserted"`
	}
	if err := m.run(ctx, "query-block", nil, &blocks); err != nil {
		return err
	}
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	next := rec.nextLayer()
	for _, b := range blocks {
		switch b.Inserted.Node {
		case rec.topNode():
			// An overlay that was not put on yet is known to QEMU all the same.
			return m.dropOverlay(ctx, next)
		case layerNode(next):
			return m.updateRecord(func(r *record) { r.Layers = withTop(r.Layers, next) })
		}
	}
	return errors.New("the machine's disk is not the recorded one")
}

// openMemoryOf opens the boot memory that a process has mapped. It is only
// used to recognise the mapping: what a stranger holds is not trusted as golden memory.
func openMemoryOf(pid int) (*os.File, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find the machine's memory: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err == nil && (strings.HasPrefix(target, "/memfd:"+goldenMemory) || strings.HasPrefix(target, "/memfd:"+newGoldenMemory)) {
			f, err := os.Open(path)
			if err != nil {
				return nil, fmt.Errorf("find the machine's memory: %w", err)
			}
			return f, nil
		}
	}
	return nil, errors.New("find the machine's memory: it has none of ours")
}
