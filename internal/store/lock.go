package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
)

// Lock is the exclusive right to a data directory. The kernel takes it back when the process ends, however it ends.
type Lock struct{ f *os.File }

// A server that is killed in the moment at which it starts a program leaves a child that
// has the lock until it has become that program. So the lock of a process that is gone is
// waited for, for lockPatience, with a look every lockLook.
const (
	lockPatience = 10 * time.Second
	lockLook     = 20 * time.Millisecond
)

// LockFile takes the lock at path, the file `lock` of a data directory. A
// directory that another server uses is a Conflict.
func LockFile(ctx context.Context, path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := awaitLock(ctx, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// The pid is for people only; the lock is the kernel's.
	pid := strconv.Itoa(os.Getpid()) + "\n"
	if err := errors.Join(f.Truncate(0), writeAt(f, pid)); err != nil {
		return nil, errors.Join(fmt.Errorf("write the lock: %w", err), f.Close())
	}
	return &Lock{f}, nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

func awaitLock(ctx context.Context, f *os.File) error {
	deadline := time.Now().Add(lockPatience)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		pid := holder(f)
		if pid == 0 {
			return sandbox.Errorf(sandbox.Conflict, "data_dir_in_use", "another server uses this data directory")
		}
		if runs(pid) || time.Now().After(deadline) {
			return sandbox.Errorf(sandbox.Conflict, "data_dir_in_use", "another server (process %d) uses this data directory", pid)
		}
		select {
		case <-time.After(lockLook):
		case <-ctx.Done():
			return fmt.Errorf("wait for the lock of a server that is gone: %w", context.Cause(ctx))
		}
	}
}

// holder is the process that wrote itself into the lock, or 0.
func holder(f *os.File) int {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0) // a hint at most
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}

// runs says whether a process is there and has not ended. See proc_pid_stat(5): the state
// follows the name, which is in parentheses and may have some itself.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// Close gives the lock back.
func (l *Lock) Close() error { return l.f.Close() }
