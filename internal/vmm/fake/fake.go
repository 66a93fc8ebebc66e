// Package fake is a vmm.Driver without machines: a "machine" is some goroutines
// and a memory of its guest that snapshots keep. It is good enough to run the whole control
// plane in fast tests, and it passes the drivers' conformance suite.
//
// A Host stands for the computer: it outlives drivers, so that a second Driver
// can adopt the machines of a first one. Any step can be made to fail by its
// name, and any machine to end. Start reading at Config and Host.
package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
)

// Config is how machines behave.
type Config struct {
	// Serve is the guest: it serves one connection of the agent's stream and
	// returns when that ends. It runs while the machine does; what it keeps in
	// the Guest's memory is part of snapshots. Nil: connections stay silent.
	Serve func(g *Guest, conn net.Conn)
	// Network serves a connection of Ethernet frames in the same way.
	Network func(g *Guest, conn net.Conn)
	// Disk makes the files of snapshots.
	Disk *durable.Disk
}

// Steps that can be made to fail with Host.Fail.
const (
	StepStart        = "start"
	StepPrepare      = "prepare"
	StepAdopt        = "adopt"
	StepRemove       = "remove"
	StepResume       = "resume"
	StepPause        = "pause"
	StepSave         = "save"
	StepFinish       = "finish a snapshot"
	StepFlatten      = "flatten"
	StepResizeMemory = "resize memory"
	StepResizeDisk   = "resize disk"
	StepDialAgent    = "dial agent"
	StepDialNetwork  = "dial network"
	StepStats        = "stats"
	StepKill         = "kill"

	StepSetBackground = "set background"
)

// Host is the computer that machines run on.
type Host struct {
	cfg     Config
	nextPID atomic.Int64

	mu       sync.Mutex
	machines map[string]*Machine // guarded by mu; by directory
	fail     map[string]error    // guarded by mu; by step
}

// NewHost makes a host without machines.
func NewHost(cfg Config) *Host {
	h := &Host{cfg: cfg, machines: make(map[string]*Machine), fail: make(map[string]error)}
	h.nextPID.Store(1 << 22) // above what the kernel gives out, so that nobody is killed by mistake
	return h
}

// Driver returns a driver of this host's machines.
func (h *Host) Driver() *Driver { return &Driver{host: h} }

// Fail makes the named step fail with err from now on; nil makes it work again.
func (h *Host) Fail(step string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail[step] = err
}

// Machines returns the running machines.
func (h *Host) Machines() []*Machine {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Machine, 0, len(h.machines))
	for _, m := range h.machines {
		all = append(all, m)
	}
	return all
}

// failure is what the step has to fail with.
func (h *Host) failure(step string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.fail[step]; err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

func (h *Host) machine(dir string) *Machine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machines[filepath.Clean(dir)]
}

// Driver implements vmm.Driver.
type Driver struct{ host *Host }

var _ vmm.Driver = (*Driver)(nil)

// Name is "fake".
func (d *Driver) Name() string { return "fake" }

// Isolation claims the least.
func (d *Driver) Isolation() sandbox.Isolation { return sandbox.IsolationEmulated }

// Close does nothing: machines live on the Host.
func (d *Driver) Close() error { return nil }

// recordName is the one file that a machine has in its directory.
const recordName = "fake-machine.json"

// Start implements vmm.Driver.
func (d *Driver) Start(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	if err := errors.Join(d.host.failure(StepStart), context.Cause(ctx)); err != nil {
		return nil, err
	}
	c.Dir = filepath.Clean(c.Dir)
	g := &Guest{Instance: c.Instance, Dir: c.Dir, data: guestData{MemoryMB: max(c.Shape.MemoryMB, sandbox.MinMemoryMB), DiskMB: c.Shape.DiskMB, Values: map[string]string{}}}
	if c.Source.Snapshot != "" {
		if c.Golden {
			return nil, errors.New("only a cold machine can be golden")
		}
		s, err := load(c)
		if err != nil {
			return nil, err
		}
		g.data = s.Guest
	}
	record, err := json.Marshal(c.Instance)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(c.Dir, recordName), record, 0o600); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	m := newMachine(d.host, c, g)
	m.background = c.Background
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	d.host.machines[c.Dir] = m
	return m, nil
}

