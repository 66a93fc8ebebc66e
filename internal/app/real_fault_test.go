//go:build integration

package app_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/app"
	"ramet.dev/ramet/internal/config"
)

// machinePID returns the process of the server's only machine, as its driver
// recorded it in the instance directory.
func machinePID(t *testing.T, s *server) int {
	t.Helper()
	return pidIn(t, onlyInstance(t, s))
}

func onlyInstance(t *testing.T, s *server) string {
	t.Helper()
	dirs := instances(t, s)
	if len(dirs) != 1 {
		t.Fatalf("%d instances, want 1", len(dirs))
	}
	return dirs[0]
}

func instances(t *testing.T, s *server) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(s.home, "instances", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// eventually waits until ok says true, looking every few milliseconds. What
// it looks at (another process's death, a record) has no event to wait for.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

func TestRealKilledMachineFailsItsSandbox(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	b := s.create(t, nil)
	b.mustPython("1")
	if err := syscall.Kill(machinePID(t, s), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Second, "the sandbox is failed", func() bool {
		s.call(t, "GET", b.path(""), nil, b)
		return b.Status == "failed"
	})
	if b.FailReason == "" {
		t.Error("a failed sandbox gives no reason")
	}
	eventually(t, 2*time.Second, "its files are gone", func() bool { return len(instances(t, s)) == 0 })
	if status, body := s.do(t, "POST", b.path("/exec"), obj{"code": "1"}); status != 409 && status != 503 {
		t.Errorf("exec in a failed sandbox: %d %s", status, body)
	}
	if status, _ := s.do(t, "DELETE", b.path(""), nil); status != 204 {
		t.Errorf("deleting a failed sandbox: %d", status)
	}
}

func TestRealSilentGuestFailsTheCallWithinTenSeconds(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	b := s.create(t, nil)
	b.mustPython("x = 5")
	pid := machinePID(t, s)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	try := func(method, path string, body any) {
		begin := time.Now()
		status, answer := s.do(t, method, path, body)
		if took := time.Since(begin); took > 11*time.Second {
			t.Errorf("%s %s took %s", method, path, took)
		}
		// The stream may have begun; then its last event tells.
		if status == 200 && !strings.Contains(string(answer), "stream_error") || status != 200 && status != 503 {
			t.Errorf("a silent guest gave %d %s to %s %s", status, answer, method, path)
		}
	}
	// Calls at the same time do not wait for each other, nor the next one for what
	// they left, such as the end of a run that nobody waits for.
	var calls sync.WaitGroup
	calls.Go(func() { try("POST", b.path("/exec"), obj{"code": "1"}) })
	calls.Go(func() { try("POST", b.path("/exec"), obj{"code": "2"}) })
	calls.Go(func() { try("GET", b.path("/files?path=/etc/hostname"), nil) })
	calls.Wait()
	try("POST", b.path("/exec"), obj{"code": "3"})
	var marked struct {
		UnresponsiveSince string `json:"unresponsive_since"`
	}
	s.call(t, "GET", b.path(""), nil, &marked)
	if marked.UnresponsiveSince == "" {
		t.Error("the sandbox is not marked")
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// Connections that were tried meanwhile may still fill the machine's queue.
	eventually(t, 10*time.Second, "it answers again, with its state", func() bool {
		status, body := s.do(t, "POST", b.path("/exec"), obj{"code": "print(x)"})
		return status == 200 && collect(t, body).stdout == "5\n"
	})
}

func TestRealUnbootableTemplateShowsTheConsole(t *testing.T) {
	app.VirtualMachineOnly(t, "gVisor's root filesystem is made from the template's tar, whose agent is the first program")
	home := t.TempDir()
	copyTemplate(t, home)
	// A root filesystem that is none: the agent says so on the console.
	broken, err := filepath.Glob(filepath.Join(home, "templates/default/*/rootfs.ext4"))
	if err != nil || len(broken) != 1 {
		t.Fatal(broken, err)
	}
	f, err := os.OpenFile(broken[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	_, err = startServer(home, nil)
	if err == nil || !strings.Contains(err.Error(), "console") || !strings.Contains(err.Error(), "mount") {
		t.Errorf("the error does not carry the console: %v", err)
	}
}

// copyTemplate gives home its own copy of the built template, without goldens.
func copyTemplate(t *testing.T, home string) {
	t.Helper()
	realServer(t)
	linkTemplates(t, home)
	if err := os.Remove(filepath.Join(home, "templates")); err != nil {
		t.Fatal(err)
	}
	src, err := filepath.Glob(filepath.Join(testHome(), "templates/default/*/manifest.json"))
	if err != nil || len(src) == 0 {
		t.Fatal(src, err)
	}
	newest := src[len(src)-1]
	dst := filepath.Join(home, "templates/default", filepath.Base(filepath.Dir(newest)))
	if err := os.MkdirAll(dst, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("cp", "-a", "--sparse=always", "--reflink=auto",
		filepath.Dir(newest)+"/.", dst).CombinedOutput()
	if err != nil {
		t.Fatalf("copy the template: %v %s", err, out)
	}
	if err := os.RemoveAll(filepath.Join(dst, "golden")); err != nil {
		t.Fatal(err)
	}
}

func TestRealFullDiskFailsCreatesCleanly(t *testing.T) {
	// The instances live on a small filesystem of their own that is then filled.
	home := freshHome(t)
	small := filepath.Join(home, "instances")
	if err := os.Mkdir(small, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64m,mode=711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	// Such a small one has no room for a whole sandbox to be promised.
	s := ownServer(t, home, func(c *config.Server) { c.DiskOvercommit = 100 })
	fill := filepath.Join(home, "instances", ".fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, zeros{}); err == nil {
		t.Fatal("the disk did not fill")
	}
	f.Close()
	status, body := s.do(t, "POST", "/v1/sandboxes", obj{})
	if status != 503 || !strings.Contains(string(body), "disk") {
		t.Errorf("create on a full disk: %d %s", status, body)
	}
	if left, _ := filepath.Glob(filepath.Join(small, "[0-9a-f]*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	b := s.create(t, nil)
	b.mustPython("1")
	s.call(t, "DELETE", b.path(""), nil, nil)
}

// TestRealFullDiskFailsSavesCleanly fills the filesystem of the snapshots. What cannot be
// saved or forked goes on running, and nothing is left of the attempts.
func TestRealFullDiskFailsSavesCleanly(t *testing.T) {
	home := freshHome(t)
	small := filepath.Join(home, "snapshots")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=128m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	s := ownServer(t, home, nil)
	b := s.create(t, nil)
	b.mustPython("x = 41")
	fill := filepath.Join(small, ".fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, zeros{}); err == nil {
		t.Fatal("the disk did not fill")
	}
	f.Close()
	for path, body := range map[string]obj{
		"/hibernate": {}, "/checkpoints": {"kind": "full"}, "/fork": {"n": 2},
	} {
		status, answer := s.do(t, "POST", b.path(path), body)
		if status != 503 || !strings.Contains(string(answer), "disk is full") {
			t.Errorf("%s on a full disk: %d %s", path, status, answer)
		}
		if got := b.mustPython("x += 1; print(x)"); !strings.HasPrefix(got, "4") {
			t.Errorf("after %s it says %q", path, got)
		}
	}
	if left, err := filepath.Glob(filepath.Join(small, "[^.]*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	s.call(t, "POST", b.path("/hibernate"), nil, nil)
	if got := b.mustPython("print(x)"); got != "44\n" {
		t.Errorf("after the wake it says %q", got)
	}
	s.call(t, "DELETE", b.path(""), nil, nil)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestRealManyRoundsLeaveNothingBehind(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	round := func() {
		b := &box{t: t, s: s}
		s.call(t, "POST", "/v1/sandboxes", obj{}, b)
		if got := b.mustPython("print(6*7)"); got != "42\n" {
			t.Fatalf("got %q", got)
		}
		s.call(t, "DELETE", b.path(""), nil, nil)
	}
	for range 5 { // lazily made things are made now
		round()
	}
	// What is counted is there while a machine runs, so that nothing is counted in vain.
	kept := s.create(t, nil)
	if c := census(t, s); c.uids != 1 && !onGVisor() || c.processes < 1 {
		t.Errorf("with one machine the count is %+v", c)
	}
	s.call(t, "DELETE", kept.path(""), nil, nil)
	runtime.GC()
	before := census(t, s)
	const rounds, parallel = 100, 2
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for range rounds / parallel {
				round()
			}
		})
	}
	wg.Wait()
	var after counts
	// Connections of the HTTP client idle out on their own; everything else must be back.
	eventually(t, 10*time.Second, "everything is back where it was", func() bool {
		runtime.GC()
		after = census(t, s)
		return after.processes <= before.processes && after.uids <= before.uids && after.fds <= before.fds+4 && after.goroutines <= before.goroutines+8 &&
			after.files <= before.files && after.memoryMB <= before.memoryMB+64
	})
	t.Logf("before %+v, after %d rounds %+v", before, rounds, after)
}

type counts struct{ processes, uids, fds, goroutines, files, memoryMB int }

func census(t *testing.T, s *server) counts {
	t.Helper()
	var c counts
	c.uids = uidsOf(t, s.home)
	if onGVisor() { // whose processes are no children of the server
		for _, cmd := range machineProcesses(t, 0) {
			if strings.Contains(cmd, s.home+"/instances/") {
				c.processes++
			}
		}
	} else {
		c.processes = len(machineProcesses(t, os.Getpid()))
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	c.fds, c.goroutines = len(fds), runtime.NumGoroutine()
	filepath.WalkDir(s.home, func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			c.files++
		}
		return nil
	})
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.memoryMB = int(m.HeapInuse >> 20)
	return c
}

func TestRealHostileGuestCannotHarmTheGolden(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	// The first machine loads the golden memory, which is then part of the hash.
	s.create(t, nil).mustPython("1")
	before := goldenHash(t, s)
	b := s.create(t, nil) // of the same golden snapshot
	// Write most of the memory, drop the caches, give pages back, discard the disk.
	flush := dropCaches()
	if !onGVisor() {
		flush += "; echo 1 > /proc/sys/vm/compact_memory"
	}
	b.mustBash(`
set -e
python3 -c "
b = bytearray(500 << 20)
for i in range(0, len(b), 4096): b[i] = 255
"
` + flush + `
dd if=/dev/urandom of=/junk bs=1M count=64 status=none; rm /junk; sync
fstrim -v / || true
`)
	// These may end its own machine, QEMU included, and nothing else.
	s.do(t, "POST", b.path("/exec"), obj{
		"language": "bash", "timeout_s": 10,
		"code": "dd if=/dev/urandom of=/dev/mem bs=4096 count=16; echo 1 > /sys/bus/pci/devices/0000:00:03.0/remove; true",
	})
	if after := goldenHash(t, s); after != before {
		t.Error("a guest changed the golden snapshot")
	}
	if got := s.create(t, nil).mustPython("print('fine')"); got != "fine\n" {
		t.Errorf("a sibling says %q", got)
	}
}

// goldenHash is the hash of all files of the default template's golden snapshot
// and of the memory that machines map.
func goldenHash(t *testing.T, s *server) string {
	t.Helper()
	h := sha256.New()
	dirs, err := filepath.Glob(filepath.Join(s.home, "templates/default/*/golden", app.DriverOfTests(), "2x1024"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	files, err := os.ReadDir(dirs[len(dirs)-1])
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{}
	for _, f := range files {
		paths = append(paths, filepath.Join(dirs[len(dirs)-1], f.Name()))
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "/memfd:ramet-golden") {
			paths = append(paths, fd)
		}
	}
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(h, f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestRealMachineRunsAsAStranger(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	s.create(t, nil)
	pid := strconv.Itoa(machinePID(t, s))
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) string {
		for line := range strings.SplitSeq(string(status), "\n") {
			if rest, ok := strings.CutPrefix(line, name+":"); ok {
				return strings.TrimSpace(rest)
			}
		}
		return ""
	}
	if uid := strings.Fields(field("Uid"))[0]; uid == "0" {
		t.Error("the machine runs as root")
	}
	for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
		if v := field(set); set != "CapBnd" && strings.Trim(v, "0") != "" {
			t.Errorf("%s is %s", set, v)
		}
	}
	if v := field("Seccomp"); v != "2" {
		t.Errorf("seccomp mode is %s, want a filter", v)
	}
	if v := field("NoNewPrivs"); v != "1" {
		t.Errorf("no_new_privs is %s", v)
	}
	fds, err := filepath.Glob("/proc/" + pid + "/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		if strings.Contains(target, "ramet.db") || strings.HasSuffix(target, "/key") {
			t.Errorf("the machine has %s open", target)
		}
	}
	score, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
	if err != nil || strings.TrimSpace(string(score)) == "0" {
		t.Errorf("oom_score_adj is %s (%v)", score, err)
	}
}

func TestRealRefusalsLeaveNothing(t *testing.T) {
	s := realServer(t)
	before := len(instances(t, s))
	for _, c := range []struct {
		body obj
		code string
	}{
		{obj{"template": "no-such"}, "404 template_not_found"},
		{obj{"template": "../default"}, ""},
		{obj{"memory_mb": -1}, ""},
		{obj{"memory_mb": 1 << 40}, ""},
		{obj{"memory_mb": 16384 * 64}, ""},
		{obj{"vcpus": 3}, ""},
		{obj{"disk_mb": 100}, ""},
		{obj{"env": obj{"A\x00B": "x"}}, ""},
		{obj{"env": obj{"A=B": "x"}}, ""},
		{obj{"metadata": "text"}, ""},
		{obj{"nonsense": true}, ""},
	} {
		status, body := s.do(t, "POST", "/v1/sandboxes", c.body)
		var e struct{ Error, Code, RequestID string }
		json.Unmarshal(body, &e)
		if status/100 != 4 || e.Error == "" || e.Code == "" {
			t.Errorf("%v: %d %s", c.body, status, body)
		}
		if c.code != "" && fmt.Sprint(status, " ", e.Code) != c.code {
			t.Errorf("%v: %d %s, want %s", c.body, status, e.Code, c.code)
		}
	}
	if after := len(instances(t, s)); after != before {
		t.Errorf("%d instances are left", after-before)
	}
}
