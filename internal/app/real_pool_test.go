//go:build integration

package app_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/app"
	"ramet.dev/ramet/internal/config"
)

func (s *server) capacity(t *testing.T) rametv1.Capacity {
	t.Helper()
	var c rametv1.Capacity
	s.call(t, "GET", "/v1/capacity", nil, &c)
	return c
}

// poolServer starts a server with a pool of n machines and waits until it is full.
func poolServer(t *testing.T, home string, n int) *server {
	t.Helper()
	s := ownServer(t, home, func(c *config.Server) { c.PoolSize = n })
	s.awaitPool(t, n)
	return s
}

func (s *server) awaitPool(t *testing.T, n int) {
	t.Helper()
	eventually(t, 2*time.Minute, "the pool is full", func() bool { return s.capacity(t).Pool.Ready == n })
}

func TestRealPoolHandsOffMachinesOfTheirOwn(t *testing.T) {
	s := poolServer(t, freshHome(t), 2)
	a := s.create(t, obj{"env": obj{"WHO": "a"}})
	b := s.create(t, obj{"env": obj{"WHO": "b"}, "egress": false})
	if c := s.capacity(t); c.Pool.Hits != 2 || c.Pool.Misses != 0 || c.Pool.HitRate != 1 || c.Pool.HandOffMsMean <= 0 || c.Pool.RefillMsMean <= 0 {
		t.Errorf("the counters say %+v", c.Pool)
	}
	const identity = `
import os, uuid, random, socket, time
print(os.environ['WHO'], socket.gethostname(), open('/etc/machine-id').read().strip())
print(uuid.uuid4(), os.urandom(8).hex(), random.random())
print(time.time())
print(os.urandom(16).hex(), open('/etc/hostname').read().strip(), socket.gethostname() in open('/etc/hosts').read())
print(sum(1 for _ in open('/proc/cpuinfo') if _.startswith('processor')), int(open('/proc/meminfo').readline().split()[1]) // 1024)`
	outA, outB := strings.Fields(a.mustPython(identity)), strings.Fields(b.mustPython(identity))
	for n, what := range map[int]string{0: "environment", 1: "host name", 2: "machine id", 3: "uuid", 4: "entropy", 5: "random number", 7: "entropy of a later call"} {
		if outA[n] == outB[n] {
			t.Errorf("siblings have the same %s: %s", what, outA[n])
		}
	}
	for sb, out := range map[*box][]string{a: outA, b: outB} {
		if own := "sbx-" + strings.TrimPrefix(sb.ID, "sbx_")[:12]; out[1] != own || out[8] != own || out[9] != "True" {
			t.Errorf("sandbox %s says %v", sb.ID, out)
		}
	}
	if outA[0] != "a" || outB[0] != "b" {
		t.Errorf("they say %v and %v", outA, outB)
	}
	clock, err := strconv.ParseFloat(outA[6], 64)
	if off := time.Since(time.UnixMicro(int64(clock * 1e6))); err != nil || off < -time.Second || off > 10*time.Second {
		t.Errorf("the guest's clock is off by %s (%v)", off, err)
	}
	if mem, err := strconv.Atoi(outA[11]); err != nil || outA[10] != "2" || mem < 850 || mem > 1024 {
		t.Errorf("the guest has %s vCPUs and %s MB", outA[10], outA[11])
	}
	if got := a.mustPython("import platform; print(platform.node() == socket.gethostname())"); got != "True\n" {
		t.Errorf("the interpreter remembers another machine's name: %q", got)
	}
	if got := a.mustBash("echo $WHO"); got != "a\n" {
		t.Errorf("a fresh process says %q", got)
	}
	if r := b.bash("timeout 5 getent hosts deb.debian.org"); r.stdout != "" {
		t.Errorf("the sandbox without egress resolves a name: %+v", r)
	}
	if got := a.mustPython(reachGateway); got != "reached\n" {
		t.Errorf("the network says %q", got)
	}
	s.awaitPool(t, 2)
}

func TestRealPoolMissesBootOnDemand(t *testing.T) {
	s := poolServer(t, freshHome(t), 1)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			b := s.create(t, nil)
			if got := b.mustPython("print(6*7)"); got != "42\n" {
				t.Errorf("got %q", got)
			}
		})
	}
	wg.Wait()
	other := s.create(t, obj{"memory_mb": 512})
	other.mustPython("1")
	c := s.capacity(t)
	if c.Pool.Hits < 1 || c.Pool.Hits+c.Pool.Misses != 3 || c.Unpooled != 1 || c.Pool.Misses > 0 && c.Pool.OnDemandBootMsMean <= 0 {
		t.Errorf("the counters say %+v, %d unpooled", c.Pool, c.Unpooled)
	}
}

