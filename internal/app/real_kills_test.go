//go:build integration

package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/app"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// defaultKills is how many servers TestRealRandomKills kills when RAMET_KILLS does not say.
const defaultKills = 50

// numberFrom reads a number of the environment.
func numberFrom(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestRealRandomKills does random operations on real machines, kills the server in the
// middle of some of them with SIGKILL, starts it again, and compares the host with what the
// client knows: what was acknowledged is there and works, what was not has happened as a
// whole or not at all, and nothing is held by nobody. RAMET_SEED repeats the choices
// of a run, though not the moments at which the kernel lets things happen.
func TestRealRandomKills(t *testing.T) {
	kills := int(numberFrom(t, "RAMET_KILLS", defaultKills))
	seed := numberFrom(t, "RAMET_SEED", uint64(time.Now().UnixNano()))
	repeat := fmt.Sprintf("RAMET_SEED=%d RAMET_KILLS=%d", seed, kills)
	fmt.Println(repeat)
	h := &killHost{
		t: t, home: freshHome(t), rng: rand.New(rand.NewPCG(seed, 0)),
		boxes: map[string]*known{}, checkpoints: map[string]*kept{}, spaces: map[string]*kept{}, took: map[string]time.Duration{},
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	h.log = log
	t.Cleanup(func() { h.cleanUp(repeat) })
	h.start()
	begin := time.Now()
	for h.kills < kills && !t.Failed() {
		for range h.rng.IntN(3) {
			if op := h.draw(nil); op != nil {
				h.complete(op)
			}
		}
		h.round()
	}
	if !t.Failed() {
		h.verifyAll()
	}
	t.Logf("%d kills in %s: %d operations completed, %d cut short", h.kills, time.Since(begin).Round(time.Second), h.completed, h.cut)
}

// killHost is a host whose server is killed, and what its client knows of it.
type killHost struct {
	t    *testing.T
	home string
	rng  *rand.Rand
	log  *os.File

	server *server
	cmd    *exec.Cmd
	ended  chan struct{}
	ahead  int // machines and processes that this server keeps ready

	boxes       map[string]*known
	checkpoints map[string]*kept
	spaces      map[string]*kept
	took        map[string]time.Duration // of each operation, on the average
	n           int                      // the last value written, or name given

	kills, completed, cut int
}

// launch starts a server process. It builds nothing, so that the only machines are those that are counted.
func (h *killHost) launch() {
	h.t.Helper()
	program, err := filepath.Abs("../../bin/ramet")
	if err != nil {
		h.t.Fatal(err)
	}
	pool, waiting := 0, 2*h.rng.IntN(2)
	if h.rng.IntN(4) == 0 {
		pool = 1
	}
	h.ahead = pool + waiting
	h.cmd = exec.Command(program, "up", "--data", h.home, "--listen", "127.0.0.1:0", "--node", "test", "--driver", app.DriverOfTests(), "--templates", "default", "--disk-overcommit", "16",
		"--pool-size", strconv.Itoa(pool), "--waiting-machines", strconv.Itoa(waiting))
	h.cmd.Env = append(os.Environ(), "RAMET_CONFIG=/dev/null")
	h.cmd.Stdout, h.cmd.Stderr = h.log, h.log
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan struct{})
	h.ended = ended
	cmd := h.cmd
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
}

// start starts a server and waits until it serves.
func (h *killHost) start() {
	h.t.Helper()
	h.launch()
	h.server = &server{home: h.home}
	eventually(h.t, time.Minute, "the server serves", func() bool {
		select {
		case <-h.ended:
			h.t.Fatal("the server ended by itself")
		default:
		}
		info, err := config.ReadServerInfo(config.Home(h.home))
		if err != nil || info.PID != h.cmd.Process.Pid {
			return false
		}
		resp, err := http.Get(info.URL + "/v1/healthz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		h.server.url = info.URL
		return resp.StatusCode == 200
	})
	key, err := os.ReadFile(filepath.Join(h.home, "key"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.server.key = strings.TrimSpace(string(key))
}

func (h *killHost) kill() {
	h.t.Helper()
	if err := h.cmd.Process.Kill(); err != nil {
		h.t.Fatalf("the server had ended before it was killed: %v", err)
	}
	<-h.ended
	h.kills++
}

// round begins one or two operations, kills the server in the middle of them, perhaps
// kills the next one while it recovers, and looks at what is there then.
func (h *killHost) round() {
	var ops []*operation
	for range 1 + h.rng.IntN(2) {
		if op := h.draw(ops); op != nil {
			ops = append(ops, op)
		}
	}
	aim := 50 * time.Millisecond
	if len(ops) > 0 {
		aim = h.expected(ops[h.rng.IntN(len(ops))])
	}
	moment := time.Duration(h.rng.Float64() * float64(aim))
	again := h.rng.IntN(5) == 0
	into := time.Duration(h.rng.Float64() * float64(700*time.Millisecond))
	var all sync.WaitGroup
	for _, op := range ops {
		all.Go(func() { h.perform(op) })
	}
	<-time.After(moment) // this is the kill's time, which the seed chose
	h.kill()
	all.Wait()
	names := ""
	for _, op := range ops {
		if op.err != nil {
			h.cut++
		}
		names += fmt.Sprintf(" %s (answered: %v)", op, op.err == nil)
		if op.status != 0 && op.status/100 != 2 {
			h.t.Errorf("%s: %d %s", op, op.status, op.body)
		}
	}
	fmt.Fprintf(h.log, "--- killed after %s of%s\n", moment, names)
	if again {
		h.launch()
		<-time.After(into)
		h.kill()
		fmt.Fprintf(h.log, "--- killed after %s of a start\n", into)
	}
	before := h.onHost()
	h.start()
	h.settle(ops)
	h.look(ops, before)
	if h.t.Failed() {
		h.t.Logf("the kill was number %d, after %s of%s", h.kills, moment, names)
	}
}

// try makes one call. A server that dies in it is an error, with status 0.
func (h *killHost) try(method, path string, body any) (int, []byte, error) {
	var r io.Reader
	if body != nil {
		j, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequest(method, h.server.url+path, r)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+h.server.key)
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: 2 * time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, b, nil
}

// onHost lists the instances and snapshots that have a directory.
func (h *killHost) onHost() map[string]bool {
	found := map[string]bool{}
	for _, dir := range []string{"instances", "snapshots"} {
		entries, err := os.ReadDir(filepath.Join(h.home, dir))
		if err != nil && !os.IsNotExist(err) {
			h.t.Fatal(err)
		}
		for _, e := range entries {
			found[filepath.Join(dir, e.Name())] = true
		}
	}
	return found
}

// owned returns what the records say must be on the host, and sees to it that they are settled.
// snapshotMB is what the disk quota is charged for what is kept.
func (h *killHost) owned() (owned map[string]bool, running, snapshotMB int) {
	t := h.t
	t.Helper()
	records, err := store.Open(t.Context(), config.Home(h.home).Database())
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	owned = map[string]bool{}
	list, err := records.OfNode(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		switch sb.State {
		case sandbox.Running:
			owned["instances/"+string(sb.Instance)] = true
			running++
		case sandbox.Hibernated:
		default:
			t.Errorf("sandbox %s is %s (%s)", sb.ID, sb.State, sb.FailReason)
		}
	}
	snaps, err := records.SnapshotsOfNode(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range snaps {
		if s.State != sandbox.SnapshotReady {
			t.Errorf("snapshot %s is %s", s.ID, s.State)
		}
		owned["snapshots/"+string(s.ID)] = true
		snapshotMB += int((s.SizeBytes + 1<<20 - 1) >> 20)
	}
	if intents, err := records.Intents(t.Context()); err != nil || len(intents) != 0 {
		t.Errorf("intents are left: %v %v", intents, err)
	}
	return owned, running, snapshotMB
}

// nothingStray checks that what is on the host is what the records own. Before is what was
// there before this server, which keeps machines ready that no record has.
// It returns what the disk quota is charged for what is kept.
func (h *killHost) nothingStray(before map[string]bool) (snapshotMB int) {
	t := h.t
	t.Helper()
	owned, running, snapshotMB := h.owned()
	processes := h.machines() // before the directories, which are made first and removed last
	there := h.onHost()
	for name := range owned {
		if !there[name] {
			t.Errorf("%s has a record but is not there", name)
		}
	}
	fresh := 0
	for name := range there {
		switch {
		case owned[name]:
		case before[name] || strings.HasPrefix(name, "snapshots/"):
			t.Errorf("%s is there but has no record", name)
		default:
			fresh++
		}
	}
	if fresh > h.ahead+1 { // one may be on its way out of what is kept ready
		t.Errorf("%d instances have no record, and %d are kept ready", fresh, h.ahead)
	}
	machines := 0
	for pid, name := range processes {
		if owned[name] {
			machines++
		} else if before[name] || !there[name] && h.machines()[pid] == name {
			t.Errorf("process %d is the machine of %s, which no record has", pid, name)
		}
	}
	if machines != running {
		t.Errorf("%d sandboxes run, with %d machines", running, machines)
	}
	if u := uidsOf(t, h.home); !onGVisor() && (u < running || u > running+h.ahead+1) {
		t.Errorf("%d sandboxes run and %d machines are kept ready, with %d uids", running, h.ahead, u)
	}
	var garbage struct{ Snapshots, Instances []any }
	h.server.call(t, "POST", "/v1/gc", obj{"dry_run": true}, &garbage)
	if len(garbage.Snapshots)+len(garbage.Instances) > 0 {
		t.Errorf("garbage: %+v", garbage)
	}
	return snapshotMB
}

// machines returns the QEMU processes of this host, with the instance whose files each has open.
func (h *killHost) machines() map[int]string {
	found := map[int]string{}
	for pid := range machineProcesses(h.t, 0) {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			h.t.Fatal(err)
		}
		for _, fd := range fds {
			file, _ := os.Readlink(fd) // it may have been closed
			if rest, ok := strings.CutPrefix(file, h.home+"/instances/"); ok {
				id, _, _ := strings.Cut(rest, "/")
				found[pid] = "instances/" + id
				break
			}
		}
	}
	return found
}

// usageAddsUp checks the sums that quotas are compared with.
func (h *killHost) usageAddsUp(list map[string]listed, snapshotMB int) {
	t := h.t
	t.Helper()
	var p, want struct {
		Sandboxes int `json:"sandboxes"`
		MemoryMB  int `json:"memory_mb"`
		DiskMB    int `json:"disk_mb"`
	}
	h.server.call(t, "GET", "/v1/projects/"+sandbox.DefaultProject, nil, &p)
	want.DiskMB = snapshotMB
	for _, sb := range list {
		want.DiskMB += sb.DiskMB
		if sb.Status == "running" {
			want.Sandboxes++
			want.MemoryMB += sb.MemoryMB
		}
	}
	if p != want {
		t.Errorf("the project's use is %+v, its sandboxes add up to %+v", p, want)
	}
}

// cleanUp ends what the test started, and shows the end of the log after a failure.
func (h *killHost) cleanUp(repeat string) {
	if h.t.Failed() {
		const most = 60 << 10
		if raw, err := os.ReadFile(h.log.Name()); err == nil {
			h.t.Logf("the servers said:\n%s\nto repeat: %s", raw[max(0, len(raw)-most):], repeat)
		}
	}
	if h.cmd == nil {
		return
	}
	select {
	case <-h.ended:
	default:
		h.cmd.Process.Signal(syscall.SIGTERM)
		<-h.ended
	}
	// Machines outlive their server.
	down := exec.Command(h.cmd.Path, "down", "--data", h.home, "--sandboxes")
	down.Env = append(os.Environ(), "RAMET_CONFIG=/dev/null", "RAMET_NODE=test") // the machines are those of that node
	if out, err := down.CombinedOutput(); err != nil {
		h.t.Errorf("end the sandboxes: %v %s", err, out)
	}
	h.log.Close()
}

func keysOf[V any](m map[string]V) []string {
	ids := make([]string, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
