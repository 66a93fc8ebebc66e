package control_test

import (
	"testing"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

func TestMergeTakesOverTheWinner(t *testing.T) {
	n := fresh(t)
	parent := n.createWith(t, control.CreateRequest{Metadata: map[string]string{"who": "parent"}})
	f, err := n.Fork(t.Context(), project, parent.ID, control.ForkRequest{N: 1})
	if err != nil {
		t.Fatal(err)
	}
	winner := f.Children[0]
	n.put(t, winner.ID, "/root/won", "yes")
	for _, id := range []sandbox.ID{parent.ID, winner.ID} {
		for _, name := range []string{"same", string(id)} {
			if _, _, err := n.Checkpoint(t.Context(), project, id, control.CheckpointRequest{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	lost := n.run(t, parent.ID, "sleep 60")
	goes := n.run(t, winner.ID, "sleep 1; echo here")
	sb, steps, err := n.Merge(t.Context(), project, parent.ID, winner.ID)
	if err != nil || len(steps) == 0 {
		t.Fatal(err)
	}
	if sb.ID != parent.ID || sb.Instance != winner.Instance || sb.State != sandbox.Running || sb.Metadata["who"] != "parent" {
		t.Errorf("%+v", sb)
	}
	if w := n.state(t, winner.ID); w.State != sandbox.Stopped || w.MergedInto != parent.ID {
		t.Errorf("the winner is %+v", w)
	}
	if n.machines.Alive(parent.Instance) || n.machines.Name(winner.Instance) != parent.ID {
		t.Error("the old machine runs, or the guest was not renamed")
	}
	if got := n.cat(t, parent.ID, "/root/won"); got != "yes" {
		t.Errorf("file %q", got)
	}
	if _, err := lost.rest(); codeOf(err) != "sandbox_merged" {
		t.Errorf("the parent's run: %v", err)
	}
	if out, err := goes.rest(); err != nil || out != "here\n" {
		t.Errorf("the winner's run: %q %v", out, err)
	}
	list, _, err := n.Snapshots(t.Context(), project, control.SnapshotQuery{Use: sandbox.UseCheckpoint, Sandbox: parent.ID, Limit: 10})
	names := map[string]bool{}
	for _, s := range list {
		names[s.Name] = true
	}
	if err != nil || len(list) != 4 || len(names) != 4 || !names["same"] || !names[string(winner.ID)] {
		t.Errorf("checkpoints %v %v", names, err)
	}
	l, err := n.Lineage(t.Context(), project, winner.ID)
	if err != nil || len(l.Sandboxes) != 2 || len(l.Checkpoints) != 4 {
		t.Errorf("lineage %+v %v", l, err)
	}
	n.clean(t)
}

func TestWhatMergesRefuse(t *testing.T) {
	n := fresh(t)
	a, b := n.create(t), n.create(t)
	other, _, err := n.Create(t.Context(), "other", control.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Merge(t.Context(), project, a.ID, a.ID); codeOf(err) != "merge_into_itself" {
		t.Errorf("%v", err)
	}
	for _, ids := range [][2]sandbox.ID{{a.ID, other.ID}, {other.ID, a.ID}} {
		if _, _, err := n.Merge(t.Context(), project, ids[0], ids[1]); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("another project's: %v", err)
		}
	}
	if err := n.Delete(t.Context(), project, b.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Merge(t.Context(), project, a.ID, b.ID); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a deleted one: %v", err)
	}
	// One from elsewhere that sleeps is woken.
	c := n.create(t)
	if _, _, err := n.Hibernate(t.Context(), project, c.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Merge(t.Context(), project, a.ID, c.ID); err != nil {
		t.Error(err)
	}
}
