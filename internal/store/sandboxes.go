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

// Change is what a transition does beside changing the state. Every field may be left out.
type Change struct {
	// Apply edits the record. It must not touch its id, project or state.
	Apply func(*sandbox.Sandbox)
	// Begin names the operation that begins; its intent is kept until End.
	Begin string
	// End removes the intent.
	End bool
	// Check, when set, looks at the record as it is, and refuses the change with its error.
	Check func(sandbox.Sandbox) error
	// Instance, when set, is what the record has to have still; else it is a Conflict.
	Instance sandbox.InstanceID
	// Admit, when set, is what the sandbox has to fit into: it takes memory again.
	Admit *Limits
	// Make, when set, is a snapshot to enter as being made.
	Make *NewSnapshot
	// Snapshots are the changes of other snapshots.
	Snapshots []SnapshotChange
	// Event is what the change is called in the sandbox's history.
	Event Event
}

var errNotFound = sandbox.Errorf(sandbox.NotFound, "sandbox_not_found", "sandbox not found")

// Create enters a new sandbox, in the state Creating, with the intent of the operation that
// makes it, when there is room for it within the limits.
func (s *Store) Create(ctx context.Context, sb sandbox.Sandbox, operation string, limits Limits) (sandbox.Sandbox, error) {
	made, err := s.CreateMany(ctx, []sandbox.Sandbox{sb}, operation, limits)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return made[0], nil
}

