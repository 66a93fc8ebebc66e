package control_test

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/sandbox"
)

func ends(after time.Duration, then sandbox.AtEnd) control.CreateRequest {
	return control.CreateRequest{IdleTimeout: control.Never, Deadline: &sandbox.Deadline{After: after, Then: then}}
}

func TestDeadlineDeletesAndCallsDoNotMoveIt(t *testing.T) {
	n := fresh(t)
	other := n.createWith(t, ends(time.Hour, ""))
	sb := n.createWith(t, ends(300*time.Millisecond, ""))
	stream, err := n.Run(t.Context(), project, sb.ID, control.RunRequest{Code: "sleep 30", Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	waitFor(t, 20*time.Second, "the sandbox is stopped", n.stopped(t, sb.ID))
	if c := n.causes(t, sb.ID)["stopping"]; c != "deadline" {
		t.Errorf("it was stopped by %q", c)
	}
	if got := n.state(t, other.ID); got.State != sandbox.Running || got.EndsAt.IsZero() {
		t.Errorf("another is %s, ends at %s", got.State, got.EndsAt)
	}
}

func TestDeadlineHibernatesAndBeginsAnewAtTheWake(t *testing.T) {
	n := fresh(t)
	sb := n.createWith(t, ends(300*time.Millisecond, sandbox.AtEndHibernate))
	waitFor(t, 20*time.Second, "the sandbox is hibernated", n.is(t, sb.ID, sandbox.Hibernated))
	asleep := n.state(t, sb.ID)
	if !asleep.EndsAt.IsZero() {
		t.Errorf("a hibernated sandbox has a deadline at %s", asleep.EndsAt)
	}
	hour := time.Hour
	if _, err := n.Update(t.Context(), project, sb.ID, control.UpdateRequest{EndAfter: &hour}); err != nil {
		t.Fatal(err)
	}
	if !n.state(t, sb.ID).EndsAt.IsZero() {
		t.Error("a change gave a hibernated sandbox a deadline")
	}
	woken, _, err := n.Wake(t.Context(), project, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(woken.EndsAt); left < 50*time.Minute || left > time.Hour {
		t.Errorf("after the wake it has %s left", left)
	}
}

func TestDeadlineThatIsMovedHolds(t *testing.T) {
	n := fresh(t)
	var wg sync.WaitGroup
	for range 8 { // one of them tends to be moved when it is just over
		sb := n.createWith(t, ends(200*time.Millisecond, ""))
		wg.Go(func() {
			hour := time.Hour
			<-time.After(time.Until(sb.EndsAt)) // the race that is meant
			_, err := n.Update(t.Context(), project, sb.ID, control.UpdateRequest{EndAfter: &hour})
			if err != nil {
				if sandbox.KindOf(err) != sandbox.NotFound {
					t.Errorf("move the deadline: %v", err)
				}
				return
			}
			if got := n.state(t, sb.ID); got.State != sandbox.Running {
				t.Errorf("its deadline was moved, and it is %s", got.State)
			}
			if _, err := n.Stat(t.Context(), project, sb.ID, "/", "", true); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
				t.Errorf("a call after it: %v", err)
			}
		})
	}
	wg.Wait()
}

func TestDeadlineOnlyLater(t *testing.T) {
	n := fresh(t)
	sb := n.createWith(t, ends(time.Hour, ""))
	free := n.create(t)
	move := func(id sandbox.ID, d time.Duration, only bool) time.Duration {
		t.Helper()
		got, err := n.Update(t.Context(), project, id, control.UpdateRequest{EndAfter: &d, OnlyLater: only})
		if err != nil {
			t.Fatal(err)
		}
		if got.EndsAt.IsZero() {
			return 0
		}
		return time.Until(got.EndsAt).Round(time.Minute)
	}
	if left := move(sb.ID, time.Minute, true); left != time.Hour {
		t.Errorf("a connect for less left %s", left)
	}
	if left := move(sb.ID, 2*time.Hour, true); left != 2*time.Hour {
		t.Errorf("a connect for more left %s", left)
	}
	if left := move(sb.ID, time.Minute, false); left != time.Minute {
		t.Errorf("a change left %s", left)
	}
	if left := move(free.ID, time.Minute, true); left != 0 {
		t.Errorf("one without a deadline got one: %s", left)
	}
	if left := move(sb.ID, 0, false); left != 0 {
		t.Errorf("after it was taken away there are %s", left)
	}
}

func TestDeadlineSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	m := controltest.NewMachines(dir + "/instances")
	t.Cleanup(m.StopAll)
	n := start(t, dir, m)
	past := n.createWith(t, ends(time.Second, sandbox.AtEndHibernate))
	later := n.createWith(t, ends(time.Hour, ""))
	n.stop(t)
	n = start(t, dir, m)
	waitFor(t, 20*time.Second, "the sandbox is hibernated", n.is(t, past.ID, sandbox.Hibernated))
	if got := n.state(t, later.ID); !got.EndsAt.Equal(later.EndsAt) || got.State != sandbox.Running {
		t.Errorf("the other is %s and ends at %s, not at %s", got.State, got.EndsAt, later.EndsAt)
	}
}

func TestForksAndCheckpointsHandOnTheDeadline(t *testing.T) {
	n := fresh(t)
	sb := n.createWith(t, ends(time.Hour, sandbox.AtEndHibernate))
	f, err := n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 1})
	if err != nil {
		t.Fatal(err)
	}
	g, err := n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 1, EndAfter: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ckp, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	started := n.createWith(t, control.CreateRequest{Checkpoint: ckp.ID})
	for _, c := range []struct {
		sb   sandbox.Sandbox
		want time.Duration
	}{{f.Children[0], time.Hour}, {g.Children[0], 2 * time.Hour}, {started, time.Hour}} {
		if left := time.Until(c.sb.EndsAt).Round(time.Minute); left != c.want || c.sb.Deadline.Then != sandbox.AtEndHibernate {
			t.Errorf("%s has %s left and then %q, want %s", c.sb.Origin, left, c.sb.Deadline.Then, c.want)
		}
	}
}

