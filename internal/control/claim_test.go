package control_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// ready is a node on which machines are kept ready.
func ready(t *testing.T, machines int) *node {
	t.Helper()
	n := fresh(t)
	n.machines.Ready.Store(int64(machines))
	return n
}

func TestAReadyMachineIsOneTransaction(t *testing.T) {
	n := ready(t, 1)
	var made control.StartRequest
	n.machines.OnStart = func(ctx context.Context, r control.StartRequest) error {
		made = r
		if intents, err := n.store.Intents(ctx); err != nil || len(intents) != 0 || len(n.all(t)) != 0 {
			t.Errorf("before the machine takes calls there are the intents %v (%v) and %d records", intents, err, len(n.all(t)))
		}
		return nil
	}
	r := control.CreateRequest{Env: map[string]string{"A": "1"}, Metadata: map[string]string{"m": "x"}, NoEgress: true}
	sb, steps, err := n.Create(t.Context(), project, r)
	if err != nil {
		t.Fatal(err)
	}
	if sb.ID != made.Sandbox.ID || sb.Instance != made.Sandbox.Instance || sb.State != sandbox.Running ||
		sb.TemplateHash != "of-the-machine" || sb.Env["A"] != "1" || sb.Egress || made.Sandbox.Egress || made.Sandbox.Env["A"] != "1" {
		t.Errorf("the sandbox is %+v, its machine was asked for %+v", sb, made.Sandbox)
	}
	kept := n.state(t, sb.ID)
	if kept.State != sandbox.Running || kept.Metadata["m"] != "x" || kept.CreatedAt.IsZero() {
		t.Errorf("the record is %+v", kept)
	}
	events, err := n.store.Events(t.Context(), project, sb.ID, 0, 10)
	if err != nil || len(events) != 2 || events[0].Type != "creating" || events[1].Type != "running" ||
		events[0].Data["state"] != "creating" || events[1].Data["state"] != "running" {
		t.Errorf("its history is %+v %v", events, err)
	}
	if len(steps) < 3 || steps[0].Name != "admit" || steps[len(steps)-1].Name != "commit" {
		t.Errorf("the steps are %v", steps)
	}
	n.clean(t)
	// There is no second one.
	n.machines.OnStart = nil
	n.create(t)
	n.clean(t)
}

func TestARefusedCreateTakesNoReadyMachine(t *testing.T) {
	n := ready(t, 1)
	quota(t, n, project, sandbox.Quota{Sandboxes: 1, MemoryMB: 512, DiskMB: -1})
	if _, _, err := n.Create(t.Context(), project, control.CreateRequest{}); codeOf(err) != "quota_memory" {
		t.Errorf("the create says %v", err)
	}
	if left := n.machines.Ready.Load(); left != 1 {
		t.Errorf("%d machines are ready, want 1", left)
	}
	n.clean(t)
}

// What is refused, or fails, after a machine was claimed leaves nothing of it.
func TestAClaimedMachineIsFreedWhenItsRecordIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*testing.T, *node)
		code      string
	}{
		"the quota was used up meanwhile": {
			func(t *testing.T, n *node) {
				quota(t, n, project, sandbox.Quota{Sandboxes: -1, MemoryMB: 512, DiskMB: -1})
			},
			"quota_memory",
		},
		"the template was removed meanwhile": {
			func(t *testing.T, n *node) {
				if err := n.templates.Remove(t.Context(), "default"); err != nil {
					t.Fatal(err)
				}
			},
			"template_not_found",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := ready(t, 1)
			n.machines.OnStart = func(context.Context, control.StartRequest) error { c.meanwhile(t, n); return nil }
			if _, _, err := n.Create(t.Context(), project, control.CreateRequest{}); codeOf(err) != c.code {
				t.Errorf("the create says %v", err)
			}
			if len(n.all(t)) != 0 {
				t.Errorf("there is a record: %+v", n.all(t))
			}
			n.clean(t)
		})
	}
}

func TestACallerThatLeavesAClaimLeavesNothing(t *testing.T) {
	n := ready(t, 1)
	g := newGate()
	n.machines.OnStart = g.hold
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := n.Create(ctx, project, control.CreateRequest{})
		done <- err
	}()
	<-g.entered
	leave()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the create says %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the create goes on without its caller")
	}
	n.clean(t)
	if len(n.all(t)) != 0 {
		t.Errorf("there is a record: %+v", n.all(t))
	}
}

func TestAReadyMachineThatEndsBeforeItsRecordIsNoticed(t *testing.T) {
	n := ready(t, 1)
	n.machines.Vanish = true
	sb := n.create(t)
	waitFor(t, 10*time.Second, "the sandbox has failed", func() bool { return n.state(t, sb.ID).State == sandbox.Failed })
}
