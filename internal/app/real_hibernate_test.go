//go:build integration

package app_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/app"
)

// alive is Python that says whether something grows, with a process that counts.
const alive = `
import hashlib, os, random, subprocess, threading, time
counter = subprocess.Popen(["sh", "-c", "while :; do echo >>/tmp/count; sleep .05; done"])
def grows(f, deadline=60):
    a, end = f(), time.monotonic() + deadline
    while f() <= a and time.monotonic() < end:
        time.sleep(.005)
    return f() > a
def count():
    return os.path.getsize("/tmp/count") if os.path.exists("/tmp/count") else 0
def lives():
    return counter.poll() is None and grows(count)
assert lives()
`

// TestRealFiftyRoundsOfHibernation: files lost after the second resume, processes that do
// not go on, and leaks of a round show in many.
func TestRealFiftyRoundsOfHibernation(t *testing.T) {
	b := realServer(t).create(t, nil)
	pid := b.mustPython(alive + `
rounds, files, held = 0, {}, open("/root/held", "w+")
def round():
    global rounds
    assert lives(), "the counter does not count"
    ` + dropCachesPython() + `
    for name, want in files.items():
        with open(name, "rb") as f: assert hashlib.sha256(f.read()).hexdigest() == want, name
    rounds += 1
    name, data = "/root/file%d" % rounds, os.urandom(20000 + rounds)
    with open(name, "wb") as f: f.write(data)
    files[name] = hashlib.sha256(data).hexdigest()
    held.write("x"); held.flush()
    assert os.path.getsize("/root/held") == rounds
    return rounds
print(counter.pid)`)
	for n := range 50 {
		b.hibernate()
		if r := b.python("print(round(), counter.pid)"); r.code != 0 || r.stdout != fmt.Sprintf("%d %s", n+1, pid) {
			t.Fatalf("round %d: %+v\n%+v", n+1, r, b.record())
		}
	}
	if r := b.record(); r.BootNote != "" {
		t.Errorf("it has booted: %s", r.BootNote)
	}
	if got := b.mustBash("dmesg | grep -E 'EXT4.*error|BUG:|rcu.*stall' || true"); got != "" {
		t.Errorf("the kernel says %q", got)
	}
	if n := b.count("waking"); n != 50 {
		t.Errorf("%d wakes for 50 rounds", n)
	}
}

func TestRealClockIsRightAfterAWakeAndInForks(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustPython("import time; since = time.monotonic()")
	for n, pause := range []time.Duration{0, 1500 * time.Millisecond} {
		b.hibernate()
		<-time.After(pause) // the time that the clock has to skip
		b.checkClock(fmt.Sprintf("wake %d", n))
	}
	for n, child := range b.fork(2, nil) {
		child.checkClock(fmt.Sprintf("child %d", n))
	}
	b.checkClock("the parent")
}

// busy is Python that records the time and random numbers without a pause, in the run's own
// thread and in another, until /tmp/stop is there.
const busy = `
import array, os, random, threading, time
random.seed(5)
def record(log):
    stop, k = os.path.exists, 0
    while True:
        log.append(time.time()); log.append(random.random())
        sum(range(200)) # a fast machine has not more memory
        k += 1
        if not k % 64 and stop("/tmp/stop"): return
def save(log, name):
    with open(name, "wb") as f: log.tofile(f)
log = array.array("d")
`

// readings are pairs of a time and a random number, in the order in which they were taken.
func (b *box) readings(name string) [][2]float64 {
	b.t.Helper()
	status, body := b.s.do(b.t, "GET", b.path("/files?path="+name), nil)
	if status != 200 || len(body) == 0 || len(body)%16 != 0 {
		b.t.Fatalf("%s: %d, %d bytes", name, status, len(body))
	}
	list := make([][2]float64, len(body)/16)
	if err := binary.Read(bytes.NewReader(body), binary.LittleEndian, list); err != nil {
		b.t.Fatal(err)
	}
	return list
}

// stopBusy ends the loop of busy and returns what it has recorded.
func (b *box) stopBusy() [][2]float64 {
	b.t.Helper()
	b.mustBash("touch /tmp/stop")
	if r := b.python("save(log, '/root/log')"); r.code != 0 {
		b.t.Fatalf("save the readings: %+v", r)
	}
	return b.readings("/root/log")
}