// Adopt implements vmm.Driver.
func (d *Driver) Adopt(_ context.Context, c vmm.Config) (vmm.Machine, error) {
	if err := d.host.failure(StepAdopt); err != nil {
		return nil, err
	}
	m := d.host.machine(c.Dir)
	if m == nil || m.cfg.Instance != c.Instance || m.Err() != nil {
		return nil, fmt.Errorf("adopt %s: %w", c.Instance, vmm.ErrGone)
	}
	return m, nil
}

// Remove implements vmm.Driver.
func (d *Driver) Remove(ctx context.Context, dir string) error {
	if err := d.host.failure(StepRemove); err != nil {
		return err
	}
	if m := d.host.machine(dir); m != nil {
		m.Exit(errKilled)
		select {
		case <-m.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	d.host.mu.Lock()
	delete(d.host.machines, filepath.Clean(dir))
	d.host.mu.Unlock()
	return os.RemoveAll(dir)
}

// Prepare implements vmm.Preparer.
func (d *Driver) Prepare(ctx context.Context, c vmm.Config) (vmm.Waiting, error) {
	if err := errors.Join(d.host.failure(StepPrepare), context.Cause(ctx)); err != nil {
		return nil, err
	}
	return &waiting{d: d, c: c, done: make(chan struct{})}, nil
}

// waiting is a process that waits: it has nothing but a name.
type waiting struct {
	d    *Driver
	c    vmm.Config
	once sync.Once
	done chan struct{}
}

// Start implements vmm.Waiting.
func (w *waiting) Start(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	if c.Instance != w.c.Instance || c.Shape.VCPUs != w.c.Shape.VCPUs {
		return nil, vmm.ErrNotPrepared
	}
	return w.d.Start(ctx, c)
}

// Done implements vmm.Waiting.
func (w *waiting) Done() <-chan struct{} { return w.done }

// Kill implements vmm.Waiting.
func (w *waiting) Kill(context.Context) error {
	w.once.Do(func() { close(w.done) })
	return nil
}

// Verify implements vmm.Driver.
func (d *Driver) Verify(_ context.Context, dir string) error {
	_, err := read(dir)
	return err
}

// snapshotName is the one file of a snapshot.
const snapshotName = "fake-snapshot.json"

// saved is a snapshot.
type saved struct {
	ImageHash string    `json:"image_hash"`
	VCPUs     int       `json:"vcpus"`
	DiskOnly  bool      `json:"disk_only,omitempty"`
	Guest     guestData `json:"guest"`
}

func read(dir string) (saved, error) {
	var s saved
	path := filepath.Join(dir, snapshotName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, &snapshot.CorruptError{Path: path, Reason: "it is missing"}
	}
	if err != nil {
		return s, fmt.Errorf("read snapshot: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, &snapshot.CorruptError{Path: path, Reason: err.Error()}
	}
	return s, nil
}

// DiskPrefix begins the keys of values that are on the guest's disk and not in its memory.
const DiskPrefix = "disk:"

func onDisk(values map[string]string) map[string]string {
	kept := map[string]string{}
	for k, v := range values {
		if strings.HasPrefix(k, DiskPrefix) {
			kept[k] = v
		}
	}
	return kept
}

func load(c vmm.Config) (saved, error) {
	s, err := read(c.Source.Snapshot)
	if err != nil {
		return s, err
	}
	cold := s.DiskOnly || c.Source.DiskOnly
	if cold {
		s.Guest = guestData{MemoryMB: sandbox.MinMemoryMB, DiskMB: s.Guest.DiskMB, Values: onDisk(s.Guest.Values)}
	}
	if s.ImageHash != c.Source.Image.Hash || s.VCPUs != c.Shape.VCPUs && !cold {
		return s, fmt.Errorf("the snapshot is of image %s with %d vCPUs: %w", s.ImageHash, s.VCPUs, vmm.ErrSnapshotMismatch)
	}
	return s, nil
}
