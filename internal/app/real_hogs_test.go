//go:build integration

package app_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
)

// neighbour makes calls in another sandbox until stop is called, which says how
// many there were. Each must succeed.
func neighbour(t *testing.T, s *server) (stop func() int) {
	t.Helper()
	b := s.create(t, nil)
	b.mustPython("n = 0")
	ask, answered := make(chan struct{}), make(chan int)
	go func() {
		calls := 0
		for {
			select {
			case <-ask:
				answered <- calls
				return
			default:
			}
			begin := time.Now()
			r := b.python("n += 1; print(n)")
			if took := time.Since(begin); r.code != 0 || took > 30*time.Second {
				t.Errorf("a neighbour's call: %+v after %s", r, took)
			}
			calls++
		}
	}()
	return func() int { close(ask); return <-answered }
}

func (b *box) processes() int {
	b.t.Helper()
	var m rametv1.Metrics
	b.s.call(b.t, "GET", b.path("/metrics"), nil, &m)
	return m.Processes
}

// gone deletes the sandbox and checks that nothing of it is left.
func (b *box) gone(instance string) {
	b.t.Helper()
	pid := pidIn(b.t, instance)
	b.s.call(b.t, "DELETE", b.path(""), nil, nil)
	if runs(pid) {
		b.t.Errorf("process %d runs on", pid)
	}
	if _, err := os.Stat(instance); !os.IsNotExist(err) {
		b.t.Errorf("%s is still there (%v)", instance, err)
	}
}

// createdIn is create, with the new instance's directory.
func createdIn(t *testing.T, s *server, opts obj) (*box, string) {
	t.Helper()
	before := map[string]bool{}
	for _, dir := range instances(t, s) {
		before[dir] = true
	}
	b := s.create(t, opts)
	for _, dir := range instances(t, s) {
		if !before[dir] {
			return b, dir
		}
	}
	t.Fatal("the sandbox has no instance")
	return nil, ""
}

func TestRealMemoryHogHarmsOnlyItself(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	b, dir := createdIn(t, s, obj{"memory_mb": 512})
	stop := neighbour(t, s)
	const hog = "l = []\nwhile True: l.append(bytearray(8 << 20))"
	b.mustPython("x = 5")
	if r := b.python(hog); r.reason != "out_of_memory" || r.code != 137 || !strings.Contains(r.message, "ran out of memory") {
		t.Errorf("a hog in the interpreter: %+v", r)
	}
	r := b.python("print('x' in globals())")
	if r.stdout != "False\n" || !strings.Contains(r.stderr, "the Python interpreter was restarted") {
		t.Errorf("the call after it: %+v", r)
	}
	b.mustPython("x = 6")
	if r := b.bash("exec python3 -c '" + hog + "'"); r.reason != "out_of_memory" {
		t.Errorf("a hog in a program: %+v", r)
	}
	if got := b.mustPython("print(x)"); got != "6\n" {
		t.Errorf("a program's hunger took the interpreter with it: %q", got)
	}
	// What no process holds cannot be had back by ending one.
	b.bash("mkdir /full; mount -t tmpfs -o size=2g full /full; exec dd if=/dev/zero of=/full/hog bs=1M")
	r = b.bash("echo up; rm /full/hog")
	// gVisor leaves some memory when a file system takes it.
	if r.stdout != "up\n" || !onGVisor() && !strings.Contains(r.stderr, "the sandbox's memory is full") {
		t.Errorf("a program while a file system in memory holds all of it: %+v", r)
	}
	if r := b.bash("echo up"); r.stdout != "up\n" || r.stderr != "" {
		t.Errorf("a program with memory again: %+v", r)
	}
	b.mustPython("1")
	if n := stop(); n == 0 {
		t.Error("the neighbour made no call")
	}
	b.gone(dir)
}

func TestRealForkBombHarmsOnlyItself(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	b, dir := createdIn(t, s, nil)
	stop := neighbour(t, s)
	b.mustPython("x = 5")
	begin := time.Now()
	step := func(what string) { t.Helper(); t.Logf("%5.1fs: %s", time.Since(begin).Seconds(), what) }
	b.mustBash("bomb() { bomb | bomb & }; bomb") // it goes on after its run
	eventually(t, time.Minute, "the bomb has all processes that it can have", func() bool { return b.processes() > 1000 })
	step("full")
	// The interpreter lives, and has its turn.
	if got := b.mustPython("print(x)"); got != "5\n" {
		t.Errorf("the interpreter says %q", got)
	}
	step("the interpreter has answered")
	// So has a program that ends it, as the notice says.
	var r result
	eventually(t, time.Minute, "a program is started beside the bomb", func() bool {
		r = b.bash(":")
		return strings.Contains(r.stderr, "as many processes as it can have")
	})
	step("a program has run")
	_, command, _ := strings.Cut(strings.TrimSpace(r.stderr), "to end all of them: ")
	if r := b.bash(strings.SplitN(command, "\n", 2)[0]); r.code != 0 {
		t.Fatalf("%q: %+v", command, r)
	}
	step("all are killed")
	eventually(t, time.Minute, "its processes are gone", func() bool { return b.processes() < 200 })
	step("all are gone")
	// The call finds a new interpreter, or ends with the old one, and says which.
	r = b.python("print('x' in globals())")
	told := strings.Contains(r.stderr, "the Python interpreter was restarted")
	if r.reason == "interpreter_died" {
		told = strings.Contains(r.message, "it was restarted and its state is lost")
		r = b.python("print('x' in globals())")
	}
	if r.stdout != "False\n" || !told {
		t.Errorf("the interpreter after all processes were ended: %+v", r)
	}
	if r := b.bash("echo up"); r.stdout != "up\n" || r.stderr != "" {
		t.Errorf("a program without the bomb: %+v", r)
	}
	if n := stop(); n == 0 {
		t.Error("the neighbour made no call")
	}
	b.gone(dir)
}

func TestRealFullGuestDiskHarmsOnlyItself(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	b, dir := createdIn(t, s, nil)
	stop := neighbour(t, s)
	b.mustPython("x = 5")
	// As full as root can make it.
	b.bash("df --output=avail -k / | tail -1 | xargs -I% fallocate -l %K /hog; cat /dev/zero > /hog2")
	if got := strings.TrimSpace(b.mustBash("df --output=avail -k / | tail -1")); got != "0" {
		t.Fatalf("%s KB are free", got)
	}
	status, body := s.do(t, "PUT", b.path("/files?path=/root/new"), strings.NewReader(strings.Repeat("x", 1<<20)))
	var e struct{ Code string }
	if err := json.Unmarshal(body, &e); err != nil || status != 507 || e.Code != "no_space" {
		t.Errorf("an upload: %d %s", status, body)
	}
	if got := b.mustPython("print(x)"); got != "5\n" {
		t.Errorf("the interpreter says %q", got)
	}
	// Output that is too long for the agent's memory goes to that disk. It may be cut, and says so.
	if r := b.bash("head -c 3000000 /dev/zero | tr '\\0' x"); r.code != 0 || len(r.stdout) == 0 {
		t.Errorf("long output: %d bytes, %+v", len(r.stdout), r.message)
	}
	b.mustBash("rm /hog /hog2")
	s.call(t, "PUT", b.path("/files?path=/root/new"), strings.NewReader(strings.Repeat("x", 1<<20)), nil)
	if n := stop(); n == 0 {
		t.Error("the neighbour made no call")
	}
	b.gone(dir)
}
