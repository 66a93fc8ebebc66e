package control_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

func TestHibernateAndWake(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.machines.Remember(sb.Instance, "x", "0")
	for i := range 10 {
		n.put(t, sb.ID, fmt.Sprintf("/root/f%d", i), fmt.Sprint(i))
		h, steps, err := n.Hibernate(t.Context(), project, sb.ID)
		if err != nil || h.State != sandbox.Hibernated || h.Hibernation == "" || len(steps) == 0 || n.machines.Running() != 0 {
			t.Fatalf("%+v %v", h, err)
		}
		if u, err := n.store.UsageOfProject(t.Context(), project); err != nil || u.Sandboxes != 0 || u.MemoryMB != 0 || u.DiskMB != 4097 {
			t.Errorf("usage %+v %v", u, err)
		}
		n.clean(t)
		w, steps, err := n.Wake(t.Context(), project, sb.ID)
		if err != nil || w.State != sandbox.Running || w.ID != sb.ID || w.Instance == h.Instance || w.Hibernation != "" || len(steps) == 0 {
			t.Fatalf("%+v %v", w, err)
		}
		if n.machines.Recall(w.Instance, "x") != "0" {
			t.Error("its memory is lost")
		}
		for k := range i + 1 {
			if got := n.cat(t, sb.ID, fmt.Sprintf("/root/f%d", k)); got != fmt.Sprint(k) {
				t.Errorf("file %d: %q", k, got)
			}
		}
		n.clean(t)
	}
	// Both again change nothing.
	if w, _, err := n.Wake(t.Context(), project, sb.ID); err != nil || w.State != sandbox.Running {
		t.Errorf("%+v %v", w, err)
	}
	c := n.causes(t, sb.ID)
	if c["hibernating"] != "hibernate" || c["hibernated"] != "hibernate" || c["waking"] != "wake" {
		t.Errorf("causes %v", c)
	}
}

func TestThirtyTwoCallersWakeOnce(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.put(t, sb.ID, "/root/f", "x")
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	_, err := n.Stat(control.WithoutWake(t.Context()), project, sb.ID, "/root/f", "", false)
	if codeOf(err) != "sandbox_hibernated" || sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("without a wake: %v", err)
	}
	var starts atomic.Int32
	n.machines.OnStart = func(context.Context, control.StartRequest) error {
		starts.Add(1)
		return nil
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if _, err := n.Stat(t.Context(), project, sb.ID, "/root/f", "", false); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if starts.Load() != 1 {
		t.Errorf("%d wakes", starts.Load())
	}
	n.clean(t)
}

func TestCallsDuringAHibernationWakeItAfterwards(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.put(t, sb.ID, "/root/f", "x")
	entered, open := make(chan struct{}), make(chan struct{})
	var once sync.Once
	n.machines.OnStep = func(s string) error {
		if s == "save.half" {
			once.Do(func() { close(entered); <-open })
		}
		return nil
	}
	hibernated := make(chan error, 1)
	go func() {
		_, _, err := n.Hibernate(t.Context(), project, sb.ID)
		hibernated <- err
	}()
	<-entered
	done := make(chan error, 8)
	for range 8 {
		go func() {
			_, err := n.Stat(t.Context(), project, sb.ID, "/root/f", "", false)
			done <- err
		}()
	}
	close(open)
	if err := <-hibernated; err != nil {
		t.Error(err)
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	n.clean(t)
}

func TestStreamsOfAHibernatedSandboxSaySo(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	r := n.run(t, sb.ID, "sleep 60")
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.rest(); codeOf(err) != "sandbox_hibernated" {
		t.Errorf("%v", err)
	}
}

func TestFailedHibernateNeverKills(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.put(t, sb.ID, "/root/f", "x")
	for _, step := range []string{"save.half", "save.whole", "save.end"} {
		n.machines.OnStep = func(s string) error {
			if s == step {
				return fmt.Errorf("write: %w", syscall.ENOSPC)
			}
			return nil
		}
		_, _, err := n.Hibernate(t.Context(), project, sb.ID)
		if codeOf(err) != "server_disk_full" {
			t.Errorf("%s: %v", step, err)
		}
		if got := n.state(t, sb.ID); got.State != sandbox.Running || got.Instance != sb.Instance || n.cat(t, sb.ID, "/root/f") != "x" {
			t.Errorf("%s: %+v", step, got)
		}
		n.clean(t)
	}
	if c := n.causes(t, sb.ID); c["hibernate_failed"] != "hibernate" {
		t.Errorf("causes %v", c)
	}
}

func TestFailedWakeKeepsTheSnapshot(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.put(t, sb.ID, "/root/f", "x")
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	n.machines.OnStart = func(context.Context, control.StartRequest) error {
		return sandbox.Errorf(sandbox.Unavailable, "no_start", "it does not start")
	}
	for range 2 {
		if _, err := n.Stat(t.Context(), project, sb.ID, "/root/f", "", false); codeOf(err) != "no_start" {
			t.Errorf("%v", err)
		}
		if got := n.state(t, sb.ID); got.State != sandbox.Hibernated || !n.machines.HasSnapshot(got.Hibernation) {
			t.Errorf("%+v", got)
		}
		n.clean(t)
	}
	n.machines.OnStart = nil
	if got := n.cat(t, sb.ID, "/root/f"); got != "x" {
		t.Errorf("%q", got)
	}
}

func TestWakeSaysWhenItsMemoryDoesNotFit(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.put(t, sb.ID, "/root/f", "x")
	n.machines.Remember(sb.Instance, "x", "1")
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	n.machines.OnCold = func(sandbox.SnapshotID) string { return "another QEMU wrote it" }
	w, _, err := n.Wake(t.Context(), project, sb.ID)
	if err != nil || w.BootNote != "another QEMU wrote it" || n.machines.Recall(w.Instance, "x") != "" || n.cat(t, sb.ID, "/root/f") != "x" {
		t.Errorf("%+v %v", w, err)
	}
}

func TestWakeNeedsRoom(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.Quota = sandbox.Quota{MemoryMB: 1024} })
	sb := n.create(t)
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	other := n.create(t)
	if _, _, err := n.Wake(t.Context(), project, sb.ID); codeOf(err) != "quota_memory" {
		t.Errorf("%v", err)
	}
	if err := n.Delete(t.Context(), project, other.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Wake(t.Context(), project, sb.ID); err != nil {
		t.Error(err)
	}
	n.clean(t)
}

