package control

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// SnapshotQuery selects a page of checkpoints or Spaces. In After the ID is that of a
// snapshot, as SnapshotPosition makes it.
type SnapshotQuery = store.SnapshotQuery

// SnapshotPosition is the place behind a snapshot in a list.
func SnapshotPosition(s sandbox.Snapshot) *Position {
	return &Position{CreatedAt: s.CreatedAt, ID: sandbox.ID(s.ID)}
}

// Snapshots returns a page of a project's checkpoints or Spaces, newest first, and whether
// there are more.
func (c *Control) Snapshots(ctx context.Context, project string, q SnapshotQuery) ([]sandbox.Snapshot, bool, error) {
	if err := checkUse(q.Use); err != nil {
		return nil, false, err
	}
	if q.Limit < 1 {
		return nil, false, sandbox.Errorf(sandbox.Invalid, "invalid_limit", "limit has to be more than 0")
	}
	list, more, err := c.store.Snapshots(ctx, project, q)
	if err != nil {
		return nil, false, err
	}
	return list, more, c.expiring(ctx, project, list)
}

// Snapshot returns a checkpoint or Space of a project.
func (c *Control) Snapshot(ctx context.Context, project string, id sandbox.SnapshotID, use sandbox.SnapshotUse) (sandbox.Snapshot, error) {
	if err := checkUse(use); err != nil {
		return sandbox.Snapshot{}, err
	}
	snap, err := c.store.ReadySnapshot(ctx, project, id, use)
	if err != nil {
		return snap, err
	}
	list := []sandbox.Snapshot{snap}
	err = c.expiring(ctx, project, list)
	return list[0], err
}

// checkUse refuses what belongs to a hibernated sandbox and to no caller.
func checkUse(use sandbox.SnapshotUse) error {
	if use != sandbox.UseCheckpoint && use != sandbox.UseSpace {
		return sandbox.Errorf(sandbox.Invalid, "invalid_use", "there are no lists of %s snapshots; ask for checkpoints or Spaces", shown(string(use)))
	}
	return nil
}

// expiring fills in when snapshots expire.
func (c *Control) expiring(ctx context.Context, project string, list []sandbox.Snapshot) error {
	retention, err := c.store.Retention(ctx, project, c.cfg.Retention)
	if err != nil {
		return err
	}
	for i := range list {
		if keep := retention.Of(list[i].Use); keep > 0 {
			list[i].ExpiresAt = list[i].CreatedAt.Add(keep)
		}
	}
	return nil
}

// ExpiresAt returns when a sandbox ends for good if nobody does anything: by its maximum
// lifetime or a deadline, or a hibernated one by the retention of its project. Zero is never.
func (c *Control) ExpiresAt(ctx context.Context, sb sandbox.Sandbox) (time.Time, error) {
	var at time.Time
	if sb.MaxLifetime > 0 {
		at = sb.CreatedAt.Add(sb.MaxLifetime)
	}
	if end := sb.EndsAt; !end.IsZero() && deletes(sb.Deadline.Then) && (at.IsZero() || end.Before(at)) {
		at = end
	}
	if sb.State != sandbox.Hibernated {
		return at, nil
	}
	snap, err := c.store.Snapshot(ctx, sb.Project, sb.Hibernation, sandbox.UseHibernation)
	if sandbox.KindOf(err) == sandbox.NotFound { // it has just woken
		return at, nil
	}
	if err != nil {
		return at, err
	}
	list := []sandbox.Snapshot{snap}
	if err := c.expiring(ctx, sb.Project, list); err != nil {
		return at, err
	}
	if end := list[0].ExpiresAt; !end.IsZero() && (at.IsZero() || end.Before(at)) {
		at = end
	}
	return at, nil
}

// DeleteSnapshot removes a checkpoint or Space and returns when its room is free. What was
// started from it goes on. Deletes of the same one at the same time all succeed.
func (c *Control) DeleteSnapshot(ctx context.Context, project string, id sandbox.SnapshotID, use sandbox.SnapshotUse) error {
	if err := checkUse(use); err != nil {
		return err
	}
	snap, err := c.store.Snapshot(ctx, project, id, use)
	if err != nil {
		return err
	}
	return c.deleteSnapshot(ctx, snap, ending{cause: causeDelete, reason: "a delete was asked for"})
}

