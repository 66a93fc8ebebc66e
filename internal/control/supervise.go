package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

const (
	sweepInterval = 30 * time.Second
	// retryExit is the pause between attempts to record a machine's end, when the
	// database refuses (a full disk).
	retryExit = time.Second
)

// recover settles what an earlier process left. Machines that still run keep their sandboxes.
func (c *Control) recover(ctx context.Context) error {
	left, err := c.store.OfNode(ctx, c.cfg.Node)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	cut, err := c.store.Intents(ctx)
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	for _, i := range cut {
		c.log.Warn("an operation was cut short", "sandbox", i.Sandbox, "operation", i.Operation, "began", i.StartedAt)
	}
	for _, sb := range left {
		err := c.settle(ctx, sb, causeRestart, "the server restarted and the sandbox's machine did not survive it")
		if err != nil && sleeps(sb.State) {
			c.log.Error("settle a sandbox", "sandbox", sb.ID, "state", sb.State, "err", err) // the sweep tries again
			continue
		}
		if err != nil {
			return fmt.Errorf("recover sandbox %s: %w", sb.ID, err)
		}
	}
	// A machine that does not go on now, or a snapshot that cannot be removed, is no reason not to start.
	if err := errors.Join(c.settleIntents(ctx), c.settleSnapshots(ctx)); err != nil {
		c.log.Error("undo what was cut short", "err", err)
	}
	return nil
}

// settleIntents lets sandboxes go on that run and have an intent but no operation: it was
// cut short, and may have left them paused. What it was making is undone by its own record.
// A merge is brought to its end.
func (c *Control) settleIntents(ctx context.Context) error {
	cut, err := c.store.Intents(ctx)
	if err != nil {
		return err
	}
	left := make(map[sandbox.ID]bool, len(cut))
	for _, i := range cut {
		left[i.Sandbox] = true
	}
	list, err := c.store.OfNode(ctx, c.cfg.Node)
	if err != nil {
		return err
	}
	var errs []error
	for _, sb := range list {
		if !left[sb.ID] || sb.State != sandbox.Running {
			continue
		}
		errs = append(errs, c.alone(ctx, sb, func(now sandbox.Sandbox) error {
			left, err := c.store.IntentOf(ctx, sb.ID)
			switch {
			case err != nil || left == "": // it was that of an operation that has ended since
				return err
			case left == opMerge:
				return c.rename(ctx, now)
			}
			return c.goOn(ctx, now)
		}))
	}
	return errors.Join(errs...)
}

// alone runs f with the present record as the operation of a sandbox, unless there is
// another or the sandbox is in another state by now.
func (c *Control) alone(ctx context.Context, sb sandbox.Sandbox, f func(sandbox.Sandbox) error) error {
	op, _, _, err := c.tryBegin(sb.ID)
	if op == nil {
		if sandbox.KindOf(err) == sandbox.NotFound { // it is being deleted
			return nil
		}
		return err
	}
	defer c.endOp(op)
	now, err := c.store.Get(ctx, sb.Project, sb.ID)
	if err != nil || now.State != sb.State {
		return err
	}
	return f(now)
}

// settleSnapshots removes the snapshots that no operation makes or deletes any more.
func (c *Control) settleSnapshots(ctx context.Context) error {
	list, err := c.store.Unsettled(ctx, c.cfg.Node)
	if err != nil {
		return err
	}
	var errs []error
	for _, snap := range list {
		c.mu.Lock()
		read := c.pins[snap.ID] != nil
		c.mu.Unlock()
		if read {
			continue
		}
		if snap.State == sandbox.SnapshotMaking {
			removed, err := c.abandon(ctx, snap)
			if err != nil || !removed {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, c.freeSnapshot(ctx, snap))
	}
	return errors.Join(errs...)
}

// abandon marks a snapshot for removal that was being made, when nobody makes it any more.
func (c *Control) abandon(ctx context.Context, snap sandbox.Snapshot) (bool, error) {
	if c.busy(snap.Sandbox) {
		return false, nil
	}
	sb, err := c.store.Get(ctx, snap.Project, snap.Sandbox)
	if err == nil && sb.State == sandbox.Hibernating && sb.Hibernation == snap.ID {
		return false, nil // it is settled with its sandbox
	}
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return false, err
	}
	err = c.store.ChangeSnapshot(ctx, snap, store.SnapshotChange{From: sandbox.SnapshotMaking, To: sandbox.SnapshotDeleting}, store.Event{
		Type: string(snap.Use) + "_failed", Cause: causeCleanup, Reason: "it was cut short while it was made",
	})
	if k := sandbox.KindOf(err); k == sandbox.NotFound || k == sandbox.Conflict {
		return false, nil // it has just been made, or deleted
	}
	return err == nil, err
}