func TestRealPoolNeverHandsOutADeadMachine(t *testing.T) {
	s := poolServer(t, freshHome(t), 2)
	dirs := instances(t, s)
	// One dies; the pool may or may not have noticed when the creates come. The
	// other still runs but does not answer: only the hand-off can find that.
	if err := syscall.Kill(pidIn(t, dirs[0]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pidIn(t, dirs[1]), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b := s.create(t, nil)
	if got := b.mustPython("print(1)"); got != "1\n" {
		t.Errorf("got %q", got)
	}
	s.awaitPool(t, 2)
	if c := s.capacity(t); c.Pool.Discarded != 2 {
		t.Errorf("%d were thrown away, want 2", c.Pool.Discarded)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
}

// TestRealPoolKeepsItsMachinesWarm shows with the kernel's own marks that a machine that
// waits is used again and again: what nobody has used for a while the host takes away.
func TestRealPoolKeepsItsMachinesWarm(t *testing.T) {
	s := ownServer(t, freshHome(t), func(c *config.Server) { c.PoolSize, c.PoolKeepWarm = 1, 2*time.Second })
	s.awaitPool(t, 1)
	pid := pidIn(t, onlyInstance(t, s))
	for range 2 {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "its pages are in use again", func() bool { return referencedMB(t, pid) >= 10 })
	}
	s.awaitPool(t, 1)
	if c := s.capacity(t); c.Pool.Discarded != 0 {
		t.Errorf("the counters say %+v", c.Pool)
	}
	b := s.create(t, nil)
	if got := b.mustPython("print(6*7)"); got != "42\n" {
		t.Errorf("got %q", got)
	}
}

// referencedMB is how much of a process's memory is marked as used.
func referencedMB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "Referenced:"); ok {
			kb, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kb >> 10
		}
	}
	t.Fatal("the kernel does not tell what is used")
	return 0
}

func TestRealPoolThrowsOutWhatIsStale(t *testing.T) {
	home := t.TempDir()
	copyTemplate(t, home)
	s := poolServer(t, home, 1)
	before := instances(t, s)
	golden, err := filepath.Glob(filepath.Join(home, "templates/default/*/golden", app.DriverOfTests(), "2x1024"))
	if err != nil || len(golden) != 1 {
		t.Fatal(golden, err)
	}
	// As when a golden snapshot is made anew: another directory at the same place.
	if err := os.CopyFS(golden[0]+".new", os.DirFS(golden[0])); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(golden[0], golden[0]+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(golden[0]+".new", golden[0]); err != nil {
		t.Fatal(err)
	}
	b := s.create(t, nil)
	b.mustPython("1")
	if slices.Contains(instances(t, s), before[0]) {
		t.Error("the stale machine is still there")
	}
	if c := s.capacity(t); c.Pool.Hits != 0 || c.Pool.Discarded != 1 {
		t.Errorf("the counters say %+v", c.Pool)
	}
}

func TestRealPoolIsDrainedAndSwept(t *testing.T) {
	home := freshHome(t)
	s, err := startServer(home, func(c *config.Server) { c.PoolSize = 2 })
	if err != nil {
		t.Fatal(err)
	}
	s.awaitPool(t, 2)
	pids := poolPIDs(t, s)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if left := instances(t, s); len(left) != 0 {
		t.Errorf("a server that stopped left %v", left)
	}
	for _, pid := range pids {
		if runs(pid) {
			t.Errorf("process %d of the pool runs on", pid)
		}
	}
	// A server that is killed cannot drain it; the next one sweeps.
	killed, process := serverProcess(t, home, 2)
	killed.awaitPool(t, 2)
	kept := &box{t: t, s: killed}
	killed.call(t, "POST", "/v1/sandboxes", obj{}, kept)
	kept.mustPython("x = 3")
	killed.awaitPool(t, 2)
	pids = poolPIDs(t, killed)
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	process.Wait()
	s = ownServer(t, home, nil)
	kept.s = s
	left := 0
	for _, pid := range pids {
		if runs(pid) {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d of the %d machines run, want only the sandbox's", left, len(pids))
	}
	if got := kept.mustPython("print(x)"); got != "3\n" {
		t.Errorf("the sandbox from the pool says %q", got)
	}
	if left := instances(t, s); len(left) != 1 {
		t.Errorf("instances: %v, want one", left)
	}
	s.call(t, "DELETE", kept.path(""), nil, nil)
}

func poolPIDs(t *testing.T, s *server) []int {
	t.Helper()
	var pids []int
	for _, dir := range instances(t, s) {
		pids = append(pids, pidIn(t, dir))
	}
	return pids
}

// TestRealPoolCreateIsFast measures the server's side of creates from the pool, and of
// first calls, and holds them to a bound that a machine busy with other things meets.
func TestRealPoolCreateIsFast(t *testing.T) {
	s := poolServer(t, freshHome(t), 8)
	var total, first []float64
	steps := map[string][]float64{}
	for range 3 {
		for range 8 {
			b := s.create(t, nil)
			for name, ms := range b.Timings {
				steps[name] = append(steps[name], ms)
			}
			total = append(total, b.Timings["total"])
			begin := time.Now()
			b.mustPython("print(1)")
			first = append(first, float64(time.Since(begin))/1e6)
			s.do(t, "DELETE", b.path(""), nil)
		}
		s.awaitPool(t, 8)
	}
	for name, ms := range steps {
		t.Logf("step %s: p50 %.2f ms, p99 %.2f ms", name, quantile(ms, 0.5), quantile(ms, 0.99))
	}
	t.Logf("create: p50 %.2f ms, p99 %.2f ms; first call: p50 %.2f ms, p99 %.2f ms", quantile(total, 0.5), quantile(total, 0.99), quantile(first, 0.5), quantile(first, 0.99))
	c, _ := json.Marshal(s.capacity(t).Pool)
	t.Logf("pool: %s", c)
	if p := quantile(total, 0.5); p > 250 {
		t.Errorf("a create from the pool takes %.1f ms", p)
	}
}

func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[int(float64(len(v)-1)*q)]
}
