package control_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// lateContext ends in the very moment in which the create that uses it succeeds:
// once the record is there, asking for Done waits until it runs.
type lateContext struct {
	context.Context
	created func() bool // waits, unless there is no record yet
	over    atomic.Bool
}

func (c *lateContext) Done() <-chan struct{} {
	if !c.created() {
		return nil
	}
	c.over.Store(true)
	done := make(chan struct{})
	close(done)
	return done
}

func (c *lateContext) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

func TestCallerThatLeavesInTheLastMomentLeavesNoSandbox(t *testing.T) {
	n := fresh(t)
	current := func() sandbox.Sandbox {
		for _, sb := range n.all(t) {
			if sb.State == sandbox.Creating || sb.State == sandbox.Running {
				return sb
			}
		}
		return sandbox.Sandbox{}
	}
	left := 0
	for range 20 { // both outcomes are ready; which one is taken is chance
		ctx := &lateContext{Context: context.Background(), created: func() bool {
			if current().ID == "" {
				return false
			}
			waitFor(t, 5*time.Second, "it runs", func() bool { return current().State == sandbox.Running })
			return true
		}}
		sb, _, err := n.Create(ctx, project, control.CreateRequest{})
		if err == nil {
			if err := n.Delete(t.Context(), project, sb.ID); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		left++
		waitFor(t, 5*time.Second, "nothing is left", func() bool { return current().ID == "" })
	}
	if left == 0 {
		t.Error("no caller left")
	}
	waitFor(t, 5*time.Second, "every machine is gone", func() bool {
		return n.machines.Running() == 0 && len(n.all(t)) == 20 && allStopped(n.all(t))
	})
	n.clean(t)
}

func allStopped(list []sandbox.Sandbox) bool {
	for _, sb := range list {
		if sb.State != sandbox.Stopped {
			return false
		}
	}
	return true
}

func TestRunOfACallerThatLeavesBeforeTheFirstAnswerEnds(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.KillDelay = 300 * time.Millisecond })
	sb := n.create(t)
	n.machines.Silence(sb.Instance)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		s, err := n.Run(ctx, project, sb.ID, control.RunRequest{Code: "sleep 60", Language: "bash"})
		if err == nil {
			_, err = s.Next()
			s.Close()
		}
		done <- err
	}()
	waitFor(t, 5*time.Second, "the guest has begun", func() bool { return n.machines.Runs(sb.Instance) == 1 })
	leave()
	if err := <-done; err == nil {
		t.Error("it succeeded")
	}
	n.machines.Unsilence(sb.Instance)
	waitFor(t, 10*time.Second, "the run has ended", func() bool { return n.machines.Runs(sb.Instance) == 0 })
}

func TestFailedSandboxIsFreedHoweverOftenItTakes(t *testing.T) {
	n := fresh(t)
	sb, _, err := n.Create(t.Context(), project, control.CreateRequest{Env: map[string]string{"SECRET": "s"}})
	if err != nil {
		t.Fatal(err)
	}
	var stops atomic.Int32
	n.machines.OnStop = func(context.Context, sandbox.InstanceID) error {
		if stops.Add(1) == 1 {
			return errors.New("device busy")
		}
		return nil
	}
	n.machines.Crash(sb.Instance, "killed")
	waitFor(t, 5*time.Second, "tried again", func() bool { return stops.Load() >= 2 })
	if got := n.state(t, sb.ID); got.State != sandbox.Failed || len(got.Env) != 0 {
		t.Errorf("it is %s with the environment %v", got.State, got.Env)
	}

	// A server that ended before it could free it does so at its next start.
	n.stop(t)
	before := stops.Load()
	n = start(t, n.dir, n.machines)
	if stops.Load() == before {
		t.Error("the next start did not try")
	}
	n.clean(t)
}

func TestOperationsThatWereCutShortAreTold(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	if _, err := n.store.Transition(t.Context(), sb.ID, sandbox.Running, sandbox.Stopping, store.Change{Begin: "delete"}); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	log := &lockedLog{}
	n = start(t, n.dir, n.machines, func(c *control.Config) { c.Log = log.logger() })
	n.clean(t)
	if text := log.text(); !strings.Contains(text, "cut short") || !strings.Contains(text, "operation=delete") {
		t.Errorf("the log says %q", text)
	}
}

func TestListingIsBoundedInBytes(t *testing.T) {
	n := fresh(t)
	n.machines.LongNames(40, 1<<20)
	sb := n.create(t)
	list, more, err := n.ListFiles(t.Context(), project, sb.ID, "/root", "", 1)
	size := 0
	for _, f := range list {
		size += len(f.Path)
	}
	if err != nil || !more || size > 32<<20 || len(list) < 20 {
		t.Errorf("%d entries of %d bytes, more %v, %v", len(list), size, more, err)
	}
}