// CreateMany is Create for several sandboxes of one project and node, all or none, with
// further steps in the same transaction.
func (s *Store) CreateMany(ctx context.Context, list []sandbox.Sandbox, operation string, limits Limits, steps ...Step) ([]sandbox.Sandbox, error) {
	now := s.now()
	made := make([]sandbox.Sandbox, len(list))
	err := s.grow(ctx, func(q *storedb.Queries) error {
		if err := checkLimits(ctx, q, list[0], needOf(list), limits); err != nil {
			return err
		}
		for i, sb := range list {
			sb.State, sb.CreatedAt, sb.UpdatedAt = sandbox.Creating, now, now
			row, err := toRow(sb)
			if err != nil {
				return err
			}
			if err := q.InsertSandbox(ctx, storedb.InsertSandboxParams(row)); err != nil {
				return fmt.Errorf("insert the record: %w", err)
			}
			if err := q.PutIntent(ctx, storedb.PutIntentParams{Sandbox: row.ID, Operation: operation, StartedAt: now.UnixMicro()}); err != nil {
				return fmt.Errorf("write the intent: %w", err)
			}
			if err := insertEvent(ctx, q, now, sb, Event{Type: "creating", Cause: operation, Reason: "it was asked for"}); err != nil {
				return err
			}
			if made[i], err = fromRow(row); err != nil {
				return err
			}
		}
		_, err := s.steps(ctx, q, steps)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create the record of sandbox %s: %w", list[0].ID, err)
	}
	return made, nil
}

// Step is the change of one sandbox among several. From and To may be the same
// state: then the sandbox stays in it, and the event has to have a type.
type Step struct {
	ID       sandbox.ID
	From, To sandbox.State
	Change
}

// TransitionMany makes several transitions in one transaction, all or none, and returns
// the records as they then are.
func (s *Store) TransitionMany(ctx context.Context, steps ...Step) ([]sandbox.Sandbox, error) {
	run := s.tx
	for _, st := range steps {
		if st.Make != nil || st.Admit != nil {
			run = s.grow
		}
	}
	var list []sandbox.Sandbox
	err := run(ctx, func(q *storedb.Queries) (err error) {
		list, err = s.steps(ctx, q, steps)
		return err
	})
	if err != nil {
		return list, fmt.Errorf("sandbox %s from %s to %s: %w", steps[0].ID, steps[0].From, steps[0].To, err)
	}
	return list, nil
}

func (s *Store) steps(ctx context.Context, q *storedb.Queries, steps []Step) ([]sandbox.Sandbox, error) {
	list := make([]sandbox.Sandbox, len(steps))
	for i, st := range steps {
		if st.From != st.To && !st.From.CanBecome(st.To) {
			return nil, fmt.Errorf("sandbox %s: a %s sandbox can never become %s", st.ID, st.From, st.To)
		}
		if st.From == st.To && st.Event.Type == "" {
			return nil, fmt.Errorf("sandbox %s stays %s without an event", st.ID, st.From)
		}
		var err error
		if list[i], err = s.transition(ctx, q, st.ID, st.From, st.To, st.Change); err != nil {
			return list, err
		}
	}
	return list, nil
}

// Transition changes the state of a sandbox, in one transaction with all of c.
// It returns a Conflict when the sandbox is not in the state from any more, and the
// record as it then is.
func (s *Store) Transition(ctx context.Context, id sandbox.ID, from, to sandbox.State, c Change) (sandbox.Sandbox, error) {
	list, err := s.TransitionMany(ctx, Step{ID: id, From: from, To: to, Change: c})
	if len(list) == 0 {
		return sandbox.Sandbox{}, err
	}
	return list[0], err
}

func (s *Store) transition(ctx context.Context, q *storedb.Queries, id sandbox.ID, from, to sandbox.State, c Change) (sandbox.Sandbox, error) {
	old, err := one(q.GetSandboxForChange(ctx, string(id)))
	if err != nil {
		return old, err
	}
	if old.State != from {
		return old, wrongState(old.State)
	}
	if c.Instance != "" && old.Instance != c.Instance {
		return old, sandbox.Errorf(sandbox.Conflict, "wrong_instance", "the sandbox has another machine now")
	}
	if c.Check != nil {
		if err := c.Check(old); err != nil {
			return old, err
		}
	}
	if c.Admit != nil {
		// Its disk is promised already.
		need := sandbox.Usage{Sandboxes: 1, MemoryMB: old.Shape.MemoryMB}
		if err := checkLimits(ctx, q, old, need, *c.Admit); err != nil {
			return old, err
		}
	}
	sb := old
	if c.Apply != nil {
		c.Apply(&sb)
	}
	now := s.now()
	sb.ID, sb.Project, sb.State, sb.UpdatedAt = old.ID, old.Project, to, now
	if to != sandbox.Running {
		sb.UnresponsiveSince = time.Time{}
	}
	row, err := toRow(sb)
	if err != nil {
		return old, err
	}
	if err := swap(ctx, q, from, row); err != nil {
		return old, err
	}
	if err := changeIntent(ctx, q, row.ID, now, c); err != nil {
		return old, err
	}
	if err := changeSnapshots(ctx, q, now, c); err != nil {
		return old, err
	}
	if c.Event.Type == "" {
		c.Event.Type = string(to)
	}
	return sb, insertEvent(ctx, q, now, sb, c.Event)
}

// swap writes a record that is in the state from.
func swap(ctx context.Context, q *storedb.Queries, from sandbox.State, row storedb.Sandbox) error {
	n, err := q.UpdateSandbox(ctx, storedb.UpdateSandboxParams{
		ID: row.ID, State: string(from), NextState: row.State, TemplateHash: row.TemplateHash, FailReason: row.FailReason,
		UnresponsiveSince: row.UnresponsiveSince, Instance: row.Instance, Vcpus: row.Vcpus, MemoryMb: row.MemoryMb,
		DiskMb: row.DiskMb, Isolation: row.Isolation, Egress: row.Egress, Env: row.Env, Metadata: row.Metadata,
		UpdatedAt: row.UpdatedAt, IdleTimeoutMs: row.IdleTimeoutMs, MaxLifetimeMs: row.MaxLifetimeMs,
		EgressPolicy: row.EgressPolicy, Template: row.Template, Persistent: row.Persistent, MergedInto: row.MergedInto,
		Hibernation: row.Hibernation, BootNote: row.BootNote,
		EndsAt: row.EndsAt, EndAfterMs: row.EndAfterMs, AtEnd: row.AtEnd, ManualWake: row.ManualWake, PrivatePorts: row.PrivatePorts,
	})
	if err != nil {
		return fmt.Errorf("update the record: %w", err)
	}
	if n != 1 {
		return wrongState(from)
	}
	return nil
}

// Update changes a record without changing its state. It must not touch its id or project.
func (s *Store) Update(ctx context.Context, project string, id sandbox.ID, apply func(*sandbox.Sandbox) error, e Event) (sandbox.Sandbox, error) {
	var sb sandbox.Sandbox
	err := s.tx(ctx, func(q *storedb.Queries) error {
		old, err := one(q.GetSandbox(ctx, storedb.GetSandboxParams{ID: string(id), Project: project}))
		if err != nil {
			return err
		}
		sb = old
		if err := apply(&sb); err != nil {
			return err
		}
		now := s.now()
		sb.ID, sb.Project, sb.State, sb.UpdatedAt = old.ID, old.Project, old.State, now
		row, err := toRow(sb)
		if err != nil {
			return err
		}
		if err := swap(ctx, q, old.State, row); err != nil {
			return err
		}
		return insertEvent(ctx, q, now, sb, e)
	})
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("update sandbox %s: %w", id, err)
	}
	return sb, nil
}

