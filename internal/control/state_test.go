package control_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// owned checks that every machine and snapshot on the host is in the one record that owns it,
// that nothing is half, and that no machine stands still.
func (n *node) owned(t failer) {
	t.Helper()
	ctx := context.Background()
	records, err := n.store.OfNode(ctx, "n1")
	if err != nil {
		t.Fatalf("%v", err)
	}
	machines := map[sandbox.InstanceID]bool{}
	for _, sb := range records {
		if (sb.Hibernation != "") != (sb.State == sandbox.Hibernated) {
			t.Errorf("sandbox %s is %s with the snapshot %q", sb.ID, sb.State, sb.Hibernation)
		}
		if sb.State != sandbox.Running {
			continue
		}
		machines[sb.Instance] = true
		if !n.machines.Alive(sb.Instance) || n.machines.Paused(sb.Instance) {
			t.Errorf("sandbox %s runs; its machine: alive %v, paused %v", sb.ID, n.machines.Alive(sb.Instance), n.machines.Paused(sb.Instance))
		}
		if name := n.machines.Name(sb.Instance); name != sb.ID {
			t.Errorf("the guest of sandbox %s has the identity of %s", sb.ID, name)
		}
	}
	found, err := n.machines.Instances()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, id := range found {
		if !machines[id] {
			t.Errorf("machine %s is nobody's", id)
		}
	}
	snapshots, err := n.store.SnapshotsOfNode(ctx, "n1")
	if err != nil {
		t.Fatalf("%v", err)
	}
	known := map[sandbox.SnapshotID]bool{}
	for _, s := range snapshots {
		known[s.ID] = true
		if s.State != sandbox.SnapshotReady || !n.machines.HasSnapshot(s.ID) {
			t.Errorf("%s snapshot %s is %s, on the disk %v", s.Use, s.ID, s.State, n.machines.HasSnapshot(s.ID))
		}
	}
	onDisk, err := n.machines.Snapshots()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, id := range onDisk {
		if !known[id] {
			t.Errorf("snapshot %s is nobody's", id)
		}
	}
}

