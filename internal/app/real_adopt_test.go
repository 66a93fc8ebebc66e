//go:build integration

package app_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/app"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
	"ramet.dev/ramet/internal/vmm/machinefile"
)

// These make this test program a server on a data directory, with a pool, until
// it is killed.
const (
	serveHome = "RAMET_TEST_SERVE_HOME"
	servePool = "RAMET_TEST_SERVE_POOL"
)

// TestRealServeUntilKilled is the server process of the tests that kill one.
func TestRealServeUntilKilled(t *testing.T) {
	home := os.Getenv(serveHome)
	if home == "" {
		return // not started by serverProcess
	}
	n, err := strconv.Atoi(os.Getenv(servePool))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := startServer(home, func(c *config.Server) { c.PoolSize = n }); err != nil {
		t.Fatal(err)
	}
	<-t.Context().Done() // the parent kills this process long before
}

// serverProcess starts a server with a pool of that size as a process of its own.
func serverProcess(t *testing.T, home string, pool int) (*server, *os.Process) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestRealServeUntilKilled$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), serveHome+"="+home, servePool+"="+strconv.Itoa(pool))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := &server{home: home}
	eventually(t, 2*time.Minute, "the server process answers", func() bool {
		info, err := config.ReadServerInfo(config.Home(home))
		if err != nil || info.PID != cmd.Process.Pid {
			return false
		}
		resp, err := http.Get(info.URL + "/v1/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		s.url = info.URL
		return resp.StatusCode == 200
	})
	key, err := os.ReadFile(filepath.Join(home, "key"))
	if err != nil {
		t.Fatal(err)
	}
	s.key = strings.TrimSpace(string(key))
	return s, cmd.Process
}

// made is a sandbox with its machine, as the test sees it from the host.
type made struct {
	*box
	dir string
	pid int
}

// make creates a sandbox and finds its machine.
func (s *server) make(t *testing.T, opts obj) made {
	t.Helper()
	before := instances(t, s)
	b := &box{t: t, s: s}
	if opts == nil {
		opts = obj{}
	}
	s.call(t, "POST", "/v1/sandboxes", opts, b)
	fresh := slices.DeleteFunc(instances(t, s), func(dir string) bool { return slices.Contains(before, dir) })
	for _, dir := range append(fresh, before...) { // one that was there was in the pool
		if pid := recordedPID(t, dir); pid != 0 {
			return made{b, dir, pid}
		}
	}
	t.Fatal("the new sandbox has no instance")
	return made{}
}

// pidIn is the process of the machine in dir.
func pidIn(t *testing.T, dir string) int {
	t.Helper()
	pid := recordedPID(t, dir)
	if pid == 0 { // which would be this process's group
		t.Fatalf("no pid in %s", dir)
	}
	return pid
}

