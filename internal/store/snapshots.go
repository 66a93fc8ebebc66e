package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store/storedb"
)

// NewSnapshot is a snapshot that is going to be made.
type NewSnapshot struct {
	sandbox.Snapshot
	// Idempotency is the tag of the idempotent call that makes it, "" for none.
	Idempotency string
	// Limits, when set, are what the project and the node must not have used up. How much a
	// snapshot takes is known when it is made: one may go beyond.
	Limits *Limits
	// Max, when positive, is how many checkpoints of its kind its sandbox may have. With
	// Replace it does not matter, and Change.Snapshots of the end takes care of it.
	Max     int
	Replace bool
}

// SnapshotChange is a change of a snapshot's state within a transition.
type SnapshotChange struct {
	ID       sandbox.SnapshotID
	From, To sandbox.SnapshotState
	// SizeBytes, when positive, is what it takes on the disk.
	SizeBytes int64
}

// Forgotten is the state of a snapshot whose record is removed.
const Forgotten sandbox.SnapshotState = ""

// snapshotSteps is the one table of the changes of a snapshot's state.
var snapshotSteps = map[sandbox.SnapshotState][]sandbox.SnapshotState{
	sandbox.SnapshotMaking:   {sandbox.SnapshotReady, sandbox.SnapshotDeleting},
	sandbox.SnapshotReady:    {sandbox.SnapshotDeleting},
	sandbox.SnapshotDeleting: {Forgotten},
}

func changeSnapshots(ctx context.Context, q *storedb.Queries, now time.Time, c Change) error {
	if c.Make != nil {
		if err := insertSnapshot(ctx, q, now, *c.Make); err != nil {
			return err
		}
	}
	for _, ch := range c.Snapshots {
		if err := changeSnapshot(ctx, q, ch); err != nil {
			return err
		}
	}
	return nil
}

func insertSnapshot(ctx context.Context, q *storedb.Queries, now time.Time, n NewSnapshot) error {
	if n.Limits != nil {
		if err := roomForOne(ctx, q, n); err != nil {
			return err
		}
	}
	if n.Max > 0 && !n.Replace {
		have, err := q.CountCheckpoints(ctx, storedb.CountCheckpointsParams{Sandbox: string(n.Sandbox), Kind: string(n.Kind)})
		if err != nil {
			return fmt.Errorf("count the checkpoints: %w", err)
		}
		if int(have) >= n.Max {
			return sandbox.Errorf(sandbox.Exhausted, "too_many_checkpoints",
				"the sandbox has %d %s checkpoints, the most that it can have; delete one first, or ask for the oldest to be deleted", have, n.Kind)
		}
	}
	if n.Name != "" {
		taken, err := q.CountNamed(ctx, storedb.CountNamedParams{Sandbox: string(n.Sandbox), Use: string(n.Use), Name: n.Name})
		if err != nil {
			return fmt.Errorf("look up the name: %w", err)
		}
		if taken > 0 {
			return sandbox.Errorf(sandbox.Conflict, string(n.Use)+"_exists", "the sandbox has a %s named %s already; choose another name or delete that one", n.Use, n.Name)
		}
	}
	settings, err := json.Marshal(n.Settings)
	if err != nil {
		return fmt.Errorf("encode the settings: %w", err)
	}
	err = q.InsertSnapshot(ctx, storedb.InsertSnapshotParams{
		ID: string(n.ID), Project: n.Project, Region: n.Region, Node: n.Node, Sandbox: string(n.Sandbox), Use: string(n.Use), Kind: string(n.Kind),
		State: string(sandbox.SnapshotMaking), Name: n.Name, Template: n.Template, TemplateHash: n.TemplateHash,
		Vcpus: int64(n.Shape.VCPUs), MemoryMb: int64(n.Shape.MemoryMB), DiskMb: int64(n.Shape.DiskMB), Isolation: string(n.Isolation),
		Settings: string(settings), Idempotency: n.Idempotency, CreatedAt: now.UnixMicro(),
	})
	if err != nil {
		return fmt.Errorf("insert the record of a snapshot: %w", err)
	}
	return nil
}