// settle brings a sandbox that no operation works on into a state that its machine agrees with.
func (c *Control) settle(ctx context.Context, sb sandbox.Sandbox, cause, reason string) error {
	switch sb.State {
	case sandbox.Creating:
		// Cut short before anybody got its id: undo.
		sb, err := c.store.Transition(ctx, sb.ID, sandbox.Creating, sandbox.Stopping, store.Change{
			Begin: opDelete,
			Apply: func(r *sandbox.Sandbox) { r.FailReason = reason },
			Event: store.Event{Type: "create_failed", Cause: cause, Reason: reason},
		})
		if err != nil {
			return err
		}
		return c.finishStop(ctx, sb, cause)
	case sandbox.Stopping:
		return c.finishStop(ctx, sb, cause)
	case sandbox.Running:
		if c.machines.Alive(sb.Instance) {
			if cause == causeRestart {
				c.lives.watch(sb)
			}
			return nil
		}
		return c.fail(ctx, sb, cause, reason)
	case sandbox.Hibernating:
		return c.alone(ctx, sb, func(sb sandbox.Sandbox) error { return c.settleHibernating(ctx, sb, cause, reason) })
	case sandbox.Waking:
		// Whether its guest got its identity is not known: it sleeps on.
		return c.alone(ctx, sb, func(sb sandbox.Sandbox) error { return c.settleWaking(ctx, sb, cause) })
	case sandbox.Hibernated:
		// It has no machine, unless the server ended, or an error came, before the old one was freed.
		if cause == causeRestart || c.machines.Alive(sb.Instance) {
			return c.machines.Stop(ctx, sb.Instance)
		}
	case sandbox.Failed:
		// Its machine is gone unless freeing it failed; that costs little to ask.
		return c.freeFailed(ctx, sb)
	}
	return nil
}

// settleWaking brings a sandbox whose wake was cut short back to sleep.
func (c *Control) settleWaking(ctx context.Context, sb sandbox.Sandbox, cause string) error {
	if !c.machines.HasSnapshot(sb.Hibernation) {
		return c.fail(ctx, sb, cause, "its snapshot is not on the disk any more")
	}
	return c.backToSleep(ctx, sb, cause, "its wake was cut short; it sleeps on")
}

// fail makes a sandbox whose machine ended failed, and frees what is left of the machine.
func (c *Control) fail(ctx context.Context, sb sandbox.Sandbox, cause, reason string) error {
	c.log.Warn("sandbox failed", "sandbox", sb.ID, "instance", sb.Instance, "reason", reason)
	_, err := c.store.Transition(ctx, sb.ID, sb.State, sandbox.Failed, store.Change{
		Instance: sb.Instance,
		// Like a stopped record: nobody needs its environment any more.
		Apply:     func(r *sandbox.Sandbox) { r.FailReason, r.Env, r.Hibernation = reason, nil, "" },
		End:       true,
		Snapshots: lost(sb),
		Event:     store.Event{Type: "failed", Cause: cause, Reason: reason},
	})
	if err != nil {
		return err
	}
	if sb.Hibernation != "" {
		c.dropSnapshot(ctx, sandbox.Snapshot{ID: sb.Hibernation})
	}
	c.lives.forget(sb.ID)
	c.cfg.Observer.Ended(string(sandbox.Failed), cause)
	return c.freeFailed(ctx, sb)
}

// freeFailed frees what is left of a failed sandbox's machine. Whoever finds the
// sandbox failed may repeat it.
func (c *Control) freeFailed(ctx context.Context, sb sandbox.Sandbox) error {
	if err := c.machines.Stop(ctx, sb.Instance); err != nil {
		return fmt.Errorf("free instance %s of failed sandbox %s: %w", sb.Instance, sb.ID, err)
	}
	return nil
}