// recordedPID is that process, 0 while the machine is being made.
func recordedPID(t *testing.T, dir string) int {
	t.Helper()
	var p machinefile.Process
	if err := machinefile.Read(dir, &p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return p.PID
}

// on is the sandbox as another server has it.
func (m made) on(s *server) made {
	b := *m.box
	b.s = s
	m.box = &b
	return m
}

func (m made) status() string {
	m.t.Helper()
	m.s.call(m.t, "GET", m.path(""), nil, m.box)
	return m.Status
}

func (m made) delete() {
	m.t.Helper()
	m.s.call(m.t, "DELETE", m.path(""), nil, nil)
}

// runs says whether a process runs. One that has ended and waits for its parent does not.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

const (
	startLoop = `
import threading, time
x, n, stop = 41, 0, False
def loop():
    global n
    while not stop:
        n += 1
        time.sleep(0.01)
threading.Thread(target=loop, daemon=True).start()
kept = open('/root/kept', 'w'); _ = kept.write('before '); kept.flush()`
	// A connection to the gateway itself: that needs the machine's network, not the internet.
	reachGateway = `
import socket
socket.create_connection(('192.168.127.1', 53), timeout=10).close()
print('reached')`
)

func loopCount(b made) int {
	b.t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(b.mustPython("print(n)")))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// wantSame checks that the machine is the one that startLoop ran in, with all that it had.
func wantSame(b made, before int) {
	b.t.Helper()
	if got := b.status(); got != "running" {
		b.t.Fatalf("the sandbox is %s (%s)", got, b.FailReason)
	}
	if got := b.mustPython("x += 1; print(x, os.environ['COLOUR']) if 'os' in globals() else exec('import os; print(x, os.environ[\"COLOUR\"])')"); got != "42 red\n" {
		b.t.Errorf("the REPL says %q", got)
	}
	if n := loopCount(b); n <= before {
		b.t.Errorf("the loop is at %d, it was at %d before", n, before)
	}
	if got := b.mustPython("_ = kept.write('after'); kept.close(); print(open('/root/kept').read())"); got != "before after\n" {
		b.t.Errorf("the open file says %q", got)
	}
	if got := b.mustPython(reachGateway); got != "reached\n" {
		b.t.Errorf("the network says %q", got)
	}
	if got := pidIn(b.t, b.dir); got != b.pid {
		b.t.Errorf("the machine is process %d, it was %d", got, b.pid)
	}
}

func TestRealMachinesLiveOnWhenTheServerIsKilled(t *testing.T) {
	home := freshHome(t)
	first, process := serverProcess(t, home, 0)
	b := first.make(t, obj{"env": obj{"COLOUR": "red"}})
	closed := first.make(t, obj{"egress": false})
	b.mustPython(startLoop)
	before := loopCount(b)
	// A call is open and more output than its stream holds is on the way when the server dies.
	events := first.stream(t, b.path("/exec"), obj{"language": "bash", "code": "echo begun; yes flood"})
	if e, ok := <-events; !ok || e.Type != "stdout" {
		t.Fatalf("the run did not begin: %+v", e)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	process.Wait()
	if !runs(b.pid) || !runs(closed.pid) {
		t.Fatal("a machine ended with its server")
	}
	begin := time.Now()
	s := ownServer(t, home, nil)
	t.Logf("the next server started in %s", time.Since(begin))
	b, closed = b.on(s), closed.on(s)
	wantSame(b, before)
	if got := closed.status(); got != "running" {
		t.Fatalf("the second sandbox is %s", got)
	}
	if r := closed.bash("timeout 5 getent hosts deb.debian.org"); r.stdout != "" {
		t.Errorf("after the restart the sandbox without egress resolves a name: %+v", r)
	}
	b.delete()
	closed.delete()
	if runs(b.pid) || runs(closed.pid) {
		t.Error("a deleted sandbox's machine runs on")
	}
	if left := instances(t, s); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRealMachinesLiveOnWhenTheServerStops(t *testing.T) {
	home := freshHome(t)
	s, err := startServer(home, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := s.make(t, obj{"env": obj{"COLOUR": "red"}, "memory_mb": 2048})
	b.mustPython(startLoop)
	before := loopCount(b)
	for range 3 { // an upgrade is a stop and a start, and there is more than one in a life
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		if !runs(b.pid) {
			t.Fatal("the machine ended with its server")
		}
		if s, err = startServer(home, nil); err != nil {
			t.Fatal(err)
		}
		b = b.on(s)
		if got := b.mustPython("print(x)"); got != "41\n" {
			t.Fatalf("after the restart the REPL says %q", got)
		}
	}
	wantSame(b, before)
	b.delete()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if runs(b.pid) {
		t.Error("a deleted sandbox's machine runs on")
	}
}

func TestRealMachineThatDiedWhileTheServerWasAway(t *testing.T) {
	home := freshHome(t)
	s, err := startServer(home, nil)
	if err != nil {
		t.Fatal(err)
	}
	dead, live := s.make(t, nil), s.make(t, nil)
	live.mustPython("x = 1")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(dead.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the machine is dead", func() bool { return !runs(dead.pid) })
	s = ownServer(t, home, nil)
	dead, live = dead.on(s), live.on(s)
	if got := dead.status(); got != "failed" || dead.FailReason == "" {
		t.Errorf("the sandbox of the dead machine is %s (%q)", got, dead.FailReason)
	}
	if got := live.mustPython("print(x)"); got != "1\n" {
		t.Errorf("its neighbour says %q", got)
	}
	if left := instances(t, s); len(left) != 1 || left[0] != live.dir {
		t.Errorf("instances: %v, want only the neighbour's", left)
	}
	// The end of an adopted machine is noticed like that of any other.
	if err := syscall.Kill(live.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "the neighbour is failed too", func() bool { return live.status() == "failed" })
}

func TestRealRestartRemovesWhatNoRecordOwns(t *testing.T) {
	home := freshHome(t)
	s, err := startServer(home, nil)
	if err != nil {
		t.Fatal(err)
	}
	kept, lost := s.make(t, nil), s.make(t, nil)
	kept.mustPython("x = 1")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	disown(t, home, lost)
	// A directory that is only begun, and one whose record names a stranger's process.
	stray := filepath.Join(home, "instances", string(sandbox.NewInstanceID()))
	half := filepath.Join(home, "instances", string(sandbox.NewInstanceID()))
	for _, dir := range []string{stray, half} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	stranger := exec.Command("sleep", "600")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stranger.Process.Kill()
		stranger.Wait()
	})
	record, err := os.ReadFile(filepath.Join(kept.dir, "machine.json"))
	if err != nil {
		t.Fatal(err)
	}
	record = []byte(strings.NewReplacer(
		filepath.Base(kept.dir), filepath.Base(half),
		fmt.Sprintf(`"pid": %d`, kept.pid), fmt.Sprintf(`"pid": %d`, stranger.Process.Pid),
	).Replace(string(record)))
	if err := os.WriteFile(filepath.Join(half, "machine.json"), record, 0o600); err != nil {
		t.Fatal(err)
	}
	// Something of somebody else's is no instance.
	other := filepath.Join(home, "instances", "lost+found")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	s = ownServer(t, home, nil)
	kept = kept.on(s)
	if runs(lost.pid) {
		t.Error("a machine that no record owns runs on")
	}
	if !runs(stranger.Process.Pid) {
		t.Error("a stranger's process was killed")
	}
	for _, dir := range []string{stray, half, lost.dir} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	if got := kept.mustPython("print(x)"); got != "1\n" {
		t.Errorf("the sandbox that has a record says %q", got)
	}
	kept.delete()
}

// disown makes a sandbox stopped in the records alone.
func disown(t *testing.T, home string, b made) {
	t.Helper()
	records, err := store.Open(t.Context(), config.Home(home).Database())
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	id, err := sandbox.ParseID(b.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range [][2]sandbox.State{{sandbox.Running, sandbox.Stopping}, {sandbox.Stopping, sandbox.Stopped}} {
		if _, err := records.Transition(t.Context(), id, to[0], to[1], store.Change{End: true}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRealSilentMachineIsAdoptedWhenItAnswersAgain(t *testing.T) {
	home := freshHome(t)
	s, err := startServer(home, nil)
	if err != nil {
		t.Fatal(err)
	}
	waits, deleted := s.make(t, nil), s.make(t, nil)
	waits.mustPython("x = 7")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	for _, b := range []made{waits, deleted} {
		if err := syscall.Kill(b.pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	s = ownServer(t, home, nil)
	waits, deleted = waits.on(s), deleted.on(s)
	if got := waits.status(); got != "running" {
		t.Fatalf("a machine that does not answer made its sandbox %s", got)
	}
	if status, body := s.do(t, "POST", waits.path("/exec"), obj{"code": "1"}); status != 503 {
		t.Errorf("a call to it: %d %s", status, body)
	}
	deleted.delete()
	if runs(deleted.pid) {
		t.Error("the deleted one runs on")
	}
	if err := syscall.Kill(waits.pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "it takes calls", func() bool {
		status, _ := s.do(t, "POST", waits.path("/exec"), obj{"code": "1"})
		return status == 200
	})
	if got := waits.mustPython("print(x)"); got != "7\n" {
		t.Errorf("the REPL says %q", got)
	}
	waits.delete()
	if left := instances(t, s); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRealEndSandboxesEndsWhatNoServerUses(t *testing.T) {
	home := freshHome(t)
	var cfg config.Server
	s, err := startServer(home, func(c *config.Server) { cfg = *c })
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.make(t, nil), s.make(t, nil)
	if _, err := app.EndSandboxes(t.Context(), cfg); err == nil {
		t.Error("it used the data directory of a running server")
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if !runs(a.pid) || !runs(b.pid) {
		t.Fatal("a machine ended with its server")
	}
	for _, want := range []int{2, 0} {
		if n, err := app.EndSandboxes(t.Context(), cfg); err != nil || n != want {
			t.Errorf("ended %d sandboxes (%v), want %d", n, err, want)
		}
	}
	if runs(a.pid) || runs(b.pid) {
		t.Error("a machine runs on")
	}
	s = ownServer(t, home, nil)
	if left := instances(t, s); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if got := a.on(s).status(); got != "stopped" {
		t.Errorf("the sandbox is %s", got)
	}
}