func changeIntent(ctx context.Context, q *storedb.Queries, id string, now time.Time, c Change) error {
	var err error
	switch {
	case c.Begin != "":
		err = q.PutIntent(ctx, storedb.PutIntentParams{Sandbox: id, Operation: c.Begin, StartedAt: now.UnixMicro()})
	case c.End:
		err = q.DeleteIntent(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("change the intent: %w", err)
	}
	return nil
}

func wrongState(s sandbox.State) error {
	return sandbox.Errorf(sandbox.Conflict, "wrong_state", "the sandbox is %s", s)
}

// Get returns a sandbox of a project. It is how callers reach one by its id:
// another project's is not found.
func (s *Store) Get(ctx context.Context, project string, id sandbox.ID) (sandbox.Sandbox, error) {
	sb, err := one(s.read.GetSandbox(ctx, storedb.GetSandboxParams{ID: string(id), Project: project}))
	if err != nil {
		return sb, fmt.Errorf("get sandbox %s: %w", id, err)
	}
	return sb, nil
}

// OfTraffic returns the sandbox that a connection to its ports names. It serves that
// surface alone, which has no key but tokens of the sandbox's own.
func (s *Store) OfTraffic(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error) {
	sb, err := one(s.read.GetSandboxForChange(ctx, string(id)))
	if err == nil && sb.Origin == sandbox.OriginRestore {
		err = errNotFound // the server's own
	}
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("find sandbox %s for its traffic: %w", id, err)
	}
	return sb, nil
}

// OfInstance returns the sandbox that an instance belongs to. It serves the
// host's own bookkeeping, never a caller.
func (s *Store) OfInstance(ctx context.Context, id sandbox.InstanceID) (sandbox.Sandbox, error) {
	sb, err := one(s.read.SandboxOfInstance(ctx, string(id)))
	if err != nil {
		return sb, fmt.Errorf("find the sandbox of instance %s: %w", id, err)
	}
	return sb, nil
}

// OfNode returns every sandbox of a node that has not stopped. It serves
// recovery and supervision, never a caller.
func (s *Store) OfNode(ctx context.Context, node string) ([]sandbox.Sandbox, error) {
	rows, err := s.read.SandboxesOfNode(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes of node %s: %w", node, err)
	}
	return fromRows(rows)
}

// CountStates counts the sandboxes of a node by state, stopped ones left out.
func (s *Store) CountStates(ctx context.Context, node string) (map[string]int, error) {
	rows, err := s.read.CountStates(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("count the sandboxes of node %s: %w", node, err)
	}
	counts := make(map[string]int, len(rows))
	for _, r := range rows {
		counts[r.State] = int(r.N)
	}
	return counts, nil
}

// CountOnTemplate returns how many sandboxes and how many snapshots of any project stand
// on a template.
func (s *Store) CountOnTemplate(ctx context.Context, name string) (sandboxes, snapshots int, err error) {
	n, err := s.read.CountOnTemplate(ctx, name)
	if err != nil {
		return 0, 0, fmt.Errorf("count the sandboxes on template %s: %w", name, err)
	}
	return int(n.Sandboxes), int(n.Snapshots), nil
}

// TemplateHashesInUse returns the hashes of the template builds that sandboxes and
// snapshots of a node stand on, however old the builds are.
func (s *Store) TemplateHashesInUse(ctx context.Context, node string) ([]string, error) {
	hashes, err := s.read.TemplateHashesInUse(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("list the template builds in use: %w", err)
	}
	return hashes, nil
}

