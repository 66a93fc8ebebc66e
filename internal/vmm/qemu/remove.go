package qemu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// Remove kills what is left of the machine in dir, frees its uid and removes
// dir. It trusts only the uid pool for what to kill. A second call for the
// same directory waits for the first: between finding the uid and killing its
// processes the uid must not get another owner.
func (d *Driver) Remove(ctx context.Context, dir string) error {
	dir = filepath.Clean(dir)
	unlock, err := d.removing.lock(ctx, dir)
	if err != nil {
		return fmt.Errorf("remove machine %s: %w", filepath.Base(dir), err)
	}
	defer unlock()
	uid, err := d.uids.taken(dir)
	if err != nil {
		return err
	}
	if uid != 0 {
		if err := killUID(ctx, uid); err != nil {
			return fmt.Errorf("remove machine %s: %w", filepath.Base(dir), err)
		}
		d.cgroups.Remove(strconv.Itoa(uid))
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove machine %s: %w", filepath.Base(dir), err)
	}
	if uid != 0 {
		return d.uids.free(uid, dir)
	}
	return nil
}

// dirLocks is one lock for each directory that somebody wants.
type dirLocks struct {
	mu    sync.Mutex
	locks map[string]*dirLock // guarded by mu
}

type dirLock struct {
	slot  chan struct{} // full while it is held
	users int           // guarded by dirLocks.mu; holders and waiters
}

// lock waits for the directory's lock, at most until ctx ends.
func (l *dirLocks) lock(ctx context.Context, dir string) (unlock func(), err error) {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = make(map[string]*dirLock)
	}
	d := l.locks[dir]
	if d == nil {
		d = &dirLock{slot: make(chan struct{}, 1)}
		l.locks[dir] = d
	}
	d.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if d.users--; d.users == 0 {
			delete(l.locks, dir)
		}
	}
	select {
	case d.slot <- struct{}{}:
		return func() { <-d.slot; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
