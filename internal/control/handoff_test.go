package control_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// TestCreateTakesOverTheInstanceOfThePool covers a machine that had its instance
// before it had a sandbox: the record gets it, and a delete ends that machine.
func TestCreateTakesOverTheInstanceOfThePool(t *testing.T) {
	n := fresh(t)
	warm := sandbox.NewInstanceID()
	n.machines.HandOff = func() sandbox.InstanceID { return warm }
	sb := n.create(t)
	if got := n.state(t, sb.ID); sb.Instance != warm || got.Instance != warm {
		t.Errorf("the sandbox has %s, its record %s, want %s", sb.Instance, got.Instance, warm)
	}
	n.machines.Crash(warm, "killed")
	deadline := time.Now().Add(10 * time.Second)
	for n.state(t, sb.ID).State != sandbox.Failed {
		if time.Now().After(deadline) {
			t.Fatalf("the machine ended and the sandbox is %s", n.state(t, sb.ID).State)
		}
	}
	n.clean(t)
}

// TestAbandonedHandOffFreesTheInstance covers a caller who goes away when the machine
// of the pool is its own already.
func TestAbandonedHandOffFreesTheInstance(t *testing.T) {
	n := fresh(t)
	warm := sandbox.NewInstanceID()
	ctx, leave := context.WithCancel(t.Context())
	n.machines.HandOff = func() sandbox.InstanceID {
		leave()
		return warm
	}
	if _, _, err := n.Create(ctx, project, control.CreateRequest{}); !errors.Is(err, context.Canceled) {
		// The create may win the race; then the sandbox is there, and its machine is the pool's.
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		list := n.all(t)
		if len(list) == 1 && list[0].State == sandbox.Stopped {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the records are %+v", list)
		}
	}
	if n.machines.Alive(warm) {
		t.Error("the machine runs on")
	}
	n.clean(t)
}

// TestMachineThatEndsBeforeItsRecordSaysSo covers the moment between the hand-off
// and the commit, in which nobody can be told of the machine's end.
func TestMachineThatEndsBeforeItsRecordSaysSo(t *testing.T) {
	n := fresh(t)
	n.machines.HandOff = sandbox.NewInstanceID
	n.machines.Vanish = true
	sb := n.create(t)
	if got := n.state(t, sb.ID); got.State != sandbox.Failed {
		t.Errorf("the sandbox without a machine is %s", got.State)
	}
	n.clean(t)
}
