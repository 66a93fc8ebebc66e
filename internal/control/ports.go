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

// StartRequest says what to boot: the record of the sandbox has its template,
// shape, instance, egress, its policy and environment.
type StartRequest struct {
	Sandbox sandbox.Sandbox
}

// Started is what came out of a start.
type Started struct {
	// ID is what the machine was made for, of a Claim.
	ID sandbox.ID
	// Instance is the machine's; empty: that of the request.
	Instance     sandbox.InstanceID
	Isolation    sandbox.Isolation
	TemplateHash string
	Steps        []sandbox.StepTime // in order
}

// Guest is an open connection to the agent of a machine, as *guest.Client is one.
type Guest interface {
	Machine() agentv1connect.MachineClient
	Exec() agentv1connect.ExecClient
	Files() agentv1connect.FilesClient
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
