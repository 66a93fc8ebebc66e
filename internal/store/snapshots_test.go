package store

import (
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// running enters a sandbox that runs.
func running(t *testing.T, s *Store, change ...func(*sandbox.Sandbox)) sandbox.Sandbox {
	t.Helper()
	sb := sample()
	for _, f := range change {
		f(&sb)
	}
	if _, err := s.Create(t.Context(), sb, "create", Limits{}); err != nil {
		t.Fatal(err)
	}
	sb, err := s.Transition(t.Context(), sb.ID, sandbox.Creating, sandbox.Running, Change{End: true})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func snapshotOf(sb sandbox.Sandbox, use sandbox.SnapshotUse, name string) sandbox.Snapshot {
	return sandbox.Snapshot{
		ID: sandbox.NewSnapshotID(), Project: sb.Project, Region: sb.Region, Node: sb.Node, Sandbox: sb.ID, Use: use, Kind: sandbox.SnapshotFull,
		Name: name, Template: sb.Template, TemplateHash: sb.TemplateHash, Shape: sb.Shape, Isolation: sb.Isolation,
		Settings: sandbox.Settings{Egress: true, Env: map[string]string{"A": "1"}, IdleTimeout: time.Minute, Persistent: true},
	}
}

// keep makes a checkpoint.
func keep(t *testing.T, s *Store, sb sandbox.Sandbox, n NewSnapshot) error {
	t.Helper()
	stay := func(c Change) error {
		c.Event = Event{Type: "x", Cause: "x", Reason: "x"}
		_, err := s.TransitionMany(t.Context(), Step{ID: sb.ID, From: sandbox.Running, To: sandbox.Running, Change: c})
		return err
	}
	if err := stay(Change{Begin: "checkpoint", Make: &n}); err != nil {
		return err
	}
	return stay(Change{End: true, Snapshots: []SnapshotChange{{ID: n.ID, From: sandbox.SnapshotMaking, To: sandbox.SnapshotReady, SizeBytes: 3<<20 + 1}}})
}

func TestSnapshotsGoAlongTheirTable(t *testing.T) {
	s := opened(t)
	sb := running(t, s)
	n := NewSnapshot{Snapshot: snapshotOf(sb, sandbox.UseCheckpoint, "a")}
	if err := keep(t, s, sb, n); err != nil {
		t.Fatal(err)
	}
	got, err := s.ReadySnapshot(t.Context(), sb.Project, n.ID, sandbox.UseCheckpoint)
	if err != nil || got.State != sandbox.SnapshotReady || got.SizeBytes != 3<<20+1 || got.Name != "a" || got.Shape != sb.Shape ||
		got.Settings.Env["A"] != "1" || got.Settings.IdleTimeout != time.Minute || !got.Settings.Persistent || got.CreatedAt.IsZero() {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := s.Snapshot(t.Context(), "other", n.ID, sandbox.UseCheckpoint); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another project's: %v", err)
	}
	if _, err := s.Snapshot(t.Context(), sb.Project, n.ID, sandbox.UseSpace); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("as a Space: %v", err)
	}
	if u, err := s.UsageOfProject(t.Context(), sb.Project); err != nil || u.DiskMB != sb.Shape.DiskMB+4 {
		t.Errorf("usage %+v %v", u, err)
	}
	again := NewSnapshot{Snapshot: snapshotOf(sb, sandbox.UseCheckpoint, "a")}
	if err := keep(t, s, sb, again); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("the same name: %v", err)
	}
	if err := s.ChangeSnapshot(t.Context(), got, SnapshotChange{From: sandbox.SnapshotReady, To: Forgotten}, Event{}); err == nil {
		t.Error("it was forgotten without being deleted")
	}
	if err := s.ChangeSnapshot(t.Context(), got, SnapshotChange{From: sandbox.SnapshotMaking, To: sandbox.SnapshotReady}, Event{}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("from a state that it is not in: %v", err)
	}
	for _, c := range []SnapshotChange{{From: sandbox.SnapshotReady, To: sandbox.SnapshotDeleting}, {From: sandbox.SnapshotDeleting, To: Forgotten}} {
		if err := s.ChangeSnapshot(t.Context(), got, c, Event{}); err != nil {
			t.Error(err)
		}
		if _, err := s.ReadySnapshot(t.Context(), sb.Project, n.ID, sandbox.UseCheckpoint); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("%v", err)
		}
	}
	if err := s.ChangeSnapshot(t.Context(), got, SnapshotChange{From: sandbox.SnapshotDeleting, To: Forgotten}, Event{}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("again: %v", err)
	}
}

