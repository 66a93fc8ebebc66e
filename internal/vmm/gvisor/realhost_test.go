//go:build integration

package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/process"
	"ramet.dev/ramet/internal/vmm/vmmtest"
)

// booted starts a sandbox of the test guest.
func booted(t *testing.T) (*vmmtest.Suite, vmm.Config, vmm.Machine, *vmmtest.Agent) {
	t.Helper()
	s := &vmmtest.Suite{Subject: vmmtest.Subject{Image: vmmtest.SandboxImage(t), NewDriver: newDriver}, Driver: newDriver(t)}
	c := s.Config(t, "", false)
	c.Dir = filepath.Join(filepath.Dir(c.Dir), string(c.Instance)) // as in a data directory
	if err := os.Mkdir(c.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m, a := s.RestoredIn(t, c)
	return s, c, m, a
}

// family returns the process and all of its descendants.
func family(t *testing.T, pid int) []int {
	t.Helper()
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				continue // it has just ended
			}
			for _, p := range strings.Fields(string(b)) {
				n, err := strconv.Atoi(p)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// status returns a field of /proc/PID/status.
func status(t *testing.T, pid int, field string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return ""
}

// TestRealSandboxRunsAsAStranger looks at what each of a sandbox's processes has of the host.
func TestRealSandboxRunsAsAStranger(t *testing.T) {
	_, c, m, a := booted(t)
	a.Want("x", "echo", "x")
	pids := family(t, m.PID())
	if len(pids) < 2 {
		t.Errorf("only %d processes: where does the guest's code run?", len(pids))
	}
	self, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		for field, want := range map[string]string{
			"Uid": "65534 65534 65534 65534", "Gid": "65534 65534 65534 65534",
			"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0000000000000000", "CapPrm": "0000000000000000",
		} {
			if got := status(t, pid, field); got != want {
				t.Errorf("process %d: %s is %s, want %s", pid, field, got, want)
			}
		}
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || ns == self {
			t.Errorf("process %d is in the network of the host (%v)", pid, err)
		}
		for _, host := range []string{"etc/passwd", "usr", "bin", "home", strings.TrimPrefix(c.Dir, "/")} {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/%s", pid, host)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("process %d sees /%s: %v", pid, host, err)
			}
		}
	}
	checkFiles(t, c, m.PID())
	cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", m.PID()))
	if err != nil || !strings.Contains(string(cgroup), "/ramet/"+string(c.Instance)) {
		t.Errorf("the sandbox is not in a cgroup of its own: %s, %v", cgroup, err)
	}
}

// checkFiles looks at the sentry's open files: of the host's filesystems there are only those of its
// layers, its stream and its console, and the log of runsc.
func checkFiles(t *testing.T, c vmm.Config, pid int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.HasPrefix(name, "/") || strings.HasPrefix(name, "/memfd:") || strings.HasPrefix(name, "/dev/null") {
			continue
		}
		rest, ours := strings.CutPrefix(name, c.Dir+"/")
		switch {
		case strings.HasPrefix(rest, "store/"), strings.HasSuffix(rest, ".fifo"), rest == "runsc.log", strings.HasPrefix(rest, "bundle/"):
		case !ours && strings.HasSuffix(name, ".erofs"):
		case !ours && (strings.HasPrefix(name, "/proc/") || name == "/" || name == "/proc"):
		default:
			t.Errorf("the sentry has %s open", name)
		}
	}
}

// TestRealGuestThatWantsTooMuchMemoryEnds is about the host: the cgroup bounds what the sentry does not.
func TestRealGuestThatWantsTooMuchMemoryEnds(t *testing.T) {
	_, _, m, a := booted(t)
	if sum, err := a.Try(time.Minute, "dirty", 1200, 1); err == nil {
		t.Fatalf("a guest of 512 MB wrote 1200 MB: %s", sum)
	}
	select {
	case <-m.Done():
	case <-time.After(time.Minute):
		t.Fatal("the sandbox is still there")
	}
	if !errors.Is(m.Err(), vmm.ErrGone) {
		t.Errorf("it ended with %v", m.Err())
	}
}

