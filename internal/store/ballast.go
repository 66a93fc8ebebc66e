package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"ramet.dev/ramet/internal/sandbox"
)

// ballast is a file that takes up space until the disk is full. Then it is
// removed, and what has to go on (deletes, changes of state) has room, while
// everything that would make something new is refused. When space returns the
// file is made again, and all is as before.
type ballast struct {
	path string
	size int64

	mu   sync.Mutex
	full bool // guarded by mu; the ballast is gone
}

// KeepBallast makes the ballast of size bytes at path. On a disk that is full already
// there is none, and the store is Full until there is room.
func (s *Store) KeepBallast(path string, size int64) error {
	b := &ballast{path: path, size: size}
	if st, err := os.Stat(path); err != nil || st.Size() != size {
		err := b.make()
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("make the ballast: %w", err)
		}
		b.full = err != nil
	}
	s.ballast.Store(b)
	return nil
}

// Full says whether the disk is full. It makes the ballast again when there is room.
func (s *Store) Full() bool {
	b := s.ballast.Load()
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full && b.roomLocked() && b.make() == nil {
		b.full = false
	}
	return b.full
}

// DiskFull says that somebody found the disk full, and makes what room there is.
func (s *Store) DiskFull() error {
	b := s.ballast.Load()
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full {
		return nil
	}
	b.full = true
	if err := os.Remove(b.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the ballast: %w", err)
	}
	return nil
}

// roomLocked says whether the ballast fits, and as much again stays free: else it
// would come and go.
func (b *ballast) roomLocked() bool {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(b.path), &st); err != nil {
		return false
	}
	return int64(st.Bavail)*st.Bsize >= 2*b.size
}

// make makes the file, whole or not at all, of blocks that are really there.
func (b *ballast) make() (err error) {
	f, err := os.OpenFile(b.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, b.size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = writeZeros(f, b.size)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(b.path))
	}
	return nil
}

func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, 1<<20)
	for size > 0 {
		n, err := f.Write(zeros[:min(size, int64(len(zeros)))])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// isFull says that an error means a full disk. SQLite calls it an I/O error in some
// places, so those count when there is indeed no space.
func (s *Store) isFull(err error) bool {
	if errors.Is(err, unix.ENOSPC) {
		return true
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return true
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		b := s.ballast.Load()
		var st unix.Statfs_t
		return b != nil && unix.Statfs(filepath.Dir(b.path), &st) == nil && int64(st.Bavail)*st.Bsize < minFree
	}
	return false
}

// minFree is less than SQLite needs for one transaction.
const minFree = 1 << 20

// retryFull is when a call that was refused for a full disk may be tried again.
const retryFull = 30 * time.Second

// errDiskFull wraps what failed for a full disk, nil when nothing was tried.
func errDiskFull(cause error) error {
	e := sandbox.Errorf(sandbox.Unavailable, "server_disk_full",
		"the server's disk is full, so that nothing new can be made; delete sandboxes or free space on the server, then try again")
	e.RetryAfter, e.Err = retryFull, cause
	return e
}