// TestRealBusyLoopNeverSeesAnOldTimeAfterAWake: not even the first reading after the pause
// may be one of before it.
func TestRealBusyLoopNeverSeesAnOldTimeAfterAWake(t *testing.T) {
	b := realServer(t).create(t, nil)
	run := b.follow(busy + "print('begun', flush=True)\nrecord(log)")
	b.hibernate()
	asleep := time.Now()
	if e := last(t, run); e.Type != "stream_error" || e.Code != "sandbox_hibernated" {
		t.Errorf("the stream of the run ends with %+v", e)
	}
	<-time.After(time.Second)
	woken := time.Now()
	b.wake()
	list := b.stopBusy()
	const slack = 0.05
	before, after := 0, 0
	for i, r := range list {
		if i > 0 && r[0] < list[i-1][0] {
			t.Fatalf("reading %d: the time goes back by %.6f s", i, list[i-1][0]-r[0])
		}
		switch {
		case r[0] < seconds(asleep)+slack:
			before++
		case r[0] > seconds(woken)-slack:
			after++
		default:
			t.Fatalf("reading %d of %d is from the pause: %.3f s after it began, %.3f s before it ended",
				i, len(list), r[0]-seconds(asleep), seconds(woken)-r[0])
		}
	}
	if before == 0 || after == 0 {
		t.Errorf("%d readings before the pause and %d after it", before, after)
	}
}

// TestRealBusyLoopNeverSeesOldValuesAfterAFork: numbers that a child draws after the fork are its own from
// the first on, also when it was forked while it drew them.
func TestRealBusyLoopNeverSeesOldValuesAfterAFork(t *testing.T) {
	for _, c := range []struct{ name, code string }{
		{"in a run", "print('begun', flush=True)\nrecord(log)"},
		{"in a thread", "threading.Thread(target=record, args=[log]).start()\nprint('begun', flush=True)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := realServer(t).create(t, nil)
			run := b.follow(busy + c.code)
			boxes := append(b.fork(2, nil), b)
			var logs [][][2]float64
			for _, one := range boxes {
				logs = append(logs, one.stopBusy())
			}
			last(t, run)
			for i, list := range logs {
				for j := 1; j < len(list); j++ {
					if list[j][0] < list[j-1][0] {
						t.Fatalf("machine %d, reading %d: the time goes back by %.6f s", i, j, list[j-1][0]-list[j][0])
					}
				}
			}
			// Up to the fork the lists are the same.
			forked := math.MaxInt
			for i, list := range logs[1:] {
				n := 0
				for n < min(len(list), len(logs[0])) && list[n][0] == logs[0][n][0] {
					n++
				}
				if n == 0 {
					t.Fatalf("machines 0 and %d have no reading in common", i+1)
				}
				forked = min(forked, n)
			}
			numbers := map[float64]int{}
			for i, list := range logs {
				if len(list) == forked {
					t.Errorf("machine %d has no reading after the fork", i)
				}
				for j, r := range list[forked:] {
					if other, ok := numbers[r[1]]; ok && other != i {
						t.Fatalf("machines %d and %d drew the same number after the fork, reading %d", other, i, j)
					}
					numbers[r[1]] = i
				}
			}
		})
	}
}

func TestRealThirtyTwoCallersCauseOneWake(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustPython("x = 0; open('/root/f', 'w').write('here')")
	b.hibernate()
	if status, body := b.s.do(t, "GET", b.path("/checkpoints"), nil); status != 200 {
		t.Errorf("its list of checkpoints: %d %s", status, body)
	}
	if r := b.record(); r.Status != "hibernated" {
		t.Fatalf("what reads records has woken it: %+v", r)
	}
	var wg sync.WaitGroup
	for n := range 32 {
		wg.Go(func() {
			if n%2 == 0 {
				if r := b.python("x += 1"); r.code != 0 {
					t.Errorf("caller %d: %+v", n, r)
				}
				return
			}
			if status, body := b.s.do(t, "GET", b.path("/files?path=/root/f"), nil); status != 200 || string(body) != "here" {
				t.Errorf("caller %d: %d %s", n, status, body)
			}
		})
	}
	wg.Wait()
	if got := b.mustPython("print(x)"); got != "16\n" {
		t.Errorf("16 callers counted to %q", got)
	}
	var woken []happened
	for _, e := range b.history() {
		if e.Cause == "wake" {
			woken = append(woken, e)
		}
	}
	if len(woken) != 2 || woken[0].Type != "waking" || woken[1].Type != "running" {
		t.Errorf("the events of one wake are %+v", woken)
	}
}