// failer is a *testing.T or *rapid.T.
type failer interface {
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

func (n *node) put(t *testing.T, id sandbox.ID, name, content string) {
	t.Helper()
	if _, err := n.WriteFile(t.Context(), project, id, name, "", 0, true, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) cat(t *testing.T, id sandbox.ID, name string) string {
	t.Helper()
	d, err := n.ReadFile(t.Context(), project, id, name, "", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b := make([]byte, 1024)
	k, _ := d.Read(b)
	return string(b[:k])
}

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

func TestMergeTakesOverTheWinner(t *testing.T) {
	n := fresh(t)
	parent := n.createWith(t, control.CreateRequest{Metadata: map[string]string{"who": "parent"}})
	f, err := n.Fork(t.Context(), project, parent.ID, control.ForkRequest{N: 1})
	if err != nil {
		t.Fatal(err)
	}
	winner := f.Children[0]
	n.put(t, winner.ID, "/root/won", "yes")
	for _, id := range []sandbox.ID{parent.ID, winner.ID} {
		for _, name := range []string{"same", string(id)} {
			if _, _, err := n.Checkpoint(t.Context(), project, id, control.CheckpointRequest{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	lost := n.run(t, parent.ID, "sleep 60")
	goes := n.run(t, winner.ID, "sleep 1; echo here")
	sb, steps, err := n.Merge(t.Context(), project, parent.ID, winner.ID)
	if err != nil || len(steps) == 0 {
		t.Fatal(err)
	}
	if sb.ID != parent.ID || sb.Instance != winner.Instance || sb.State != sandbox.Running || sb.Metadata["who"] != "parent" {
		t.Errorf("%+v", sb)
	}
	if w := n.state(t, winner.ID); w.State != sandbox.Stopped || w.MergedInto != parent.ID {
		t.Errorf("the winner is %+v", w)
	}
	if n.machines.Alive(parent.Instance) || n.machines.Name(winner.Instance) != parent.ID {
		t.Error("the old machine runs, or the guest was not renamed")
	}
	if got := n.cat(t, parent.ID, "/root/won"); got != "yes" {
		t.Errorf("file %q", got)
	}
	if _, err := lost.rest(); codeOf(err) != "sandbox_merged" {
		t.Errorf("the parent's run: %v", err)
	}
	if out, err := goes.rest(); err != nil || out != "here\n" {
		t.Errorf("the winner's run: %q %v", out, err)
	}
	list, _, err := n.Snapshots(t.Context(), project, control.SnapshotQuery{Use: sandbox.UseCheckpoint, Sandbox: parent.ID, Limit: 10})
	names := map[string]bool{}
	for _, s := range list {
		names[s.Name] = true
	}
	if err != nil || len(list) != 4 || len(names) != 4 || !names["same"] || !names[string(winner.ID)] {
		t.Errorf("checkpoints %v %v", names, err)
	}
	l, err := n.Lineage(t.Context(), project, winner.ID)
	if err != nil || len(l.Sandboxes) != 2 || len(l.Checkpoints) != 4 {
		t.Errorf("lineage %+v %v", l, err)
	}
	n.clean(t)
}

func TestWhatMergesRefuse(t *testing.T) {
	n := fresh(t)
	a, b := n.create(t), n.create(t)
	other, _, err := n.Create(t.Context(), "other", control.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Merge(t.Context(), project, a.ID, a.ID); codeOf(err) != "merge_into_itself" {
		t.Errorf("%v", err)
	}
	for _, ids := range [][2]sandbox.ID{{a.ID, other.ID}, {other.ID, a.ID}} {
		if _, _, err := n.Merge(t.Context(), project, ids[0], ids[1]); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("another project's: %v", err)
		}
	}
	if err := n.Delete(t.Context(), project, b.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Merge(t.Context(), project, a.ID, b.ID); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a deleted one: %v", err)
	}
	// One from elsewhere that sleeps is woken.
	c := n.create(t)
	if _, _, err := n.Hibernate(t.Context(), project, c.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Merge(t.Context(), project, a.ID, c.ID); err != nil {
		t.Error(err)
	}
}

// followed is a run that is read to its end.
type followed struct{ s *control.Stream }

// run starts a program and returns when it runs.
func (n *node) run(t *testing.T, id sandbox.ID, script string) followed {
	t.Helper()
	s, err := n.Run(t.Context(), project, id, control.RunRequest{Code: script, Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	return followed{s}
}

func (f followed) rest() (string, error) {
	out := ""
	for {
		e, err := f.s.Next()
		if err != nil {
			return out, err
		}
		out += string(e.GetStdout())
		if e.GetExit() != nil {
			return out, nil
		}
	}
}

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

func TestCheckpointsComeBack(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	n.put(t, sb.ID, "/root/f", "old")
	n.machines.Remember(sb.Instance, "x", "old")
	full, info, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "full"})
	if err != nil || full.State != sandbox.SnapshotReady || full.Kind != sandbox.SnapshotFull || info.SizeBytes <= 0 || full.SizeBytes != info.SizeBytes {
		t.Fatalf("%+v %+v %v", full, info, err)
	}
	disk, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Kind: sandbox.SnapshotDisk})
	if err != nil || disk.Name == "" {
		t.Fatalf("%+v %v", disk, err)
	}
	n.put(t, sb.ID, "/root/f", "new")
	r := n.run(t, sb.ID, "sleep 60")
	got, steps, err := n.Restore(t.Context(), project, sb.ID, full.ID)
	if err != nil || got.ID != sb.ID || got.State != sandbox.Running || got.Instance == sb.Instance || len(steps) == 0 {
		t.Fatalf("%+v %v", got, err)
	}
	if n.cat(t, sb.ID, "/root/f") != "old" || n.machines.Recall(got.Instance, "x") != "old" {
		t.Error("it has not what it had")
	}
	if _, err := r.rest(); codeOf(err) != "sandbox_restored" {
		t.Errorf("its run: %v", err)
	}
	n.clean(t)
	if got, _, err = n.Restore(t.Context(), project, sb.ID, disk.ID); err != nil || n.machines.Recall(got.Instance, "x") != "" || n.cat(t, sb.ID, "/root/f") != "old" {
		t.Errorf("%+v %v", got, err)
	}
	// The machine that took the place of the old one had a record, which nobody sees.
	if len(n.all(t)) != 1 {
		t.Errorf("%d sandboxes", len(n.all(t)))
	}
	// Also when the source is gone, with what the request says instead.
	if err := n.Delete(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	spawned := n.createWith(t, control.CreateRequest{Checkpoint: full.ID, Metadata: map[string]string{"b": "2"}, IdleTimeout: control.Never})
	if spawned.Origin != sandbox.OriginCheckpoint || spawned.Snapshot != full.ID || spawned.Parent != sb.ID || spawned.Metadata["b"] != "2" ||
		n.cat(t, spawned.ID, "/root/f") != "old" || n.machines.Recall(spawned.Instance, "x") != "old" {
		t.Errorf("%+v", spawned)
	}
	if _, _, err := n.Create(t.Context(), project, control.CreateRequest{Checkpoint: full.ID, Shape: sandbox.Shape{MemoryMB: 2048}}); codeOf(err) != "invalid_shape" {
		t.Errorf("%v", err)
	}
	if _, _, err := n.Create(t.Context(), "other", control.CreateRequest{Checkpoint: full.ID}); codeOf(err) != "checkpoint_not_found" {
		t.Errorf("another project's: %v", err)
	}
	if _, _, err := n.Restore(t.Context(), project, spawned.ID, full.ID); codeOf(err) != "checkpoint_of_another" {
		t.Errorf("%v", err)
	}
	if err := n.DeleteSnapshot(t.Context(), "other", full.ID, sandbox.UseCheckpoint); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another project's: %v", err)
	}
	for _, s := range []sandbox.Snapshot{full, disk} {
		if err := n.DeleteSnapshot(t.Context(), project, s.ID, sandbox.UseCheckpoint); err != nil {
			t.Error(err)
		}
	}
	if _, err := n.Snapshot(t.Context(), project, full.ID, sandbox.UseCheckpoint); codeOf(err) != "checkpoint_not_found" {
		t.Errorf("%v", err)
	}
	if n.cat(t, spawned.ID, "/root/f") != "old" {
		t.Error("it does not go on without its checkpoint")
	}
	n.clean(t)
}

func TestRestoreValidatesBeforeItTouches(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	snap, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n.machines.OnStart = func(context.Context, control.StartRequest) error {
		return sandbox.Errorf(sandbox.Unavailable, "no_start", "it does not start")
	}
	if _, _, err := n.Restore(t.Context(), project, sb.ID, snap.ID); codeOf(err) != "no_start" {
		t.Errorf("%v", err)
	}
	n.machines.OnStart = func(context.Context, control.StartRequest) error { t.Error("it was started"); return nil }
	if err := n.machines.Damage(snap.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Restore(t.Context(), project, sb.ID, snap.ID); codeOf(err) != "snapshot_damaged" {
		t.Errorf("%v", err)
	}
	if got := n.state(t, sb.ID); got.State != sandbox.Running || got.Instance != sb.Instance {
		t.Errorf("%+v", got)
	}
	n.clean(t)
}

func TestCheckpointLimitsAndNames(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	var first sandbox.Snapshot
	for i := range control.MaxFullCheckpoints {
		s, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = s
		}
	}
	_, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "more"})
	if codeOf(err) != "too_many_checkpoints" || sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("%v", err)
	}
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "d", Kind: sandbox.SnapshotDisk}); err != nil {
		t.Errorf("the other kind: %v", err)
	}
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "3", DeleteOldest: true}); codeOf(err) != "checkpoint_exists" {
		t.Errorf("%v", err)
	}
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "more", DeleteOldest: true}); err != nil {
		t.Error(err)
	}
	if _, err := n.Snapshot(t.Context(), project, first.ID, sandbox.UseCheckpoint); codeOf(err) != "checkpoint_not_found" {
		t.Errorf("the oldest: %v", err)
	}
	for _, name := range []string{"a/b", "ä", strings.Repeat("x", 65), "a b"} {
		if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: name}); codeOf(err) != "invalid_name" {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Kind: "x"}); codeOf(err) != "invalid_kind" {
		t.Errorf("%v", err)
	}
	// Pages.
	q := control.SnapshotQuery{Use: sandbox.UseCheckpoint, Limit: 4}
	var names []string
	for {
		page, more, err := n.Snapshots(t.Context(), project, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			names = append(names, s.Name)
		}
		if !more {
			break
		}
		q.After = control.SnapshotPosition(page[len(page)-1])
	}
	if len(names) != 11 || names[0] != "more" || names[10] != "1" {
		t.Errorf("%v", names)
	}
	n.clean(t)
}

