// Package gvisor runs machines in gVisor: each has a kernel of its own, a program in
// user space (the sentry), at the speed of the host's CPU and without KVM. It owns the
// sandbox's processes and everything of them on the host. It does not know
// sandboxes of users, guests or the gateway.
//
// What a machine is made of. The root filesystem is an EROFS image, made once from the
// template's tar, that all sandboxes map; what one writes is in a file without a name
// below its instance directory, which only its sentry has open. The agent is the
// first process, and its standard input and output are the agent's stream: two
// FIFOs, which outlive a server and a checkpoint, and need nothing of the host inside.
// The network card is a TAP in the sandbox's own network namespace, whose frames the
// server reads. There is no other process than the sentry and those that run the
// guest's code for it.
//
// A snapshot is gVisor's own checkpoint, of memory and disk in one, and beside it,
// unless it is for a fork, the disk alone, from which a machine can boot without
// the memory. docs/isolation.md has the reasons.
//
// Start reading at New, then Driver.Start in start.go and Machine.Save in save.go.
package gvisor

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/cgroup"
)

// Limits of a sandbox's cgroup. The memory limit is the guest's memory and room for the sentry
// and the page cache of the writable layer. It has the last word: the sentry bounds the guest first, see
// ramet_memory.go of cmd/ramet-runsc. Tasks are those of the host: each guest process takes some.
const (
	overheadMB = 192
	maxTasks   = 4096
)

// DefaultConsoleBytes bounds what is kept of a guest's console.
const DefaultConsoleBytes = 64 << 10

// Config is what a Driver needs.
type Config struct {
	// Binary is our runsc, a path or a name in PATH; empty: ramet-runsc.
	Binary string
	// ConsoleBytes bounds what is kept of a guest's console. Zero: 64 KiB.
	ConsoleBytes int
	// Cgroup is the name of the parent cgroup of all machines; empty: "ramet".
	Cgroup string
	// Disk makes the changes of files that have to survive a power cut.
	Disk *durable.Disk
	Log  *slog.Logger
}

// Driver starts sandboxes. Its methods are safe for concurrent use.
type Driver struct {
	cfg      Config
	binary   string
	version  string
	log      *slog.Logger
	images   images
	cgroups  cgroup.Groups
	verified snapshot.Verified

	mu       sync.Mutex
	machines map[string]*Machine // guarded by mu; those of this process by their directories
}

// enter remembers the machine in a directory, and known returns it, or nil.
func (d *Driver) enter(m *Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.machines[m.dir] = m
}

func (d *Driver) known(dir string) *Machine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machines[dir]
}

func (d *Driver) forget(dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.machines, dir)
}

var _ vmm.Driver = (*Driver)(nil)

var versionLine = regexp.MustCompile(`(?m)^runsc version (\S+)$`)

// New checks the binary and makes a driver.
func New(ctx context.Context, cfg Config) (*Driver, error) {
	if cfg.Binary == "" {
		cfg.Binary = "ramet-runsc"
	}
	if cfg.ConsoleBytes == 0 {
		cfg.ConsoleBytes = DefaultConsoleBytes
	}
	if cfg.Cgroup == "" {
		cfg.Cgroup = "ramet"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &Driver{machines: map[string]*Machine{}, cfg: cfg, log: cfg.Log, cgroups: cgroup.Find(cgroup.Root, cfg.Cgroup, cgroup.Room{OverheadMB: overheadMB, MaxTasks: maxTasks})}
	var err error
	if d.binary, err = exec.LookPath(cfg.Binary); err != nil {
		return nil, &sandbox.Error{Kind: sandbox.Unsupported, Code: "runsc_missing", Message: "ramet-runsc is not beside the server's program; build it with 'make build'", Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, d.binary, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", d.binary, err)
	}
	found := versionLine.FindSubmatch(out)
	if found == nil || !strings.HasPrefix(string(found[1]), "ramet-") {
		return nil, &sandbox.Error{Kind: sandbox.Unsupported, Code: "runsc_foreign", Message: d.binary + " is not the runsc that belongs to this server; build it with 'make build'"}
	}
	d.version = string(found[1])
	return d, nil
}

// Name is "gvisor".
func (d *Driver) Name() string { return driverName }

const driverName = "gvisor"

// Version is that of the runsc.
func (d *Driver) Version() string { return d.version }

// Isolation is that of gVisor.
func (d *Driver) Isolation() sandbox.Isolation { return sandbox.IsolationGVisor }

// Close has nothing to free: images are files.
func (d *Driver) Close() error { return nil }

// Verify implements vmm.Driver.
func (d *Driver) Verify(ctx context.Context, dir string) error {
	m, err := snapshot.Load(dir)
	if err != nil {
		return err
	}
	return m.Verify(ctx, dir)
}

// commandTimeout bounds one run of runsc, and one call to a sentry's control socket that copies nothing.
const commandTimeout = 60 * time.Second