// roomForOne refuses a snapshot when there is no disk left at all.
func roomForOne(ctx context.Context, q *storedb.Queries, n NewSnapshot) error {
	used, quota, err := quotaOf(ctx, q, n.Project, *n.Limits)
	if err != nil {
		return err
	}
	one := sandbox.Usage{DiskMB: 1}
	if err := checkQuota(n.Project, one, used, quota); err != nil {
		return err
	}
	promised, err := usageOfNode(ctx, q, n.Node)
	if err != nil {
		return err
	}
	return checkNode(one, promised, *n.Limits)
}

func changeSnapshot(ctx context.Context, q *storedb.Queries, c SnapshotChange) error {
	allowed := false
	for _, s := range snapshotSteps[c.From] {
		allowed = allowed || s == c.To
	}
	if !allowed {
		return fmt.Errorf("snapshot %s: a snapshot that is %q can never become %q", c.ID, c.From, c.To)
	}
	var n int64
	var err error
	if c.To == Forgotten {
		n, err = q.DeleteSnapshot(ctx, string(c.ID))
	} else {
		size := int64(-1)
		if c.SizeBytes > 0 {
			size = c.SizeBytes
		}
		n, err = q.SetSnapshotState(ctx, storedb.SetSnapshotStateParams{ID: string(c.ID), State: string(c.From), NextState: string(c.To), SizeBytes: size})
	}
	if err != nil {
		return fmt.Errorf("change the record of snapshot %s: %w", c.ID, err)
	}
	if n == 1 {
		return nil
	}
	row, err := q.GetSnapshotForChange(ctx, string(c.ID))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return sandbox.Errorf(sandbox.NotFound, "snapshot_not_found", "snapshot not found")
	case err != nil:
		return fmt.Errorf("read the record of snapshot %s: %w", c.ID, err)
	}
	return wrongSnapshotState(sandbox.SnapshotUse(row.Use), sandbox.SnapshotState(row.State))
}

func wrongSnapshotState(use sandbox.SnapshotUse, state sandbox.SnapshotState) error {
	if state == sandbox.SnapshotDeleting {
		return sandbox.Errorf(sandbox.NotFound, string(use)+"_not_found", "%s not found", use)
	}
	return sandbox.Errorf(sandbox.Conflict, string(use)+"_not_ready", "the %s is still being made; try again in a moment", use)
}

// ChangeSnapshot changes the state of one snapshot, with an event of the sandbox that it
// was made of unless its type is empty. It fails with a Conflict or NotFound when the
// snapshot is not in the state From any more.
func (s *Store) ChangeSnapshot(ctx context.Context, snap sandbox.Snapshot, c SnapshotChange, e Event) error {
	c.ID = snap.ID
	err := s.tx(ctx, func(q *storedb.Queries) error {
		if err := changeSnapshot(ctx, q, c); err != nil || e.Type == "" {
			return err
		}
		return insertSnapshotEvent(ctx, q, s.now(), snap, e)
	})
	if err != nil {
		return fmt.Errorf("snapshot %s from %s: %w", snap.ID, c.From, err)
	}
	return nil
}

// insertSnapshotEvent writes into the history of a sandbox what happened to a snapshot
// of it. The sandbox may be forgotten.
func insertSnapshotEvent(ctx context.Context, q *storedb.Queries, now time.Time, snap sandbox.Snapshot, e Event) error {
	sb, err := one(q.GetSandboxForChange(ctx, string(snap.Sandbox)))
	if sandbox.KindOf(err) == sandbox.NotFound {
		sb, err = sandbox.Sandbox{ID: snap.Sandbox, Project: snap.Project, State: sandbox.Stopped}, nil
	}
	if err != nil {
		return err
	}
	return insertEvent(ctx, q, now, sb, e)
}

