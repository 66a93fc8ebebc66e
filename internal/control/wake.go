package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

type noWake struct{}

// WithoutWake returns a context whose calls fail with a Conflict, sandbox_hibernated, where
// they would wake a hibernated sandbox.
func WithoutWake(ctx context.Context) context.Context { return context.WithValue(ctx, noWake{}, true) }

func mayWake(ctx context.Context) bool { return ctx.Value(noWake{}) == nil }

// waking is the one wake of a sandbox that callers join.
type waking struct {
	done  chan struct{}
	sb    sandbox.Sandbox    // set before done is closed
	steps []sandbox.StepTime // likewise
	err   error              // likewise
}

// Wake makes a hibernated sandbox run again and returns when it takes calls. Wakes at
// the same time are one. One that runs is returned at once.
func (c *Control) Wake(ctx context.Context, project string, id sandbox.ID) (sandbox.Sandbox, []sandbox.StepTime, error) {
	return c.WakeAs(ctx, project, id, WakeRequest{})
}

// WakeRequest says how to wake. Of wakes at the same time the first one's holds.
type WakeRequest struct {
	// Cold boots the sandbox from its disk, whatever is kept of its memory.
	Cold bool
}

// WakeAs is Wake as a request says.
func (c *Control) WakeAs(ctx context.Context, project string, id sandbox.ID, r WakeRequest) (sandbox.Sandbox, []sandbox.StepTime, error) {
	sb, err := c.store.Get(ctx, project, id)
	if err != nil {
		return sb, nil, err
	}
	if !sleeps(sb.State) {
		return sb, nil, usable(sb)
	}
	return c.joinWake(ctx, sb, r)
}

// sleeps says that a sandbox is hibernated, or on its way there or back.
func sleeps(s sandbox.State) bool {
	return s == sandbox.Hibernating || s == sandbox.Hibernated || s == sandbox.Waking
}

func (c *Control) joinWake(ctx context.Context, sb sandbox.Sandbox, r WakeRequest) (sandbox.Sandbox, []sandbox.StepTime, error) {
	c.mu.Lock()
	w := c.wakes[sb.ID]
	if w == nil {
		w = &waking{done: make(chan struct{})}
		err := c.spawnLocked(func() {
			begin := time.Now()
			w.sb, w.steps, w.err = c.wakeAlone(sb.Project, sb.ID, r)
			c.observe("wake", begin, &w.err)
			c.mu.Lock()
			delete(c.wakes, sb.ID)
			c.mu.Unlock()
			close(w.done)
		})
		if err != nil {
			c.mu.Unlock()
			return sb, nil, err
		}
		c.wakes[sb.ID] = w
	}
	c.mu.Unlock()
	select {
	case <-w.done:
		return w.sb, w.steps, w.err
	case <-ctx.Done():
		return sb, nil, fmt.Errorf("wait for sandbox %s to wake: %w", sb.ID, context.Cause(ctx))
	}
}

// wakeAlone waits for its turn. What was before it may have woken the sandbox.
func (c *Control) wakeAlone(project string, id sandbox.ID, r WakeRequest) (sandbox.Sandbox, []sandbox.StepTime, error) {
	op, ctx, err := c.begin(c.life, id)
	if err != nil {
		return sandbox.Sandbox{}, nil, err
	}
	defer c.endOp(op)
	sb, err := c.store.Get(ctx, project, id)
	if err != nil || sb.State != sandbox.Hibernated {
		return sb, nil, errors.Join(err, usable(sb))
	}
	return c.runWake(ctx, sb, r)
}

