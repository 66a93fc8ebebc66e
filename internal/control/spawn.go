package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// spawnFrom finds what a create starts from when that is no template. Until the function that
// it returns is called the snapshot is not removed.
func (c *Control) spawnFrom(ctx context.Context, project string, r *CreateRequest) (unpin func(), err error) {
	id, use := r.Checkpoint, sandbox.UseCheckpoint
	if r.space != "" {
		id, use = r.space, sandbox.UseSpace
	}
	if id == "" {
		return func() {}, nil
	}
	unpin = sync.OnceFunc(c.pin(id))
	snap, err := c.store.ReadySnapshot(ctx, project, id, use)
	if err != nil {
		unpin()
		return nil, err
	}
	r.from = &snap
	return unpin, nil
}

func originOf(use sandbox.SnapshotUse) sandbox.Origin {
	if use == sandbox.UseSpace {
		return sandbox.OriginSpace
	}
	return sandbox.OriginCheckpoint
}

// consumes is what becomes of a Space when the sandbox that it was resumed as runs. Who comes
// second to that finds it gone, and is undone.
func (r *CreateRequest) consumes() []store.SnapshotChange {
	if r.space == "" {
		return nil
	}
	return []store.SnapshotChange{{ID: r.space, From: sandbox.SnapshotReady, To: sandbox.SnapshotDeleting}}
}

func (r *CreateRequest) cause() string {
	if r.space != "" {
		return causeResume
	}
	return causeCreate
}

// ResumeRequest says what is to be other than it was in the sandbox that became the Space.
type ResumeRequest struct {
	// IdleTimeout and MaxLifetime: 0 is as it was, Never none. The lifetime counts from the resume.
	IdleTimeout, MaxLifetime time.Duration
	// DeleteIdle deletes the sandbox when it is idle, unless it is persistent.
	DeleteIdle bool
	// Persistent and Egress: nil is as it was.
	Persistent, Egress *bool
}

// ResumeSpace makes a sandbox of a Space, with a new id and with its memory and processes,
// and returns when it takes calls. The Space is gone then. When the resume fails, or ctx
// ends before, the Space stays as it is.
func (c *Control) ResumeSpace(ctx context.Context, project string, space sandbox.SnapshotID, r ResumeRequest) (sb sandbox.Sandbox, steps []sandbox.StepTime, err error) {
	begin := time.Now()
	defer c.observe("resume", begin, &err)
	sb, steps, err = c.create(ctx, project, CreateRequest{
		space: space, resume: r, IdleTimeout: r.IdleTimeout, MaxLifetime: r.MaxLifetime, DeleteIdle: r.DeleteIdle,
	}, begin)
	if err != nil {
		return sb, steps, fmt.Errorf("resume space %s: %w", space, err)
	}
	return sb, steps, nil
}

// dropConsumed removes a Space that was resumed.
func (c *Control) dropConsumed(space sandbox.SnapshotID) {
	ctx, cancel := c.cleanup()
	defer cancel()
	c.dropSnapshot(ctx, sandbox.Snapshot{ID: space})
}
