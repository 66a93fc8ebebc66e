package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

const project = sandbox.DefaultProject

// node is a Control on fake machines, which outlive it.
type node struct {
	*control.Control
	store     *store.Store
	machines  *controltest.Machines
	templates *controltest.Templates
	dir       string
	closed    bool
}

func start(t *testing.T, dir string, machines *controltest.Machines, change ...func(*control.Config)) *node {
	t.Helper()
	st, err := store.Open(t.Context(), filepath.Join(dir, "ramet.db"))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{store: st, machines: machines, templates: controltest.NewTemplates(), dir: dir}
	cfg := control.Config{
		Store: st, Machines: machines, Templates: n.templates, Log: slog.New(slog.DiscardHandler), Region: "local", Node: "n1",
		HostMemoryMB: 8192,
	}
	for _, f := range change {
		f(&cfg)
	}
	if n.Control, err = control.New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(t) })
	return n
}

func fresh(t *testing.T, change ...func(*control.Config)) *node {
	t.Helper()
	dir := t.TempDir()
	m := controltest.NewMachines(filepath.Join(dir, "instances"))
	t.Cleanup(m.StopAll)
	return start(t, dir, m, change...)
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	if n.closed {
		return
	}
	n.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := errors.Join(n.Control.Close(ctx), n.store.Close()); err != nil {
		t.Errorf("close: %v", err)
	}
}

func (n *node) create(t *testing.T) sandbox.Sandbox {
	t.Helper()
	sb, _, err := n.Create(t.Context(), project, control.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func (n *node) state(t *testing.T, id sandbox.ID) sandbox.Sandbox {
	t.Helper()
	sb, err := n.Get(t.Context(), project, id)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// all returns every record.
func (n *node) all(t *testing.T) []sandbox.Sandbox {
	t.Helper()
	list, _, err := n.List(t.Context(), project, store.ListOptions{Limit: 10000, State: "any"})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// clean checks that nothing is under way and nothing is left on the host but what runs.
func (n *node) clean(t *testing.T) {
	t.Helper()
	intents, err := n.store.Intents(t.Context())
	if err != nil || len(intents) != 0 {
		t.Errorf("intents %v %v", intents, err)
	}
	running := 0
	for _, sb := range n.all(t) {
		switch sb.State {
		case sandbox.Running:
			running++
		case sandbox.Stopped, sandbox.Failed, sandbox.Hibernated:
		default:
			t.Errorf("sandbox %s is left %s", sb.ID, sb.State)
		}
	}
	if n.machines.Running() != running {
		t.Errorf("%d machines for %d running sandboxes", n.machines.Running(), running)
	}
	dirs, err := os.ReadDir(filepath.Join(n.dir, "instances"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if len(dirs) != running {
		t.Errorf("%d instance folders for %d running sandboxes", len(dirs), running)
	}
	n.owned(t)
}

func waitFor(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after %s still not: %s", within, what)
		}
	}
}

// gate holds starts until it is opened, or their context ends.
type gate struct {
	entered chan sandbox.ID
	open    chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan sandbox.ID, 16), open: make(chan struct{})} }

func (g *gate) hold(ctx context.Context, r control.StartRequest) error {
	g.entered <- r.Sandbox.ID
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	n := fresh(t)
	n.machines.OnStart = func(context.Context, control.StartRequest) error {
		return sandbox.Errorf(sandbox.Unavailable, "no_space", "the host's disk is full")
	}
	_, _, err := n.Create(t.Context(), project, control.CreateRequest{Env: map[string]string{"A": "1"}})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != "no_space" {
		t.Fatalf("%v", err)
	}
	list := n.all(t)
	if len(list) != 1 || list[0].State != sandbox.Stopped || list[0].FailReason != "the host's disk is full" || len(list[0].Env) != 0 {
		t.Errorf("%+v", list)
	}
	n.clean(t)
}

func TestCallerThatLeavesUndoesItsCreate(t *testing.T) {
	n := fresh(t)
	g := newGate()
	n.machines.OnStart = g.hold
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := n.Create(ctx, project, control.CreateRequest{})
		done <- err
	}()
	id := <-g.entered
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	waitFor(t, 5*time.Second, "undone", func() bool { return n.state(t, id).State == sandbox.Stopped })
	n.clean(t)
}

func TestStartThatIgnoresItsContextIsUndone(t *testing.T) {
	n := fresh(t)
	entered, open := make(chan sandbox.ID, 1), make(chan struct{})
	n.machines.OnStart = func(_ context.Context, r control.StartRequest) error {
		entered <- r.Sandbox.ID
		<-open
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := n.Create(ctx, project, control.CreateRequest{})
		done <- err
	}()
	id := <-entered
	cancel()
	<-done
	close(open)
	waitFor(t, 5*time.Second, "undone", func() bool { return n.state(t, id).State == sandbox.Stopped })
	n.clean(t)
}

func TestDeleteOfACreatingSandbox(t *testing.T) {
	n := fresh(t)
	g := newGate()
	n.machines.OnStart = g.hold
	done := make(chan error, 1)
	go func() {
		_, _, err := n.Create(t.Context(), project, control.CreateRequest{})
		done <- err
	}()
	id := <-g.entered
	if err := n.Delete(t.Context(), project, id); err != nil {
		t.Fatal(err)
	}
	if s := n.state(t, id).State; s != sandbox.Stopped {
		t.Errorf("delete returned and it is %s", s)
	}
	var e *sandbox.Error
	if err := <-done; !errors.As(err, &e) || e.Code != "sandbox_deleted" {
		t.Errorf("%v", err)
	}
	n.clean(t)
}

func TestShutdownWhileCreating(t *testing.T) {
	n := fresh(t)
	g := newGate()
	n.machines.OnStart = g.hold
	done := make(chan error, 1)
	go func() {
		_, _, err := n.Create(context.Background(), project, control.CreateRequest{})
		done <- err
	}()
	id := <-g.entered
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.Control.Close(ctx); err != nil {
		t.Fatal(err)
	}
	var e *sandbox.Error
	if err := <-done; !errors.As(err, &e) || e.Code != "shutting_down" {
		t.Errorf("%v", err)
	}
	if s := n.state(t, id).State; s != sandbox.Stopped {
		t.Errorf("it is %s", s)
	}
	if _, _, err := n.Create(t.Context(), project, control.CreateRequest{}); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("create after close: %v", err)
	}
	n.clean(t)
}

