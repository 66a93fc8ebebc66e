package control_test

import (
	"context"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

var noRules = sandbox.EgressPolicy{Order: sandbox.EgressDenyFirst}

// What a sandbox may reach goes with its settings wherever its state goes.
func TestEgressPolicyGoesWithTheState(t *testing.T) {
	n := fresh(t)
	sb := n.createWith(t, control.CreateRequest{EgressPolicy: &goodOnly})
	forked, err := n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range forked.Children {
		n.reaches(t, child.ID, true, goodOnly)
	}
	snap, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	spawned := n.createWith(t, control.CreateRequest{Checkpoint: snap.ID})
	n.reaches(t, spawned.ID, true, goodOnly)
	opened := n.createWith(t, control.CreateRequest{Checkpoint: snap.ID, EgressPolicy: &sandbox.EgressPolicy{}})
	n.reaches(t, opened.ID, true, noRules)

	// Changed while it sleeps: the machine that wakes has what the record says then.
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := n.SetEgress(t.Context(), project, sb.ID, control.Egress{On: true}); err != nil {
		t.Fatal(err)
	}
	if got := n.state(t, sb.ID).State; got != sandbox.Hibernated {
		t.Errorf("a change of the policy made it %s", got)
	}
	if _, _, err := n.Wake(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, sb.ID, true, noRules)
	// A restore keeps the sandbox's settings, not those of the checkpoint's time.
	if _, _, err := n.Restore(t.Context(), project, sb.ID, snap.ID); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, sb.ID, true, noRules)
	// So does a merge.
	if _, _, err := n.Merge(t.Context(), project, sb.ID, forked.Children[0].ID); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, sb.ID, true, noRules)
	n.clean(t)
}

// A policy that is set in the middle of a restore or merge is that of the machine it ends with.
func TestEgressPolicySetDuringAnOperation(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	snap, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(p sandbox.EgressPolicy) error {
		_, err := n.SetEgress(context.WithoutCancel(t.Context()), project, sb.ID, control.Egress{On: true, Policy: p})
		return err
	}
	n.machines.OnStart = func(context.Context, control.StartRequest) error { return set(goodOnly) }
	if _, _, err := n.Restore(t.Context(), project, sb.ID, snap.ID); err != nil {
		t.Fatal(err)
	}
	n.machines.OnStart = nil
	n.reaches(t, sb.ID, true, goodOnly)
	winner := n.create(t)
	n.machines.OnStep = func(step string) error {
		if step == "rename" {
			return set(noRules)
		}
		return nil
	}
	if _, _, err := n.Merge(t.Context(), project, sb.ID, winner.ID); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, sb.ID, true, noRules)
	n.clean(t)
}

// A machine of the pool is that of a sandbox as any other: it sleeps when it is idle, and a
// spawn, which has another memory, takes none.
func TestReadyMachinesAndState(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.IdleTimeout = 5 * time.Minute })
	n.machines.Ready.Store(1)
	sb := n.create(t)
	if sb.IdleTimeout != 5*time.Minute || sb.Persistent {
		t.Errorf("its idle timeout is %s, persistent %v", sb.IdleTimeout, sb.Persistent)
	}
	snap, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n.machines.Ready.Store(1)
	spawned := n.createWith(t, control.CreateRequest{Checkpoint: snap.ID})
	if spawned.Origin != sandbox.OriginCheckpoint || spawned.Parent != sb.ID || n.machines.Ready.Load() != 1 {
		t.Errorf("spawned %+v, %d machines are ready", spawned, n.machines.Ready.Load())
	}
	n.machines.Ready.Store(0)
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Wake(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	n.clean(t)
}
