package control_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

func TestForkHasWhatItsParentHas(t *testing.T) {
	n := fresh(t)
	parent := n.createWith(t, control.CreateRequest{
		Env: map[string]string{"A": "1"}, Metadata: map[string]string{"m": "x"}, IdleTimeout: time.Hour, MaxLifetime: 2 * time.Hour,
		NoEgress: true, Shape: sandbox.Shape{VCPUs: 4, MemoryMB: 2048}, Persistent: true,
	})
	n.put(t, parent.ID, "/root/f", "before")
	n.machines.Remember(parent.Instance, "x", "41")
	f, err := n.Fork(t.Context(), project, parent.ID, control.ForkRequest{N: 5})
	if err != nil || len(f.Children) != 5 || f.Info.Paused <= 0 || len(f.Steps) == 0 {
		t.Fatalf("%+v %v", f, err)
	}
	n.put(t, parent.ID, "/root/f", "after")
	seen := map[sandbox.ID]bool{parent.ID: true}
	for _, c := range f.Children {
		if seen[c.ID] {
			t.Error("two have one id")
		}
		seen[c.ID] = true
		if c.State != sandbox.Running || c.Origin != sandbox.OriginFork || c.Parent != parent.ID || c.Shape != parent.Shape || c.Env["A"] != "1" ||
			c.Metadata["m"] != "x" || c.IdleTimeout != time.Hour || c.MaxLifetime != 2*time.Hour || c.Egress || !c.Persistent || c.Instance == parent.Instance {
			t.Errorf("%+v", c)
		}
		if got := n.cat(t, c.ID, "/root/f"); got != "before" {
			t.Errorf("file %q", got)
		}
		if n.machines.Recall(c.Instance, "x") != "41" {
			t.Error("it has not its parent's memory")
		}
	}
	// A fork of a fork.
	if g, err := n.Fork(t.Context(), project, f.Children[0].ID, control.ForkRequest{N: 1}); err != nil || g.Children[0].Parent != f.Children[0].ID {
		t.Errorf("%+v %v", g, err)
	}
	n.clean(t)
}

func TestWhatForksRefuse(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.Quota = sandbox.Quota{Sandboxes: 4} })
	sb := n.create(t)
	for _, k := range []int{-1, 0, 33} {
		if _, err := n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: k}); codeOf(err) != "invalid_n" {
			t.Errorf("%d: %v", k, err)
		}
	}
	if _, err := n.Fork(t.Context(), "other", sb.ID, control.ForkRequest{N: 1}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another project's: %v", err)
	}
	if _, err := n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 4}); codeOf(err) != "quota_sandboxes" {
		t.Errorf("beyond the quota: %v", err)
	}
	if got := len(n.all(t)); got != 1 {
		t.Errorf("%d records after a refused fork", got)
	}
	if _, err := n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 3}); err != nil {
		t.Errorf("within the quota: %v", err)
	}
	n.clean(t)
}

func TestFailedForkLeavesNothing(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	for _, step := range []string{"fork.pause", "fork.child", "fork.done"} {
		count := 0
		n.machines.OnStep = func(s string) error {
			if s == step {
				if count++; s != "fork.child" || count == 3 {
					return fmt.Errorf("write: %w", syscall.ENOSPC)
				}
			}
			return nil
		}
		_, err := n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 4})
		if codeOf(err) != "server_disk_full" {
			t.Errorf("%s: %v", step, err)
		}
		if got := n.state(t, sb.ID); got.State != sandbox.Running || got.Instance != sb.Instance {
			t.Errorf("%s: the parent is %+v", step, got)
		}
		n.clean(t)
	}
}

func TestForkOfACallerThatLeavesIsUndone(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	g := newGate()
	n.machines.OnStart = g.hold
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := n.Fork(ctx, project, sb.ID, control.ForkRequest{N: 2})
		done <- err
	}()
	<-g.entered
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	waitFor(t, 10*time.Second, "undone", func() bool { return n.machines.Running() == 1 && n.ended(t) == 2 })
	n.clean(t)
}

func (n *node) ended(t *testing.T) int {
	t.Helper()
	k := 0
	for _, sb := range n.all(t) {
		if sb.State == sandbox.Stopped {
			k++
		}
	}
	return k
}

func TestIdempotentForkAndCheckpoint(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	for range 2 {
		f, err := n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 2, Idempotency: "tag"})
		if err != nil || len(f.Children) != 2 {
			t.Errorf("%+v %v", f, err)
		}
		if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "a", Idempotency: "tag2"}); err != nil {
			t.Error(err)
		}
	}
	if len(n.all(t)) != 3 {
		t.Errorf("%d sandboxes", len(n.all(t)))
	}
}
