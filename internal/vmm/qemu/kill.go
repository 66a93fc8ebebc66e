package qemu

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/vmm/process"
)

// killUID kills every process of a machine's uid and waits until they are
// gone. The uid belongs to one machine, so this also finds a process that
// started just before its pid could be recorded.
func killUID(ctx context.Context, uid int) error {
	for {
		pids, err := process.OfUID(uid)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := killPID(ctx, pid, uid); err != nil {
				return err
			}
		}
	}
}

func killPID(ctx context.Context, pid, uid int) error {
	f, err := process.Open(pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	// The pid may have been reused between the listing and the opening.
	if still, err := hasUID(pid, uid); err != nil || !still {
		return err
	}
	if err := process.Signal(f, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return process.WaitContext(ctx, func() error { return process.Wait(f) }, func() { f.Close() })
}

func hasUID(pid, uid int) (bool, error) {
	var st unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && int(st.Uid) == uid, err
}
