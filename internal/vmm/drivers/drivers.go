// Package drivers makes one vmm.Driver of several: new machines are the first one's, and whatever
// another one has left, machines that run and snapshots, stays of use.
//
// The server's setting may change, and what KVM can do on a host; no sandbox is lost
// for that. The other drivers are opened when something of theirs turns up.
//
// Start reading at Set.of.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/machinefile"
)

// unnamed is the driver of records that name none: they were written when there was one.
const unnamed = "qemu"

// Open opens a driver.
type Open func(context.Context) (vmm.Driver, error)

// Set is several drivers. It is safe for concurrent use.
type Set struct {
	vmm.Driver // the first

	mu     sync.Mutex
	rest   map[string]Open
	opened map[string]vmm.Driver // guarded by mu
}

var (
	_ vmm.Driver   = (*Set)(nil)
	_ vmm.Preparer = (*Set)(nil)
)

// New makes a set whose new machines are the first driver's. It owns that, and what it opens of
// the rest, which are by their names.
func New(first vmm.Driver, rest map[string]Open) *Set {
	return &Set{Driver: first, rest: rest, opened: map[string]vmm.Driver{}}
}

// of returns a driver by its name.
func (s *Set) of(ctx context.Context, name string) (vmm.Driver, error) {
	if name == "" {
		name = unnamed
	}
	if name == s.Name() {
		return s.Driver, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.opened[name]; d != nil {
		return d, nil
	}
	open := s.rest[name]
	if open == nil {
		return nil, fmt.Errorf("there is no driver %q", name)
	}
	d, err := open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the driver %s: %w", name, err)
	}
	s.opened[name] = d
	return d, nil
}

// ofDir returns the driver of the machine in an instance directory; the first where it says nothing yet.
func (s *Set) ofDir(ctx context.Context, dir string) (vmm.Driver, error) {
	var o machinefile.Owner
	err := machinefile.Read(dir, &o)
	if errors.Is(err, fs.ErrNotExist) {
		return s.Driver, nil
	}
	if unread := (*fs.PathError)(nil); errors.As(err, &unread) {
		return nil, fmt.Errorf("find the driver of the machine in %s: %w", dir, err)
	}
	if err != nil {
		return s.Driver, nil // it is damaged; the driver says so, or removes it
	}
	return s.of(ctx, o.Driver)
}

// Start starts a machine by the driver that made its snapshot, or the first. It is an
// vmm.ErrSnapshotMismatch if that one cannot be opened here.
func (s *Set) Start(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	if c.Source.Snapshot == "" {
		return s.Driver.Start(ctx, c)
	}
	man, err := snapshot.Load(c.Source.Snapshot)
	if err != nil {
		return nil, err
	}
	d, err := s.of(ctx, man.Driver)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", vmm.ErrSnapshotMismatch, err)
	}
	return d.Start(ctx, c)
}

// Adopt implements vmm.Driver.
func (s *Set) Adopt(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	d, err := s.ofDir(ctx, c.Dir)
	if err != nil {
		return nil, err
	}
	return d.Adopt(ctx, c)
}

// Remove implements vmm.Driver. What says nothing of its driver is the first one's.
func (s *Set) Remove(ctx context.Context, dir string) error {
	d, err := s.ofDir(ctx, dir)
	if err != nil {
		return fmt.Errorf("remove machine %s: %w", filepath.Base(dir), err)
	}
	return d.Remove(ctx, dir)
}

// Prepare implements vmm.Preparer with the first driver, if that can.
func (s *Set) Prepare(ctx context.Context, c vmm.Config) (vmm.Waiting, error) {
	p, ok := s.Driver.(vmm.Preparer)
	if !ok {
		return nil, fmt.Errorf("the driver %s starts nothing ahead", s.Name())
	}
	return p.Prepare(ctx, c) // which refuses what another driver has saved
}

// Close closes all drivers.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.Driver.Close()}
	for _, d := range s.opened {
		errs = append(errs, d.Close())
	}
	clear(s.opened)
	return errors.Join(errs...)
}

// First returns the driver of new machines.
func (s *Set) First() vmm.Driver { return s.Driver }
