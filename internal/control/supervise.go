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
		if err := c.settle(ctx, sb, causeRestart, "the server restarted and the sandbox's machine did not survive it"); err != nil {
			return fmt.Errorf("recover sandbox %s: %w", sb.ID, err)
		}
	}
	return nil
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
	case sandbox.Running, sandbox.Hibernating, sandbox.Waking:
		if c.machines.Alive(sb.Instance) {
			if cause == causeRestart && sb.State == sandbox.Running {
				c.lives.watch(sb)
			}
			return nil
		}
		return c.fail(ctx, sb, cause, reason)
	case sandbox.Failed:
		// Its machine is gone unless freeing it failed; that costs little to ask.
		return c.freeFailed(ctx, sb)
	}
	return nil // hibernated ones have no machine
}

// fail makes a sandbox whose machine ended failed, and frees what is left of the machine.
func (c *Control) fail(ctx context.Context, sb sandbox.Sandbox, cause, reason string) error {
	c.log.Warn("sandbox failed", "sandbox", sb.ID, "instance", sb.Instance, "reason", reason)
	_, err := c.store.Transition(ctx, sb.ID, sb.State, sandbox.Failed, store.Change{
		// Like a stopped record: nobody needs its environment any more.
		Apply: func(r *sandbox.Sandbox) { r.FailReason, r.Env = reason, nil },
		End:   true,
		Event: store.Event{Type: "failed", Cause: cause, Reason: reason},
	})
	if err != nil {
		return err
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
		case sandbox.Running, sandbox.Hibernating, sandbox.Waking:
			if err := c.fail(ctx, sb, causeMachineExit, e.Reason); !isConflict(err) {
				return err
			}
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
	ticker := time.NewTicker(sweepInterval)
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
	now := time.Now()
	errs = append(errs, c.store.Purge(ctx, now.Add(-c.cfg.KeepStopped), now.Add(-c.cfg.KeepEvents), now.Add(-keepAnswers)))
	return errors.Join(errs...)
}

// busy says that an operation works on a sandbox.
func (c *Control) busy(id sandbox.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.creates[id] != nil || c.deletes[id] != nil
}