func TestDeleteOfAHibernatedSandboxFreesAll(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := n.DeleteTemplate(t.Context(), "default"); codeOf(err) != "template_in_use" {
		t.Errorf("its template: %v", err)
	}
	if hashes, err := n.store.TemplateHashesInUse(t.Context(), "n1"); err != nil || len(hashes) != 1 || hashes[0] != sb.TemplateHash {
		t.Errorf("%v %v", hashes, err)
	}
	if err := n.Delete(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	n.clean(t)
	if left, err := n.machines.Snapshots(); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
	if err := n.DeleteTemplate(t.Context(), "default"); err != nil {
		t.Error(err)
	}
}

func TestDeleteCutsOperationsShort(t *testing.T) {
	n := fresh(t)
	for _, op := range []string{"fork", "checkpoint", "hibernate"} {
		sb := n.create(t)
		entered := make(chan struct{}, 8)
		open := make(chan struct{})
		n.machines.OnStep = func(s string) error {
			if s == "save.half" || s == "fork.pause" {
				entered <- struct{}{}
				<-open
			}
			return nil
		}
		done := make(chan error, 2)
		go func() {
			var err error
			switch op {
			case "fork":
				_, err = n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 2})
			case "checkpoint":
				_, _, err = n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{})
			case "hibernate":
				_, _, err = n.Hibernate(t.Context(), project, sb.ID)
			}
			done <- err
		}()
		<-entered
		// One that waits for its turn loses against the delete too.
		go func() {
			_, _, err := n.Hibernate(t.Context(), project, sb.ID)
			done <- err
		}()
		deleted := make(chan error, 1)
		go func() { deleted <- n.Delete(t.Context(), project, sb.ID) }()
		close(open)
		if err := <-deleted; err != nil {
			t.Errorf("%s: %v", op, err)
		}
		<-done // whether it was in time is chance
		<-done
		n.machines.OnStep = nil
		if s := n.state(t, sb.ID).State; s != sandbox.Stopped {
			t.Errorf("%s: it is %s", op, s)
		}
		waitFor(t, 10*time.Second, "nothing runs", func() bool { return n.machines.Running() == 0 || n.running(t) == n.machines.Running() })
		for _, x := range n.all(t) {
			if err := n.Delete(t.Context(), project, x.ID); err != nil {
				t.Error(err)
			}
		}
		n.clean(t)
	}
}

func (n *node) running(t *testing.T) int {
	t.Helper()
	k := 0
	for _, sb := range n.all(t) {
		if sb.State == sandbox.Running {
			k++
		}
	}
	return k
}

func TestMachineThatDiesInAnOperation(t *testing.T) {
	n := fresh(t)
	for _, op := range []string{"hibernate", "checkpoint", "fork"} {
		sb := n.create(t)
		n.machines.OnStep = func(s string) error {
			if s == "save.half" || s == "fork.child" {
				n.machines.OnStep = nil
				n.machines.Crash(sb.Instance, "it was killed")
				return errors.New("it was killed")
			}
			return nil
		}
		var err error
		switch op {
		case "hibernate":
			_, _, err = n.Hibernate(t.Context(), project, sb.ID)
		case "checkpoint":
			_, _, err = n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{})
		case "fork":
			_, err = n.Fork(t.Context(), project, sb.ID, control.ForkRequest{N: 2})
		}
		if err == nil {
			t.Errorf("%s succeeded", op)
		}
		waitFor(t, 10*time.Second, "failed", n.is(t, sb.ID, sandbox.Failed))
		waitFor(t, 10*time.Second, "settled", func() bool {
			intents, err := n.store.Intents(t.Context())
			return err == nil && len(intents) == 0
		})
		n.clean(t)
	}
}