// MarkUnresponsive notes that the guest of a running sandbox does not answer.
// It does nothing when that is noted already or the sandbox does not run.
func (s *Store) MarkUnresponsive(ctx context.Context, sb sandbox.Sandbox, reason string) error {
	now := s.now()
	return s.tx(ctx, func(q *storedb.Queries) error {
		n, err := q.MarkUnresponsive(ctx, storedb.MarkUnresponsiveParams{ID: string(sb.ID), Since: now.UnixMicro(), UpdatedAt: now.UnixMicro()})
		if err != nil {
			return fmt.Errorf("mark sandbox %s unresponsive: %w", sb.ID, err)
		}
		if n == 0 {
			return nil
		}
		return insertEvent(ctx, q, now, sb, Event{Type: "unresponsive", Cause: "guest", Reason: reason})
	})
}

// ClearUnresponsive notes that the guest answers again.
func (s *Store) ClearUnresponsive(ctx context.Context, sb sandbox.Sandbox) error {
	now := s.now()
	return s.tx(ctx, func(q *storedb.Queries) error {
		n, err := q.ClearUnresponsive(ctx, storedb.ClearUnresponsiveParams{ID: string(sb.ID), UpdatedAt: now.UnixMicro()})
		if err != nil {
			return fmt.Errorf("mark sandbox %s responsive: %w", sb.ID, err)
		}
		if n == 0 {
			return nil
		}
		return insertEvent(ctx, q, now, sb, Event{Type: "responsive", Cause: "guest", Reason: "the guest answers again"})
	})
}

// ListOptions selects a page of sandboxes.
type ListOptions struct {
	Limit int // more than 0
	// State selects one state; "" all but the stopped, "any" all.
	State string
	// Template selects the sandboxes of one template; "" all.
	Template string
	// Metadata selects the sandboxes that have all of these.
	Metadata map[string]string
	// After continues behind a sandbox: the last of the page before.
	After *Position
}

// Position is a place in a list.
type Position struct {
	CreatedAt time.Time
	ID        sandbox.ID
}

// List returns a page of a project's sandboxes, newest first, and whether there are more.
func (s *Store) List(ctx context.Context, project string, o ListOptions) (page []sandbox.Sandbox, more bool, err error) {
	before, beforeID := int64(math.MaxInt64), ""
	if o.After != nil {
		before, beforeID = o.After.CreatedAt.UnixMicro(), string(o.After.ID)
	}
	batch := max(o.Limit+1, 200)
	for {
		rows, err := s.read.ListSandboxes(ctx, storedb.ListSandboxesParams{
			Project: project, BeforeTime: before, BeforeID: beforeID, State: o.State, Template: o.Template, MaxRows: int64(batch),
		})
		if err != nil {
			return nil, false, fmt.Errorf("list sandboxes: %w", err)
		}
		for _, r := range rows {
			sb, err := fromRow(r)
			if err != nil {
				return nil, false, err
			}
			if !hasAll(sb.Metadata, o.Metadata) {
				continue
			}
			if len(page) == o.Limit {
				return page, true, nil
			}
			page = append(page, sb)
		}
		if len(rows) < batch {
			return page, false, nil
		}
		last := rows[len(rows)-1]
		before, beforeID = last.CreatedAt, last.ID
	}
}

func hasAll(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func one(row storedb.Sandbox, err error) (sandbox.Sandbox, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Sandbox{}, errNotFound
	}
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("read the record: %w", err)
	}
	return fromRow(row)
}

func fromRows(rows []storedb.Sandbox) ([]sandbox.Sandbox, error) {
	out := make([]sandbox.Sandbox, 0, len(rows))
	for _, r := range rows {
		sb, err := fromRow(r)
		if err != nil {
			return nil, err
		}
		out = append(out, sb)
	}
	return out, nil
}