// Snapshot returns a snapshot of a project, in whatever state it is. Another project's is not found.
func (s *Store) Snapshot(ctx context.Context, project string, id sandbox.SnapshotID, use sandbox.SnapshotUse) (sandbox.Snapshot, error) {
	row, err := s.read.GetSnapshot(ctx, storedb.GetSnapshotParams{ID: string(id), Project: project, Use: string(use)})
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Snapshot{}, sandbox.Errorf(sandbox.NotFound, string(use)+"_not_found", "%s not found", use)
	}
	if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("get snapshot %s: %w", id, err)
	}
	return snapshotFromRow(row)
}

// ReadySnapshot is Snapshot of one that is whole.
func (s *Store) ReadySnapshot(ctx context.Context, project string, id sandbox.SnapshotID, use sandbox.SnapshotUse) (sandbox.Snapshot, error) {
	snap, err := s.Snapshot(ctx, project, id, use)
	if err == nil && snap.State != sandbox.SnapshotReady {
		err = wrongSnapshotState(use, snap.State)
	}
	return snap, err
}

// SnapshotQuery selects a page of a project's snapshots of one use.
type SnapshotQuery struct {
	Use sandbox.SnapshotUse
	// Sandbox, when set, is the one that they were made of.
	Sandbox sandbox.ID
	Limit   int // more than 0
	// After continues behind a snapshot: the last of the page before. Its ID is the snapshot's.
	After *Position
}

// Snapshots returns a page of the snapshots that are whole, newest first, and whether there are more.
func (s *Store) Snapshots(ctx context.Context, project string, o SnapshotQuery) (page []sandbox.Snapshot, more bool, err error) {
	before, beforeID := int64(math.MaxInt64), ""
	if o.After != nil {
		before, beforeID = o.After.CreatedAt.UnixMicro(), string(o.After.ID)
	}
	rows, err := s.read.ListSnapshots(ctx, storedb.ListSnapshotsParams{
		Project: project, Use: string(o.Use), Sandbox: string(o.Sandbox), BeforeTime: before, BeforeID: beforeID, MaxRows: int64(o.Limit) + 1,
	})
	if err != nil {
		return nil, false, fmt.Errorf("list snapshots: %w", err)
	}
	page, err = snapshotsFromRows(rows)
	if len(page) > o.Limit {
		return page[:o.Limit], true, err
	}
	return page, false, err
}

// SnapshotsOfNode returns every snapshot of a node in whatever state. It serves recovery
// and the collection of garbage, never a caller; Unsettled only those that are not ready.
func (s *Store) SnapshotsOfNode(ctx context.Context, node string) ([]sandbox.Snapshot, error) {
	rows, err := s.read.SnapshotsOfNode(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("list the snapshots of node %s: %w", node, err)
	}
	return snapshotsFromRows(rows)
}

// Unsettled returns the snapshots of a node that are being made or deleted.
func (s *Store) Unsettled(ctx context.Context, node string) ([]sandbox.Snapshot, error) {
	rows, err := s.read.UnsettledSnapshots(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("list the unsettled snapshots of node %s: %w", node, err)
	}
	return snapshotsFromRows(rows)
}

// OldestCheckpoints returns the oldest checkpoints of a kind beyond the newest keep,
// not counting ones that are being made.
func (s *Store) OldestCheckpoints(ctx context.Context, id sandbox.ID, kind sandbox.SnapshotKind, keep int) ([]sandbox.Snapshot, error) {
	rows, err := s.read.OldestCheckpoints(ctx, storedb.OldestCheckpointsParams{Sandbox: string(id), Kind: string(kind), MaxRows: math.MaxInt32})
	if err != nil {
		return nil, fmt.Errorf("list the checkpoints of sandbox %s: %w", id, err)
	}
	list, err := snapshotsFromRows(rows)
	return list[:max(0, len(list)-keep)], err
}

