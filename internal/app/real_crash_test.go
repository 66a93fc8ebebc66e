//go:build integration

package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/app"
	"ramet.dev/ramet/internal/config"
)

// machineProcesses returns the pids of machines, those whose parent is
// parent or all with parent 0.
func machineProcesses(t *testing.T, parent int) map[int]string {
	t.Helper()
	found := map[int]string{}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		stat, err := os.ReadFile(p + "/stat")
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid …; a name may hold anything.
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		fields := strings.Fields(string(stat[end+1:]))
		if open < 0 || end < 0 || len(fields) < 2 {
			continue
		}
		if parent != 0 && fields[1] != strconv.Itoa(parent) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(p))
		cmd, _ := os.ReadFile(p + "/cmdline") // a zombie has none
		if strings.HasPrefix(string(stat[open+1:end]), "qemu") || bytes.HasPrefix(cmd, []byte("runsc-sandbox\x00")) {
			found[pid] = string(cmd)
		}
	}
	return found
}

// uidsOf counts the uids that machines below a data directory hold. All machines of gVisor have one uid.
func uidsOf(t *testing.T, home string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(config.HostState, "uids", "[0-9]*"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if dir, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(dir), home+"/") {
			n++
		}
	}
	return n
}

// machinesOf returns the pids of the machines whose instance is one of names.
func machinesOf(t *testing.T, names []string) []int {
	t.Helper()
	var pids []int
	for pid, cmd := range machineProcesses(t, 0) {
		for _, name := range names {
			if strings.Contains(cmd, name) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestRealKilledServerLeavesOnlyWhatItsRecordsOwn kills a server's process while
// machines run and one starts, and starts another on what it left: what ran goes on,
// what was half made is gone, or whole, and nothing is held by nobody.
func TestRealKilledServerLeavesOnlyWhatItsRecordsOwn(t *testing.T) {
	home := freshHome(t)
	s := startProgram(t, home)
	b := s.create(t, obj{"env": obj{"SECRET": "s"}})
	b.mustPython("open('/root/f', 'w').write('x' * 1000000)")
	s.create(t, nil)
	client := exec.Command("curl", "-s", "-XPOST", "-H", "Authorization: Bearer "+s.key, s.url+"/v1/sandboxes")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "a third machine is on its way", func() bool { return len(instances(t, s.server)) == 3 })
	var names []string
	for _, dir := range instances(t, s.server) {
		names = append(names, filepath.Base(dir))
	}
	if len(machinesOf(t, names)) < 2 {
		t.Fatalf("two machines run, but %v are found", machinesOf(t, names))
	}
	if err := syscall.Kill(s.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	client.Wait()
	<-s.exited

	next := ownServer(t, home, nil)
	var list struct {
		Sandboxes []struct{ ID, Status string }
	}
	next.call(t, "GET", "/v1/sandboxes?status=any", nil, &list)
	running := 0
	for _, sb := range list.Sandboxes {
		switch sb.Status {
		case "running":
			running++
		case "failed", "stopped":
		default:
			t.Errorf("a sandbox is left %s", sb.Status)
		}
	}
	if running < 2 {
		t.Errorf("%d of two sandboxes live on: %+v", running, list.Sandboxes)
	}
	if m, i, u := len(machinesOf(t, names)), len(instances(t, next)), uidsOf(t, home); m != running || i != running || u != running && !onGVisor() {
		t.Errorf("%d sandboxes run, with %d machines, %d directories and %d uids", running, m, i, u)
	}
	b.s = next
	if got := b.mustPython("print(len(open('/root/f').read()))"); got != "1000000\n" {
		t.Errorf("what the sandbox had written: %q", got)
	}
	if got := next.create(t, nil).mustPython("print('works')"); got != "works\n" {
		t.Errorf("a new sandbox says %q", got)
	}
	for _, sb := range list.Sandboxes {
		next.call(t, "DELETE", "/v1/sandboxes/"+sb.ID, nil, nil)
	}
	if left := machinesOf(t, names); len(left) != 0 {
		t.Errorf("machines %v outlived their delete", left)
	}
}

// programServer is a server in a process of its own.
type programServer struct {
	*server
	pid    int
	exited chan struct{}
}

// startProgram runs the program that 'make build' made.
func startProgram(t *testing.T, home string) *programServer {
	t.Helper()
	program, err := filepath.Abs("../../bin/ramet")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "up", "--data", home, "--listen", "127.0.0.1:0", "--node", "test", "--driver", app.DriverOfTests(), "--pool-size", "0", "--waiting-machines", "0")
	cmd.Env = append(os.Environ(), "RAMET_CONFIG=/dev/null")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &programServer{server: &server{home: home}, pid: cmd.Process.Pid, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		select {
		case <-p.exited:
		default:
			cmd.Process.Signal(syscall.SIGTERM)
			<-p.exited
		}
		if t.Failed() {
			t.Logf("the program said:\n%s", output.Bytes())
		}
	})
	// A program that was built with another agent makes a snapshot first.
	eventually(t, 3*time.Minute, "the program serves", func() bool {
		select {
		case <-p.exited:
			t.Fatalf("the program ended: %s", output.Bytes())
		default:
		}
		info, err := config.ReadServerInfo(config.Home(home))
		p.url = info.URL
		return err == nil && info.Running()
	})
	key, err := os.ReadFile(filepath.Join(home, "key"))
	if err != nil {
		t.Fatal(err)
	}
	p.key = strings.TrimSpace(string(key))
	return p
}

// create is the server's, without a delete at the end: the program is killed.
func (p *programServer) create(t *testing.T, opts obj) *box {
	t.Helper()
	if opts == nil {
		opts = obj{}
	}
	b := &box{t: t, s: p.server}
	p.call(t, "POST", "/v1/sandboxes", opts, b)
	return b
}

// TestRealDeleteRacesTheMachinesDeath lets a machine die while its sandbox is
// deleted and another is created, which may get the uid that becomes free.
func TestRealDeleteRacesTheMachinesDeath(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	for round := range 6 {
		b := &box{t: t, s: s}
		s.call(t, "POST", "/v1/sandboxes", obj{}, b)
		pid := machinePID(t, s)
		other := &box{t: t, s: s}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Errorf("round %d: %v", round, err)
			}
		})
		wg.Go(func() {
			if status, body := s.do(t, "DELETE", b.path(""), nil); status != 204 {
				t.Errorf("round %d: delete: %d %s", round, status, body)
			}
		})
		wg.Go(func() {
			status, body := s.do(t, "POST", "/v1/sandboxes", obj{})
			if status != 200 || json.Unmarshal(body, other) != nil {
				t.Errorf("round %d: create: %d %s", round, status, body)
			}
		})
		wg.Wait()
		if t.Failed() {
			return
		}
		s.call(t, "GET", b.path(""), nil, b)
		if b.Status != "stopped" {
			t.Errorf("round %d: the deleted sandbox is %s", round, b.Status)
		}
		if got := other.mustPython("print(" + fmt.Sprint(round) + ")"); got != fmt.Sprintln(round) {
			t.Errorf("round %d: the other sandbox says %q", round, got)
		}
		s.call(t, "DELETE", other.path(""), nil, nil)
		if left := instances(t, s); len(left) != 0 {
			t.Errorf("round %d: %v are left", round, left)
		}
		if n := uidsOf(t, s.home); n != 0 {
			t.Errorf("round %d: %d uids are still taken", round, n)
		}
	}
}
