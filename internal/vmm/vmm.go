// Package vmm is the port to virtual machine monitors: what the worker needs of
// one, and nothing of how it is done. internal/vmm/qemu is the first driver,
// internal/vmm/gvisor the second, internal/vmm/fake one for tests without machines.
// Every driver passes vmmtest.Run.
//
// Vocabulary. A machine is one process (or group) that runs one guest, named by
// its instance directory, in which the driver keeps everything of that machine
// on the host: sockets, writable layers, logs. A machine starts paused, either
// cold from an image or from a snapshot, and runs from Resume on. A snapshot
// is a directory that the driver writes: memory, device state and disk of one
// instant. It never changes once it has its final name.
package vmm

import (
	"context"
	"errors"
	"net"
	"os"

	"ramet.dev/ramet/internal/sandbox"
)

// Image is a bootable root filesystem with its kernel, as package image builds it.
// All paths are absolute.
type Image struct {
	Hash     string // of everything in it
	Kernel   string // bzImage
	Initrd   string // holds the agent as /init and the modules it loads
	RootTar  string // zstd-compressed tar of the root filesystem, the canonical form
	RootExt4 string // the same as a raw, sparse ext4 image
}

// Source says what a machine starts from.
type Source struct {
	Image Image
	// Snapshot is the directory of a snapshot that was made from Image, or
	// empty for a cold boot.
	Snapshot string
	// Saving is the snapshot, when it is an ephemeral one: what is not in its
	// directory is there. It must not be closed before Start returns.
	Saving Saving
	// DiskOnly boots from the disk of the snapshot, and leaves its memory alone. It
	// is implied by a snapshot that has none.
	DiskOnly bool
}

// SaveOptions say what a snapshot is for.
type SaveOptions struct {
	// Ephemeral snapshots are for machines that are started at once, by this process:
	// they keep memory in memory and nothing of them survives a power cut.
	Ephemeral bool
	// DiskOnly leaves memory and device state out. Machines boot cold from it.
	DiskOnly bool
	// Stay leaves a machine paused that ran before.
	Stay bool
}

// Saving is a snapshot of a machine that has been captured: the machine may run on.
type Saving interface {
	// Finish completes the snapshot's directory. Unless it is ephemeral it computes
	// the checksums and returns when all is on the medium; then the caller renames it.
	Finish(ctx context.Context) error
	// Info says what was captured, and after Finish its size on the disk.
	Info() sandbox.SaveInfo
	// Close frees what the snapshot has outside its directory. Idempotent.
	Close() error
}

// Config describes a machine to start.
type Config struct {
	Instance sandbox.InstanceID
	// Dir is the instance's own directory. It exists, is empty and belongs to root.
	Dir    string
	Source Source
	Shape  sandbox.Shape
	// Golden asks for a machine whose memory can become a base for others: Save
	// on it writes a full snapshot. Only cold machines can be golden.
	Golden bool
	// Background starts a machine that gives way to others for CPU time, until
	// SetBackground(false).
	Background bool
}

// Driver starts machines of one kind. It is safe for concurrent use.
type Driver interface {
	// Name is "qemu", "gvisor", … as --driver takes it.
	Name() string
	// Isolation says what the machines of this driver on this host are worth.
	Isolation() sandbox.Isolation
	// Start starts a machine, paused. On error nothing is left but Dir. A
	// snapshot whose files are missing or not what they were is a
	// *snapshot.CorruptError.
	// The context bounds the call, never the machine's life.
	Start(ctx context.Context, c Config) (Machine, error)
	// Adopt takes over a machine that an earlier process started in dir. It
	// checks that it is that same machine, not merely the same pid.
	// It returns an error that wraps ErrGone when no such machine runs.
	Adopt(ctx context.Context, c Config) (Machine, error)
	// Verify reads the whole snapshot in dir and compares its checksums. Damage is a
	// *snapshot.CorruptError.
	Verify(ctx context.Context, dir string) error
	// Remove frees all that is left in dir of a machine that no longer runs (or kills
	// it), and removes dir. It is idempotent.
	Remove(ctx context.Context, dir string) error
	// Close frees what the driver itself holds (open golden memory). Machines
	// live on; Release them first.
	Close() error
}

