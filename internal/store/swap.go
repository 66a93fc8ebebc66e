package store

import (
	"context"
	"fmt"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store/storedb"
)

// Swap gives the sandbox keep the machine of the sandbox give, and give that of keep, with
// all in the records that belongs to a machine and not to a sandbox. Give becomes stopping
// with the intent operation; its checkpoints become keep's. What keep was in the middle of has
// ended, and follow, unless it is empty, is what it is in the middle of then. Both events are
// written. It is one transaction, so that after a crash each machine belongs to one record.
//
// Both have to be as they are given: keep running, give running or creating.
func (s *Store) Swap(ctx context.Context, keep, give sandbox.Sandbox, operation, follow string, onKeep, onGive Event) (sandbox.Sandbox, sandbox.Sandbox, error) {
	was := give.Instance
	if give.State == sandbox.Creating {
		was = "" // its start may have chosen another
	}
	var list []sandbox.Sandbox
	err := s.tx(ctx, func(q *storedb.Queries) (err error) {
		list, err = s.steps(ctx, q, []Step{
			{ID: keep.ID, From: sandbox.Running, To: sandbox.Running, Change: Change{
				Instance: keep.Instance, Begin: follow, End: true, Event: onKeep,
				Apply: func(r *sandbox.Sandbox) {
					r.UnresponsiveSince = give.UnresponsiveSince
					takeMachine(r, give)
				},
			}},
			{ID: give.ID, From: give.State, To: sandbox.Stopping, Change: Change{
				Instance: was, Begin: operation, Event: onGive,
				Apply: func(r *sandbox.Sandbox) {
					takeMachine(r, keep)
					r.MergedInto, r.FailReason = keep.ID, onGive.Reason
				},
			}},
		})
		if err != nil {
			return err
		}
		err = q.MoveCheckpoints(ctx, storedb.MoveCheckpointsParams{FromSandbox: string(give.ID), ToSandbox: string(keep.ID)})
		if err != nil {
			return fmt.Errorf("move the checkpoints: %w", err)
		}
		return nil
	})
	if err != nil {
		return keep, give, fmt.Errorf("give sandbox %s the machine of %s: %w", keep.ID, give.ID, err)
	}
	return list[0], list[1], nil
}

// takeMachine copies what belongs to a machine.
func takeMachine(to *sandbox.Sandbox, from sandbox.Sandbox) {
	to.Instance, to.Shape, to.Isolation = from.Instance, from.Shape, from.Isolation
	to.Template, to.TemplateHash, to.BootNote = from.Template, from.TemplateHash, from.BootNote
}
