package control

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// The operations that have intents.
const (
	opCreate     = "create"
	opDelete     = "delete"
	opFork       = "fork"
	opHibernate  = "hibernate"
	opWake       = "wake"
	opCheckpoint = "checkpoint"
	opRestore    = "restore"
	opMerge      = "merge" // done but for the name of its guest
)

// errAbandoned cancels a create whose caller went away.
var errAbandoned = errors.New("the caller went away")

// errDeleted cancels a create whose sandbox is deleted meanwhile.
var errDeleted = sandbox.Errorf(sandbox.Conflict, "sandbox_deleted", "the sandbox was deleted while it was being created")

// Create makes a sandbox and returns when it takes calls, with the steps of its start.
// When ctx ends before, the create is undone as a whole.
func (c *Control) Create(ctx context.Context, project string, r CreateRequest) (sandbox.Sandbox, []sandbox.StepTime, error) {
	begin := time.Now()
	sb, steps, err := c.create(ctx, project, r, begin)
	c.cfg.Observer.Created(time.Since(begin), errorCode(err))
	return sb, steps, err
}

func (c *Control) create(ctx context.Context, project string, r CreateRequest, begin time.Time) (sandbox.Sandbox, []sandbox.StepTime, error) {
	if r.Idempotency != "" {
		sb, err := c.store.OfIdempotency(ctx, project, r.Idempotency, begin.Add(-keepAnswers))
		if sandbox.KindOf(err) != sandbox.NotFound {
			return sb, nil, err // made, but the server ended before its answer was kept
		}
	}
	r.Template = c.canonical(r.Template)
	unpin, err := c.spawnFrom(ctx, project, &r)
	if err != nil {
		return sandbox.Sandbox{}, nil, err
	}
	begun := false
	defer func() {
		if !begun {
			unpin()
		}
	}()
	if err := r.check(c.cfg.HostMemoryMB); err != nil {
		return sandbox.Sandbox{}, nil, err
	}
	have := c.isolation()
	if r.from != nil {
		have = "" // its machine is of the driver that saved it
	}
	if err := r.checkIsolation(have); err != nil {
		return sandbox.Sandbox{}, nil, err
	}
	if r.from == nil {
		if sb, steps, found, err := c.createReady(ctx, project, r); err != nil || found {
			return sb, steps, err
		}
	}
	sb, op, opCtx, err := c.beginCreate(ctx, project, r)
	if err != nil {
		return sandbox.Sandbox{}, nil, err
	}
	recorded := sandbox.StepTime{Name: "record", Took: time.Since(begin)}
	var steps []sandbox.StepTime
	id := sb.ID
	err = c.spawn(func() {
		defer unpin()
		defer op.cancel(nil)
		sb, steps, op.err = c.runCreate(opCtx, sb, r)
		if op.err == nil && r.space != "" {
			unpin()
			c.dropConsumed(r.space)
		}
		c.mu.Lock()
		delete(c.creates, sb.ID)
		c.mu.Unlock()
		close(op.done)
	})
	if err != nil {
		c.undoCreate(sb, err)
		c.mu.Lock()
		delete(c.creates, sb.ID)
		c.mu.Unlock()
		op.cancel(err)
		op.err = err
		close(op.done)
		return sandbox.Sandbox{}, nil, err
	}
	begun = true
	select {
	case <-op.done:
	case <-ctx.Done():
		op.cancel(errAbandoned)
		// The start gives up at its next step, unless it is past the last one. Then what was a
		// Space stays: it is the only copy.
		if r.space == "" {
			c.dropAbandoned(op, project, id)
		}
		return sandbox.Sandbox{}, nil, fmt.Errorf("create sandbox: %w", context.Cause(ctx))
	}
	if op.err == nil {
		c.log.Info("sandbox created", "sandbox", sb.ID, "project", project, "template", sb.Template, "took", time.Since(begin))
	}
	return sb, append([]sandbox.StepTime{recorded}, steps...), op.err
}

// dropAbandoned deletes a sandbox whose create had just succeeded when its caller
// left: nobody knows its id. One that a closing server leaves can be found in the list.
func (c *Control) dropAbandoned(op *operation, project string, id sandbox.ID) {
	_ = c.spawn(func() {
		<-op.done // it has a deadline
		if op.err != nil {
			return // undone
		}
		ctx, cancel := c.cleanup()
		defer cancel()
		if err := c.Delete(ctx, project, id); err != nil {
			c.log.Error("delete a sandbox that nobody waited for", "sandbox", id, "err", err)
		}
	})
}

func errCreateTimeout(d time.Duration) error {
	return sandbox.Errorf(sandbox.Unavailable, "create_timeout", "the sandbox did not start within %s", d)
}

// newRecord is what a request asks for, of no machine yet.
func (c *Control) newRecord(project string, r CreateRequest) sandbox.Sandbox {
	sb := sandbox.Sandbox{
		Project: project, Region: c.cfg.Region, Node: c.cfg.Node,
		Template: r.Template, Shape: r.Shape, Idempotency: r.Idempotency,
	}
	inherit(&sb, r.settings(c.cfg.IdleTimeout))
	return sb
}