func fromRow(r storedb.Sandbox) (sandbox.Sandbox, error) {
	sb := sandbox.Sandbox{
		ID: sandbox.ID(r.ID), Project: r.Project, Region: r.Region, Node: r.Node,
		Template: r.Template, TemplateHash: r.TemplateHash,
		State: sandbox.State(r.State), FailReason: r.FailReason,
		Instance:  sandbox.InstanceID(r.Instance),
		Shape:     sandbox.Shape{VCPUs: int(r.Vcpus), MemoryMB: int(r.MemoryMb), DiskMB: int(r.DiskMb)},
		Isolation: sandbox.Isolation(r.Isolation), Egress: r.Egress != 0, Idempotency: r.Idempotency,
		IdleTimeout: time.Duration(r.IdleTimeoutMs) * time.Millisecond, MaxLifetime: time.Duration(r.MaxLifetimeMs) * time.Millisecond,
		CreatedAt: time.UnixMicro(r.CreatedAt).UTC(), UpdatedAt: time.UnixMicro(r.UpdatedAt).UTC(),
		Persistent: r.Persistent != 0, Origin: sandbox.Origin(r.Origin), Parent: sandbox.ID(r.Parent),
		Snapshot: sandbox.SnapshotID(r.Snapshot), MergedInto: sandbox.ID(r.MergedInto),
		Hibernation: sandbox.SnapshotID(r.Hibernation), BootNote: r.BootNote,
		Deadline: sandbox.Deadline{
			After: time.Duration(r.EndAfterMs) * time.Millisecond, Then: sandbox.AtEnd(r.AtEnd), ManualWake: r.ManualWake != 0,
		},
		PrivatePorts: r.PrivatePorts != 0,
	}
	if r.EndsAt != 0 {
		sb.EndsAt = time.UnixMicro(r.EndsAt).UTC()
	}
	if r.UnresponsiveSince != 0 {
		sb.UnresponsiveSince = time.UnixMicro(r.UnresponsiveSince).UTC()
	}
	if err := json.Unmarshal([]byte(r.Env), &sb.Env); err != nil {
		return sb, fmt.Errorf("read the environment of sandbox %s: %w", r.ID, err)
	}
	if err := json.Unmarshal([]byte(r.Metadata), &sb.Metadata); err != nil {
		return sb, fmt.Errorf("read the metadata of sandbox %s: %w", r.ID, err)
	}
	if err := json.Unmarshal([]byte(r.EgressPolicy), &sb.EgressPolicy); err != nil {
		return sb, fmt.Errorf("read the egress policy of sandbox %s: %w", r.ID, err)
	}
	return sb, nil
}

func toRow(sb sandbox.Sandbox) (storedb.Sandbox, error) {
	r := storedb.Sandbox{
		ID: string(sb.ID), Project: sb.Project, Region: sb.Region, Node: sb.Node,
		Template: sb.Template, TemplateHash: sb.TemplateHash,
		State: string(sb.State), FailReason: sb.FailReason, Instance: string(sb.Instance),
		Vcpus: int64(sb.Shape.VCPUs), MemoryMb: int64(sb.Shape.MemoryMB), DiskMb: int64(sb.Shape.DiskMB),
		Isolation: string(sb.Isolation), Idempotency: sb.Idempotency,
		IdleTimeoutMs: sb.IdleTimeout.Milliseconds(), MaxLifetimeMs: sb.MaxLifetime.Milliseconds(),
		CreatedAt: sb.CreatedAt.UnixMicro(), UpdatedAt: sb.UpdatedAt.UnixMicro(),
		Origin: string(sb.Origin), Parent: string(sb.Parent), Snapshot: string(sb.Snapshot),
		MergedInto: string(sb.MergedInto), Hibernation: string(sb.Hibernation), BootNote: sb.BootNote,
		EndAfterMs: sb.Deadline.After.Milliseconds(), AtEnd: string(sb.Deadline.Then),
		Egress: number(sb.Egress), Persistent: number(sb.Persistent),
		ManualWake: number(sb.Deadline.ManualWake), PrivatePorts: number(sb.PrivatePorts),
	}
	if !sb.EndsAt.IsZero() {
		r.EndsAt = sb.EndsAt.UnixMicro()
	}
	if !sb.UnresponsiveSince.IsZero() {
		r.UnresponsiveSince = sb.UnresponsiveSince.UnixMicro()
	}
	for _, m := range []struct {
		from map[string]string
		to   *string
	}{{sb.Env, &r.Env}, {sb.Metadata, &r.Metadata}} {
		if m.from == nil {
			m.from = map[string]string{}
		}
		b, err := json.Marshal(m.from)
		if err != nil {
			return r, fmt.Errorf("encode the record of sandbox %s: %w", sb.ID, err)
		}
		*m.to = string(b)
	}
	policy, err := json.Marshal(sb.EgressPolicy)
	if err != nil {
		return r, fmt.Errorf("encode the record of sandbox %s: %w", sb.ID, err)
	}
	r.EgressPolicy = string(policy)
	return r, nil
}
