package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/console"
	"ramet.dev/ramet/internal/vmm/machinefile"
	"ramet.dev/ramet/internal/vmm/process"
)

// Adopt implements vmm.Driver. The process is the recorded one if it has the
// recorded start time in this boot of the host: pids are reused. A sandbox that never
// ran is not taken over: the files that it was to start from were the earlier server's.
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
	if !rec.Started {
		return nil, fmt.Errorf("the machine never ran: %w", vmm.ErrGone)
	}
	m, err := d.reopen(c, rec)
	if err != nil {
		return nil, err
	}
	m.watch()
	var st status
	if err := m.call(ctx, callStatus, &struct{}{}, &st); err != nil {
		return nil, errors.Join(err, m.Release()) // the machine goes on
	}
	m.setRunning(!st.Paused)
	return m, nil
}

// reopen makes the Machine of a recorded process. The pidfd is opened before
// the start time is compared, so it is of the process that was compared.
func (d *Driver) reopen(c vmm.Config, rec record) (*Machine, error) {
	if gone, err := rec.IsGone(); err != nil || gone {
		return nil, errors.Join(err, vmm.ErrGone)
	}
	pidfd, err := process.Open(rec.PID)
	if err != nil {
		return nil, errors.Join(err, vmm.ErrGone)
	}
	if gone, err := rec.IsGone(); err != nil || gone {
		return nil, errors.Join(err, vmm.ErrGone, pidfd.Close())
	}
	con, err := console.Open(c.Dir, d.cfg.ConsoleBytes)
	if err != nil {
		return nil, errors.Join(err, pidfd.Close())
	}
	return newMachine(d, c, rec, pidfd, con), nil
}

// end ends what runs of the machine in dir. Of one that this process has a Machine of the sentry is all: it
// is the first process of a pid namespace, and has not ended before the others have. What an
// earlier server has left is looked for.
func (d *Driver) end(ctx context.Context, dir string) error {
	if m := d.known(dir); m != nil && !m.released.Load() {
		return m.Kill(ctx)
	}
	return killSandbox(ctx, dir)
}

// Remove implements vmm.Driver.
func (d *Driver) Remove(ctx context.Context, dir string) error {
	dir = filepath.Clean(dir)
	if err := d.end(ctx, dir); err != nil {
		return fmt.Errorf("remove machine %s: %w", filepath.Base(dir), err)
	}
	defer d.forget(dir)
	name := filepath.Base(dir) // as instance directories are named, where there is no record
	var rec record
	if err := machinefile.Read(dir, &rec); err == nil {
		name = string(rec.Instance)
	}
	if err := d.cgroups.Clear(ctx, name); err != nil {
		d.log.Warn("the machine's cgroup stays", "dir", dir, "err", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove machine %s: %w", filepath.Base(dir), err)
	}
	return nil
}
