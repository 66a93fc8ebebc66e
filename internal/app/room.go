package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// What a machine's process takes besides its guest's memory, in MiB. Emulation
// keeps up to 128 MiB of translated code.
const (
	overheadMB         = 64
	overheadEmulatedMB = 192
)

// unpromisedTimeout bounds a look at the records that the warm pool takes.
const unpromisedTimeout = 5 * time.Second

// admission says what of this host may be promised to sandboxes.
func (a *App) admission(hostMemoryMB int) control.Admission {
	overhead := overheadMB
	if a.driver.Isolation() == sandbox.IsolationEmulated {
		overhead = overheadEmulatedMB
	}
	return control.Admission{
		Memory: func() (int, error) { return hostMemoryMB, nil },
		Disk: func() (free, written int, err error) {
			return measureDisk(a.home().Instances())
		},
		MemoryReserveMB: a.cfg.MemoryReserveMB, DiskReserveMB: a.cfg.DiskReserveMB, OverheadMB: overhead,
		MemoryOvercommit: a.cfg.MemoryOvercommit, DiskOvercommit: a.cfg.DiskOvercommit,
	}
}

// unpromisedMB is what the warm pool may take. The pool starts after the records are open.
func (a *App) unpromisedMB() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), unpromisedTimeout)
	defer cancel()
	return a.control.UnpromisedMB(ctx)
}

// measureDisk returns the free space where machines write, and what the files
// there really take, in MiB. The worker has made the directory.
func measureDisk(instances string) (freeMB, writtenMB int, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(instances, &st); err != nil {
		return 0, 0, fmt.Errorf("find the free space in %s: %w", instances, err)
	}
	var blocks int64
	err = filepath.WalkDir(instances, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // machines come and go meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			blocks += s.Blocks
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("measure what sandboxes have written: %w", err)
	}
	return int(st.Bavail * uint64(st.Bsize) >> 20), int(blocks * 512 >> 20), nil
}
