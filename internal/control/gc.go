package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ramet.dev/ramet/internal/sandbox"
)

// Garbage is something on the host that no record has.
type Garbage struct {
	ID    string
	Bytes int64 // 0 when it is not known
	Why   string
}

// GCReport is what a collection removed, or would.
type GCReport struct {
	Snapshots []Garbage
	Instances []Garbage
	Bytes     int64
}

// GC removes the snapshots and machines on the host that no record has and no operation
// makes; with dryRun it only says which. It is for admins. There is garbage only when a
// database was replaced by an older one, or after a bug.
func (c *Control) GC(ctx context.Context, dryRun bool) (GCReport, error) {
	var r GCReport
	// What is there is listed before what is recorded: a record is written before, and goes after,
	// what it is for.
	found, err := c.machines.Snapshots()
	if err != nil {
		return r, fmt.Errorf("list the snapshots on the disk: %w", err)
	}
	recorded, err := c.store.SnapshotsOfNode(ctx, c.cfg.Node)
	if err != nil {
		return r, err
	}
	known := make(map[sandbox.SnapshotID]bool, len(recorded))
	for _, s := range recorded {
		known[s.ID] = true
	}
	var errs []error
	for _, id := range found {
		if known[id] {
			continue
		}
		g := Garbage{ID: string(id), Bytes: c.sizeOf(id), Why: "no record has this snapshot"}
		if !dryRun {
			if err := c.machines.RemoveSnapshot(ctx, id); err != nil {
				errs = append(errs, fmt.Errorf("remove snapshot %s: %w", id, err))
				continue
			}
			c.log.Warn("removed a snapshot without a record", "snapshot", id, "bytes", g.Bytes)
		}
		r.Snapshots, r.Bytes = append(r.Snapshots, g), r.Bytes+g.Bytes
	}
	errs = append(errs, c.collectInstances(ctx, dryRun, &r))
	return r, errors.Join(errs...)
}

func (c *Control) collectInstances(ctx context.Context, dryRun bool, r *GCReport) error {
	inv, ok := c.machines.(Inventory)
	if !ok {
		return nil
	}
	found, err := inv.Instances()
	if err != nil {
		return fmt.Errorf("list the machines on the host: %w", err)
	}
	if err := c.awaitCreates(ctx); err != nil {
		return err
	}
	records, err := c.store.OfNode(ctx, c.cfg.Node)
	if err != nil {
		return err
	}
	known := make(map[sandbox.InstanceID]bool, len(records))
	for _, sb := range records {
		known[sb.Instance] = true
	}
	var errs []error
	for _, id := range found {
		if known[id] {
			continue
		}
		g := Garbage{ID: string(id), Why: "no sandbox has this machine"}
		if stats, err := c.machines.Stats(id); err == nil {
			g.Bytes = stats.DiskBytes
		} // else it is only remains, whose size is not known
		if !dryRun {
			if err := c.machines.Stop(ctx, id); err != nil {
				errs = append(errs, fmt.Errorf("stop machine %s: %w", id, err))
				continue
			}
			c.log.Warn("ended a machine without a record", "instance", id)
		}
		r.Instances, r.Bytes = append(r.Instances, g), r.Bytes+g.Bytes
	}
	return errors.Join(errs...)
}

// awaitCreates waits for the starts under way: a start may choose another instance than the
// record names until it commits, and a machine that was kept ready has no record before.
func (c *Control) awaitCreates(ctx context.Context) error {
	c.mu.Lock()
	var wait []<-chan struct{}
	for _, op := range c.creates {
		wait = append(wait, op.done)
	}
	for _, op := range c.ops {
		wait = append(wait, op.done)
	}
	wait = slices.AppendSeq(wait, maps.Keys(c.claims))
	c.mu.Unlock()
	for _, done := range wait {
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("wait for operations to end: %w", context.Cause(ctx))
		}
	}
	return nil
}
