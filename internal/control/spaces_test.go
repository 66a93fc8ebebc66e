package control_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

func TestIdlePersistentSandboxBecomesASpace(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.IdleTimeout = 300 * time.Millisecond })
	sb := n.createWith(t, control.CreateRequest{Persistent: true, Env: map[string]string{"A": "1"}})
	n.machines.Remember(sb.Instance, "x", "1")
	waitFor(t, 20*time.Second, "it has become a Space", n.is(t, sb.ID, sandbox.Stopped))
	n.clean(t)
	list, _, err := n.Snapshots(t.Context(), project, control.SnapshotQuery{Use: sandbox.UseSpace, Limit: 10})
	if err != nil || len(list) != 1 || list[0].Sandbox != sb.ID || list[0].Settings.Env["A"] != "1" {
		t.Fatalf("%+v %v", list, err)
	}
	space := list[0].ID
	if _, _, err := n.ResumeSpace(t.Context(), "other", space, control.ResumeRequest{}); codeOf(err) != "space_not_found" {
		t.Errorf("another project's: %v", err)
	}
	n.machines.OnStart = func(context.Context, control.StartRequest) error { return errors.New("no") }
	if _, _, err := n.ResumeSpace(t.Context(), project, space, control.ResumeRequest{}); err == nil {
		t.Error("it was resumed")
	}
	if _, err := n.Snapshot(t.Context(), project, space, sandbox.UseSpace); err != nil {
		t.Errorf("after a failed resume: %v", err)
	}
	n.machines.OnStart = nil
	// Two at the same time: one gets it.
	var wg sync.WaitGroup
	var got atomic.Int32
	for range 2 {
		wg.Go(func() {
			r, _, err := n.ResumeSpace(t.Context(), project, space, control.ResumeRequest{})
			if err != nil {
				if sandbox.KindOf(err) != sandbox.NotFound {
					t.Error(err)
				}
				return
			}
			got.Add(1)
			if r.ID == sb.ID || r.Parent != sb.ID || r.Origin != sandbox.OriginSpace || r.Env["A"] != "1" || !r.Persistent {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	if got.Load() != 1 {
		t.Errorf("it was resumed %d times", got.Load())
	}
}

func TestRetentionLetsGo(t *testing.T) {
	n := fresh(t, func(c *control.Config) {
		c.SweepInterval = 50 * time.Millisecond
		c.Retention = sandbox.Retention{Hibernated: time.Hour}
	})
	kept, gone := n.create(t), n.create(t)
	snap, _, err := n.Checkpoint(t.Context(), project, gone.ID, control.CheckpointRequest{})
	if err != nil || !snap.ExpiresAt.IsZero() {
		t.Fatalf("%+v %v", snap, err)
	}
	for _, sb := range []sandbox.Sandbox{kept, gone} {
		h, _, err := n.Hibernate(t.Context(), project, sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := n.ExpiresAt(t.Context(), h); err != nil || time.Until(at) < 50*time.Minute {
			t.Errorf("%v %v", at, err)
		}
	}
	if _, _, err := n.Wake(t.Context(), project, kept.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := n.SetRetention(t.Context(), sandbox.Key{Project: project}, project, func(*sandbox.Retention) {}); codeOf(err) != "admin_only" {
		t.Errorf("%v", err)
	}
	if _, err := n.SetRetention(t.Context(), admin, project, func(r *sandbox.Retention) { r.Spaces = time.Millisecond }); codeOf(err) != "invalid_retention" {
		t.Errorf("%v", err)
	}
	p, err := n.SetRetention(t.Context(), admin, project, func(r *sandbox.Retention) { r.Hibernated, r.Checkpoints = time.Second, time.Second })
	if err != nil || p.Kept != (sandbox.Retention{Hibernated: time.Second, Checkpoints: time.Second}) {
		t.Errorf("%+v %v", p, err)
	}
	waitFor(t, 20*time.Second, "let go", func() bool {
		_, err := n.Snapshot(t.Context(), project, snap.ID, sandbox.UseCheckpoint)
		return n.state(t, gone.ID).State == sandbox.Stopped && codeOf(err) == "checkpoint_not_found"
	})
	if n.state(t, kept.ID).State != sandbox.Running {
		t.Error("one that runs was let go")
	}
	if c := n.causes(t, gone.ID); c["stopping"] != "retention" || c["checkpoint_deleted"] != "retention" {
		t.Errorf("%v", c)
	}
	waitFor(t, 10*time.Second, "nothing is left", func() bool { l, _ := n.machines.Snapshots(); return len(l) == 0 })
}

func TestLifetimeEndsHibernatedOnesToo(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.SweepInterval = 50 * time.Millisecond })
	sb := n.createWith(t, control.CreateRequest{MaxLifetime: 2 * time.Second})
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 20*time.Second, "ended", n.stopped(t, sb.ID))
	if c := n.causes(t, sb.ID); c["stopping"] != "max_lifetime" {
		t.Errorf("%v", c)
	}
}

func TestGarbageIsCollected(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{}); err != nil {
		t.Fatal(err)
	}
	orphan := string(sandbox.NewSnapshotID())
	stray := string(sandbox.NewInstanceID())
	for _, p := range []string{filepath.Join("snapshots", orphan, "disk"), filepath.Join("instances", stray, "root")} {
		if err := os.MkdirAll(filepath.Join(n.dir, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(n.dir, "snapshots", orphan, "disk", "f"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, dry := range []bool{true, false, false} {
		r, err := n.GC(t.Context(), dry)
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if len(r.Snapshots)+len(r.Instances) != 0 || r.Bytes != 0 {
				t.Errorf("again: %+v", r)
			}
			continue
		}
		if len(r.Snapshots) != 1 || r.Snapshots[0].ID != orphan || len(r.Instances) != 1 || r.Instances[0].ID != stray || r.Bytes < 1000 {
			t.Errorf("dry %v: %+v", dry, r)
		}
	}
	n.clean(t)
}

func TestResumeThatNobodyWaitsForKeepsTheOnlyCopy(t *testing.T) {
	n := fresh(t)
	for range 8 { // both outcomes are ready at the end; which one is taken is chance
		sb := n.createWith(t, control.CreateRequest{Persistent: true})
		n.machines.Remember(sb.Instance, "v", "1")
		if err := n.Idle(project, sb.ID); err != nil {
			t.Fatal(err)
		}
		list, _, err := n.Snapshots(t.Context(), project, control.SnapshotQuery{Use: sandbox.UseSpace, Sandbox: sb.ID, Limit: 1})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		resumed := func() (r sandbox.Sandbox) {
			for _, x := range n.all(t) {
				if x.Snapshot == list[0].ID {
					r = x
				}
			}
			return r
		}
		var started atomic.Bool
		n.machines.OnStart = func(context.Context, control.StartRequest) error {
			started.Store(true)
			return nil
		}
		ctx := &lateContext{Context: context.Background(), created: func() bool {
			if !started.Load() { // the database asks too, under a lock
				return false
			}
			waitFor(t, 20*time.Second, "it runs", func() bool { return resumed().State == sandbox.Running })
			return true
		}}
		if _, _, err := n.ResumeSpace(ctx, project, list[0].ID, control.ResumeRequest{}); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		n.machines.OnStart = nil
		if r := resumed(); r.State != sandbox.Running || n.machines.Recall(r.Instance, "v") != "1" {
			t.Errorf("%+v", r)
		}
	}
}

func TestResumeChangesWhatItIsAskedTo(t *testing.T) {
	n := fresh(t)
	yes, no := true, false
	for name, c := range map[string]struct {
		create control.CreateRequest
		resume control.ResumeRequest
		ok     func(sandbox.Sandbox) bool
	}{
		"as it was": {
			control.CreateRequest{NoEgress: true, MaxLifetime: time.Hour},
			control.ResumeRequest{},
			func(sb sandbox.Sandbox) bool {
				return sb.Persistent && !sb.Egress && !sb.DeleteIdle && sb.IdleTimeout == time.Hour && sb.MaxLifetime == time.Hour
			},
		},
		"changed": {
			control.CreateRequest{NoEgress: true, MaxLifetime: time.Hour},
			control.ResumeRequest{IdleTimeout: time.Minute, MaxLifetime: control.Never, DeleteIdle: true, Persistent: &no, Egress: &yes},
			func(sb sandbox.Sandbox) bool {
				return !sb.Persistent && sb.Egress && sb.DeleteIdle && sb.IdleTimeout == time.Minute && sb.MaxLifetime == 0
			},
		},
	} {
		c.create.Persistent, c.create.IdleTimeout = true, time.Hour
		sb := n.createWith(t, c.create)
		if err := n.Idle(project, sb.ID); err != nil {
			t.Fatal(err)
		}
		list, _, err := n.Snapshots(t.Context(), project, control.SnapshotQuery{Use: sandbox.UseSpace, Limit: 10})
		if err != nil || len(list) != 1 {
			t.Fatalf("%v %v", list, err)
		}
		got, _, err := n.ResumeSpace(t.Context(), project, list[0].ID, c.resume)
		if err != nil || !c.ok(got) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}