// runWake starts the machine of a hibernated sandbox from its snapshot. The snapshot is
// removed only when the sandbox runs: whatever fails, it is there for the next wake.
func (c *Control) runWake(ctx context.Context, sb sandbox.Sandbox, r WakeRequest) (sandbox.Sandbox, []sandbox.StepTime, error) {
	begin := time.Now()
	// The machine that went to sleep may not be gone yet, when the server ended right then.
	if err := c.machines.Stop(ctx, sb.Instance); err != nil {
		return sb, nil, fmt.Errorf("wake sandbox %s: stop its former machine: %w", sb.ID, err)
	}
	limits, err := c.limits()
	if err != nil {
		return sb, nil, err
	}
	snap, err := c.store.Snapshot(ctx, sb.Project, sb.Hibernation, sandbox.UseHibernation)
	if err != nil {
		return sb, nil, fmt.Errorf("wake sandbox %s: %w", sb.ID, err)
	}
	fresh := sandbox.NewInstanceID()
	sb, err = c.store.Transition(ctx, sb.ID, sandbox.Hibernated, sandbox.Waking, store.Change{
		Instance: sb.Instance, Begin: opWake, Admit: &limits,
		Apply: func(r *sandbox.Sandbox) { r.Instance, r.BootNote = fresh, "" },
		Event: store.Event{Cause: causeWake, Reason: "it is used again"},
	})
	if err != nil {
		return sb, nil, err
	}
	steps := []sandbox.StepTime{{Name: "record", Took: time.Since(begin)}}
	started, err := c.machines.Start(ctx, StartRequest{Sandbox: sb, Snapshot: sb.Hibernation, Wake: true, Cold: r.Cold, ColdFallback: true})
	switch {
	case started.ColdBecause != "":
	case snap.Kind == sandbox.SnapshotDisk:
		started.ColdBecause = "it was hibernated without its memory; it booted from its disk"
	case r.Cold:
		started.ColdBecause = "that was asked for; it booted from its disk"
	}
	if started.Instance != "" {
		sb.Instance = started.Instance
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	if err != nil {
		return sb, nil, c.undoWake(sb, c.diskFull(err))
	}
	running, err := c.commitWake(sb, started)
	if err != nil {
		return sb, nil, c.undoWake(sb, err)
	}
	c.log.Info("sandbox woken", "sandbox", sb.ID, "took", time.Since(begin), "note", running.BootNote)
	return running, append(steps, started.Steps...), nil
}

func (c *Control) commitWake(sb sandbox.Sandbox, started Started) (sandbox.Sandbox, error) {
	ctx, cancel := c.commit()
	defer cancel()
	reason := "its machine goes on"
	if started.ColdBecause != "" {
		reason = "it booted from its disk: " + started.ColdBecause
	}
	running, err := c.store.Transition(ctx, sb.ID, sandbox.Waking, sandbox.Running, store.Change{
		End: true,
		Apply: func(r *sandbox.Sandbox) {
			r.Instance, r.BootNote, r.Hibernation = sb.Instance, started.ColdBecause, ""
			r.Begin(time.Now())
			if started.Isolation != "" {
				r.Isolation = started.Isolation
			}
		},
		Snapshots: []store.SnapshotChange{{ID: sb.Hibernation, From: sandbox.SnapshotReady, To: sandbox.SnapshotDeleting}},
		Event:     store.Event{Cause: causeWake, Reason: reason},
	})
	if err != nil {
		return running, err
	}
	c.lives.watch(running)
	c.noticeEnd(running)
	c.dropSnapshot(ctx, sandbox.Snapshot{ID: sb.Hibernation})
	return running, nil
}

// undoWake brings a sandbox that did not wake back to sleep, with its snapshot as it was.
func (c *Control) undoWake(sb sandbox.Sandbox, cause error) error {
	ctx, cancel := c.cleanup()
	defer cancel()
	c.log.Error("wake failed", "sandbox", sb.ID, "err", cause)
	cause = fmt.Errorf("wake sandbox %s: %w", sb.ID, cause)
	return errors.Join(cause, c.backToSleep(ctx, sb, causeWake, reasonOf(cause, "the sandbox could not be woken")))
}

// backToSleep ends what was started of a waking sandbox and makes it hibernated.
func (c *Control) backToSleep(ctx context.Context, sb sandbox.Sandbox, cause, reason string) error {
	if err := c.machines.Stop(ctx, sb.Instance); err != nil {
		return fmt.Errorf("stop instance %s of sandbox %s: %w", sb.Instance, sb.ID, err) // the sweep tries again
	}
	_, err := c.store.Transition(ctx, sb.ID, sandbox.Waking, sandbox.Hibernated, store.Change{
		End:   true,
		Event: store.Event{Type: "wake_failed", Cause: cause, Reason: reason},
	})
	return err
}