// SnapshotOfIdempotency returns the snapshot of a project that was made with a tag, or a NotFound.
func (s *Store) SnapshotOfIdempotency(ctx context.Context, project, tag string, since time.Time) (sandbox.Snapshot, error) {
	row, err := s.read.SnapshotOfIdempotency(ctx, storedb.SnapshotOfIdempotencyParams{Project: project, Idempotency: tag, Since: since.UnixMicro()})
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Snapshot{}, sandbox.Errorf(sandbox.NotFound, "snapshot_not_found", "snapshot not found")
	}
	if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("look up the snapshot of a call: %w", err)
	}
	return snapshotFromRow(row)
}

// ExpiredSnapshots returns whole snapshots of a node that are older than their project, or
// else defaults, keeps them: at most limit of each project and use.
func (s *Store) ExpiredSnapshots(ctx context.Context, node string, defaults sandbox.Retention, limit int) ([]sandbox.Snapshot, error) {
	projects, err := s.read.ProjectsWithSnapshots(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("list the projects with snapshots: %w", err)
	}
	var list []sandbox.Snapshot
	for _, name := range projects {
		retention, err := s.Retention(ctx, name, defaults)
		if err != nil {
			return nil, err
		}
		for _, use := range []sandbox.SnapshotUse{sandbox.UseHibernation, sandbox.UseSpace, sandbox.UseCheckpoint} {
			keep := retention.Of(use)
			if keep <= 0 {
				continue
			}
			rows, err := s.read.SnapshotsBefore(ctx, storedb.SnapshotsBeforeParams{
				Node: node, Project: name, Use: string(use), Before: s.now().Add(-keep).UnixMicro(), MaxRows: int64(limit),
			})
			if err != nil {
				return nil, fmt.Errorf("list expired snapshots: %w", err)
			}
			old, err := snapshotsFromRows(rows)
			if err != nil {
				return nil, err
			}
			list = append(list, old...)
		}
	}
	return list, nil
}

// Retention returns how long a project keeps what it keeps.
func (s *Store) Retention(ctx context.Context, project string, defaults sandbox.Retention) (sandbox.Retention, error) {
	p, err := s.Project(ctx, project)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return sandbox.Retention{}, err
	}
	return p.Retention.Or(defaults), nil
}

func snapshotsFromRows(rows []storedb.Snapshot) ([]sandbox.Snapshot, error) {
	list := make([]sandbox.Snapshot, 0, len(rows))
	for _, r := range rows {
		snap, err := snapshotFromRow(r)
		if err != nil {
			return nil, err
		}
		list = append(list, snap)
	}
	return list, nil
}

func snapshotFromRow(r storedb.Snapshot) (sandbox.Snapshot, error) {
	snap := sandbox.Snapshot{
		ID: sandbox.SnapshotID(r.ID), Project: r.Project, Region: r.Region, Node: r.Node, Sandbox: sandbox.ID(r.Sandbox),
		Use: sandbox.SnapshotUse(r.Use), Kind: sandbox.SnapshotKind(r.Kind), State: sandbox.SnapshotState(r.State), Name: r.Name,
		Template: r.Template, TemplateHash: r.TemplateHash,
		Shape:     sandbox.Shape{VCPUs: int(r.Vcpus), MemoryMB: int(r.MemoryMb), DiskMB: int(r.DiskMb)},
		Isolation: sandbox.Isolation(r.Isolation), SizeBytes: r.SizeBytes, CreatedAt: time.UnixMicro(r.CreatedAt).UTC(),
	}
	if err := json.Unmarshal([]byte(r.Settings), &snap.Settings); err != nil {
		return snap, fmt.Errorf("read the settings of snapshot %s: %w", r.ID, err)
	}
	return snap, nil
}