// watchExits makes the sandboxes of machines that ended failed.
func (c *Control) watchExits() {
	for {
		select {
		case e, ok := <-c.machines.Exits():
			if !ok {
				return
			}
			// One that has to wait must not hold up the others.
			if err := c.spawn(func() { c.handleExit(e) }); err != nil {
				return
			}
		case <-c.life.Done():
			return
		}
	}
}

// handleExit records one end. The machine is gone whatever happens here, so it
// tries until it is recorded or the server stops; then the next start finds it.
func (c *Control) handleExit(e sandbox.MachineExit) {
	for {
		err := c.recordExit(e)
		if err == nil {
			return
		}
		c.log.Error("record the end of a machine", "instance", e.Instance, "err", err)
		select {
		case <-time.After(retryExit):
		case <-c.life.Done():
			return
		}
	}
}

func (c *Control) recordExit(e sandbox.MachineExit) error {
	ctx, cancel := context.WithTimeout(c.life, c.cfg.StopTimeout)
	defer cancel()
	for seen := false; ; {
		sb, err := c.store.OfInstance(ctx, e.Instance)
		if sandbox.KindOf(err) == sandbox.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		switch sb.State {
		case sandbox.Creating:
			// Either its create fails by this, or it has just made it and
			// commits: the state after that decides.
			waited, err := c.awaitCreate(ctx, sb.ID)
			if err != nil || !waited && seen {
				return err
			}
			seen = true
		case sandbox.Running:
			if err := c.fail(ctx, sb, causeMachineExit, e.Reason); !isConflict(err) {
				return err
			}
		case sandbox.Hibernating, sandbox.Waking:
			// What works on it finds out by itself; its end decides.
			waited, err := c.awaitOperation(ctx, sb.ID)
			if err != nil {
				return err
			}
			if !waited {
				if seen {
					return nil // the sweep's
				}
				if err := c.settle(ctx, sb, causeMachineExit, e.Reason); err != nil && !isConflict(err) {
					return err
				}
			}
			seen = true
		case sandbox.Failed: // by an attempt before this one, which may not have freed it
			return c.freeFailed(ctx, sb)
		default:
			return nil // on its way out already, or has no machine
		}
	}
}

// awaitCreate waits for the create of a sandbox to end, and says whether there
// was one. A record that stays creating without one is the sweep's.
func (c *Control) awaitCreate(ctx context.Context, id sandbox.ID) (waited bool, err error) {
	c.mu.Lock()
	op := c.creates[id]
	c.mu.Unlock()
	if op == nil {
		return false, nil
	}
	select {
	case <-op.done:
		return true, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// sweepLoop is the net under everything else: it finishes deletes that did not
// get through, notices machines whose end was missed, and forgets old records.
func (c *Control) sweepLoop() {
	ticker := time.NewTicker(c.cfg.SweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := c.sweep(); err != nil && c.life.Err() == nil {
				c.log.Error("sweep", "err", err)
			}
		case <-c.life.Done():
			return
		}
	}
}

func (c *Control) sweep() error {
	ctx, cancel := context.WithTimeout(c.life, 2*c.cfg.StopTimeout)
	defer cancel()
	list, err := c.store.OfNode(ctx, c.cfg.Node)
	if err != nil {
		return err
	}
	c.lives.keep(list)
	if c.store.Full() {
		c.log.Warn("the disk is full: nothing new is made until there is room")
	}
	var errs []error
	for _, sb := range list {
		if c.busy(sb.ID) {
			continue
		}
		// Look again: it may have moved since the list was made.
		now, err := c.store.Get(ctx, sb.Project, sb.ID)
		if err != nil || now.State != sb.State || now.Instance != sb.Instance {
			continue
		}
		if err := c.settle(ctx, now, causeCleanup, "the sandbox's machine ended"); err != nil && !isConflict(err) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.settleIntents(ctx), c.settleSnapshots(ctx), c.endOld(ctx, list))
	now := time.Now()
	errs = append(errs, c.store.Purge(ctx, now.Add(-c.cfg.KeepStopped), now.Add(-c.cfg.KeepEvents), now.Add(-keepAnswers)))
	return errors.Join(errs...)
}

// busy says that an operation works on a sandbox.
func (c *Control) busy(id sandbox.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.creates[id] != nil || c.deletes[id] != nil || c.ops[id] != nil
}