// TestRealFullDiskIsTheGuests fills the writable layer: the guest gets an error, and lives.
func TestRealFullDiskIsTheGuests(t *testing.T) {
	_, c, _, a := booted(t)
	var err error
	at := 0
	for ; err == nil && at <= c.Shape.DiskMB; at += 64 {
		_, err = a.Try(time.Minute, "wdisk", at<<20, 1, 64<<20)
	}
	if err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Errorf("after %d of %d MB the guest got %v", at, c.Shape.DiskMB, err)
	}
	a.Want("alive", "echo", "alive")
}

// TestRealRemoveFindsASandboxThatNoRecordKnows is a server that ended between a start and its record.
func TestRealRemoveFindsASandboxThatNoRecordKnows(t *testing.T) {
	s, c, m, a := booted(t)
	a.Want("x", "echo", "x")
	pids := family(t, m.PID())
	if err := m.Release(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(c.Dir, "machine.json")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Driver.Adopt(ctx, c); !errors.Is(err, vmm.ErrGone) {
		t.Errorf("adopt: %v", err)
	}
	if err := s.Driver.Remove(ctx, c.Dir); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if !process.HasEnded(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
	if left := cgroupsOf(t, c); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func cgroupsOf(t *testing.T, c vmm.Config) (groups []string) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/ramet/", "/sys/fs/cgroup/*/ramet/"} {
		found, err := filepath.Glob(pattern + string(c.Instance))
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, found...)
	}
	return groups
}

// TestRealRoundsLeaveNothingBehind is about the host: processes, cgroups, mounts.
func TestRealRoundsLeaveNothingBehind(t *testing.T) {
	s := &vmmtest.Suite{Subject: vmmtest.Subject{Image: vmmtest.SandboxImage(t), NewDriver: newDriver}, Driver: newDriver(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	mounts := func() string {
		b, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := mounts()
	for i := range 12 {
		c := s.Config(t, "", false)
		m, err := s.Driver.Start(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 > 0 {
			s.Resume(t, m)
			vmmtest.Dial(t, m).Want("x", "echo", "x")
		}
		pids := family(t, m.PID())
		if i%3 == 1 {
			err = m.Kill(ctx)
		}
		if err := errors.Join(err, s.Driver.Remove(ctx, c.Dir)); err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			if !process.HasEnded(pid) {
				t.Errorf("round %d: process %d still runs", i, pid)
			}
		}
		if left := cgroupsOf(t, c); len(left) > 0 {
			t.Errorf("round %d: left %v", i, left)
		}
	}
	if after := mounts(); strings.Contains(after, os.TempDir()) && after != before {
		t.Errorf("mounts before:\n%s\nafter:\n%s", before, after)
	}
}

// TestRealOutputWithoutAServerDoesNotEndTheGuest lets the guest write while nobody has its streams open.
func TestRealOutputWithoutAServerDoesNotEndTheGuest(t *testing.T) {
	s, c, m, a := booted(t)
	a.Call("set", "who", "survivor")
	if err := m.Release(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		n, err := s.NewDriver(t).Adopt(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		b := vmmtest.Dial(t, n)
		b.Want("survivor", "get", "who")
		// Its answer finds nobody.
		conn, err := n.DialAgent(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("\nq rdisk 0 1048576\n")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(conn.Close(), n.Release()); err != nil {
			t.Fatal(err)
		}
	}
	n, err := s.NewDriver(t).Adopt(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	vmmtest.Dial(t, n).Want("survivor", "get", "who")
}

// TestRealPausesThatAreGivenUp gives pauses up at random moments: pauses are counted in the sentry, so each
// has to have happened or not.
func TestRealPausesThatAreGivenUp(t *testing.T) {
	s, _, m, a := booted(t)
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*200*time.Microsecond)
		if err := m.Pause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("pause %d: %v", i, err)
		}
		cancel()
		s.Resume(t, m)
		a.Want(strconv.Itoa(i), "echo", i)
	}
	dir := t.TempDir()
	for i := range 10 {
		sub := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*8*time.Millisecond)
		saving, err := m.Save(ctx, sub, vmm.SaveOptions{Ephemeral: true})
		cancel()
		if err == nil {
			err = saving.Close()
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Fatalf("save %d: %v", i, err)
		}
		a.Want(strconv.Itoa(i), "echo", i)
	}
}
