package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// The most checkpoints that a sandbox may have of each kind.
const (
	MaxFullCheckpoints = 10
	MaxDiskCheckpoints = 100
)

// CheckpointRequest says what checkpoint to make.
type CheckpointRequest struct {
	// Name is unique among the sandbox's checkpoints. Empty: one is made up.
	Name string
	// Kind is what to save. Empty: memory and disk.
	Kind sandbox.SnapshotKind
	// DeleteOldest deletes the oldest ones of the kind where there would be too many.
	DeleteOldest bool
	// Idempotency is the tag of an idempotent call, see Once.
	Idempotency string
}

func (r *CheckpointRequest) check() (most int, err error) {
	if r.Name == "" {
		r.Name = time.Now().UTC().Format("20060102-150405-") + string(sandbox.NewSnapshotID())[:6]
	}
	if err := checkSnapshotName(r.Name); err != nil {
		return 0, err
	}
	switch r.Kind {
	case "", sandbox.SnapshotFull:
		r.Kind = sandbox.SnapshotFull
		return MaxFullCheckpoints, nil
	case sandbox.SnapshotDisk:
		return MaxDiskCheckpoints, nil
	}
	return 0, sandbox.Errorf(sandbox.Invalid, "invalid_kind", "kind %s does not exist; use full (memory and disk) or disk", shown(string(r.Kind)))
}

func checkSnapshotName(name string) error {
	ok := len(name) <= 64
	for _, b := range []byte(name) {
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-') {
			ok = false
		}
	}
	if !ok {
		return sandbox.Errorf(sandbox.Invalid, "invalid_name", "name %s is not the name of a checkpoint; use up to 64 letters, digits, dots, dashes and underscores", shown(name))
	}
	return nil
}

// Checkpoint saves a sandbox, which goes on running, and returns when the checkpoint is
// whole and on the disk. A hibernated one is woken first. It goes on when ctx ends.
func (c *Control) Checkpoint(ctx context.Context, project string, id sandbox.ID, r CheckpointRequest) (sandbox.Snapshot, sandbox.SaveInfo, error) {
	most, err := r.check()
	if err != nil {
		return sandbox.Snapshot{}, sandbox.SaveInfo{}, err
	}
	if err := c.exists(ctx, project, id); err != nil {
		return sandbox.Snapshot{}, sandbox.SaveInfo{}, err
	}
	if r.Idempotency != "" {
		snap, err := c.store.SnapshotOfIdempotency(ctx, project, r.Idempotency, time.Now().Add(-keepAnswers))
		if sandbox.KindOf(err) != sandbox.NotFound {
			return snap, sandbox.SaveInfo{}, err
		}
	}
	wake := mayWake(ctx)
	type result struct {
		snap sandbox.Snapshot
		info sandbox.SaveInfo
	}
	made, err := run(ctx, c, []sandbox.ID{id}, func(ctx context.Context) (m result, err error) {
		defer c.observe("checkpoint", time.Now(), &err)
		sb, err := c.want(ctx, project, id, wake)
		if err != nil {
			return m, err
		}
		done, err := c.occupy(ctx, sb)
		if err != nil {
			return m, err
		}
		defer done()
		m.snap, m.info, err = c.runCheckpoint(ctx, sb, r, most)
		return m, err
	}, nil)
	if err != nil {
		return sandbox.Snapshot{}, sandbox.SaveInfo{}, err
	}
	list := []sandbox.Snapshot{made.snap}
	err = c.expiring(ctx, project, list)
	return list[0], made.info, err
}

