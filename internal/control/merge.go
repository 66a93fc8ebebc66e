package control

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// errMerged ends the calls to the machine that a merge replaces.
var errMerged = sandbox.Errorf(sandbox.Conflict, "sandbox_merged",
	"another sandbox was merged into this one during the call; what the call ran has ended")

type mergeResult struct {
	sb    sandbox.Sandbox
	steps []sandbox.StepTime
}

// Merge makes a sandbox go on as another of the project, the winner: from then on the
// parent's id is the winner's machine, with what runs on it and with the calls to it, and the
// checkpoints of both are the parent's. The winner's id ends, and so does the machine that the
// parent had. Hibernated ones are woken first. It goes on when ctx ends.
func (c *Control) Merge(ctx context.Context, project string, parent, winner sandbox.ID) (sandbox.Sandbox, []sandbox.StepTime, error) {
	if parent == winner {
		return sandbox.Sandbox{}, nil, sandbox.Errorf(sandbox.Invalid, "merge_into_itself", "a sandbox cannot be merged into itself; name another one of the project")
	}
	if err := c.exists(ctx, project, parent, winner); err != nil {
		return sandbox.Sandbox{}, nil, err
	}
	wake := mayWake(ctx)
	r, err := run(ctx, c, []sandbox.ID{parent, winner}, func(ctx context.Context) (m mergeResult, err error) {
		defer c.observe("merge", time.Now(), &err)
		p, err := c.want(ctx, project, parent, wake)
		if err != nil {
			return m, err
		}
		w, err := c.want(ctx, project, winner, wake)
		if err != nil {
			return m, err
		}
		if err := context.Cause(ctx); err != nil {
			return m, err
		}
		return c.runMerge(ctx, p, w)
	}, nil)
	return r.sb, r.steps, err
}

func (c *Control) runMerge(ctx context.Context, parent, winner sandbox.Sandbox) (mergeResult, error) {
	begin := time.Now()
	release, releaseWinner := c.lives.hold(parent), c.lives.hold(winner)
	defer release()
	defer releaseWinner()
	data := map[string]string{"parent": string(parent.ID), "winner": string(winner.ID)}
	keep, give, err := c.store.Swap(ctx, parent, winner, opDelete, opMerge,
		store.Event{Type: "merged", Cause: causeMerge, Reason: "it goes on with the machine of sandbox " + winner.ID.String(), Data: data},
		store.Event{Cause: causeMerge, Reason: "it was merged into sandbox " + parent.ID.String(), Data: data})
	if err != nil {
		return mergeResult{}, err
	}
	c.lives.retire(parent.Instance, errMerged)
	c.lives.move(winner.ID, keep)
	release()
	releaseWinner()
	steps := []sandbox.StepTime{{Name: "commit", Took: time.Since(begin)}}
	// It is done; what follows is not undone when it fails, and goes on when the operation is cut short.
	done, cancel := c.commit()
	defer cancel()
	renaming := time.Now()
	c.carryEgress(done, keep) // at once: what it had was the winner's
	if err := c.rename(done, keep); err != nil {
		c.log.Error("finish a merge", "sandbox", keep.ID, "err", err) // the sweep tries again
	}
	steps = append(steps, sandbox.StepTime{Name: "rename", Took: time.Since(renaming)})
	stopping := time.Now()
	if err := c.finishStop(done, give, causeMerge); err != nil {
		c.log.Error("end the machine that a merge replaced", "sandbox", give.ID, "instance", give.Instance, "err", err) // the sweep tries again
	}
	c.noticeEnd(keep)
	c.log.Info("sandbox merged", "sandbox", keep.ID, "winner", winner.ID, "took", time.Since(begin))
	return mergeResult{keep, append(steps, sandbox.StepTime{Name: "stop", Took: time.Since(stopping)})}, nil
}

// rename gives the guest of a merged sandbox the sandbox's identity, with which the merge is
// at its end. Until then the intent says so.
func (c *Control) rename(ctx context.Context, sb sandbox.Sandbox) error {
	if err := c.machines.Rename(ctx, sb.Instance, sb); err != nil {
		return fmt.Errorf("give the guest of instance %s the identity of sandbox %s: %w", sb.Instance, sb.ID, err)
	}
	c.carryEgress(ctx, sb)
	_, err := c.store.TransitionMany(ctx, store.Step{ID: sb.ID, From: sandbox.Running, To: sandbox.Running, Change: store.Change{
		Instance: sb.Instance, End: true,
		Event: store.Event{Type: "renamed", Cause: causeMerge, Reason: "its guest has the sandbox's identity"},
	}})
	if isConflict(err) {
		return nil // on its way out
	}
	return err
}