// beginCreate enters the record, on a template that cannot be removed meanwhile, and
// the operation, so that a delete finds either both or none.
func (c *Control) beginCreate(ctx context.Context, project string, r CreateRequest) (sandbox.Sandbox, *operation, context.Context, error) {
	c.standing.RLock()
	defer c.standing.RUnlock()
	sb := c.newRecord(project, r)
	sb.ID, sb.Instance = sandbox.NewID(), sandbox.NewInstanceID()
	if r.from != nil {
		// What it stands on is kept as long as the snapshot is.
		sb.TemplateHash, sb.Parent, sb.Snapshot = r.from.TemplateHash, r.from.Sandbox, r.from.ID
		sb.Origin = originOf(r.from.Use)
	} else {
		t, err := c.template(ctx, r.Template)
		if err != nil {
			return sandbox.Sandbox{}, nil, nil, fmt.Errorf("create sandbox: %w", err)
		}
		sb.TemplateHash = t.Hash
	}
	opCtx, stop := context.WithTimeoutCause(c.life, c.cfg.CreateTimeout, errCreateTimeout(c.cfg.CreateTimeout))
	opCtx, cancel := context.WithCancelCause(opCtx)
	op := &operation{done: make(chan struct{}), cancel: func(err error) { cancel(err); stop() }}
	c.mu.Lock()
	c.creates[sb.ID] = op
	c.mu.Unlock()
	limits, err := c.limits()
	var made sandbox.Sandbox
	if err == nil {
		made, err = c.store.Create(ctx, sb, opCreate, limits)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.creates, sb.ID)
		c.mu.Unlock()
		op.cancel(err)
		op.err = err
		close(op.done)
		return sandbox.Sandbox{}, nil, nil, err
	}
	return made, op, opCtx, nil
}

// runCreate boots the machine of a record and makes it running, or undoes all of it.
func (c *Control) runCreate(ctx context.Context, sb sandbox.Sandbox, r CreateRequest) (sandbox.Sandbox, []sandbox.StepTime, error) {
	started, err := c.machines.Start(ctx, StartRequest{Sandbox: sb, Snapshot: sb.Snapshot, KeepSeed: r.KeepSeed, ColdFallback: sb.Snapshot != ""})
	if started.Instance != "" {
		sb.Instance = started.Instance
	}
	if cause := context.Cause(ctx); cause != nil {
		// Also when the start made it: nobody waits for the sandbox any more.
		err = errors.Join(cause, err)
	}
	if err == nil {
		err = r.checkIsolation(started.Isolation)
	}
	err = c.diskFull(err)
	if err != nil {
		c.undoCreate(sb, err)
		return sb, nil, fmt.Errorf("create sandbox %s: %w", sb.ID, err)
	}
	begin := time.Now()
	running, err := c.store.Transition(ctx, sb.ID, sandbox.Creating, sandbox.Running, store.Change{
		Apply: func(r *sandbox.Sandbox) {
			r.Instance, r.Isolation, r.BootNote = sb.Instance, started.Isolation, started.ColdBecause
			r.Begin(time.Now())
			if started.TemplateHash != "" {
				r.TemplateHash = started.TemplateHash
			}
		},
		End:       true,
		Snapshots: r.consumes(),
		Event:     store.Event{Cause: r.cause(), Reason: "its machine takes calls"},
	})
	if err != nil {
		c.undoCreate(sb, err)
		return sb, nil, err
	}
	c.lives.watch(running)
	c.noticeEnd(running)
	return running, append(started.Steps, sandbox.StepTime{Name: "commit", Took: time.Since(begin)}), nil
}

// diskFull tells an operation that failed by a full disk from others. The machine's files
// found it first; undoing needs the room.
func (c *Control) diskFull(err error) error {
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return errors.Join(&sandbox.Error{
		Kind: sandbox.Unavailable, Code: "server_disk_full", RetryAfter: 30 * time.Second, Err: err,
		Message: "the server's disk is full, so that nothing new can be made; delete sandboxes or free space on the server, then try again",
	}, c.store.DiskFull())
}

// noticeEnd looks whether a machine has ended before the record said whose it was, so that
// nobody was found to tell.
func (c *Control) noticeEnd(sb sandbox.Sandbox) {
	if c.machines.Alive(sb.Instance) {
		return
	}
	if err := c.recordExit(sandbox.MachineExit{Instance: sb.Instance, Reason: "the sandbox's machine ended by itself"}); err != nil {
		c.log.Error("record the end of a machine", "instance", sb.Instance, "err", err)
	}
}

// undoCreate frees what a create may have made. What cannot be freed or
// recorded now stays `stopping`, and the sweep tries again.
func (c *Control) undoCreate(sb sandbox.Sandbox, cause error) {
	ctx, cancel := c.cleanup()
	defer cancel()
	log := c.log.With("sandbox", sb.ID)
	level := log.Error
	if errors.Is(cause, errAbandoned) || errors.Is(cause, errDeleted) || errors.Is(cause, errClosing) {
		level = log.Info
	}
	level("create failed", "err", cause)
	_, err := c.store.Transition(ctx, sb.ID, sandbox.Creating, sandbox.Stopping, store.Change{
		Begin: opDelete,
		Apply: func(r *sandbox.Sandbox) { r.Instance, r.FailReason = sb.Instance, reasonOf(cause, notStarted) },
		Event: store.Event{Type: "create_failed", Cause: causeFailed, Reason: reasonOf(cause, notStarted)},
	})
	if err != nil {
		log.Error("record a failed create", "err", err)
		return
	}
	if err := c.finishStop(ctx, sb, causeFailed); err != nil {
		log.Error("free a failed create", "err", err)
	}
}

const notStarted = "the sandbox could not be started"

// reasonOf is what a record may tell its user about an error: what it may not is otherwise.
func reasonOf(err error, otherwise string) string {
	var e *sandbox.Error
	switch {
	case errors.As(err, &e) && e.Kind != sandbox.Internal:
		return e.Message
	case errors.Is(err, errAbandoned):
		return "the caller went away before the end"
	}
	return otherwise
}