// Preparer is a Driver that can start the processes of machines ahead, which takes
// them off the path of a Start.
type Preparer interface {
	// Prepare starts a process that waits for what it is to run: a snapshot that has the
	// same base, image and vCPU count as the snapshot of c.
	Prepare(ctx context.Context, c Config) (Waiting, error)
}

// Waiting is the process of a machine that waits.
type Waiting interface {
	// Start makes it a machine, as Driver.Start does. Instance and Dir of c are those of
	// the Prepare. One that cannot be used for c is an ErrNotPrepared, and still
	// waits; after any other error it is gone.
	Start(ctx context.Context, c Config) (Machine, error)
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Kill ends it and waits until it is gone. Idempotent.
	Kill(ctx context.Context) error
}

// ErrNotPrepared is wrapped by Waiting.Start when the process waits for another kind of machine.
var ErrNotPrepared = errors.New("the waiting process does not fit the machine")

// Machine is one running guest. Its methods are safe for concurrent use, but
// Pause, Resume, Save and the resizes are serialised by the caller.
type Machine interface {
	PID() int
	// Isolation says what stands between the guest and the host.
	Isolation() sandbox.Isolation
	// Resume starts or continues the vCPUs, Pause stops them.
	Resume(ctx context.Context) error
	Pause(ctx context.Context) error
	// Save captures the machine: memory, device state and disk of one instant, for
	// which it stands still. One that was running runs on when Save returns, also
	// with an error, unless it is to stay paused. Finish then completes the
	// snapshot in dir, which exists and is empty.
	Save(ctx context.Context, dir string, o SaveOptions) (Saving, error)
	// Flatten shortens the disk's chain of layers where that is worth it, while the
	// guest runs. It may take long, and fails when a Save ends it, which does no harm.
	Flatten(ctx context.Context) error
	// ResizeMemory asks the guest to have mb MB and waits until it has (growing only).
	ResizeMemory(ctx context.Context, mb int) error
	// ResizeDisk grows the root block device to mb MB; the agent grows the filesystem.
	ResizeDisk(ctx context.Context, mb int) error
	// DialAgent opens the byte stream to the agent. One at a time; opening again ends the last.
	DialAgent(ctx context.Context) (net.Conn, error)
	// DialNetwork opens the stream of Ethernet frames: each frame after its
	// length as 4 bytes, big endian. One at a time.
	DialNetwork(ctx context.Context) (net.Conn, error)
	// Done is closed when the machine's process has ended; Err then says how.
	Done() <-chan struct{}
	Err() error
	// Console returns the last lines of the guest's serial console and of the
	// monitor's own error output.
	Console() string
	Stats() (sandbox.MachineStats, error)
	// SetBackground says whether the machine gives way to others for CPU time.
	SetBackground(on bool) error
	// Release lets go of the machine, which runs on for Adopt to find: it closes
	// the streams and all else that this process has of it. The Machine is of no
	// use after it.
	Release() error
	// Kill ends the machine at once and waits until its process is gone. Idempotent.
	Kill(ctx context.Context) error
}

// ErrGone is returned by Adopt and wrapped by calls on a machine that has ended.
var ErrGone = os.ErrProcessDone

// StartError is a Start that failed after the machine had said something: Console
// is what Machine.Console would return.
type StartError struct {
	Err     error
	Console string
}

func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// ErrSnapshotMismatch is wrapped by Start when a snapshot was made by another
// driver, monitor version, machine shape or CPU, or is not of the given image.
var ErrSnapshotMismatch = errors.New("the snapshot does not fit this host")