func TestSnapshotIsMadeWithItsTransitionOrNot(t *testing.T) {
	s := opened(t)
	sb := running(t, s)
	snap := snapshotOf(sb, sandbox.UseHibernation, "")
	change := Change{Make: &NewSnapshot{Snapshot: snap}, Begin: "hibernate", Instance: sandbox.NewInstanceID()}
	if _, err := s.Transition(t.Context(), sb.ID, sandbox.Running, sandbox.Hibernating, change); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("another machine's: %v", err)
	}
	if list, err := s.SnapshotsOfNode(t.Context(), sb.Node); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	if left, err := s.IntentOf(t.Context(), sb.ID); err != nil || left != "" {
		t.Errorf("%q %v", left, err)
	}
	change.Instance = sb.Instance
	if _, err := s.Transition(t.Context(), sb.ID, sandbox.Running, sandbox.Hibernating, change); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Unsettled(t.Context(), sb.Node); err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
}

func TestManyAreCreatedOrNone(t *testing.T) {
	s := opened(t)
	limits := Limits{Defaults: sandbox.Quota{Sandboxes: 3}}
	list := []sandbox.Sandbox{sample(), sample(), sample(), sample()}
	if _, err := s.CreateMany(t.Context(), list, "fork", limits); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("%v", err)
	}
	list[2].ID = list[1].ID // cannot be inserted
	if _, err := s.CreateMany(t.Context(), list[:3], "fork", limits); err == nil {
		t.Error("two with one id")
	}
	if have, err := s.OfNode(t.Context(), list[0].Node); err != nil || len(have) != 0 {
		t.Errorf("%v %v", have, err)
	}
	list[2].ID = sandbox.NewID()
	if made, err := s.CreateMany(t.Context(), list[:3], "fork", limits); err != nil || len(made) != 3 {
		t.Errorf("%v %v", made, err)
	}
}

func TestSwapIsOneStep(t *testing.T) {
	s := opened(t)
	a := running(t, s)
	b := running(t, s, func(sb *sandbox.Sandbox) { sb.Shape.MemoryMB, sb.TemplateHash = 2048, "other" })
	for _, sb := range []sandbox.Sandbox{a, b} {
		if err := keep(t, s, sb, NewSnapshot{Snapshot: snapshotOf(sb, sandbox.UseCheckpoint, "same")}); err != nil {
			t.Fatal(err)
		}
	}
	e := Event{Type: "merged", Cause: "merge", Reason: "x"}
	stale := b
	stale.Instance = sandbox.NewInstanceID()
	if _, _, err := s.Swap(t.Context(), a, stale, "delete", "merge", e, e); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("stale: %v", err)
	}
	if got, err := s.Get(t.Context(), a.Project, a.ID); err != nil || got.Instance != a.Instance {
		t.Errorf("it was changed: %+v %v", got, err)
	}
	keep, give, err := s.Swap(t.Context(), a, b, "delete", "merge", e, Event{Cause: "merge", Reason: "x"})
	if err != nil || keep.Instance != b.Instance || keep.Shape != b.Shape || keep.TemplateHash != "other" || keep.State != sandbox.Running ||
		give.Instance != a.Instance || give.Shape != a.Shape || give.State != sandbox.Stopping || give.MergedInto != a.ID {
		t.Errorf("%+v %+v %v", keep, give, err)
	}
	var names []string
	page, _, err := s.Snapshots(t.Context(), a.Project, SnapshotQuery{Use: sandbox.UseCheckpoint, Sandbox: a.ID, Limit: 10})
	for _, p := range page {
		names = append(names, p.Name)
	}
	if err != nil || len(page) != 2 || !slices.Contains(names, "same") || names[0] == names[1] {
		t.Errorf("%v %v", names, err)
	}
	left, err := s.Intents(t.Context())
	if err != nil || len(left) != 2 {
		t.Errorf("%v %v", left, err)
	}
}

func TestRetentionIsTheProjectsOrTheServers(t *testing.T) {
	s := opened(t)
	now := time.Now()
	s.now = func() time.Time { return now }
	sb := running(t, s)
	if err := keep(t, s, sb, NewSnapshot{Snapshot: snapshotOf(sb, sandbox.UseCheckpoint, "a")}); err != nil {
		t.Fatal(err)
	}
	defaults := sandbox.Retention{Checkpoints: time.Hour}
	expired := func() int {
		list, err := s.ExpiredSnapshots(t.Context(), sb.Node, defaults, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	set := func(d time.Duration) {
		if _, err := s.SetRetention(t.Context(), sb.Project, func(r *sandbox.Retention) { r.Checkpoints = d }); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(59 * time.Minute)
	if expired() != 0 {
		t.Error("before the server's time")
	}
	now = now.Add(2 * time.Minute)
	if expired() != 1 {
		t.Error("after it")
	}
	set(-time.Millisecond)
	if expired() != 0 {
		t.Error("kept for ever")
	}
	set(2 * time.Hour)
	if expired() != 0 {
		t.Error("the project's own is longer")
	}
	set(time.Minute)
	if expired() != 1 {
		t.Error("and shorter")
	}
}
