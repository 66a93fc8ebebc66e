package control_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

func (n *node) createWith(t *testing.T, r control.CreateRequest) sandbox.Sandbox {
	t.Helper()
	sb, _, err := n.Create(t.Context(), project, r)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func (n *node) stopped(t *testing.T, id sandbox.ID) func() bool {
	return func() bool { return n.state(t, id).State == sandbox.Stopped }
}

func (n *node) is(t *testing.T, id sandbox.ID, s sandbox.State) func() bool {
	return func() bool { return n.state(t, id).State == s }
}

// causes returns the causes of a sandbox's events, and checks that every one has a reason.
func (n *node) causes(t *testing.T, id sandbox.ID) map[string]string {
	t.Helper()
	events, err := n.store.Events(t.Context(), project, id, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	causes := map[string]string{}
	for _, e := range events {
		if e.Reason == "" || e.Cause == "" || e.Data["state"] == "" {
			t.Errorf("event without a reason, cause or state: %+v", e)
		}
		causes[e.Type] = e.Cause
	}
	return causes
}

// freed waits until nothing of a machine is left: a sandbox that nobody waits for has its
// state a moment earlier.
func (n *node) freed(t *testing.T, id sandbox.InstanceID) {
	t.Helper()
	waitFor(t, 20*time.Second, "its machine is gone", func() bool {
		_, err := os.Stat(filepath.Join(n.dir, "instances", string(id)))
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestIdleTimeoutRollsAndCountsCallsInFlight(t *testing.T) {
	n := fresh(t)
	const idle = 400 * time.Millisecond
	sb := n.createWith(t, control.CreateRequest{IdleTimeout: idle})
	other := n.create(t)
	// A silent call, longer than the timeout.
	stream, err := n.Run(t.Context(), project, sb.ID, control.RunRequest{Code: "sleep 1.5; echo done", Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	for ended := false; !ended; {
		e, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		ended = e.GetExit() != nil
	}
	stream.Close()
	end := time.Now()
	if s := n.state(t, sb.ID).State; s != sandbox.Running {
		t.Fatalf("%s in the middle of a call", s)
	}
	waitFor(t, 20*time.Second, "hibernated by its idle timeout", n.is(t, sb.ID, sandbox.Hibernated))
	if took := time.Since(end); took < idle {
		t.Errorf("hibernated %s after the last call", took)
	}
	n.freed(t, sb.Instance)
	if c := n.causes(t, sb.ID); c["creating"] != "create" || c["running"] != "create" || c["hibernating"] != "idle_timeout" || c["hibernated"] != "idle_timeout" {
		t.Errorf("causes %v", c)
	}
	if s := n.state(t, other.ID).State; s != sandbox.Running {
		t.Errorf("one without a timeout is %s", s)
	}
	n.clean(t)
}

func TestMaximumLifetimeEndsCallsToo(t *testing.T) {
	n := fresh(t)
	sb := n.createWith(t, control.CreateRequest{MaxLifetime: 500 * time.Millisecond})
	stream, err := n.Run(t.Context(), project, sb.ID, control.RunRequest{Code: "sleep 60", Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	waitFor(t, 10*time.Second, "stopped by its lifetime", n.stopped(t, sb.ID))
	if c := n.causes(t, sb.ID); c["stopping"] != "max_lifetime" {
		t.Errorf("causes %v", c)
	}
	n.clean(t)
}

func TestTimesCanBeChangedAndSurviveARestart(t *testing.T) {
	n := fresh(t)
	keep := n.createWith(t, control.CreateRequest{IdleTimeout: 2 * time.Second, Metadata: map[string]string{"a": "1", "b": "2"}})
	zero, short, three := time.Duration(0), 100*time.Millisecond, "3"
	got, err := n.Update(t.Context(), project, keep.ID, control.UpdateRequest{
		IdleTimeout: &zero, Metadata: map[string]*string{"a": nil, "c": &three},
	})
	if err != nil || got.IdleTimeout != 0 || len(got.Metadata) != 2 || got.Metadata["b"] != "2" || got.Metadata["c"] != "3" {
		t.Fatalf("%+v %v", got, err)
	}
	if _, err := n.Update(t.Context(), "other", keep.ID, control.UpdateRequest{}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another project: %v", err)
	}
	idle := n.createWith(t, control.CreateRequest{IdleTimeout: time.Hour})
	over := n.create(t)
	if _, err := n.Update(t.Context(), project, over.ID, control.UpdateRequest{MaxLifetime: &short}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 10*time.Second, "stopped at once", n.stopped(t, over.ID))
	if c := n.causes(t, over.ID); c["updated"] != "update" {
		t.Errorf("causes %v", c)
	}
	n.stop(t)
	n2 := start(t, n.dir, n.machines)
	if _, err := n2.Update(t.Context(), project, idle.ID, control.UpdateRequest{IdleTimeout: &short}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 20*time.Second, "hibernated after the restart", n2.is(t, idle.ID, sandbox.Hibernated))
	n2.freed(t, idle.Instance)
	if _, _, err := n2.Hibernate(t.Context(), project, idle.ID); err != nil { // waits until its machine is gone
		t.Fatal(err)
	}
	if s := n2.state(t, keep.ID).State; s != sandbox.Running {
		t.Errorf("%s", s)
	}
	n2.clean(t)
}

func TestEveryEndHasItsCause(t *testing.T) {
	n := fresh(t)
	deleted, crashed := n.create(t), n.create(t)
	if err := n.Delete(t.Context(), project, deleted.ID); err != nil {
		t.Fatal(err)
	}
	n.machines.Crash(crashed.Instance, "it was killed")
	waitFor(t, 10*time.Second, "failed", func() bool { return n.state(t, crashed.ID).State == sandbox.Failed })
	if c := n.causes(t, deleted.ID); c["stopping"] != "delete" || c["stopped"] != "delete" {
		t.Errorf("%v", c)
	}
	if c := n.causes(t, crashed.ID); c["failed"] != "machine_exit" {
		t.Errorf("%v", c)
	}
	if err := n.Note(t.Context(), n.create(t).Instance, store.Event{Type: "egress_denied", Reason: "example.com is denied", Cause: "policy"}); err != nil {
		t.Error(err)
	}
}

func TestIdleSandboxIsDeletedWhenItSaysSo(t *testing.T) {
	n := fresh(t)
	sb := n.createWith(t, control.CreateRequest{IdleTimeout: 300 * time.Millisecond, DeleteIdle: true})
	waitFor(t, 20*time.Second, "deleted by its idle timeout", n.is(t, sb.ID, sandbox.Stopped))
	n.freed(t, sb.Instance)
	if c := n.causes(t, sb.ID); c["stopping"] != "idle_timeout" || c["stopped"] != "idle_timeout" || c["hibernating"] != "" {
		t.Errorf("%v", c)
	}
	list, _, err := n.Snapshots(t.Context(), project, control.SnapshotQuery{Use: sandbox.UseSpace, Limit: 10})
	if err != nil || len(list) != 0 {
		t.Errorf("it left %v, %v", list, err)
	}
}