func TestConcurrentDeletesAreOne(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	var mu sync.Mutex
	stops := 0
	n.machines.OnStop = func(context.Context, sandbox.InstanceID) error {
		mu.Lock()
		defer mu.Unlock()
		stops++
		return nil
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := n.Delete(t.Context(), project, sb.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if stops != 1 {
		t.Errorf("%d stops", stops)
	}
	n.clean(t)
}

func TestDeleteThatFailsCanBeRepeated(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.machines.OnStop = func(context.Context, sandbox.InstanceID) error { return errors.New("device busy") }
	if err := n.Delete(t.Context(), project, sb.ID); err == nil {
		t.Fatal("it succeeded")
	}
	if s := n.state(t, sb.ID).State; s != sandbox.Stopping {
		t.Errorf("it is %s", s)
	}
	n.machines.OnStop = nil
	if err := n.Delete(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	n.clean(t)
}

func TestMachineThatDiesMakesItsSandboxFailed(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.machines.Crash(sb.Instance, "the machine was killed by signal 9")
	waitFor(t, 2*time.Second, "failed", func() bool { return n.state(t, sb.ID).State == sandbox.Failed })
	if r := n.state(t, sb.ID).FailReason; r != "the machine was killed by signal 9" {
		t.Errorf("reason %q", r)
	}
	_, err := n.Run(t.Context(), project, sb.ID, control.RunRequest{Code: "1"})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.Conflict || !strings.Contains(e.Message, "killed by signal 9") {
		t.Errorf("run: %v", err)
	}
	events, err := n.store.Events(t.Context(), project, sb.ID, 0, 10)
	if err != nil || len(events) != 3 || events[2].Type != "failed" || events[2].Reason == "" {
		t.Errorf("events %+v %v", events, err)
	}
	n.clean(t)
	if err := n.Delete(t.Context(), project, sb.ID); err != nil {
		t.Errorf("delete of a failed one: %v", err)
	}
	n.clean(t)
}

func TestMachineThatDiesWhileItsCreateCommits(t *testing.T) {
	n := fresh(t)
	for range 50 {
		n.machines.OnStart = func(_ context.Context, r control.StartRequest) error {
			go n.machines.Crash(r.Sandbox.Instance, "died young")
			return nil
		}
		sb, _, err := n.Create(t.Context(), project, control.CreateRequest{})
		if err != nil {
			continue
		}
		_ = n.Delete(t.Context(), project, sb.ID)
	}
	// A crash may have come before its machine: those are deleted like any other.
	waitFor(t, 5*time.Second, "settled", func() bool { return n.machines.Running() == 0 })
	n.clean(t)
}

func TestRestartSettlesWhatWasLeft(t *testing.T) {
	n := fresh(t)
	alive, dead, gone := n.create(t), n.create(t), n.create(t)
	if err := n.Delete(t.Context(), project, gone.ID); err != nil {
		t.Fatal(err)
	}
	// A process that was killed in the middle of a create and of a delete.
	half, err := n.store.Create(t.Context(), sandbox.Sandbox{
		ID: sandbox.NewID(), Project: project, Node: "n1", Template: "default", Instance: sandbox.NewInstanceID(),
	}, "create", store.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	stopping := n.create(t)
	if _, err := n.store.Transition(t.Context(), stopping.ID, sandbox.Running, sandbox.Stopping, store.Change{Begin: "delete"}); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	if err := n.machines.Stop(t.Context(), dead.Instance); err != nil {
		t.Fatal(err)
	}

	n = start(t, n.dir, n.machines)
	for id, want := range map[sandbox.ID]sandbox.State{
		alive.ID: sandbox.Running, dead.ID: sandbox.Failed, gone.ID: sandbox.Stopped, half.ID: sandbox.Stopped, stopping.ID: sandbox.Stopped,
	} {
		if got := n.state(t, id); got.State != want {
			t.Errorf("%s is %s, want %s", id, got.State, want)
		}
	}
	if r := n.state(t, dead.ID).FailReason; r == "" {
		t.Error("no reason")
	}
	n.clean(t)
	// The survivor works.
	s, err := n.Run(t.Context(), project, alive.ID, control.RunRequest{Code: "echo hi", Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		e, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if x := e.GetExit(); x != nil {
			if x.Code != 0 {
				t.Errorf("%v", x)
			}
			return
		}
	}
}

func TestManyCreatesAndDeletes(t *testing.T) {
	n := fresh(t)
	runtime.GC()
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	ids := make(chan sandbox.ID, 200)
	for i := range 200 {
		wg.Go(func() {
			sb, _, err := n.Create(t.Context(), project, control.CreateRequest{Metadata: map[string]string{"n": fmt.Sprint(i)}})
			if err != nil {
				t.Error(err)
				return
			}
			ids <- sb.ID
		})
	}
	wg.Wait()
	close(ids)
	if n.machines.Running() != 200 {
		t.Errorf("%d machines run", n.machines.Running())
	}
	for id := range ids {
		for range 2 {
			wg.Go(func() {
				if err := n.Delete(t.Context(), project, id); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	n.clean(t)
	if len(n.all(t)) != 200 {
		t.Errorf("%d records", len(n.all(t)))
	}
	waitFor(t, 5*time.Second, "goroutines are back", func() bool { return runtime.NumGoroutine() <= before+5 })
}

func TestBuildsOfOneTemplateAreOne(t *testing.T) {
	n := fresh(t)
	entered, open := make(chan struct{}, 1), make(chan struct{})
	n.templates.OnBuild = func(ctx context.Context, _ string) error {
		entered <- struct{}{}
		<-open
		return ctx.Err()
	}
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := n.BuildTemplate(ctx, "x", func(progress.Event) {})
		first <- err
	}()
	<-entered
	joined := make(chan progress.Event, 16)
	second := make(chan error, 1)
	go func() {
		_, err := n.BuildTemplate(t.Context(), "x", func(e progress.Event) { joined <- e })
		second <- err
	}()
	if e := <-joined; e.Step == "" {
		t.Errorf("who joins is not told where the build is: %+v", e)
	}
	leave() // the build goes on without the one who asked first
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("first: %v", err)
	}
	close(open)
	if err := <-second; err != nil {
		t.Errorf("second: %v", err)
	}
	if n.templates.Builds() != 1 {
		t.Errorf("%d builds", n.templates.Builds())
	}
}

func TestTemplateCannotGoFromUnderACreate(t *testing.T) {
	n := fresh(t)
	g := newGate()
	n.machines.OnStart = g.hold
	done := make(chan error, 1)
	go func() {
		_, _, err := n.Create(t.Context(), project, control.CreateRequest{})
		done <- err
	}()
	<-g.entered
	if err := n.DeleteTemplate(t.Context(), "default"); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("%v", err)
	}
	close(g.open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestMemoryAboveTheHosts(t *testing.T) {
	n := fresh(t)
	_, _, err := n.Create(t.Context(), project, control.CreateRequest{Shape: sandbox.Shape{MemoryMB: 16384}})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.Invalid || !strings.Contains(e.Message, "this host has 8192") {
		t.Errorf("%v", err)
	}
}
