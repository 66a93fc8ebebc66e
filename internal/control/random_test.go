package control_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/sandbox"
)

// world is what a client knows of a host.
type world struct {
	boxes map[sandbox.ID]string // what they remember
	snaps map[sandbox.SnapshotID]string
	n     int
}

// TestRandomOperationsAndKills does random operations, with the server killed in some of
// them, and compares the host with what was acknowledged.
func TestRandomOperationsAndKills(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	if was := checks.Value.String(); was == checks.DefValue { // not asked for more
		if err := flag.Set("rapid.checks", "12"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set("rapid.checks", was) }) // it was valid
	}
	rounds := 0
	base := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		rounds++
		dir := filepath.Join(base, fmt.Sprint(rounds))
		m := controltest.NewMachines(filepath.Join(dir, "instances"))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			r.Fatalf("%v", err)
		}
		defer m.StopAll()
		h := boot(r, dir, m)
		defer func() { h.kill(r) }()
		w := &world{boxes: map[sandbox.ID]string{}, snaps: map[sandbox.SnapshotID]string{}}
		for range rapid.IntRange(5, 20).Draw(r, "operations") {
			if h.arm = -1; rapid.IntRange(0, 3).Draw(r, "killed") == 0 {
				h.arm = rapid.IntRange(1, 12).Draw(r, "at point")
			}
			touched := w.step(r, h)
			if h.mortal.Dead() {
				h = h.restart(r)
			}
			w.look(r, h, touched)
		}
	})
}

// change is what an operation may have done that was not acknowledged.
type change struct {
	boxes map[sandbox.ID][]string // what else they may remember; "" for having ended
	snaps map[sandbox.SnapshotID]bool
	makes bool // more sandboxes or snapshots
}

// step does one random operation.
func (w *world) step(r *rapid.T, h *host) change {
	ctx := context.Background()
	none := change{}
	ids := make([]sandbox.ID, 0, len(w.boxes))
	for id := range w.boxes {
		ids = append(ids, id)
	}
	slices.Sort(ids) // the draw is what is random, so that a seed repeats
	snaps := make([]sandbox.SnapshotID, 0, len(w.snaps))
	for id := range w.snaps {
		snaps = append(snaps, id)
	}
	slices.Sort(snaps)
	op := rapid.SampledFrom([]string{"create", "write", "fork", "merge", "hibernate", "wake", "checkpoint", "restore", "spawn", "delete", "forget"}).Draw(r, "operation")
	if len(ids) == 0 || len(ids) > 8 && op == "fork" {
		op = "create"
	}
	pick := func(name string) sandbox.ID { return rapid.SampledFrom(ids).Draw(r, name) }
	switch op {
	case "create":
		_, _, err := h.Create(ctx, project, control.CreateRequest{})
		w.must(r, h, err)
		return change{makes: true}
	case "write":
		id := pick("sandbox")
		sb, err := h.Get(ctx, project, id)
		if err == nil && sb.State == sandbox.Running {
			w.n++
			w.boxes[id] = fmt.Sprint(w.n)
			h.machines.Remember(sb.Instance, "v", w.boxes[id])
		}
		return none
	case "fork":
		_, err := h.Fork(ctx, project, pick("sandbox"), control.ForkRequest{N: rapid.IntRange(1, 3).Draw(r, "n")})
		w.must(r, h, err)
		return change{makes: true}
	case "merge":
		a, b := pick("parent"), pick("winner")
		_, _, err := h.Merge(ctx, project, a, b)
		if a == b {
			if err == nil {
				r.Errorf("it was merged into itself")
			}
			return none
		}
		w.must(r, h, err)
		return change{boxes: map[sandbox.ID][]string{a: {w.boxes[b]}, b: {""}}}
	case "hibernate":
		_, _, err := h.Hibernate(ctx, project, pick("sandbox"))
		w.must(r, h, err)
	case "wake":
		_, _, err := h.Wake(ctx, project, pick("sandbox"))
		w.must(r, h, err)
	case "checkpoint":
		_, _, err := h.Checkpoint(ctx, project, pick("sandbox"), control.CheckpointRequest{DeleteOldest: true})
		w.must(r, h, err)
		return change{makes: true}
	case "delete":
		id := pick("sandbox")
		w.must(r, h, h.Delete(ctx, project, id))
		return change{boxes: map[sandbox.ID][]string{id: {""}}}
	default:
		if len(snaps) == 0 {
			return none
		}
		snap := rapid.SampledFrom(snaps).Draw(r, "checkpoint")
		return w.stepSnapshot(r, h, op, snap)
	}
	return none
}

func (w *world) stepSnapshot(r *rapid.T, h *host, op string, id sandbox.SnapshotID) change {
	ctx := context.Background()
	switch op {
	case "spawn":
		_, _, err := h.Create(ctx, project, control.CreateRequest{Checkpoint: id})
		w.must(r, h, err)
		return change{makes: true}
	case "forget":
		w.must(r, h, h.DeleteSnapshot(ctx, project, id, sandbox.UseCheckpoint))
		return change{snaps: map[sandbox.SnapshotID]bool{id: true}}
	}
	snap, err := h.Snapshot(ctx, project, id, sandbox.UseCheckpoint)
	if err != nil {
		r.Fatalf("%v", err)
	}
	if _, ok := w.boxes[snap.Sandbox]; !ok {
		return change{} // the source is gone
	}
	_, _, err = h.Restore(ctx, project, snap.Sandbox, id)
	w.must(r, h, err)
	return change{boxes: map[sandbox.ID][]string{snap.Sandbox: {w.snaps[id]}}}
}

// must says that an operation fails only because the server was killed.
func (w *world) must(r *rapid.T, h *host, err error) {
	if err != nil && !h.mortal.Dead() {
		r.Errorf("%v", err)
	}
}

// look compares the host with what is known, and takes over what may have changed.
func (w *world) look(r *rapid.T, h *host, c change) {
	have := h.lives(r)
	for id, want := range w.boxes {
		sb, ok := have[id]
		got := ""
		if ok {
			got = h.value(sb)
		}
		if may := append(slices.Clone(c.boxes[id]), want); !slices.Contains(may, got) || !ok && !slices.Contains(c.boxes[id], "") {
			r.Errorf("sandbox %s remembers %q, want one of %q", id, got, may)
		}
	}
	for id := range have {
		if _, ok := w.boxes[id]; !ok && !c.makes {
			r.Errorf("sandbox %s came from nowhere", id)
		}
	}
	clear(w.boxes)
	for id, sb := range have {
		w.boxes[id] = h.value(sb)
	}
	list, _, err := h.Snapshots(context.Background(), project, control.SnapshotQuery{Use: sandbox.UseCheckpoint, Limit: 1000})
	if err != nil {
		r.Fatalf("%v", err)
	}
	snaps := map[sandbox.SnapshotID]string{}
	for _, s := range list {
		snaps[s.ID] = h.machines.Peek(s.ID, "v")
	}
	for id, want := range w.snaps {
		if got, ok := snaps[id]; ok && got != want || !ok && !c.snaps[id] {
			r.Errorf("checkpoint %s: there %v, has %q, want %q", id, ok, got, want)
		}
	}
	w.snaps = snaps
}
