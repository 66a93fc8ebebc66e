package control

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// errRestored ends the calls to the machine that a restore replaces.
var errRestored = sandbox.Errorf(sandbox.Conflict, "sandbox_restored",
	"the sandbox went back to a checkpoint during the call; what the call ran has ended")

// Restore takes a sandbox back to one of its checkpoints. Nothing of it is touched before
// the checkpoint is verified and a machine started from it takes calls; then that machine
// becomes the sandbox's in one step and the old one ends. Until then both need memory. It
// keeps its settings. A hibernated sandbox is woken first. It goes on when ctx ends.
func (c *Control) Restore(ctx context.Context, project string, id sandbox.ID, checkpoint sandbox.SnapshotID) (sandbox.Sandbox, []sandbox.StepTime, error) {
	if err := c.exists(ctx, project, id); err != nil {
		return sandbox.Sandbox{}, nil, err
	}
	wake := mayWake(ctx)
	r, err := run(ctx, c, []sandbox.ID{id}, func(ctx context.Context) (m mergeResult, err error) {
		defer c.observe("restore", time.Now(), &err)
		defer c.pin(checkpoint)()
		snap, err := c.store.ReadySnapshot(ctx, project, checkpoint, sandbox.UseCheckpoint)
		if err != nil {
			return m, err
		}
		if snap.Sandbox != id {
			return m, sandbox.Errorf(sandbox.Invalid, "checkpoint_of_another", "the checkpoint is another sandbox's; create a sandbox from it instead")
		}
		verifying := time.Now()
		if err := c.machines.VerifySnapshot(ctx, snap.ID); err != nil {
			return m, fmt.Errorf("verify checkpoint %s: %w", snap.ID, err)
		}
		verified := sandbox.StepTime{Name: "verify", Took: time.Since(verifying)}
		sb, err := c.want(ctx, project, id, wake)
		if err != nil {
			return m, err
		}
		m, err = c.runRestore(ctx, sb, snap)
		m.steps = append([]sandbox.StepTime{verified}, m.steps...)
		return m, err
	}, nil)
	return r.sb, r.steps, err
}

// runRestore starts the new machine under a record of its own, which no list shows: whenever
// the server ends, each machine has the record that says what is to become of it.
func (c *Control) runRestore(ctx context.Context, sb sandbox.Sandbox, snap sandbox.Snapshot) (mergeResult, error) {
	begin := time.Now()
	stand := sandbox.Sandbox{
		ID: sandbox.NewID(), Project: sb.Project, Region: sb.Region, Node: sb.Node,
		Template: snap.Template, TemplateHash: snap.TemplateHash, Instance: sandbox.NewInstanceID(),
		Shape: snap.Shape, Origin: sandbox.OriginRestore, Parent: sb.ID, Snapshot: snap.ID,
	}
	forget := c.expect([]sandbox.Sandbox{stand})
	defer forget()
	limits, err := c.limits()
	if err != nil {
		return mergeResult{}, err
	}
	data := map[string]string{"checkpoint": string(snap.ID), "name": snap.Name}
	made, err := c.store.CreateMany(ctx, []sandbox.Sandbox{stand}, opRestore, limits, store.Step{
		ID: sb.ID, From: sandbox.Running, To: sandbox.Running, Change: store.Change{
			Instance: sb.Instance, Begin: opRestore,
			Event: store.Event{Type: "restoring", Cause: causeRestore, Reason: "a restore was asked for", Data: data},
		},
	})
	if err != nil {
		return mergeResult{}, err
	}
	stand = made[0]
	steps := []sandbox.StepTime{{Name: "record", Took: time.Since(begin)}}
	next := sb // the guest that is started is the sandbox's from the beginning
	next.Instance, next.Shape, next.Template, next.TemplateHash = stand.Instance, snap.Shape, snap.Template, snap.TemplateHash
	started, err := c.machines.Start(ctx, StartRequest{Sandbox: next, Snapshot: snap.ID})
	if started.Instance != "" {
		stand.Instance = started.Instance
	}
	stand.Isolation, stand.BootNote = started.Isolation, started.ColdBecause
	if err != nil || ctx.Err() != nil {
		err = fmt.Errorf("restore sandbox %s: %w", sb.ID, c.undone(ctx, err))
		c.undoRestore(sb, stand, err)
		return mergeResult{}, err
	}
	steps = append(steps, started.Steps...)
	committing := time.Now()
	keep, give, err := c.commitRestore(sb, stand, data)
	if err != nil {
		c.undoRestore(sb, stand, err)
		return mergeResult{}, err
	}
	steps = append(steps, sandbox.StepTime{Name: "commit", Took: time.Since(committing)})
	stopping := time.Now()
	done, cancel := c.commit()
	defer cancel()
	c.carryEgress(done, keep)
	if err := c.finishStop(done, give, causeRestore); err != nil {
		c.log.Error("end the machine that a restore replaced", "sandbox", sb.ID, "instance", give.Instance, "err", err) // the sweep tries again
	}
	c.noticeEnd(keep)
	c.log.Info("sandbox restored", "sandbox", sb.ID, "checkpoint", snap.ID, "took", time.Since(begin))
	return mergeResult{keep, append(steps, sandbox.StepTime{Name: "stop", Took: time.Since(stopping)})}, nil
}

func (c *Control) commitRestore(sb, stand sandbox.Sandbox, data map[string]string) (keep, give sandbox.Sandbox, err error) {
	ctx, cancel := c.commit()
	defer cancel()
	release := c.lives.hold(sb)
	defer release()
	keep, give, err = c.store.Swap(ctx, sb, stand, opDelete, "",
		store.Event{Type: "restored", Cause: causeRestore, Reason: "it went back to a checkpoint", Data: data},
		store.Event{Cause: causeRestore, Reason: "its machine took the place of another"})
	if err != nil {
		return keep, give, err
	}
	c.lives.retire(sb.Instance, errRestored)
	c.lives.watch(keep)
	return keep, give, nil
}

// undoRestore frees what there is of the new machine. The sandbox goes on with its own.
func (c *Control) undoRestore(sb, stand sandbox.Sandbox, cause error) {
	c.undoCreate(stand, cause)
	ctx, cancel := c.cleanup()
	defer cancel()
	if err := c.goOn(ctx, sb); err != nil {
		c.log.Error("undo a restore", "sandbox", sb.ID, "err", err)
	}
}