// TestRealSilentCallIsNotIdle: a call of ten seconds that says nothing is use.
func TestRealSilentCallIsNotIdle(t *testing.T) {
	s := realServer(t)
	b, never := s.create(t, obj{"idle_timeout_s": 3}), s.create(t, obj{"idle_timeout_s": 0})
	never.mustPython("x = 1")
	if r := b.python("import time; x = 5; time.sleep(10); print('done')"); r.stdout != "done\n" {
		t.Errorf("the silent call: %+v", r)
	}
	if n := b.count("hibernating"); n != 0 {
		t.Errorf("it was hibernated during a call: %+v", b.history())
	}
	eventually(t, 60*time.Second, "it hibernates when it is idle", func() bool { return b.record().Status == "hibernated" })
	for _, e := range b.history() {
		if e.Type == "hibernated" && e.Cause != "idle_timeout" {
			t.Errorf("the event says %+v", e)
		}
	}
	if got := b.mustPython("print(x)"); got != "5\n" {
		t.Errorf("after the wake: %q", got)
	}
	// The timeout is not lost on the way.
	eventually(t, 60*time.Second, "it hibernates again", func() bool { return b.record().Status == "hibernated" })
	if r := never.record(); r.Status != "running" || never.count("hibernating") != 0 {
		t.Errorf("without an idle timeout it is %+v", r)
	}
}

func TestRealHibernatedSandboxHasNoMachine(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	b := s.make(t, nil)
	b.mustPython("import os; x = bytearray(os.urandom(1 << 20) * 64)")
	memory := memfds(t)
	b.hibernate()
	if runs(b.pid) {
		t.Error("its process runs")
	}
	if left := machinesOf(t, []string{filepath.Base(b.dir)}); len(left) != 0 {
		t.Errorf("processes of its machine: %v", left)
	}
	if dirs := instances(t, s); len(dirs) != 0 || uidsOf(t, s.home) != 0 {
		t.Errorf("it has %v and %d uids", dirs, uidsOf(t, s.home))
	}
	if now := memfds(t); now > memory {
		t.Errorf("the server holds %d files in memory, and held %d", now, memory)
	}
	if r := b.wake(); r.Status != "running" || b.mustPython("print(len(x))") != fmt.Sprintln(64<<20) {
		t.Errorf("after the wake: %+v", r)
	}
	b.delete()
	if left, err := filepath.Glob(filepath.Join(s.home, "snapshots", "*")); err != nil || len(left) != 0 {
		t.Errorf("its snapshots are left: %v %v", left, err)
	}
}

// memfds counts the memory files that this process holds.
func memfds(t *testing.T) int {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "/memfd:") {
			n++
		}
	}
	return n
}

// TestRealDamagedMemoryIsAColdBoot: a wake that cannot use the memory boots from the disk and says so.
func TestRealDamagedMemoryIsAColdBoot(t *testing.T) {
	s := ownServer(t, freshHome(t), nil)
	b := s.create(t, nil)
	b.mustPython("x = 1; open('/root/note', 'w').write('kept')")
	b.hibernate()
	files, err := filepath.Glob(filepath.Join(s.home, "snapshots", "*", app.MemoryFile()))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	flipByte(t, files[0])
	if got := b.mustBash("cat /root/note; dmesg | grep -i 'ext4.*error' || true"); got != "kept" {
		t.Errorf("after the boot: %q", got)
	}
	r := b.record()
	if r.Status != "running" || r.BootNote == "" {
		t.Errorf("the record says %+v", r)
	}
	told := false
	for _, e := range b.history() {
		told = told || e.Type == "running" && e.Cause == "wake" && r.BootNote != "" && strings.Contains(e.Reason, r.BootNote)
	}
	if !told {
		t.Errorf("no event says that it booted: %+v", b.history())
	}
	if got := b.mustPython("print('x' in globals())"); got != "False\n" {
		t.Errorf("after a boot Python has x: %q", got)
	}
	b.checkClock("after the boot")
	// From then on it keeps its memory again.
	b.mustPython("x = 2")
	b.hibernate()
	if got := b.mustPython("print(x)"); got != "2\n" || b.record().BootNote != "" {
		t.Errorf("after the next wake: %q, %+v", got, b.record())
	}
}

func flipByte(t *testing.T, path string) {
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
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, st.Size()/2); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 1
	if _, err := f.WriteAt(one, st.Size()/2); err != nil {
		t.Fatal(err)
	}
}

// TestRealNetworkAtTheFirstCall: of a child, of a woken sandbox, and of a child of that.
func TestRealNetworkAtTheFirstCall(t *testing.T) {
	private := newPrivateNet(t, "ramet-test-n", "10.213.0")
	ln := private.listen(t)
	serveHTTP(t, ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "reached") }))
	b := realServer(t).create(t, nil)
	place := ln.Addr().String()
	if got := b.attempts(place); got != "reached" {
		t.Fatalf("before all: %s", got)
	}
	for n, child := range b.fork(2, nil) {
		if got := child.attempts(place); got != "reached" {
			t.Errorf("child %d: %s", n, got)
		}
	}
	b.hibernate()
	if got := b.attempts(place); got != "reached" {
		t.Errorf("after the wake: %s", got)
	}
	if got := b.fork(1, nil)[0].attempts(place); got != "reached" {
		t.Errorf("a child of the woken: %s", got)
	}
}
