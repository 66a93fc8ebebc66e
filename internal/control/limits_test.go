package control_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

func codeOf(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

var admin = sandbox.Key{Project: project, Admin: true}

func quota(t *testing.T, n *node, name string, q sandbox.Quota) {
	t.Helper()
	if _, err := n.SetQuota(t.Context(), admin, name, func(to *sandbox.Quota) { *to = q }); err != nil {
		t.Fatal(err)
	}
}

func TestQuotas(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.Quota = sandbox.Quota{Sandboxes: 2} })
	first := n.create(t)
	n.create(t)
	_, _, err := n.Create(t.Context(), project, control.CreateRequest{})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.Exhausted || e.Code != "quota_sandboxes" || e.RetryAfter <= 0 || !strings.Contains(e.Message, "2") {
		t.Fatalf("the server's default does not hold: %v", err)
	}
	// Another project has its own.
	if _, _, err := n.Create(t.Context(), "other", control.CreateRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := n.Delete(t.Context(), project, first.ID); err != nil {
		t.Fatal(err)
	}
	n.create(t)
	quota(t, n, project, sandbox.Quota{Sandboxes: -1, MemoryMB: 3072, DiskMB: -1})
	n.create(t)
	if _, _, err = n.Create(t.Context(), project, control.CreateRequest{}); codeOf(err) != "quota_memory" {
		t.Errorf("memory: %v", err)
	}
	quota(t, n, project, sandbox.Quota{Sandboxes: -1, DiskMB: 4096 * 3})
	if _, _, err = n.Create(t.Context(), project, control.CreateRequest{}); codeOf(err) != "quota_disk" {
		t.Errorf("disk: %v", err)
	}
	p, err := n.Project(t.Context(), sandbox.Key{Project: project}, project)
	if err != nil || p.Usage != (sandbox.Usage{Sandboxes: 3, MemoryMB: 3072, DiskMB: 12288}) || p.Limits != (sandbox.Quota{DiskMB: 12288}) {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := n.Project(t.Context(), sandbox.Key{Project: "other"}, project); codeOf(err) != "project_not_found" {
		t.Errorf("another project's: %v", err)
	}
	if _, err := n.SetQuota(t.Context(), sandbox.Key{Project: project}, project, func(*sandbox.Quota) {}); codeOf(err) != "admin_only" {
		t.Errorf("its own quota: %v", err)
	}
}

func TestHostIsNotPromisedTwice(t *testing.T) {
	disk := atomic.Int64{}
	disk.Store(100_000)
	n := fresh(t, func(c *control.Config) {
		c.Admission = control.Admission{
			Memory:          func() (int, error) { return 4096 + 512, nil },
			Disk:            func() (int, int, error) { return int(disk.Load()), 0, nil },
			MemoryReserveMB: 512, DiskReserveMB: 1000, OverheadMB: 300,
		}
	})
	for range 3 { // 3 * 1324 fit into 4096
		n.create(t)
	}
	_, _, err := n.Create(t.Context(), "other", control.CreateRequest{})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.Unavailable || e.Code != "host_memory_full" || e.RetryAfter <= 0 || !strings.Contains(e.Message, "memory is full") {
		t.Fatalf("%v", err)
	}
	// Half a gigabyte does not fit either, with its overhead; the first one's end makes room.
	if err := n.Delete(t.Context(), project, n.all(t)[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Create(t.Context(), "other", control.CreateRequest{Shape: sandbox.Shape{MemoryMB: 512, DiskMB: 65536}}); err != nil {
		t.Fatal(err)
	}
	n2 := fresh(t, func(c *control.Config) {
		c.Admission = control.Admission{Disk: func() (int, int, error) { return 6000, 3000, nil }, DiskReserveMB: 500}
	})
	n2.create(t)
	n2.create(t) // 8192 of 8500
	if _, _, err := n2.Create(t.Context(), project, control.CreateRequest{}); codeOf(err) != "host_disk_full" {
		t.Errorf("%v", err)
	}
	n2.clean(t)
}

// TestTwoHundredConcurrentCreates is the burst that a server has to survive: each
// create succeeds or is refused with a reason, no limit is passed, nothing leaks.
func TestTwoHundredConcurrentCreates(t *testing.T) {
	// Which of two full limits a create meets depends on the order of the burst,
	// so that each limit has a burst of its own.
	t.Run("the host's memory", func(t *testing.T) {
		n := fresh(t, func(c *control.Config) {
			c.Admission = control.Admission{Memory: func() (int, error) { return 20 * 1024, nil }}
		})
		made, refused := burst(t, n)
		if got := len(made[project]) + len(made["other"]); got != 20 || !maps.Equal(refused, map[string]int{"host_memory_full": 180}) {
			t.Errorf("%d made, refused: %v", got, refused)
		}
		n.endBurst(t, made)
	})
	t.Run("a project's quota", func(t *testing.T) {
		n := fresh(t, func(c *control.Config) {
			c.Admission = control.Admission{Memory: func() (int, error) { return 1024 * 1024, nil }}
		})
		quota(t, n, "other", sandbox.Quota{Sandboxes: 7})
		made, refused := burst(t, n)
		if len(made[project]) != 100 || len(made["other"]) != 7 || !maps.Equal(refused, map[string]int{"quota_sandboxes": 93}) {
			t.Errorf("%d and %d made, refused: %v", len(made[project]), len(made["other"]), refused)
		}
		n.endBurst(t, made)
	})
}

// burst makes 100 creates of each of two projects at once, and returns what they
// made and the codes of those refused.
func burst(t *testing.T, n *node) (made map[string][]sandbox.ID, refused map[string]int) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, refused = map[string][]sandbox.ID{}, map[string]int{}
	for i := range 200 {
		owner := []string{project, "other"}[i%2]
		wg.Go(func() {
			sb, _, err := n.Create(t.Context(), owner, control.CreateRequest{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made[owner] = append(made[owner], sb.ID)
				return
			}
			refused[codeOf(err)]++
		})
	}
	wg.Wait()
	return made, refused
}

// endBurst deletes what a burst made, at once, and checks that nothing is left of it.
func (n *node) endBurst(t *testing.T, made map[string][]sandbox.ID) {
	t.Helper()
	var wg sync.WaitGroup
	for owner, ids := range made {
		for _, id := range ids {
			wg.Go(func() {
				if err := n.Delete(t.Context(), owner, id); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	n.clean(t)
	for owner := range made {
		if u, err := n.store.UsageOfProject(t.Context(), owner); err != nil || u != (sandbox.Usage{}) {
			t.Errorf("%s still uses %+v, %v", owner, u, err)
		}
	}
}

// TestReservationsNeverLeak creates and deletes with failures in between, and
// compares what is reserved with a model at every step.
func TestReservationsNeverLeak(t *testing.T) {
	var failStart, failStop atomic.Bool
	n := fresh(t, func(c *control.Config) { c.Quota = sandbox.Quota{Sandboxes: 3, MemoryMB: 4096} })
	n.machines.OnStart = func(context.Context, control.StartRequest) error {
		if failStart.Load() {
			return errors.New("no machine today")
		}
		return nil
	}
	n.machines.OnStop = func(context.Context, sandbox.InstanceID) error {
		if failStop.Load() {
			return errors.New("it does not end")
		}
		return nil
	}
	rapid.Check(t, func(r *rapid.T) {
		held := map[sandbox.ID]int{} // memory by sandbox
		for range rapid.IntRange(1, 10).Draw(r, "steps") {
			failStart.Store(rapid.Bool().Draw(r, "start fails"))
			failStop.Store(rapid.Bool().Draw(r, "stop fails"))
			if rapid.Bool().Draw(r, "create") {
				createOne(t, r, n, held, failStart.Load(), failStop.Load())
			} else if len(held) > 0 {
				var ids []sandbox.ID
				for _, sb := range n.all(t) {
					if _, ok := held[sb.ID]; ok {
						ids = append(ids, sb.ID)
					}
				}
				id := rapid.SampledFrom(ids).Draw(r, "which")
				err := n.Delete(t.Context(), project, id)
				if (err == nil) == failStop.Load() {
					r.Fatalf("delete: %v", err)
				}
				if err == nil {
					delete(held, id)
				}
			}
			want := sandbox.Usage{Sandboxes: len(held), DiskMB: 4096 * len(held)}
			for _, mb := range held {
				want.MemoryMB += mb
			}
			if got, err := n.store.UsageOfProject(t.Context(), project); err != nil || got != want {
				r.Fatalf("reserved %+v, want %+v, %v", got, want, err)
			}
		}
		failStop.Store(false)
		for id := range held {
			if err := n.Delete(t.Context(), project, id); err != nil {
				r.Fatal(err)
			}
		}
		if got, err := n.store.UsageOfProject(t.Context(), project); err != nil || got != (sandbox.Usage{}) {
			r.Fatalf("left reserved: %+v, %v", got, err)
		}
		n.clean(t)
	})
}

func createOne(t *testing.T, r *rapid.T, n *node, held map[sandbox.ID]int, failStart, failStop bool) {
	memory := rapid.SampledFrom([]int{512, 1024, 2048}).Draw(r, "memory")
	sum := memory
	for _, mb := range held {
		sum += mb
	}
	room := len(held) < 3 && sum <= 4096
	sb, _, err := n.Create(t.Context(), project, control.CreateRequest{Shape: sandbox.Shape{MemoryMB: memory}})
	switch {
	case !room:
		if k := sandbox.KindOf(err); k != sandbox.Exhausted {
			r.Fatalf("no room: %v", err)
		}
	case failStart:
		if err == nil {
			r.Fatal("a start that failed succeeded")
		}
		if failStop { // what could not be freed stays reserved
			for _, left := range n.all(t) {
				if _, ok := held[left.ID]; !ok && left.State == sandbox.Stopping {
					held[left.ID] = memory
				}
			}
		}
	case err != nil:
		r.Fatal(err)
	default:
		held[sb.ID] = memory
	}
}

func TestMachineFilesThatFindTheDiskFull(t *testing.T) {
	n := fresh(t)
	ballast := filepath.Join(n.dir, "ballast")
	if err := n.store.KeepBallast(ballast, 1<<20); err != nil {
		t.Fatal(err)
	}
	n.machines.OnStart = func(context.Context, control.StartRequest) error {
		return &os.PathError{Op: "write", Path: "overlay", Err: syscall.ENOSPC}
	}
	_, _, err := n.Create(t.Context(), project, control.CreateRequest{})
	if codeOf(err) != "server_disk_full" || sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("%v", err)
	}
	if got := n.all(t); len(got) != 1 || !strings.Contains(got[0].FailReason, "disk is full") {
		t.Errorf("%+v", got)
	}
	n.clean(t)
	// There is room here, so the next create finds it and the ballast is back.
	n.machines.OnStart = nil
	n.create(t)
	if _, err := os.Stat(ballast); err != nil {
		t.Error(err)
	}
}

func TestUnpromisedMemory(t *testing.T) {
	const limit, overhead = 4096, 100
	n := fresh(t, func(c *control.Config) {
		c.Admission = control.Admission{Memory: func() (int, error) { return limit + 512, nil }, MemoryReserveMB: 512, OverheadMB: overhead}
	})
	left := func() int {
		t.Helper()
		mb, err := n.UnpromisedMB(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return mb
	}
	if got := left(); got != limit {
		t.Errorf("%d MB at first", got)
	}
	sb := n.create(t)
	if got := left(); got != limit-overhead-sb.Shape.MemoryMB {
		t.Errorf("%d MB with a sandbox", got)
	}
	if err := n.Delete(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != limit {
		t.Errorf("%d MB without it", got)
	}
}
