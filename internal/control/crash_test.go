package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// host is a host whose server is killed and started again.
type host struct {
	*node
	mortal *controltest.Mortal
	// arm, when not negative, is how many points the server passes until it is killed.
	arm    int
	passed []string
}

// boot starts a server on a host.
func boot(t fataler, dir string, machines *controltest.Machines, change ...func(*control.Config)) *host {
	t.Helper()
	st, err := store.Open(context.Background(), filepath.Join(dir, "ramet.db"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	h := &host{node: &node{store: st, machines: machines, templates: controltest.NewTemplates(), dir: dir}, arm: -1}
	h.mortal = controltest.NewMortal(machines, func(point string) bool {
		h.passed = append(h.passed, point)
		if h.arm > 0 {
			h.arm--
		}
		return h.arm == 0
	})
	h.mortal.OnDeath = func() {
		if err := st.Close(); err != nil {
			t.Errorf("%v", err)
		}
	}
	cfg := control.Config{Store: st, Machines: h.mortal, Templates: h.templates, Log: slog.New(slog.DiscardHandler), Region: "local", Node: "n1"}
	for _, f := range change {
		f(&cfg)
	}
	if h.Control, err = control.New(context.Background(), cfg); err != nil {
		t.Fatalf("%v", err)
	}
	return h
}

type fataler = failer

// restart kills the server, if it was not, and starts another.
func (h *host) restart(t fataler) *host {
	t.Helper()
	h.kill(t)
	return boot(t, h.dir, h.machines)
}

func (h *host) kill(t fataler) {
	t.Helper()
	h.mortal.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.Control.Close(ctx); err != nil {
		t.Fatalf("what is left of the killed server does not end: %v", err)
	}
}

// value is what a sandbox or a snapshot has in its memory.
func (h *host) value(sb sandbox.Sandbox) string {
	if sb.State == sandbox.Hibernated {
		return h.machines.Peek(sb.Hibernation, "v")
	}
	return h.machines.Recall(sb.Instance, "v")
}

func (h *host) made(t fataler, v string, r control.CreateRequest) sandbox.Sandbox {
	t.Helper()
	sb, _, err := h.Create(context.Background(), project, r)
	if err != nil {
		t.Fatalf("%v", err)
	}
	h.machines.Remember(sb.Instance, "v", v)
	return sb
}

// lives returns the sandboxes that have not ended, by id, and checks that nothing is half.
func (h *host) lives(t fataler) map[sandbox.ID]sandbox.Sandbox {
	t.Helper()
	h.owned(t)
	intents, err := h.store.Intents(context.Background())
	if err != nil || len(intents) != 0 {
		t.Errorf("intents %v %v", intents, err)
	}
	list, err := h.store.OfNode(context.Background(), "n1")
	if err != nil {
		t.Fatalf("%v", err)
	}
	m := map[sandbox.ID]sandbox.Sandbox{}
	for _, sb := range list {
		if sb.State != sandbox.Running && sb.State != sandbox.Hibernated {
			t.Errorf("sandbox %s is %s (%s)", sb.ID, sb.State, sb.FailReason)
		}
		m[sb.ID] = sb
	}
	return m
}

// crashCase is an operation that the server is killed in at every point.
type crashCase struct {
	name  string
	setup func(t *testing.T, h *host) *scene
	op    func(h *host, s *scene) error
	// check looks at the host after the restart. Done says that the operation was acknowledged.
	check func(t *testing.T, h *host, s *scene, done bool)
}

type scene struct {
	a, b sandbox.Sandbox
	snap sandbox.Snapshot
}

func one(t *testing.T, h *host) *scene { return &scene{a: h.made(t, "a", control.CreateRequest{})} }

func slept(t *testing.T, h *host) *scene {
	s := one(t, h)
	if _, _, err := h.Hibernate(t.Context(), project, s.a.ID); err != nil {
		t.Fatal(err)
	}
	return s
}

func saved(t *testing.T, h *host) *scene {
	s := one(t, h)
	var err error
	if s.snap, _, err = h.Checkpoint(t.Context(), project, s.a.ID, control.CheckpointRequest{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	h.machines.Remember(s.a.Instance, "v", "new")
	return s
}

// spaced has a Space.
func spaced(t *testing.T, h *host) *scene {
	s := &scene{a: h.made(t, "a", control.CreateRequest{Persistent: true})}
	if err := h.Idle(project, s.a.ID); err != nil {
		t.Fatal(err)
	}
	list, _, err := h.Snapshots(t.Context(), project, control.SnapshotQuery{Use: sandbox.UseSpace, Limit: 1})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	s.snap = list[0]
	return s
}

func (h *host) has(t *testing.T, id sandbox.ID, values ...string) {
	t.Helper()
	sb, ok := h.lives(t)[id]
	if !ok || !slices.Contains(values, h.value(sb)) {
		t.Errorf("sandbox %s has %q, want one of %q", id, h.value(sb), values)
		return
	}
	if w, _, err := h.Wake(t.Context(), project, id); err != nil || !slices.Contains(values, h.value(w)) {
		t.Errorf("after a wake: %q %v", h.value(w), err)
	}
}

var crashCases = []crashCase{
	{
		"create", one, func(h *host, s *scene) (err error) {
			s.b, _, err = h.Create(context.Background(), project, control.CreateRequest{})
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) {
			h.has(t, s.a.ID, "a")
			if _, ok := h.lives(t)[s.b.ID]; done && !ok {
				t.Error("it is not there")
			}
		},
	},
	{
		"fork", one, func(h *host, s *scene) error {
			_, err := h.Fork(context.Background(), project, s.a.ID, control.ForkRequest{N: 3})
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) {
			h.has(t, s.a.ID, "a")
			if k := len(h.lives(t)); k != 1 && k != 4 || done && k != 4 {
				t.Errorf("%d sandboxes", k)
			}
		},
	},
	{
		"fork of a hibernated one", slept, func(h *host, s *scene) error {
			_, err := h.Fork(context.Background(), project, s.a.ID, control.ForkRequest{N: 1})
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) { h.has(t, s.a.ID, "a") },
	},
	{
		"merge", func(t *testing.T, h *host) *scene {
			s := one(t, h)
			s.b = h.made(t, "b", control.CreateRequest{})
			return s
		},
		func(h *host, s *scene) error {
			_, _, err := h.Merge(context.Background(), project, s.a.ID, s.b.ID)
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) {
			h.has(t, s.a.ID, "a", "b")
			_, lives := h.lives(t)[s.b.ID]
			if merged := h.value(h.lives(t)[s.a.ID]) == "b"; merged == lives || done && !merged {
				t.Errorf("merged %v, the winner lives %v", merged, lives)
			}
		},
	},
	{
		"hibernate", one, func(h *host, s *scene) error {
			_, _, err := h.Hibernate(context.Background(), project, s.a.ID)
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) { h.has(t, s.a.ID, "a") },
	},
	{
		"wake", slept, func(h *host, s *scene) error {
			_, _, err := h.Wake(context.Background(), project, s.a.ID)
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) { h.has(t, s.a.ID, "a") },
	},
	{
		"checkpoint", one, func(h *host, s *scene) (err error) {
			s.snap, _, err = h.Checkpoint(context.Background(), project, s.a.ID, control.CheckpointRequest{Name: "c"})
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) {
			h.has(t, s.a.ID, "a")
			if _, err := h.Snapshot(t.Context(), project, s.snap.ID, sandbox.UseCheckpoint); done && err != nil {
				t.Error(err)
			}
			// Its name is free, or taken by one that is whole.
			_, _, err := h.Checkpoint(t.Context(), project, s.a.ID, control.CheckpointRequest{Name: "c"})
			if err != nil && (codeOf(err) != "checkpoint_exists") {
				t.Error(err)
			}
		},
	},
	{
		"restore", saved, func(h *host, s *scene) error {
			_, _, err := h.Restore(context.Background(), project, s.a.ID, s.snap.ID)
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) {
			if h.has(t, s.a.ID, "a", "new"); done {
				h.has(t, s.a.ID, "a")
			}
			h.spawns(t, s)
		},
	},
	{
		"create from a checkpoint", saved, func(h *host, s *scene) (err error) {
			s.b, _, err = h.Create(context.Background(), project, control.CreateRequest{Checkpoint: s.snap.ID})
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) {
			if h.has(t, s.a.ID, "new"); done {
				h.has(t, s.b.ID, "a")
			}
			h.spawns(t, s)
		},
	},
	{
		"delete a checkpoint", saved, func(h *host, s *scene) error {
			return h.DeleteSnapshot(context.Background(), project, s.snap.ID, sandbox.UseCheckpoint)
		},
		func(t *testing.T, h *host, s *scene, done bool) {
			h.has(t, s.a.ID, "new")
			if _, err := h.Snapshot(t.Context(), project, s.snap.ID, sandbox.UseCheckpoint); done && codeOf(err) != "checkpoint_not_found" {
				t.Errorf("it is there: %v", err)
			}
		},
	},
	{
		"delete a hibernated one", slept, func(h *host, s *scene) error {
			return h.Delete(context.Background(), project, s.a.ID)
		},
		func(t *testing.T, h *host, s *scene, done bool) {
			if sb, ok := h.lives(t)[s.a.ID]; ok {
				if done {
					t.Errorf("it is %s", sb.State)
				}
				h.has(t, s.a.ID, "a")
			}
		},
	},
	{
		"become a Space", func(t *testing.T, h *host) *scene {
			return &scene{a: h.made(t, "a", control.CreateRequest{Persistent: true})}
		},
		func(h *host, s *scene) error { return h.Idle(project, s.a.ID) },
		func(t *testing.T, h *host, s *scene, done bool) {
			list, _, err := h.Snapshots(t.Context(), project, control.SnapshotQuery{Use: sandbox.UseSpace, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			sb, lives := h.lives(t)[s.a.ID]
			if lives == (len(list) == 1) || done && lives {
				t.Fatalf("it is %+v with %d Spaces", sb, len(list))
			}
			if !lives {
				r, _, err := h.ResumeSpace(t.Context(), project, list[0].ID, control.ResumeRequest{})
				if err != nil || h.machines.Recall(r.Instance, "v") != "a" {
					t.Errorf("%+v %v", r, err)
				}
			}
		},
	},
	{
		"resume a Space", spaced, func(h *host, s *scene) (err error) {
			s.b, _, err = h.ResumeSpace(context.Background(), project, s.snap.ID, control.ResumeRequest{})
			return err
		},
		func(t *testing.T, h *host, s *scene, done bool) {
			_, err := h.Snapshot(t.Context(), project, s.snap.ID, sandbox.UseSpace)
			lives := h.lives(t)
			if (err == nil) == (len(lives) == 1) || done && len(lives) != 1 {
				t.Errorf("%d sandboxes, the Space: %v", len(lives), err)
			}
		},
	},
}

// spawns checks that a checkpoint works.
func (h *host) spawns(t *testing.T, s *scene) {
	t.Helper()
	sb, _, err := h.Create(t.Context(), project, control.CreateRequest{Checkpoint: s.snap.ID})
	if err != nil || h.machines.Recall(sb.Instance, "v") != "a" {
		t.Errorf("from the checkpoint: %+v %v", sb, err)
	}
}

// TestServerIsKilledAtEveryPointOfEveryOperation kills the server before, in and after each
// thing that an operation does, with the transactions between them, and looks at what the
// next server makes of it.
func TestServerIsKilledAtEveryPointOfEveryOperation(t *testing.T) {
	for _, c := range crashCases {
		t.Run(c.name, func(t *testing.T) {
			points := c.killAt(t, 0)
			if len(points) < 2 {
				t.Fatalf("points %q", points)
			}
			for i := range points {
				t.Run(fmt.Sprintf("%d %s", i+1, points[i]), func(t *testing.T) {
					t.Parallel()
					c.killAt(t, i+1)
				})
			}
		})
	}
}

// killAt kills the server at a point of the operation, or at its end with 0, and returns
// the points that it has passed.
func (c crashCase) killAt(t *testing.T, point int) []string {
	dir := t.TempDir()
	m := controltest.NewMachines(filepath.Join(dir, "instances"))
	t.Cleanup(m.StopAll)
	h := boot(t, dir, m)
	s := c.setup(t, h)
	h.passed = nil
	if h.arm = point; point == 0 {
		h.arm = -1
	}
	err := c.op(h, s)
	if point == 0 && err != nil {
		t.Fatal(err)
	}
	h.kill(t)
	points := h.passed
	h = boot(t, h.dir, m)
	defer h.kill(t)
	c.check(t, h, s, err == nil)
	h.lives(t)
	return points
}
