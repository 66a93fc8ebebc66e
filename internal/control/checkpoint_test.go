package control_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

func TestCheckpointsComeBack(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.put(t, sb.ID, "/root/f", "old")
	n.machines.Remember(sb.Instance, "x", "old")
	full, info, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "full"})
	if err != nil || full.State != sandbox.SnapshotReady || full.Kind != sandbox.SnapshotFull || info.SizeBytes <= 0 || full.SizeBytes != info.SizeBytes {
		t.Fatalf("%+v %+v %v", full, info, err)
	}
	disk, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Kind: sandbox.SnapshotDisk})
	if err != nil || disk.Name == "" {
		t.Fatalf("%+v %v", disk, err)
	}
	n.put(t, sb.ID, "/root/f", "new")
	r := n.run(t, sb.ID, "sleep 60")
	got, steps, err := n.Restore(t.Context(), project, sb.ID, full.ID)
	if err != nil || got.ID != sb.ID || got.State != sandbox.Running || got.Instance == sb.Instance || len(steps) == 0 {
		t.Fatalf("%+v %v", got, err)
	}
	if n.cat(t, sb.ID, "/root/f") != "old" || n.machines.Recall(got.Instance, "x") != "old" {
		t.Error("it has not what it had")
	}
	if _, err := r.rest(); codeOf(err) != "sandbox_restored" {
		t.Errorf("its run: %v", err)
	}
	n.clean(t)
	if got, _, err = n.Restore(t.Context(), project, sb.ID, disk.ID); err != nil || n.machines.Recall(got.Instance, "x") != "" || n.cat(t, sb.ID, "/root/f") != "old" {
		t.Errorf("%+v %v", got, err)
	}
	// The machine that took the place of the old one had a record, which nobody sees.
	if len(n.all(t)) != 1 {
		t.Errorf("%d sandboxes", len(n.all(t)))
	}
	// Also when the source is gone, with what the request says instead.
	if err := n.Delete(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	spawned := n.createWith(t, control.CreateRequest{Checkpoint: full.ID, Metadata: map[string]string{"b": "2"}, IdleTimeout: control.Never})
	if spawned.Origin != sandbox.OriginCheckpoint || spawned.Snapshot != full.ID || spawned.Parent != sb.ID || spawned.Metadata["b"] != "2" ||
		n.cat(t, spawned.ID, "/root/f") != "old" || n.machines.Recall(spawned.Instance, "x") != "old" {
		t.Errorf("%+v", spawned)
	}
	if _, _, err := n.Create(t.Context(), project, control.CreateRequest{Checkpoint: full.ID, Shape: sandbox.Shape{MemoryMB: 2048}}); codeOf(err) != "invalid_shape" {
		t.Errorf("%v", err)
	}
	if _, _, err := n.Create(t.Context(), "other", control.CreateRequest{Checkpoint: full.ID}); codeOf(err) != "checkpoint_not_found" {
		t.Errorf("another project's: %v", err)
	}
	if _, _, err := n.Restore(t.Context(), project, spawned.ID, full.ID); codeOf(err) != "checkpoint_of_another" {
		t.Errorf("%v", err)
	}
	if err := n.DeleteSnapshot(t.Context(), "other", full.ID, sandbox.UseCheckpoint); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another project's: %v", err)
	}
	for _, s := range []sandbox.Snapshot{full, disk} {
		if err := n.DeleteSnapshot(t.Context(), project, s.ID, sandbox.UseCheckpoint); err != nil {
			t.Error(err)
		}
	}
	if _, err := n.Snapshot(t.Context(), project, full.ID, sandbox.UseCheckpoint); codeOf(err) != "checkpoint_not_found" {
		t.Errorf("%v", err)
	}
	if n.cat(t, spawned.ID, "/root/f") != "old" {
		t.Error("it does not go on without its checkpoint")
	}
	n.clean(t)
}

func TestRestoreValidatesBeforeItTouches(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	snap, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n.machines.OnStart = func(context.Context, control.StartRequest) error {
		return sandbox.Errorf(sandbox.Unavailable, "no_start", "it does not start")
	}
	if _, _, err := n.Restore(t.Context(), project, sb.ID, snap.ID); codeOf(err) != "no_start" {
		t.Errorf("%v", err)
	}
	n.machines.OnStart = func(context.Context, control.StartRequest) error { t.Error("it was started"); return nil }
	if err := n.machines.Damage(snap.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Restore(t.Context(), project, sb.ID, snap.ID); codeOf(err) != "snapshot_damaged" {
		t.Errorf("%v", err)
	}
	if got := n.state(t, sb.ID); got.State != sandbox.Running || got.Instance != sb.Instance {
		t.Errorf("%+v", got)
	}
	n.clean(t)
}

func TestCheckpointLimitsAndNames(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	var first sandbox.Snapshot
	for i := range control.MaxFullCheckpoints {
		s, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = s
		}
	}
	_, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "more"})
	if codeOf(err) != "too_many_checkpoints" || sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("%v", err)
	}
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "d", Kind: sandbox.SnapshotDisk}); err != nil {
		t.Errorf("the other kind: %v", err)
	}
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "3", DeleteOldest: true}); codeOf(err) != "checkpoint_exists" {
		t.Errorf("%v", err)
	}
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "more", DeleteOldest: true}); err != nil {
		t.Error(err)
	}
	if _, err := n.Snapshot(t.Context(), project, first.ID, sandbox.UseCheckpoint); codeOf(err) != "checkpoint_not_found" {
		t.Errorf("the oldest: %v", err)
	}
	for _, name := range []string{"a/b", "ä", strings.Repeat("x", 65), "a b"} {
		if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: name}); codeOf(err) != "invalid_name" {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Kind: "x"}); codeOf(err) != "invalid_kind" {
		t.Errorf("%v", err)
	}
	// Pages.
	q := control.SnapshotQuery{Use: sandbox.UseCheckpoint, Limit: 4}
	var names []string
	for {
		page, more, err := n.Snapshots(t.Context(), project, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			names = append(names, s.Name)
		}
		if !more {
			break
		}
		q.After = control.SnapshotPosition(page[len(page)-1])
	}
	if len(names) != 11 || names[0] != "more" || names[10] != "1" {
		t.Errorf("%v", names)
	}
	n.clean(t)
}

func TestFailedCheckpointLeavesNothing(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	for _, step := range []string{"save.half", "save.whole", "save.end"} {
		n.machines.OnStep = func(s string) error {
			if s == step {
				return syscall.ENOSPC
			}
			return nil
		}
		if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "a"}); codeOf(err) != "server_disk_full" {
			t.Errorf("%s: %v", step, err)
		}
		n.clean(t)
	}
}
