package worker

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/fake"
)

var errBoom = errors.New("boom")

func (b *bench) requests(n int) []Request {
	list := make([]Request, n)
	for i := range list {
		list[i] = b.request()
	}
	return list
}

// balanced checks that every guest that was frozen goes on, and that nothing is left of
// snapshots.
func (b *bench) balanced(want int) {
	b.t.Helper()
	b.mu.Lock()
	frozen, thawed := b.frozen, b.thawed
	b.mu.Unlock()
	if thawed < frozen-want {
		b.t.Errorf("%d times frozen and %d times thawed", frozen, thawed)
	}
	left, err := os.ReadDir(b.cfg.SnapshotDir)
	if err != nil || len(left) != 0 {
		b.t.Errorf("left in the snapshot directory: %v, %v", left, err)
	}
}

func TestForkMakesAllOrNone(t *testing.T) {
	b := newBench(t, nil)
	p := b.mustStart()
	children, info, err := b.Fork(b.ctx(), p.ID, b.requests(5))
	if err != nil || len(children) != 5 || info.Paused <= 0 {
		t.Fatalf("%v %+v %v", children, info, err)
	}
	seen := map[sandbox.InstanceID]bool{p.ID: true}
	for _, c := range children {
		if _, err := b.Instance(c.ID); err != nil || seen[c.ID] {
			t.Errorf("child %s: %v", c.ID, err)
		}
		seen[c.ID] = true
	}
	b.balanced(1) // the golden stays frozen
	for _, step := range []string{fake.StepSave, fake.StepFinish, fake.StepStart, fake.StepPause} {
		b.host.Fail(step, errBoom)
		if _, _, err := b.Fork(b.ctx(), p.ID, b.requests(3)); !errors.Is(err, errBoom) {
			t.Errorf("%s: %v", step, err)
		}
		b.host.Fail(step, nil)
		if n := b.Count(); n != 6 {
			t.Errorf("%s: %d machines are left", step, n)
		}
		if _, err := p.Guest(b.ctx()); err != nil {
			t.Errorf("%s: the parent does not answer: %v", step, err)
		}
		b.balanced(1)
	}
	b.setRefresh(errBoom)
	if _, _, err := b.Fork(b.ctx(), p.ID, b.requests(3)); err == nil {
		t.Error("children without an identity")
	}
	b.setRefresh(nil)
	if n := b.Count(); n != 6 {
		t.Errorf("%d machines are left", n)
	}
	b.balanced(1)
	if _, _, err := b.Fork(b.ctx(), sandbox.NewInstanceID(), b.requests(1)); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("fork of nothing: %v", err)
	}
}

// TestForkRefusesASilentGuest saves nothing of a guest whose processes may still run.
func TestForkRefusesASilentGuest(t *testing.T) {
	b := newBench(t, nil)
	p := b.mustStart()
	b.mu.Lock()
	b.freeze = errBoom
	b.mu.Unlock()
	if _, _, err := b.Fork(b.ctx(), p.ID, b.requests(1)); err == nil {
		t.Error("a guest that does not freeze was forked")
	}
	snap := sandbox.NewSnapshotID()
	if _, err := b.Save(b.ctx(), p.ID, SaveRequest{Snapshot: snap, Stay: true}); err == nil {
		t.Error("a guest that does not freeze was saved")
	}
	b.mu.Lock()
	b.freeze = nil
	b.mu.Unlock()
	if _, err := p.Guest(b.ctx()); err != nil || b.HasSnapshot(snap) {
		t.Errorf("it does not go on: %v", err)
	}
	b.balanced(1)
}

func TestSaveAndStartFromIt(t *testing.T) {
	b := newBench(t, nil)
	p := b.mustStart()
	for _, step := range []string{fake.StepSave, fake.StepFinish} {
		b.host.Fail(step, errBoom)
		for _, stay := range []bool{false, true} {
			snap := sandbox.NewSnapshotID()
			if _, err := b.Save(b.ctx(), p.ID, SaveRequest{Snapshot: snap, Stay: stay}); !errors.Is(err, errBoom) || b.HasSnapshot(snap) {
				t.Errorf("%s: %v", step, err)
			}
			if _, err := p.Guest(b.ctx()); err != nil {
				t.Errorf("%s: it does not go on: %v", step, err)
			}
		}
		b.host.Fail(step, nil)
	}
	b.balanced(1)
	snap := sandbox.NewSnapshotID()
	info, err := b.Save(b.ctx(), p.ID, SaveRequest{Snapshot: snap, Stay: true})
	if err != nil || info.SizeBytes == 0 || !b.HasSnapshot(snap) {
		t.Fatalf("%+v %v", info, err)
	}
	if err := b.Continue(b.ctx(), p.ID); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(b.ctx(), p.ID); err != nil {
		t.Fatal(err)
	}
	r := b.request()
	r.Snapshot, r.TemplateHash, r.KeepSeed = snap, "h", true
	// Many at once, of one snapshot.
	var all sync.WaitGroup
	for range 16 {
		again := r
		again.Instance = sandbox.NewInstanceID()
		all.Go(func() {
			if i, err := b.Start(b.ctx(), again); err != nil || i.ColdBecause != "" {
				t.Errorf("%+v %v", i, err)
			}
		})
	}
	all.Wait()
	if err := os.WriteFile(filepath.Join(b.cfg.SnapshotDir, string(snap), "fake-snapshot.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.VerifySnapshot(b.ctx(), snap); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a damaged one: %v", err)
	}
	list, err := b.Snapshots()
	if err != nil || len(list) != 1 || list[0] != snap || b.SnapshotBytes(snap) == 0 {
		t.Errorf("%v %v", list, err)
	}
	for range 2 {
		if err := b.RemoveSnapshot(b.ctx(), snap); err != nil {
			t.Error(err)
		}
	}
	b.balanced(2)
}

// TestHalvesOfAnEarlierRunAreRemoved finds nothing of a server that ended in the middle of something.
func TestHalvesOfAnEarlierRunAreRemoved(t *testing.T) {
	b := newBench(t, func(c *Config) {
		for _, name := range []string{forkPrefix + "0123", "abc", "def" + unfinished} {
			if err := os.MkdirAll(filepath.Join(c.SnapshotDir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	})
	left, err := os.ReadDir(b.cfg.SnapshotDir)
	if err != nil || len(left) != 1 || left[0].Name() != "abc" {
		t.Errorf("%v %v", left, err)
	}
}