func (c *Control) deleteSnapshot(ctx context.Context, snap sandbox.Snapshot, why ending) error {
	if snap.State != sandbox.SnapshotDeleting {
		err := c.store.ChangeSnapshot(ctx, snap, store.SnapshotChange{From: sandbox.SnapshotReady, To: sandbox.SnapshotDeleting},
			store.Event{
				Type: string(snap.Use) + "_deleted", Cause: why.cause, Reason: why.reason,
				Data: map[string]string{string(snap.Use): string(snap.ID), "name": snap.Name},
			})
		if err != nil {
			return err
		}
	}
	done := make(chan error, 1)
	err := c.spawn(func() {
		ctx, cancel := c.cleanup()
		defer cancel()
		done <- c.freeSnapshot(ctx, snap)
	})
	if err != nil {
		return err // the next start frees it
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the delete of snapshot %s: %w", snap.ID, context.Cause(ctx))
	}
}

// freeSnapshot removes a snapshot whose record says that it is being deleted, when
// nobody reads it any more, and forgets it. Whoever finds it so may repeat it.
func (c *Control) freeSnapshot(ctx context.Context, snap sandbox.Snapshot) error {
	if err := c.awaitUnpinned(ctx, snap.ID); err != nil {
		return err
	}
	if err := c.machines.RemoveSnapshot(ctx, snap.ID); err != nil {
		return fmt.Errorf("remove snapshot %s: %w", snap.ID, err)
	}
	err := c.store.ChangeSnapshot(ctx, snap, store.SnapshotChange{From: sandbox.SnapshotDeleting, To: store.Forgotten}, store.Event{})
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil // by somebody who did the same
	}
	return err
}

// dropSnapshot is freeSnapshot at the end of an operation that has succeeded or been undone
// whatever comes of it: what fails the sweep tries again.
func (c *Control) dropSnapshot(ctx context.Context, snap sandbox.Snapshot) {
	if err := c.freeSnapshot(ctx, snap); err != nil {
		c.log.Error("remove a snapshot", "snapshot", snap.ID, "err", err)
	}
}

// pin is the readers of a snapshot: as long as there are any it is not removed.
type pin struct {
	readers int
	free    chan struct{} // closed when there are none
}

// pin keeps a snapshot from being removed until the function that it returns is called.
// Whether the snapshot is there still is to be looked up after it.
func (c *Control) pin(id sandbox.SnapshotID) (unpin func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pins[id]
	if p == nil {
		p = &pin{free: make(chan struct{})}
		c.pins[id] = p
	}
	p.readers++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if p.readers--; p.readers == 0 {
			delete(c.pins, id)
			close(p.free)
		}
	}
}

func (c *Control) awaitUnpinned(ctx context.Context, id sandbox.SnapshotID) error {
	for {
		c.mu.Lock()
		p := c.pins[id]
		c.mu.Unlock()
		if p == nil {
			return nil
		}
		select {
		case <-p.free:
		case <-ctx.Done():
			return fmt.Errorf("wait until nothing reads snapshot %s: %w", id, context.Cause(ctx))
		}
	}
}

// snapshotOf makes the record of a new snapshot of a sandbox.
func snapshotOf(sb sandbox.Sandbox, use sandbox.SnapshotUse, kind sandbox.SnapshotKind) sandbox.Snapshot {
	return sandbox.Snapshot{
		ID: sandbox.NewSnapshotID(), Project: sb.Project, Region: sb.Region, Node: sb.Node, Sandbox: sb.ID,
		Use: use, Kind: kind, Template: sb.Template, TemplateHash: sb.TemplateHash,
		Shape: sb.Shape, Isolation: sb.Isolation, Settings: settingsOf(sb),
	}
}

// settingsOf returns what a sandbox hands on.
func settingsOf(sb sandbox.Sandbox) sandbox.Settings {
	return sandbox.Settings{
		Egress: sb.Egress, EgressPolicy: sb.EgressPolicy, Env: sb.Env, Metadata: sb.Metadata,
		IdleTimeout: sb.IdleTimeout, MaxLifetime: sb.MaxLifetime, Persistent: sb.Persistent,
		Deadline: sb.Deadline, PrivatePorts: sb.PrivatePorts,
	}
}

// inherit gives a sandbox the settings that another handed on.
func inherit(sb *sandbox.Sandbox, s sandbox.Settings) {
	sb.Egress, sb.EgressPolicy, sb.Env, sb.Metadata = s.Egress, s.EgressPolicy, s.Env, s.Metadata
	sb.IdleTimeout, sb.MaxLifetime, sb.Persistent = s.IdleTimeout, s.MaxLifetime, s.Persistent
	sb.Deadline, sb.PrivatePorts = s.Deadline, s.PrivatePorts
}

// sizeOf returns what a snapshot takes on the disk, 0 when that is not known.
func (c *Control) sizeOf(id sandbox.SnapshotID) int64 {
	inv, ok := c.machines.(Inventory)
	if !ok {
		return 0
	}
	size, err := inv.SnapshotSize(id)
	if err != nil {
		c.log.Error("measure a snapshot", "snapshot", id, "err", err)
		return 0
	}
	return size
}