func TestFailedCheckpointLeavesNothing(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	for _, step := range []string{"save.half", "save.whole", "save.end"} {
		n.machines.OnStep = func(s string) error {
			if s == step {
				return syscall.ENOSPC
			}
			return nil
		}
		if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "a"}); codeOf(err) != "server_disk_full" {
			t.Errorf("%s: %v", step, err)
		}
		n.clean(t)
	}
}

func TestIdlePersistentSandboxBecomesASpace(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.IdleTimeout = 300 * time.Millisecond })
	sb := n.createWith(t, control.CreateRequest{Persistent: true, Env: map[string]string{"A": "1"}})
	n.machines.Remember(sb.Instance, "x", "1")
	waitFor(t, 20*time.Second, "it has become a Space", n.is(t, sb.ID, sandbox.Stopped))
	n.clean(t)
	list, _, err := n.Snapshots(t.Context(), project, control.SnapshotQuery{Use: sandbox.UseSpace, Limit: 10})
	if err != nil || len(list) != 1 || list[0].Sandbox != sb.ID || list[0].Settings.Env["A"] != "1" {
		t.Fatalf("%+v %v", list, err)
	}
	space := list[0].ID
	if _, _, err := n.ResumeSpace(t.Context(), "other", space); codeOf(err) != "space_not_found" {
		t.Errorf("another project's: %v", err)
	}
	n.machines.OnStart = func(context.Context, control.StartRequest) error { return errors.New("no") }
	if _, _, err := n.ResumeSpace(t.Context(), project, space); err == nil {
		t.Error("it was resumed")
	}
	if _, err := n.Snapshot(t.Context(), project, space, sandbox.UseSpace); err != nil {
		t.Errorf("after a failed resume: %v", err)
	}
	n.machines.OnStart = nil
	// Two at the same time: one gets it.
	var wg sync.WaitGroup
	var got atomic.Int32
	for range 2 {
		wg.Go(func() {
			r, _, err := n.ResumeSpace(t.Context(), project, space)
			if err != nil {
				if sandbox.KindOf(err) != sandbox.NotFound {
					t.Error(err)
				}
				return
			}
			got.Add(1)
			if r.ID == sb.ID || r.Parent != sb.ID || r.Origin != sandbox.OriginSpace || r.Env["A"] != "1" || !r.Persistent {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	if got.Load() != 1 {
		t.Errorf("it was resumed %d times", got.Load())
	}
}

func TestRetentionLetsGo(t *testing.T) {
	n := fresh(t, func(c *control.Config) {
		c.SweepInterval = 50 * time.Millisecond
		c.Retention = sandbox.Retention{Hibernated: time.Hour}
	})
	kept, gone := n.create(t), n.create(t)
	snap, _, err := n.Checkpoint(t.Context(), project, gone.ID, control.CheckpointRequest{})
	if err != nil || !snap.ExpiresAt.IsZero() {
		t.Fatalf("%+v %v", snap, err)
	}
	for _, sb := range []sandbox.Sandbox{kept, gone} {
		h, _, err := n.Hibernate(t.Context(), project, sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := n.ExpiresAt(t.Context(), h); err != nil || time.Until(at) < 50*time.Minute {
			t.Errorf("%v %v", at, err)
		}
	}
	if _, err := n.Wake0(t, kept.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := n.SetRetention(t.Context(), sandbox.Key{Project: project}, project, func(*sandbox.Retention) {}); codeOf(err) != "admin_only" {
		t.Errorf("%v", err)
	}
	if _, err := n.SetRetention(t.Context(), admin, project, func(r *sandbox.Retention) { r.Spaces = time.Millisecond }); codeOf(err) != "invalid_retention" {
		t.Errorf("%v", err)
	}
	p, err := n.SetRetention(t.Context(), admin, project, func(r *sandbox.Retention) { r.Hibernated, r.Checkpoints = time.Second, time.Second })
	if err != nil || p.Kept != (sandbox.Retention{Hibernated: time.Second, Checkpoints: time.Second}) {
		t.Errorf("%+v %v", p, err)
	}
	waitFor(t, 20*time.Second, "let go", func() bool {
		_, err := n.Snapshot(t.Context(), project, snap.ID, sandbox.UseCheckpoint)
		return n.state(t, gone.ID).State == sandbox.Stopped && codeOf(err) == "checkpoint_not_found"
	})
	if n.state(t, kept.ID).State != sandbox.Running {
		t.Error("one that runs was let go")
	}
	if c := n.causes(t, gone.ID); c["stopping"] != "retention" || c["checkpoint_deleted"] != "retention" {
		t.Errorf("%v", c)
	}
	waitFor(t, 10*time.Second, "nothing is left", func() bool { l, _ := n.machines.Snapshots(); return len(l) == 0 })
}

// Wake0 is Wake with what a test looks at.
func (n *node) Wake0(t *testing.T, id sandbox.ID) (sandbox.Sandbox, error) {
	t.Helper()
	sb, _, err := n.Wake(t.Context(), project, id)
	return sb, err
}

func TestLifetimeEndsHibernatedOnesToo(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.SweepInterval = 50 * time.Millisecond })
	sb := n.createWith(t, control.CreateRequest{MaxLifetime: 2 * time.Second})
	if _, _, err := n.Hibernate(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 20*time.Second, "ended", n.stopped(t, sb.ID))
	if c := n.causes(t, sb.ID); c["stopping"] != "max_lifetime" {
		t.Errorf("%v", c)
	}
}

func TestGarbageIsCollected(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	if _, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{}); err != nil {
		t.Fatal(err)
	}
	orphan := string(sandbox.NewSnapshotID())
	stray := string(sandbox.NewInstanceID())
	for _, p := range []string{filepath.Join("snapshots", orphan, "disk"), filepath.Join("instances", stray, "root")} {
		if err := os.MkdirAll(filepath.Join(n.dir, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(n.dir, "snapshots", orphan, "disk", "f"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, dry := range []bool{true, false, false} {
		r, err := n.GC(t.Context(), dry)
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if len(r.Snapshots)+len(r.Instances) != 0 || r.Bytes != 0 {
				t.Errorf("again: %+v", r)
			}
			continue
		}
		if len(r.Snapshots) != 1 || r.Snapshots[0].ID != orphan || len(r.Instances) != 1 || r.Instances[0].ID != stray || r.Bytes < 1000 {
			t.Errorf("dry %v: %+v", dry, r)
		}
	}
	n.clean(t)
}

func TestDiff(t *testing.T) {
	n := fresh(t)
	a := n.create(t)
	for name, content := range map[string]string{"/root/same": "1", "/root/gone": "1", "/root/grown": "1", "/root/changed": "a", "/root/d/mode": "x", "/tmp/t": "1"} {
		n.put(t, a.ID, name, content)
	}
	f, err := n.Fork(t.Context(), project, a.ID, control.ForkRequest{N: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := f.Children[0]
	n.put(t, b.ID, "/root/grown", "12")
	n.put(t, b.ID, "/root/changed", "b")
	n.put(t, b.ID, "/root/new/deep", "b")
	n.put(t, b.ID, "/root/same", "1") // written again
	mode := uint32(0o600)
	if _, err := n.SetAttributes(t.Context(), project, b.ID, "/root/d/mode", "", &mode, "", ""); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(t.Context(), project, b.ID, "/root/gone", "", false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Hibernate(t.Context(), project, b.ID); err != nil {
		t.Fatal(err)
	}
	d, err := n.Diff(t.Context(), project, a.ID, b.ID, nil)
	if err != nil || fmt.Sprint(d.Added) != "[/root/new /root/new/deep]" || fmt.Sprint(d.Removed) != "[/root/gone]" ||
		fmt.Sprint(d.Modified) != "[/root/changed /root/d/mode /root/grown]" || d.Truncated {
		t.Errorf("%+v %v", d, err)
	}
	if d, err := n.Diff(t.Context(), project, a.ID, b.ID, []string{"/root/grown"}); err != nil || len(d.Modified) != 1 || len(d.Added) != 0 {
		t.Errorf("%+v %v", d, err)
	}
	if _, err := n.Diff(t.Context(), project, a.ID, b.ID, []string{"/nowhere"}); codeOf(err) != "file_not_found" {
		t.Errorf("%v", err)
	}
	if _, err := n.Diff(t.Context(), project, a.ID, b.ID, []string{"relative"}); codeOf(err) != "invalid_path" {
		t.Errorf("%v", err)
	}
	if _, err := n.Diff(t.Context(), "other", a.ID, b.ID, nil); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("%v", err)
	}
	n.machines.OldAgents = true
	old := n.create(t)
	n.put(t, old.ID, "/root/changed", "b")
	if _, err := n.Diff(t.Context(), project, a.ID, old.ID, nil); codeOf(err) != "agent_too_old" || sandbox.KindOf(err) != sandbox.Unsupported {
		t.Errorf("%v", err)
	}
	n.machines.OldAgents = false
	n.machines.LongNames(100, 1<<20)
	hostile := n.create(t)
	if d, err := n.Diff(t.Context(), project, hostile.ID, a.ID, nil); err != nil || !d.Truncated {
		t.Errorf("a hostile guest: %v", err)
	}
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
