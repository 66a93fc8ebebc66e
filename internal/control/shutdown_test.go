package control_test

import (
	"context"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// TestShutdownUndoesOperations covers a server that is asked to stop in the middle of one.
func TestShutdownUndoesOperations(t *testing.T) {
	for _, op := range []string{"fork", "hibernate", "checkpoint", "wake"} {
		t.Run(op, func(t *testing.T) {
			n := fresh(t)
			sb := n.create(t)
			n.machines.Remember(sb.Instance, "v", "1")
			if op == "wake" {
				if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
					t.Fatal(err)
				}
			}
			entered, open := make(chan struct{}, 4), make(chan struct{})
			hold := func() {
				entered <- struct{}{}
				<-open
			}
			n.machines.OnStep = func(s string) error {
				if s == "save.half" || s == "fork.child" {
					hold()
				}
				return nil
			}
			n.machines.OnStart = func(ctx context.Context, _ control.StartRequest) error {
				if op == "wake" {
					hold()
				}
				return context.Cause(ctx)
			}
			done, closed := make(chan error, 1), make(chan error, 1)
			go func() {
				ctx, err := context.Background(), error(nil)
				switch op {
				case "fork":
					_, err = n.Fork(ctx, project, sb.ID, control.ForkRequest{N: 2})
				case "hibernate":
					_, _, err = n.Hibernate(ctx, project, sb.ID)
				case "checkpoint":
					_, _, err = n.Checkpoint(ctx, project, sb.ID, control.CheckpointRequest{})
				case "wake":
					_, _, err = n.Wake(ctx, project, sb.ID)
				}
				done <- err
			}()
			<-entered
			n.BeginClose()
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				closed <- n.Control.Close(ctx)
			}()
			close(open)
			if err := <-done; codeOf(err) != "shutting_down" {
				t.Errorf("%v", err)
			}
			if err := <-closed; err != nil {
				t.Error(err)
			}
			want := sandbox.Running
			if op == "wake" {
				want = sandbox.Hibernated
			}
			if got := n.state(t, sb.ID); got.State != want {
				t.Errorf("it is %s", got.State)
			}
			n.clean(t)
		})
	}
}
