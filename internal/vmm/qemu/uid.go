package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"

	"ramet.dev/ramet/internal/vmm/process"
)

// uidPool hands out one uid per machine: two machines under one uid could read
// each other's memory. A uid is taken while a file named after it exists; the
// file holds the instance directory that it was taken for, so that a uid whose
// machine is gone can be found again after a crash.
//
// Several servers may share the directory, so whatever looks at a file and then
// acts on it does so under a lock of the directory.
type uidPool struct {
	dir         string
	base, count int
}

func newUIDPool(dir string, base, count int) (*uidPool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the uid directory: %w", err)
	}
	return &uidPool{dir, base, count}, nil
}

// lock takes the directory's lock, also from other processes. It is held for
// some file operations only.
func (p *uidPool) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(p.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the uids: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return func() { _ = f.Close() }, nil // which unlocks
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock the uids: %w", err), f.Close())
		}
	}
}

// take reserves a uid for the machine in instanceDir.
func (p *uidPool) take(instanceDir string) (int, error) {
	unlock, err := p.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	if uid, err := p.scan(instanceDir); err != nil || uid != 0 {
		return uid, err
	}
	if err := p.reclaim(); err != nil {
		return 0, err
	}
	uid, err := p.scan(instanceDir)
	if err == nil && uid == 0 {
		err = sandbox.Errorf(sandbox.Unavailable, "too_many_machines", "this host already runs %d machines, the most that its uid range allows", p.count)
	}
	return uid, err
}

// scan takes the first free uid, or returns 0. Link makes file and content
// appear at once.
func (p *uidPool) scan(instanceDir string) (int, error) {
	tmp, err := os.CreateTemp(p.dir, "new-*")
	if err != nil {
		return 0, fmt.Errorf("take a uid: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(instanceDir)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return 0, fmt.Errorf("take a uid: %w", err)
	}
	for uid := p.base; uid < p.base+p.count; uid++ {
		err := os.Link(tmp.Name(), p.path(uid))
		if err == nil {
			return uid, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return 0, fmt.Errorf("take a uid: %w", err)
		}
	}
	return 0, nil
}

// reclaim, with the lock held, frees the uids whose instance directory is gone.
func (p *uidPool) reclaim() error {
	for uid := p.base; uid < p.base+p.count; uid++ {
		dir, err := os.ReadFile(p.path(uid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reclaim uids: %w", err)
		}
		if _, err := os.Stat(string(dir)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		pids, err := process.OfUID(uid)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			if err := p.freeLocked(uid, string(dir)); err != nil {
				return err
			}
		}
	}
	return nil
}

// taken returns the uid that was taken for instanceDir, or 0.
func (p *uidPool) taken(instanceDir string) (int, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return 0, fmt.Errorf("look for the uid of %s: %w", instanceDir, err)
	}
	for _, e := range entries {
		uid, err := strconv.Atoi(e.Name())
		if err != nil || !p.owns(uid) {
			continue
		}
		dir, err := os.ReadFile(p.path(uid))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("look for the uid of %s: %w", instanceDir, err)
		}
		if err == nil && string(dir) == instanceDir {
			return uid, nil
		}
	}
	return 0, nil
}

// owns says whether the uid is one of this pool. Nothing outside of it may be killed by uid.
func (p *uidPool) owns(uid int) bool { return uid >= p.base && uid < p.base+p.count && uid != 0 }

// free gives back the uid of instanceDir. One that belongs to another machine
// by now stays taken.
func (p *uidPool) free(uid int, instanceDir string) error {
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return p.freeLocked(uid, instanceDir)
}

func (p *uidPool) freeLocked(uid int, instanceDir string) error {
	dir, err := os.ReadFile(p.path(uid))
	if errors.Is(err, fs.ErrNotExist) || err == nil && string(dir) != instanceDir {
		return nil
	}
	if err != nil {
		return fmt.Errorf("free uid %d: %w", uid, err)
	}
	if err := os.Remove(p.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("free uid %d: %w", uid, err)
	}
	return nil
}

func (p *uidPool) path(uid int) string { return filepath.Join(p.dir, strconv.Itoa(uid)) }
