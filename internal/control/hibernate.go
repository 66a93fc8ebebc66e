package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

var errHibernated = sandbox.Errorf(sandbox.Conflict, "sandbox_hibernated",
	"the sandbox is hibernated; wake it, or make the call without forbidding that")

// errSleptAway ends the calls that were open when a sandbox was hibernated.
var errSleptAway = sandbox.Errorf(sandbox.Conflict, "sandbox_hibernated",
	"the sandbox was hibernated during the call; what it ran goes on when it wakes")

// Hibernate writes a sandbox's memory and disk to the host's disk and ends its machine,
// which then costs no CPU or memory. It keeps its id; any call wakes it. Open streams end with
// sandbox_hibernated, and what they followed goes on after the wake. When it cannot be
// written the sandbox goes on running. One that is hibernated already is returned as it is.
func (c *Control) Hibernate(ctx context.Context, project string, id sandbox.ID) (sandbox.Sandbox, []sandbox.StepTime, error) {
	return c.HibernateAs(ctx, project, id, HibernateRequest{})
}

// HibernateRequest says how to hibernate.
type HibernateRequest struct {
	// DiskOnly keeps the disk and not the memory: the wake is a boot.
	DiskOnly bool
	// Strict makes it a Conflict, already_hibernated, when the sandbox is hibernated already.
	Strict bool
}

// HibernateAs is Hibernate as a request says.
func (c *Control) HibernateAs(ctx context.Context, project string, id sandbox.ID, h HibernateRequest) (sandbox.Sandbox, []sandbox.StepTime, error) {
	if err := c.exists(ctx, project, id); err != nil {
		return sandbox.Sandbox{}, nil, err
	}
	type result struct {
		sb    sandbox.Sandbox
		steps []sandbox.StepTime
	}
	r, err := run(ctx, c, []sandbox.ID{id}, func(ctx context.Context) (r result, err error) {
		defer c.observe("hibernate", time.Now(), &err)
		if r.sb, err = c.store.Get(ctx, project, id); err != nil {
			return r, err
		}
		if r.sb.State == sandbox.Hibernated {
			if h.Strict {
				err = sandbox.Errorf(sandbox.Conflict, "already_hibernated", "the sandbox is hibernated already")
			}
			return r, err
		}
		if err = usable(r.sb); err != nil {
			return r, err
		}
		release := c.lives.hold(r.sb)
		defer release()
		r.sb, r.steps, err = c.freeze(ctx, r.sb, sandbox.UseHibernation, saveKind(h.DiskOnly), ending{cause: causeHibernate, reason: "it was asked for"})
		return r, err
	}, nil)
	return r.sb, r.steps, err
}

func saveKind(diskOnly bool) sandbox.SnapshotKind {
	if diskOnly {
		return sandbox.SnapshotDisk
	}
	return sandbox.SnapshotFull
}

// idle puts a sandbox to sleep that nobody has called for its idle timeout, as a Space
// when it is persistent, or whose deadline is over. It does not wait for another operation,
// which is use.
func (c *Control) idle(project string, id sandbox.ID, why ending, how sandbox.AtEnd) error {
	op, ctx, other, err := c.tryBegin(id)
	if err != nil || op == nil {
		if other != nil {
			err = errBusy
		}
		return err
	}
	defer c.endOp(op)
	sb, err := c.store.Get(ctx, project, id)
	if err != nil || sb.State != sandbox.Running {
		return err
	}
	defer c.observe("hibernate", time.Now(), &err)
	use := sandbox.UseHibernation
	if sb.Persistent && why.cause == causeIdle {
		use = sandbox.UseSpace
	}
	_, _, err = c.freeze(ctx, sb, use, saveKind(how == sandbox.AtEndHibernateDisk), why)
	return err
}

// freeze saves a running sandbox and ends its machine: the sandbox hibernates, or with
// UseSpace ends and leaves a Space. The machine is stopped only when the snapshot is
// whole and recorded. The caller has the operation and holds the sandbox's calls.
func (c *Control) freeze(ctx context.Context, sb sandbox.Sandbox, use sandbox.SnapshotUse, kind sandbox.SnapshotKind, why ending) (sandbox.Sandbox, []sandbox.StepTime, error) {
	begin := time.Now()
	snap := snapshotOf(sb, use, kind)
	sb, err := c.store.Transition(ctx, sb.ID, sandbox.Running, sandbox.Hibernating, store.Change{
		Instance: sb.Instance, Begin: opHibernate, Check: why.check,
		Apply: func(r *sandbox.Sandbox) { r.Hibernation = snap.ID },
		Make:  &store.NewSnapshot{Snapshot: snap},
		Event: store.Event{Cause: why.cause, Reason: why.reason},
	})
	if err != nil {
		return sb, nil, err
	}
	steps := []sandbox.StepTime{{Name: "record", Took: time.Since(begin)}}
	info, err := c.machines.Save(ctx, sb.Instance, SaveRequest{Snapshot: snap.ID, Kind: kind, Stay: true})
	if err != nil || ctx.Err() != nil {
		err = fmt.Errorf("hibernate sandbox %s: %w", sb.ID, c.undone(ctx, err))
		back, uerr := c.unfreeze(sb, err)
		return back, nil, errors.Join(err, uerr)
	}
	steps = append(steps, info.Steps...)
	committing := time.Now()
	done, cancel := c.commit()
	defer cancel()
	frozen, err := c.frozen(done, sb, use, info.SizeBytes, why)
	if err != nil {
		back, uerr := c.unfreeze(sb, err)
		return back, nil, errors.Join(err, uerr)
	}
	steps = append(steps, sandbox.StepTime{Name: "commit", Took: time.Since(committing)})
	stopping := time.Now()
	c.endFrozen(done, frozen, why.cause)
	steps = append(steps, sandbox.StepTime{Name: "stop", Took: time.Since(stopping)})
	c.log.Info("sandbox frozen", "sandbox", sb.ID, "use", use, "cause", why.cause, "size_bytes", info.SizeBytes, "took", time.Since(begin))
	return frozen, steps, nil
}