func TestBadDeadlines(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	for _, d := range []time.Duration{-1, -time.Hour, 400 * 24 * time.Hour, math.MaxInt64} {
		if _, _, err := n.Create(t.Context(), project, ends(d, "")); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("a create for %s: %v", d, err)
		}
		if _, err := n.Update(t.Context(), project, sb.ID, control.UpdateRequest{EndAfter: &d}); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("a change to %s: %v", d, err)
		}
		if _, err := n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 1, EndAfter: d}); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("a fork for %s: %v", d, err)
		}
	}
	never := sandbox.AtEnd("explode")
	if _, err := n.Update(t.Context(), project, sb.ID, control.UpdateRequest{AtEnd: &never}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("an end that does not exist: %v", err)
	}
}

func TestHibernateWithoutMemoryAndColdWake(t *testing.T) {
	n := fresh(t)
	for _, c := range []struct {
		name string
		how  control.HibernateRequest
		wake control.WakeRequest
		note string
	}{
		{"disk only", control.HibernateRequest{DiskOnly: true}, control.WakeRequest{}, "without its memory"},
		{"cold wake", control.HibernateRequest{}, control.WakeRequest{Cold: true}, "asked for"},
		{"full", control.HibernateRequest{}, control.WakeRequest{}, ""},
	} {
		sb := n.create(t)
		if _, err := n.WriteFile(t.Context(), project, sb.ID, "/root/kept", "", 0o644, true, strings.NewReader("kept")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := n.HibernateAs(t.Context(), project, sb.ID, c.how); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		c.how.Strict = true
		if _, _, err := n.HibernateAs(t.Context(), project, sb.ID, c.how); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("%s: a second one: %v", c.name, err)
		}
		woken, _, err := n.WakeAs(t.Context(), project, sb.ID, c.wake)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if !strings.Contains(woken.BootNote, c.note) || (c.note == "") != (woken.BootNote == "") {
			t.Errorf("%s: the note is %q", c.name, woken.BootNote)
		}
		if _, err := n.Stat(t.Context(), project, sb.ID, "/root/kept", "", true); err != nil {
			t.Errorf("%s: the file: %v", c.name, err)
		}
	}
}
