//go:build integration

package qemu_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/qemu"
	"ramet.dev/ramet/internal/vmm/vmmtest"
)

const realTimeout = 120 * time.Second

// newDriver makes a driver as the server would, sharing state with others of the same directory.
func newDriver(t testing.TB, stateDir string) *qemu.Driver {
	t.Helper()
	d, err := qemu.New(qemu.Config{Accel: "tcg", StateDir: stateDir, UIDBase: 800000, UIDCount: 200, Cgroup: "ramet-test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestRealConformance(t *testing.T) {
	state := t.TempDir()
	vmmtest.Run(t, vmmtest.Subject{
		Image:     vmmtest.Image(t),
		NewDriver: func(t testing.TB) vmm.Driver { return newDriver(t, state) },
	})
}

// TestRealMachine has what only this driver does, on one golden snapshot.
func TestRealMachine(t *testing.T) {
	d := newDriver(t, t.TempDir())
	s := vmmtest.New(t, vmmtest.Subject{Image: vmmtest.Image(t)}, d)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *vmmtest.Suite, *qemu.Driver)
	}{
		{"RunsAsAStranger", stranger},
		{"GoldenMemoryIsImmutable", goldenImmutable},
		{"ConsoleFloodIsBounded", consoleFlood},
		{"KilledFromOutside", killedFromOutside},
		{"AdoptedAfterAKilledSave", adoptedAfterAKilledSave},
		{"FlattenRemovesLayers", flattened},
		{"DamagedSnapshotIsRefused", damaged},
		{"ConcurrentRestores", concurrent},
		{"LeavesNothing", leavesNothing},
		{"Measure", measure},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, s, d) })
	}
}

