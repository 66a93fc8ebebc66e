package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// Delete stops a sandbox in whatever state and returns when all that it used
// is free. Deleting a stopped one again succeeds; deletes at the same time are one.
// The delete goes on when ctx ends.
func (c *Control) Delete(ctx context.Context, project string, id sandbox.ID) error {
	_, err := c.DeleteSteps(ctx, project, id)
	return err
}

// DeleteSteps is Delete, and says what took how long. There are no steps where nothing
// was left to do.
func (c *Control) DeleteSteps(ctx context.Context, project string, id sandbox.ID) ([]sandbox.StepTime, error) {
	return c.end(ctx, project, id, ending{cause: causeDelete, reason: "a delete was asked for"})
}

// ending says why a sandbox is stopped.
type ending struct {
	cause, reason string
	// only, when set, is the state that it holds for: a sandbox in another is left alone.
	only sandbox.State
	// check, when set, looks at the record in the transaction that begins the end, and may
	// refuse it with its error.
	check func(sandbox.Sandbox) error
}

func (c *Control) end(ctx context.Context, project string, id sandbox.ID, why ending) ([]sandbox.StepTime, error) {
	sb, err := c.store.Get(ctx, project, id)
	if err != nil {
		return nil, err
	}
	if sb.State == sandbox.Stopped {
		return nil, nil
	}
	op, err := c.beginDelete(sb, why)
	if err != nil {
		return nil, err
	}
	select {
	case <-op.done:
		if why.check == nil && errors.Is(op.err, errMoreTime) {
			return c.end(ctx, project, id, why) // it had joined a delete that did not come to be
		}
		return op.steps, op.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the delete of sandbox %s: %w", id, context.Cause(ctx))
	}
}

// beginDelete starts the one delete of a sandbox, or joins it.
func (c *Control) beginDelete(sb sandbox.Sandbox, why ending) (*operation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if op, ok := c.deletes[sb.ID]; ok {
		return op, nil
	}
	op := &operation{done: make(chan struct{})}
	err := c.spawnLocked(func() {
		op.steps, op.err = c.runDelete(sb.Project, sb.ID, why)
		c.mu.Lock()
		delete(c.deletes, sb.ID)
		c.mu.Unlock()
		close(op.done)
	})
	if err != nil {
		return nil, err
	}
	c.deletes[sb.ID] = op
	return op, nil
}

// runDelete brings a sandbox from wherever it is to stopped. Other operations
// may move it meanwhile, so it looks again after every race that it lost.
func (c *Control) runDelete(project string, id sandbox.ID, why ending) (steps []sandbox.StepTime, err error) {
	begin, last := time.Now(), time.Now()
	step := func(name string) {
		now := time.Now()
		steps = append(steps, sandbox.StepTime{Name: name, Took: now.Sub(last)})
		last = now
	}
	ctx, cancel := c.cleanup()
	defer cancel()
	for {
		if err := c.endCreate(ctx, id); err != nil {
			return nil, err
		}
		if err := c.endOperation(ctx, id); err != nil {
			return nil, err
		}
		sb, err := c.store.Get(ctx, project, id)
		if err != nil {
			return nil, err
		}
		if why.only != "" && sb.State != why.only {
			return steps, nil
		}
		switch sb.State {
		case sandbox.Stopped:
			return steps, nil
		case sandbox.Stopping: // an earlier delete did not get through
		default:
			sb, err = c.store.Transition(ctx, id, sb.State, sandbox.Stopping, store.Change{
				Begin: opDelete,
				Check: why.check,
				Apply: func(r *sandbox.Sandbox) {
					if why.cause != causeDelete { // its owner is told
						r.FailReason = why.reason
					}
				},
				Snapshots: lost(sb),
				Event:     store.Event{Cause: why.cause, Reason: why.reason},
			})
			if isConflict(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		step("record")
		if err := c.freeMachine(ctx, sb); err != nil {
			return nil, err
		}
		step("free")
		if err := c.commitStop(ctx, sb, why.cause); err != nil {
			return nil, err
		}
		step("commit")
		c.log.Info("sandbox deleted", "sandbox", id, "project", project, "cause", why.cause, "took", time.Since(begin))
		return steps, nil
	}
}

// endCreate cancels the create of a sandbox, if it is under way, and waits for its end.
func (c *Control) endCreate(ctx context.Context, id sandbox.ID) error {
	c.mu.Lock()
	op := c.creates[id]
	c.mu.Unlock()
	if op == nil {
		return nil
	}
	op.cancel(errDeleted)
	select {
	case <-op.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the create of sandbox %s to end: %w", id, context.Cause(ctx))
	}
}

// lost is what becomes of the snapshot of a hibernated sandbox that ends.
func lost(sb sandbox.Sandbox) []store.SnapshotChange {
	if sb.Hibernation == "" {
		return nil
	}
	from := sandbox.SnapshotReady
	if sb.State == sandbox.Hibernating {
		from = sandbox.SnapshotMaking
	}
	return []store.SnapshotChange{{ID: sb.Hibernation, From: from, To: sandbox.SnapshotDeleting}}
}

// finishStop frees the machine of a stopping sandbox and makes it stopped.
// Losing the last step to somebody who did the same is success.
func (c *Control) finishStop(ctx context.Context, sb sandbox.Sandbox, cause string) error {
	if err := c.freeMachine(ctx, sb); err != nil {
		return err
	}
	return c.commitStop(ctx, sb, cause)
}

func (c *Control) freeMachine(ctx context.Context, sb sandbox.Sandbox) error {
	if err := c.machines.Stop(ctx, sb.Instance); err != nil {
		return fmt.Errorf("stop instance %s of sandbox %s: %w", sb.Instance, sb.ID, err)
	}
	if sb.Hibernation != "" {
		if err := c.freeSnapshot(ctx, sandbox.Snapshot{ID: sb.Hibernation}); err != nil {
			return fmt.Errorf("free sandbox %s: %w", sb.ID, err)
		}
	}
	return nil
}

func (c *Control) commitStop(ctx context.Context, sb sandbox.Sandbox, cause string) error {
	// A stopped record is kept for a while, but nobody needs its environment,
	// which may hold secrets.
	_, err := c.store.Transition(ctx, sb.ID, sandbox.Stopping, sandbox.Stopped, store.Change{
		Apply: func(r *sandbox.Sandbox) { r.Env, r.Hibernation = nil, "" },
		End:   true,
		Event: store.Event{Cause: cause, Reason: "everything that it used is free"},
	})
	if err != nil && !isConflict(err) {
		return err
	}
	if err == nil {
		c.cfg.Observer.Ended(string(sandbox.Stopped), cause)
	}
	c.lives.forget(sb.ID)
	return nil
}
