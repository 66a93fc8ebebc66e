package store

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
)

// Lock is the exclusive right to a data directory. The kernel takes it back when the process ends, however it ends.
type Lock struct{ f *os.File }

// LockFile takes the lock at path, the file `lock` of a data directory. A
// directory that another server uses is a Conflict.
func LockFile(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, sandbox.Errorf(sandbox.Conflict, "data_dir_in_use", "another server%s uses this data directory", holder(f))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
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

func holder(f *os.File) string {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0) // a hint at most
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// Close gives the lock back.
func (l *Lock) Close() error { return l.f.Close() }