func (c *Control) runCheckpoint(ctx context.Context, sb sandbox.Sandbox, r CheckpointRequest, most int) (sandbox.Snapshot, sandbox.SaveInfo, error) {
	begin := time.Now()
	limits, err := c.limits()
	if err != nil {
		return sandbox.Snapshot{}, sandbox.SaveInfo{}, err
	}
	snap := snapshotOf(sb, sandbox.UseCheckpoint, r.Kind)
	snap.Name, snap.CreatedAt = r.Name, begin.UTC()
	data := map[string]string{"checkpoint": string(snap.ID), "name": snap.Name, "kind": string(r.Kind)}
	_, err = c.store.TransitionMany(ctx, store.Step{ID: sb.ID, From: sandbox.Running, To: sandbox.Running, Change: store.Change{
		Instance: sb.Instance, Begin: opCheckpoint,
		Make:  &store.NewSnapshot{Snapshot: snap, Idempotency: r.Idempotency, Limits: &limits, Max: most, Replace: r.DeleteOldest},
		Event: store.Event{Type: "checkpointing", Cause: causeCheckpoint, Reason: "a checkpoint was asked for", Data: data},
	}})
	if err != nil {
		return snap, sandbox.SaveInfo{}, err
	}
	info, err := c.machines.Save(ctx, sb.Instance, SaveRequest{Snapshot: snap.ID, Kind: r.Kind})
	if err != nil {
		err = fmt.Errorf("checkpoint of sandbox %s: %w", sb.ID, c.undone(ctx, err))
		c.undoCheckpoint(sb, snap, err)
		return snap, info, err
	}
	done, cancel := c.commit()
	defer cancel()
	snap.State, snap.SizeBytes = sandbox.SnapshotReady, info.SizeBytes
	old, err := c.commitCheckpoint(done, sb, snap, r, most)
	if err != nil {
		c.undoCheckpoint(sb, snap, err)
		return snap, info, err
	}
	for _, o := range old {
		c.dropSnapshot(done, o)
	}
	if snap, err = c.store.ReadySnapshot(done, sb.Project, snap.ID, sandbox.UseCheckpoint); err != nil {
		return snap, info, err
	}
	c.log.Info("checkpoint made", "sandbox", sb.ID, "checkpoint", snap.ID, "kind", r.Kind, "size_bytes", info.SizeBytes, "paused", info.Paused, "took", time.Since(begin))
	return snap, info, nil
}

// commitCheckpoint records a whole checkpoint, and that the oldest give way to it. It
// returns those.
func (c *Control) commitCheckpoint(ctx context.Context, sb sandbox.Sandbox, snap sandbox.Snapshot, r CheckpointRequest, most int) ([]sandbox.Snapshot, error) {
	changes := []store.SnapshotChange{{ID: snap.ID, From: sandbox.SnapshotMaking, To: sandbox.SnapshotReady, SizeBytes: snap.SizeBytes}}
	var old []sandbox.Snapshot
	if r.DeleteOldest {
		var err error
		if old, err = c.store.OldestCheckpoints(ctx, sb.ID, r.Kind, most-1); err != nil {
			return nil, err
		}
		for _, o := range old {
			changes = append(changes, store.SnapshotChange{ID: o.ID, From: sandbox.SnapshotReady, To: sandbox.SnapshotDeleting})
		}
	}
	_, err := c.store.TransitionMany(ctx, store.Step{ID: sb.ID, From: sandbox.Running, To: sandbox.Running, Change: store.Change{
		End: true, Snapshots: changes,
		Event: store.Event{
			Type: "checkpoint_made", Cause: causeCheckpoint, Reason: "the checkpoint is whole",
			Data: map[string]string{"checkpoint": string(snap.ID), "name": snap.Name, "kind": string(snap.Kind)},
		},
	}})
	return old, err
}

// undoCheckpoint removes what there is of a checkpoint. Its sandbox goes on, if it has not ended.
func (c *Control) undoCheckpoint(sb sandbox.Sandbox, snap sandbox.Snapshot, cause error) {
	ctx, cancel := c.cleanup()
	defer cancel()
	c.log.Error("checkpoint failed", "sandbox", sb.ID, "err", cause)
	err := c.store.ChangeSnapshot(ctx, snap, store.SnapshotChange{From: sandbox.SnapshotMaking, To: sandbox.SnapshotDeleting}, store.Event{
		Type: "checkpoint_failed", Cause: causeCheckpoint, Reason: reasonOf(cause, "the sandbox could not be saved"),
	})
	err = errors.Join(err, c.goOn(ctx, sb))
	if err != nil {
		c.log.Error("undo a checkpoint", "sandbox", sb.ID, "err", err)
		return // the sweep tries again
	}
	c.dropSnapshot(ctx, snap)
}

// goOn lets the machine of a running sandbox go on after an operation that may have left it
// paused, and removes the operation's intent. The intent stays when it cannot be told
// that it goes on.
func (c *Control) goOn(ctx context.Context, sb sandbox.Sandbox) error {
	if !c.machines.Alive(sb.Instance) {
		return nil // supervision finds that
	}
	if err := c.machines.Continue(ctx, sb.Instance); err != nil {
		return fmt.Errorf("let sandbox %s go on: %w", sb.ID, err)
	}
	_, err := c.store.TransitionMany(ctx, store.Step{ID: sb.ID, From: sandbox.Running, To: sandbox.Running, Change: store.Change{
		Instance: sb.Instance, End: true,
		Event: store.Event{Type: "continued", Cause: causeCleanup, Reason: "an operation on it was undone"},
	}})
	if isConflict(err) {
		return nil // on its way out
	}
	return err
}
