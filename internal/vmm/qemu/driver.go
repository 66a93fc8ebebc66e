// Package qemu drives virtual machines with stock QEMU, under KVM where a real
// kernel boots under it and by emulation (TCG) elsewhere. It owns the QEMU
// process and everything of it on the host: its uid, its arguments, its
// monitor, the layout of memory and disk layers, and the golden memory that
// machines share. It does not know sandboxes, guests or networks.
//
// The recipe: memory of a golden snapshot is mapped privately by all machines,
// so they share what they do not write; device state is saved apart from
// memory; what a machine wrote is found in its pagemap; disks are chains of
// qcow2 layers, frozen at the same stop of the vCPUs.
//
// Start reading at New, then Driver.Start, whose steps are listed in start.go,
// then Machine.Save in save.go. The machine's shape is in args.go; it is frozen.
package qemu

import (
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/cgroup"
)

// Defaults of a Config.
const (
	DefaultUIDBase      = 700000
	DefaultUIDCount     = 4096
	DefaultConsoleBytes = 64 << 10
	// connectTimeout bounds how long a fresh QEMU may take until its monitor answers.
	connectTimeout = 30 * time.Second
)

// Limits of a machine's cgroup. The memory limit is the guest's memory and
// room for QEMU itself and for what a guest may plug beyond its size; it is there
// to contain a broken QEMU, not the guest.
const (
	overheadMB = 768
	maxTasks   = 256
)

// Config is what a Driver needs.
type Config struct {
	// Binary is the emulator, a path or a name in PATH; empty: qemu-system-x86_64.
	Binary string
	// Accel is "auto", "kvm" or "tcg"; empty: auto. Auto is KVM when ProbeKVM has
	// found that a kernel boots under it.
	Accel string
	// CPUModel overrides the named CPU model. Machines from snapshots of another one are refused.
	CPUModel string
	// StateDir keeps the uids in use and the remembered KVM probe. It has to be
	// one directory for the whole host, whatever server makes the machines: two
	// servers with directories of their own would give out the same uids, and
	// one's Remove would kill the other's machines.
	StateDir string
	// UIDBase and UIDCount are the range of uids (and gids) for machines, one
	// each. Zero: the defaults.
	UIDBase, UIDCount int
	// ConsoleBytes bounds what is kept of a guest's console. Zero: 64 KiB.
	ConsoleBytes int
	// Cgroup is the name of the parent cgroup of all machines; empty: "ramet".
	Cgroup string
	// Disk makes the changes of files that have to survive a power cut.
	Disk *durable.Disk
	Log  *slog.Logger
}

// Driver starts QEMU machines. Its methods are safe for concurrent use.
type Driver struct {
	cfg      Config
	binary   string
	version  *binaryVersion
	log      *slog.Logger
	uids     *uidPool
	goldens  goldens
	verified snapshot.Verified
	cgroups  cgroup.Groups

	vendor, cpu string // of the host
	tsc         int64  // kHz

	probe sync.Mutex // held while a probe runs

	removing dirLocks

	mu    sync.Mutex
	accel string // guarded by mu; "" until it is decided
	kvm   KVMProbe
}

var _ vmm.Driver = (*Driver)(nil)

// New checks the host's QEMU and makes a driver.
//
// It turns transparent huge pages off for this process, because that is how
// QEMU inherits it: with them, before Linux 6.11, pages that a guest has not
// written look as if it had, and a snapshot would hold all memory.
func New(cfg Config) (*Driver, error) {
	if cfg.Binary == "" {
		cfg.Binary = "qemu-system-x86_64"
	}
	if cfg.UIDBase == 0 {
		cfg.UIDBase = DefaultUIDBase
	}
	if cfg.UIDCount == 0 {
		cfg.UIDCount = DefaultUIDCount
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
	if cfg.UIDBase <= 0 || cfg.UIDCount < 1 || cfg.StateDir == "" {
		return nil, errors.New("qemu driver: a state directory and a range of uids above 0 are needed")
	}
	d := &Driver{cfg: cfg, log: cfg.Log}
	switch cfg.Accel {
	case "", "auto":
	case "tcg", "kvm":
		d.accel = cfg.Accel
	default:
		return nil, sandbox.Errorf(sandbox.Invalid, "unknown_accel", "acceleration %q is not known; use auto, kvm or tcg", cfg.Accel)
	}
	var err error
	if d.binary, err = exec.LookPath(cfg.Binary); err != nil {
		return nil, &sandbox.Error{Kind: sandbox.Unsupported, Code: "qemu_missing", Message: "QEMU is not installed on this host (the package is qemu-system-x86)", Err: err}
	}
	if d.version, err = newBinaryVersion(d.binary); err != nil {
		return nil, err
	}
	if d.uids, err = newUIDPool(filepath.Join(cfg.StateDir, "uids"), cfg.UIDBase, cfg.UIDCount); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		d.log.Warn("cannot turn huge pages off; snapshots may be larger than needed", "err", err)
	}
	d.vendor, d.cpu = hostCPU()
	d.tsc = hostTSC()
	d.cgroups = cgroup.Find(cgroup.Root, cfg.Cgroup, cgroup.Room{OverheadMB: overheadMB, MaxTasks: maxTasks})
	return d, nil
}

// Name is "qemu".
func (d *Driver) Name() string { return driverName }

const driverName = "qemu"

// Version is that of the host's QEMU, as it is installed now.
func (d *Driver) Version() string { return d.version.now().String() }

// Isolation says what machines on this host are worth. With Accel "auto" it is
// only known after ProbeKVM; before, it says the lesser.
func (d *Driver) Isolation() sandbox.Isolation {
	d.mu.Lock()
	defer d.mu.Unlock()
	return isolationOf(d.accel)
}

func isolationOf(accel string) sandbox.Isolation {
	if accel == "kvm" {
		return sandbox.IsolationKVM
	}
	return sandbox.IsolationEmulated
}

// Close frees the golden memories. Machines live on.
func (d *Driver) Close() error { return d.goldens.close() }

// cpuModel is the named model for an accelerator.
func (d *Driver) cpuModel(accel string) string {
	if d.cfg.CPUModel != "" {
		return d.cfg.CPUModel
	}
	return defaultCPUModel(accel, d.vendor)
}