// stranger checks what a QEMU process is and has on the host.
func stranger(t *testing.T, s *vmmtest.Suite, _ *qemu.Driver) {
	a, _ := s.Restored(t, s.Golden)
	b, _ := s.Restored(t, s.Golden)
	uids := map[uint32]bool{}
	for _, m := range []vmm.Machine{a, b} {
		proc := fmt.Sprintf("/proc/%d", m.PID())
		var st unix.Stat_t
		if err := unix.Stat(proc, &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid < 800000 || uids[st.Uid] {
			t.Errorf("uid %d is not the machine's own", st.Uid)
		}
		uids[st.Uid] = true
		status := read(t, proc+"/status")
		for _, want := range []string{"Groups:\t \n", "THP_enabled:\t0", "Seccomp:\t2", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"} {
			if !strings.Contains(status, want) {
				t.Errorf("the process's status lacks %q:\n%s", want, status)
			}
		}
		if got := strings.TrimSpace(read(t, proc+"/oom_score_adj")); got != "500" {
			t.Errorf("oom_score_adj is %s", got)
		}
		checkDescriptors(t, proc)
	}
}

// checkDescriptors fails for files that the machine has no business with.
func checkDescriptors(t *testing.T, proc string) {
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	instance := ""
	for _, fd := range fds {
		target, err := os.Readlink(proc + "/fd/" + fd.Name())
		if err != nil {
			continue
		}
		if dir, ok := strings.CutSuffix(target, "/disk1.qcow2"); ok {
			instance = dir
		}
	}
	known := []string{instance + "/disk0.qcow2", instance + "/disk1.qcow2", instance + "/console.fifo", instance + "/stderr.fifo", "/dev/null"}
	for _, fd := range fds {
		target, err := os.Readlink(proc + "/fd/" + fd.Name())
		if err != nil || slices.Contains(known, target) {
			continue
		}
		switch {
		case strings.HasPrefix(target, "socket:"), strings.HasPrefix(target, "anon_inode:"), strings.HasPrefix(target, "pipe:"),
			strings.HasPrefix(target, "/memfd:ramet-golden"), strings.HasPrefix(target, "/memfd:tcg-jit"), strings.HasSuffix(target, "root.raw"),
			strings.HasSuffix(target, "/device.state"):
		default:
			t.Errorf("the process has %s open", target)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// goldenImmutable lets a guest write and discard all it can reach. The golden
// must have the same content afterwards, and other machines must not notice.
func goldenImmutable(t *testing.T, s *vmmtest.Suite, d *qemu.Driver) {
	_, other := s.Restored(t, s.Golden)
	other.Want("golden", "get", "origin")
	m, a := s.Restored(t, s.Golden)
	t.Logf("the guest wrote %s MB", a.Call("hog"))
	a.Call("wdisk", 0, 99, 1<<20)
	a.Call("discard")
	st, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if st.OwnPages < 60000 {
		t.Errorf("only %d pages are the guest's own; the test does not show much", st.OwnPages)
	}
	sums := qemu.GoldenSums(t, d)
	if len(sums) == 0 {
		t.Fatal("no golden memory is loaded")
	}
	for want, got := range sums {
		if want != "" && got != want {
			t.Errorf("golden memory %s has changed to %s", want, got)
		}
	}
	man, err := snapshot.Load(s.Golden)
	if err != nil {
		t.Fatal(err)
	}
	if err := man.Verify(t.Context(), s.Golden); err != nil {
		t.Errorf("the golden snapshot on disk: %v", err)
	}
	other.Want("golden", "get", "origin")
	_, fresh := s.Restored(t, s.Golden)
	fresh.Want("golden", "get", "origin")
	sealed(t, m.PID())
}

// sealed tries what a broken QEMU could: to change the golden through its own descriptor.
func sealed(t *testing.T, pid int) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	tried := false
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(target, "/memfd:ramet-golden") {
			continue
		}
		tried = true
		f, err := os.OpenFile(fd, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte("x"), 4096); err == nil {
			t.Error("the golden memory can be written")
		}
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err == nil {
			t.Error("holes can be punched into the golden memory")
		}
		if err := f.Truncate(0); err == nil {
			t.Error("the golden memory can be truncated")
		}
	}
	if !tried {
		t.Error("the machine has no golden memory open")
	}
}

func consoleFlood(t *testing.T, s *vmmtest.Suite, _ *qemu.Driver) {
	c := s.Config(t, s.Golden, false)
	m, a := s.RestoredIn(t, c)
	a.Call("flood", 300)
	a.Want("alive", "echo", "alive")
	if n := len(m.Console()); n == 0 || n > 3*qemu.DefaultConsoleBytes {
		t.Errorf("%d bytes of console are kept", n)
	}
	st, err := os.Stat(filepath.Join(c.Dir, "console.log"))
	if err != nil || st.Size() > 2*qemu.DefaultConsoleBytes {
		t.Errorf("console log: %v, %v", st.Size(), err)
	}
}

func killedFromOutside(t *testing.T, s *vmmtest.Suite, _ *qemu.Driver) {
	m, a := s.Restored(t, s.Golden)
	begin := time.Now()
	if err := unix.Kill(m.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-m.Done():
	case <-time.After(realTimeout):
		t.Fatal("nobody noticed")
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %s to notice", took)
	}
	var exit *qemu.ExitError
	if !errors.As(m.Err(), &exit) || !strings.Contains(exit.State, "killed") {
		t.Errorf("error: %v", m.Err())
	}
	if _, err := a.Try(realTimeout, "echo", "x"); err == nil {
		t.Error("the stream still works")
	}
}

// flattened has a disk with few layers, and no file more than those.
func flattened(t *testing.T, s *vmmtest.Suite, _ *qemu.Driver) {
	ctx, cancel := context.WithTimeout(t.Context(), realTimeout)
	defer cancel()
	c := s.Config(t, s.Golden, false)
	m, a := s.RestoredIn(t, c)
	for i := range 8 {
		a.Call("wdisk", i<<20, i, 65536)
		s.Save(t, m, filepath.Join(t.TempDir(), "save"))
	}
	layers := func() int {
		files, err := filepath.Glob(filepath.Join(c.Dir, "disk*.qcow2"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	before := layers()
	if err := m.Flatten(ctx); err != nil {
		t.Fatal(err)
	}
	if after := layers(); before < 9 || after > 3 {
		t.Errorf("%d layers became %d", before, after)
	}
	// One that is cut short does no harm, and the next one does the rest.
	cut, stop := context.WithCancel(ctx)
	stop()
	if err := m.Flatten(cut); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	a.Call("wdisk", 0, 77, 65536)
}

// adoptedAfterAKilledSave takes over machines whose server was killed while it saved their
// device state, each of which has left a file in QEMU.
func adoptedAfterAKilledSave(t *testing.T, s *vmmtest.Suite, d *qemu.Driver) {
	ctx, cancel := context.WithTimeout(t.Context(), realTimeout)
	defer cancel()
	c := s.Config(t, s.Golden, false)
	m, err := d.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(context.WithoutCancel(ctx), c.Dir); err != nil {
			t.Error(err)
		}
	})
	s.Resume(t, m)
	for range 20 { // so that some are found before the memory
		qemu.LeaveState(ctx, t, m)
	}
	if err := m.Release(); err != nil {
		t.Fatal(err)
	}
	n, err := d.Adopt(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if left := qemu.StateSets(ctx, t, n); left != 0 {
		t.Errorf("%d files of killed saves are left in QEMU", left)
	}
	vmmtest.Dial(t, n).Call("set", "who", "adopted")
	snap := filepath.Join(t.TempDir(), "adopted")
	s.Save(t, n, snap)
	_, b := s.Restored(t, snap)
	b.Want("adopted", "get", "who")
}

func damaged(t *testing.T, s *vmmtest.Suite, d *qemu.Driver) {
	ctx, cancel := context.WithTimeout(t.Context(), realTimeout)
	defer cancel()
	m, _ := s.Restored(t, s.Golden)
	if err := m.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "whole")
	s.Save(t, m, whole)
	entries, err := os.ReadDir(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		for _, how := range []string{"flip", "truncate"} {
			t.Run(e.Name()+"/"+how, func(t *testing.T) {
				bad := t.TempDir()
				for _, f := range entries {
					if err := snapshot.Copy(nil, filepath.Join(whole, f.Name()), filepath.Join(bad, f.Name())); err != nil {
						t.Fatal(err)
					}
				}
				damage(t, filepath.Join(bad, e.Name()), how)
				if _, err := d.Start(ctx, s.Config(t, bad, false)); err == nil {
					t.Error("a damaged snapshot was restored")
				}
			})
		}
	}
}

func damage(t *testing.T, path, how string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if how == "truncate" {
		err = f.Truncate(st.Size() / 2)
	} else {
		var b [1]byte
		if _, err = f.ReadAt(b[:], st.Size()/2); err == nil {
			b[0] ^= 0x80
			_, err = f.WriteAt(b[:], st.Size()/2)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// concurrent restores 16 machines of one snapshot at once.
func concurrent(t *testing.T, s *vmmtest.Suite, d *qemu.Driver) {
	const n = 16
	ctx, cancel := context.WithTimeout(t.Context(), realTimeout)
	defer cancel()
	machines, errs := make([]vmm.Machine, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		c := s.Config(t, s.Golden, false)
		wg.Go(func() { machines[i], errs[i] = d.Start(ctx, c) })
		t.Cleanup(func() {
			if err := d.Remove(context.Background(), c.Dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i, m := range machines {
		s.Resume(t, m)
		a := vmmtest.Dial(t, m)
		a.Want("golden", "get", "origin")
		a.Call("set", "me", i)
	}
	for i, m := range machines {
		vmmtest.Dial(t, m).Want(fmt.Sprint(i), "get", "me")
	}
}

// leavesNothing makes and removes machines and looks for what stays.
func leavesNothing(t *testing.T, s *vmmtest.Suite, d *qemu.Driver) {
	ctx, cancel := context.WithTimeout(t.Context(), realTimeout)
	defer cancel()
	round := func() {
		c := s.Config(t, s.Golden, false)
		m, err := d.Start(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		if err := d.Remove(ctx, c.Dir); err != nil {
			t.Fatal(err)
		}
	}
	round()
	before := descriptors(t)
	for range 10 {
		round()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// steps collects the durations of start steps from the driver's log.
type steps struct {
	slog.Handler
	mu   sync.Mutex
	took map[string][]time.Duration // guarded by mu
}

func (s *steps) Enabled(context.Context, slog.Level) bool { return true }

func (s *steps) Handle(_ context.Context, r slog.Record) error {
	var name string
	var took time.Duration
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "step":
			name = a.Value.String()
		case "took":
			took = a.Value.Duration()
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "" {
		s.took[name] = append(s.took[name], took)
	}
	return nil
}

// measure reports; it fails only if something does not work.
func measure(t *testing.T, s *vmmtest.Suite, _ *qemu.Driver) {
	log := &steps{Handler: slog.DiscardHandler, took: map[string][]time.Duration{}}
	d, err := qemu.New(qemu.Config{Accel: "tcg", StateDir: t.TempDir(), UIDBase: 802000, UIDCount: 20, Cgroup: "ramet-test", Log: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), realTimeout)
	defer cancel()
	var start, resume, first, save []time.Duration
	var pss, own []int64
	for range 10 {
		c := s.Config(t, s.Golden, false)
		t0 := time.Now()
		m, err := d.Start(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		t1 := time.Now()
		s.Resume(t, m)
		t2 := time.Now()
		vmmtest.Dial(t, m).Want("golden", "get", "origin")
		t3 := time.Now()
		st, err := m.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		t4 := time.Now()
		s.Save(t, m, filepath.Join(t.TempDir(), "delta"))
		save = append(save, time.Since(t4))
		start, resume, first = append(start, t1.Sub(t0)), append(resume, t2.Sub(t1)), append(first, t3.Sub(t2))
		pss, own = append(pss, st.PSSBytes), append(own, st.OwnPages)
		if err := d.Remove(ctx, c.Dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("medians of 10: start from golden %s, cont %s, first answer %s, save of a delta %s, PSS %d MB, own pages %d",
		median(start), median(resume), median(first), median(save), median(pss)>>20, median(own))
	for name, took := range log.took {
		t.Logf("  step %-18s %s", name, median(took))
	}
}

func median[T ~int64](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}
