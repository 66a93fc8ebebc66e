package control_test

import (
	"context"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
)

// A machine that was kept ready has no record between its claim and its commit. A
// collection in between leaves it alone.
func TestGCLeavesAMachineThatIsBeingClaimed(t *testing.T) {
	n := ready(t, 1)
	collected, listed := make(chan error, 1), make(chan struct{})
	n.machines.OnInventory = func() { close(listed) }
	n.machines.OnClaimed = func() {
		go func() {
			_, err := n.GC(context.Background(), false)
			collected <- err
		}()
		select { // it has seen the machine
		case <-listed:
		case <-time.After(10 * time.Second):
			t.Error("gc did not list the machines")
		}
	}
	sb, _, err := n.Create(t.Context(), project, control.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-collected:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("gc does not end")
	}
	n.machines.OnInventory = nil
	if !n.machines.Alive(sb.Instance) {
		t.Error("gc ended the machine of a sandbox")
	}
	n.clean(t)
}
