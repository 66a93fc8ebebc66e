package control

import (
	"context"

	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/sandbox"
)

// Machines runs the machines of sandboxes. Package worker does it on this
// host. Everything is named by instance, one life of a machine; calls for an
// instance that is not there fail with Unavailable, except Stop, which succeeds.
type Machines interface {
	// Start makes a machine for the sandbox and returns when its agent takes calls
	// and it has its identity. The machine's instance is the sandbox's, or one
	// that was kept ready: Started says which. A failed start leaves nothing.
	Start(ctx context.Context, r StartRequest) (Started, error)
	// Fork starts a machine for each of the children, with the memory, processes and disk
	// that the parent's has at one instant, and identities of their own. The parent
	// stands still for a moment and goes on untouched. All are started or none;
	// info.Paused says how long the parent stood still.
	Fork(ctx context.Context, parent sandbox.InstanceID, children []StartRequest) (started []Started, info sandbox.SaveInfo, err error)
	// Save writes a snapshot of a running machine, and returns when it is whole and on
	// the disk. With SaveOptions.Stay the machine is left paused, for Stop or
	// Continue to follow. After an error it runs on, and nothing is left of the snapshot.
	Save(ctx context.Context, id sandbox.InstanceID, r SaveRequest) (sandbox.SaveInfo, error)
	// Continue lets a machine run on that Save left paused, or that a server left
	// in the middle of a save. Idempotent.
	Continue(ctx context.Context, id sandbox.InstanceID) error
	// Rename makes a running machine's guest the one of the sandbox: its hostname,
	// machine id, environment and egress rules. Its processes go on.
	Rename(ctx context.Context, id sandbox.InstanceID, sb sandbox.Sandbox) error
	// HasSnapshot says whether a snapshot is on the disk as a whole. It does not read all of it.
	HasSnapshot(id sandbox.SnapshotID) bool
	// VerifySnapshot reads the whole snapshot and compares checksums.
	VerifySnapshot(ctx context.Context, id sandbox.SnapshotID) error
	// Snapshots lists what is on the disk, also unfinished ones.
	Snapshots() ([]sandbox.SnapshotID, error)
	// RemoveSnapshot frees a snapshot. Machines that were started from it go on. Idempotent.
	RemoveSnapshot(ctx context.Context, id sandbox.SnapshotID) error
	// Guest returns a live connection to the agent. It fails within ten seconds.
	Guest(ctx context.Context, id sandbox.InstanceID) (Guest, error)
	// Stop ends the machine and returns when all that it used is free. Idempotent.
	Stop(ctx context.Context, id sandbox.InstanceID) error
	// Alive says whether the machine runs.
	Alive(id sandbox.InstanceID) bool
	// Console returns the last lines of the guest's console.
	Console(id sandbox.InstanceID) (string, error)
	// Stats says what the machine costs the host.
	Stats(id sandbox.InstanceID) (sandbox.MachineStats, error)
	// SetEgress makes a running machine reach what its sandbox's record says, and nothing
	// else. It is in force when SetEgress returns.
	SetEgress(sb sandbox.Sandbox) error
	// Denials delivers what the networks of machines refuse, as far as it is fetched.
	Denials() <-chan sandbox.EgressDenial
	// Exits delivers machines that ended without Stop. Closing it ends supervision.
	Exits() <-chan sandbox.MachineExit
}

// Inventory is what Machines may be besides. Without it sizes are not known where an
// operation was cut short, and GC leaves machines alone.
type Inventory interface {
	// SnapshotSize returns what a snapshot takes on the disk, in bytes, also an unfinished one.
	SnapshotSize(id sandbox.SnapshotID) (int64, error)
	// Instances lists the machines of sandboxes, and what is left of such on the disk. Those of
	// a warm pool, and of a start under way, are left out.
	Instances() ([]sandbox.InstanceID, error)
}

// StartRequest says what to boot: the record of the sandbox has its template,
// shape, instance, egress, its policy and environment.
type StartRequest struct {
	Sandbox sandbox.Sandbox
	// Snapshot, when set, is what to start from instead of the template's golden snapshot.
	Snapshot sandbox.SnapshotID
	// Wake continues the same sandbox: its REPL keeps the state of its random number generators.
	Wake bool
	// KeepSeed leaves the REPL's random number generators as they are also otherwise.
	KeepSeed bool
	// Cold boots from the snapshot's disk, whatever it has besides.
	Cold bool
	// ColdFallback boots from the snapshot's disk alone when its memory does not fit this
	// host or is damaged; Started.ColdBecause then says why.
	ColdFallback bool
}

// SaveRequest says what to save.
type SaveRequest struct {
	Snapshot sandbox.SnapshotID
	Kind     sandbox.SnapshotKind
	// Stay leaves the machine paused.
	Stay bool
}

// Started is what came out of a start.
type Started struct {
	// ID is what the machine was made for, of a Claim.
	ID sandbox.ID
	// Instance is the machine's; empty: that of the request.
	Instance     sandbox.InstanceID
	Isolation    sandbox.Isolation
	TemplateHash string
	// ColdBecause is one sentence: why the machine has the disk of the snapshot only.
	// Empty otherwise.
	ColdBecause string
	Steps       []sandbox.StepTime // in order
}

// Guest is an open connection to the agent of a machine, as *guest.Client is one.
type Guest interface {
	Machine() agentv1connect.MachineClient
	Exec() agentv1connect.ExecClient
	Files() agentv1connect.FilesClient
	Ports() agentv1connect.PortsClient
}

// Templates keeps the templates of this host, as package image does.
type Templates interface {
	// Get returns a built template, or a NotFound.
	Get(ctx context.Context, name string) (sandbox.Template, error)
	List(ctx context.Context) ([]sandbox.Template, error)
	// Build builds a template, or finds that it is up to date, and reports to the
	// context's progress.Func. Control never builds one name twice at the same time.
	Build(ctx context.Context, name string) (sandbox.Template, error)
	Remove(ctx context.Context, name string) error
}