// frozen records that the snapshot of a hibernating sandbox is whole.
func (c *Control) frozen(ctx context.Context, sb sandbox.Sandbox, use sandbox.SnapshotUse, size int64, why ending) (sandbox.Sandbox, error) {
	ready := []store.SnapshotChange{{ID: sb.Hibernation, From: sandbox.SnapshotMaking, To: sandbox.SnapshotReady, SizeBytes: size}}
	if use != sandbox.UseSpace {
		return c.store.Transition(ctx, sb.ID, sandbox.Hibernating, sandbox.Hibernated, store.Change{
			Instance: sb.Instance, End: true, Snapshots: ready,
			Apply: func(r *sandbox.Sandbox) { r.EndsAt = time.Time{} }, // it begins anew at the wake
			Event: store.Event{Cause: why.cause, Reason: why.reason},
		})
	}
	return c.store.Transition(ctx, sb.ID, sandbox.Hibernating, sandbox.Stopping, store.Change{
		Instance: sb.Instance, Begin: opDelete, Snapshots: ready,
		Apply: func(r *sandbox.Sandbox) { r.Hibernation, r.FailReason = "", "it became a Space: "+why.reason },
		Event: store.Event{Type: "space_made", Cause: why.cause, Reason: why.reason, Data: map[string]string{"space": string(sb.Hibernation)}},
	})
}

// endFrozen ends the machine of a sandbox whose snapshot is recorded. What fails of it the
// sweep tries again; the sandbox is safe.
func (c *Control) endFrozen(ctx context.Context, sb sandbox.Sandbox, cause string) {
	c.lives.retire(sb.Instance, errSleptAway)
	var err error
	if sb.State == sandbox.Stopping {
		err = c.finishStop(ctx, sb, cause)
	} else {
		err = c.machines.Stop(ctx, sb.Instance)
	}
	if err != nil {
		c.log.Error("end the machine of a frozen sandbox", "sandbox", sb.ID, "instance", sb.Instance, "err", err)
	}
}

// unfreeze lets a sandbox that could not be saved go on running.
func (c *Control) unfreeze(sb sandbox.Sandbox, cause error) (sandbox.Sandbox, error) {
	ctx, cancel := c.cleanup()
	defer cancel()
	c.log.Error("hibernate failed", "sandbox", sb.ID, "err", cause)
	return c.keepRunning(ctx, sb, causeHibernate, reasonOf(cause, "the sandbox could not be saved"))
}

// keepRunning makes a hibernating sandbox whose machine is there running again, and removes
// what there is of its snapshot.
func (c *Control) keepRunning(ctx context.Context, sb sandbox.Sandbox, cause, reason string) (sandbox.Sandbox, error) {
	if !c.machines.Alive(sb.Instance) {
		return sb, c.fail(ctx, sb, causeMachineExit, "the sandbox's machine ended while it was hibernated")
	}
	if err := c.machines.Continue(ctx, sb.Instance); err != nil {
		return sb, fmt.Errorf("let sandbox %s go on: %w", sb.ID, err) // the sweep tries again
	}
	running, err := c.store.Transition(ctx, sb.ID, sandbox.Hibernating, sandbox.Running, store.Change{
		Instance: sb.Instance, End: true,
		Apply:     func(r *sandbox.Sandbox) { r.Hibernation = "" },
		Snapshots: []store.SnapshotChange{{ID: sb.Hibernation, From: sandbox.SnapshotMaking, To: sandbox.SnapshotDeleting}},
		Event:     store.Event{Type: "hibernate_failed", Cause: cause, Reason: reason},
	})
	if err != nil {
		return sb, err
	}
	c.lives.watch(running)
	c.noticeEnd(running)
	c.dropSnapshot(ctx, sandbox.Snapshot{ID: sb.Hibernation})
	return running, nil
}

// settleHibernating brings a sandbox whose hibernation was cut short to where its
// machine and its snapshot say.
func (c *Control) settleHibernating(ctx context.Context, sb sandbox.Sandbox, cause, reason string) error {
	if c.machines.Alive(sb.Instance) {
		_, err := c.keepRunning(ctx, sb, cause, "its hibernation was cut short; it goes on")
		return err
	}
	if !c.machines.HasSnapshot(sb.Hibernation) {
		return c.fail(ctx, sb, cause, reason)
	}
	use, err := c.useOf(ctx, sb)
	if err != nil {
		return err
	}
	frozen, err := c.frozen(ctx, sb, use, c.sizeOf(sb.Hibernation), ending{cause: cause, reason: "its snapshot was whole when its machine ended"})
	if err != nil {
		return err
	}
	c.endFrozen(ctx, frozen, cause)
	return nil
}

// useOf says what the snapshot of a hibernating sandbox is made for.
func (c *Control) useOf(ctx context.Context, sb sandbox.Sandbox) (sandbox.SnapshotUse, error) {
	_, err := c.store.Snapshot(ctx, sb.Project, sb.Hibernation, sandbox.UseSpace)
	switch {
	case err == nil:
		return sandbox.UseSpace, nil
	case sandbox.KindOf(err) == sandbox.NotFound:
		return sandbox.UseHibernation, nil
	}
	return "", err
}
