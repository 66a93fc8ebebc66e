//go:build integration

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/worker"
)

// colony is a worker with real machines, without the server around it.
type colony struct {
	*worker.Worker
	t   *testing.T
	dir string
	app *App
	n   atomic.Int64 // runs so far
}

func newColony(t *testing.T) *colony {
	t.Helper()
	home := testHome(t)
	cfg := config.Server{
		Home: home, Listen: "127.0.0.1:0", Driver: DriverOfTests(), Accel: "auto", LogFormat: "text", LogLevel: "info",
		GuestCA: "host", Region: "local", Node: "test", Template: "default",
	}
	if err := Prepare(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	a, err := New(t.Context(), cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &colony{t: t, dir: filepath.Join(home, "colony"), app: a}
	c.Worker, err = worker.New(t.Context(), worker.Config{
		Dir: filepath.Join(c.dir, "instances"), SnapshotDir: filepath.Join(c.dir, "snapshots"),
		Driver: a.driver, Templates: a.workerTemplate, Build: a.build, Network: network.New(network.Config{}),
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Waiting: worker.WaitingConfig{Size: 2, Kind: worker.PoolKind{Template: "default", Shape: sandbox.DefaultShape()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.StartWaiting()
	t.Cleanup(func() {
		left, err := c.Left()
		for _, id := range left {
			err = errors.Join(err, c.Stop(context.Background(), id))
		}
		if err := errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
		c.nothingLeft()
	})
	return c
}

// nothingLeft checks that every directory of a snapshot or fork is gone.
func (c *colony) nothingLeft() {
	c.t.Helper()
	left, err := filepath.Glob(filepath.Join(c.dir, "*", "*"))
	if err != nil || len(left) > 0 {
		c.t.Errorf("left on the host: %v %v", left, err)
	}
}

func (c *colony) request() worker.Request {
	id := sandbox.NewInstanceID()
	return worker.Request{
		Instance: id, Template: "default", Policy: network.Policy{Egress: true}, Shape: sandbox.DefaultShape(),
		Identity: worker.Identity{Hostname: "sbx-" + string(id[:12]), MachineID: string(id), Env: map[string]string{"OWN": string(id)}},
	}
}

func (c *colony) start() *worker.Instance {
	c.t.Helper()
	i, err := c.Start(c.t.Context(), c.request())
	if err != nil {
		c.t.Fatal(err)
	}
	return i
}

func (c *colony) fork(parent *worker.Instance, n int) []*worker.Instance {
	c.t.Helper()
	requests := make([]worker.Request, n)
	for k := range requests {
		requests[k] = c.request()
	}
	children, info, err := c.Fork(c.t.Context(), parent.ID, requests)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("fork %d: paused %s, %d KB dirty, %v", n, info.Paused, info.DirtyBytes>>10, info.Steps)
	if n > 0 {
		c.t.Logf("child: %v", children[0].Steps)
	}
	return children
}

func (c *colony) stop(i *worker.Instance) {
	c.t.Helper()
	if err := c.Stop(c.t.Context(), i.ID); err != nil {
		c.t.Fatal(err)
	}
}

// python runs code in an instance's interpreter and returns what it printed.
func (c *colony) python(i *worker.Instance, code string) string {
	c.t.Helper()
	out, err := c.run(i, &agentv1.RunRequest{Language: "python", Code: code})
	if err != nil {
		c.t.Fatalf("run %q in %s: %v", code, i.ID, err)
	}
	return out
}

func (c *colony) bash(i *worker.Instance, code string) string {
	c.t.Helper()
	out, err := c.run(i, &agentv1.RunRequest{Language: "bash", Code: code})
	if err != nil {
		c.t.Fatalf("run %q in %s: %v", code, i.ID, err)
	}
	return out
}

func (c *colony) run(i *worker.Instance, r *agentv1.RunRequest) (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	client, err := i.Guest(ctx)
	if err != nil {
		return "", err
	}
	r.RunId = fmt.Sprintf("test-%d", c.n.Add(1))
	stream, err := client.Exec().Run(ctx, r)
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	var exit *agentv1.Exit
	for stream.Receive() {
		out.Write(stream.Msg().GetStdout())
		errs.Write(stream.Msg().GetStderr())
		if e := stream.Msg().GetExit(); e != nil {
			exit = e
		}
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		return "", err
	}
	if exit == nil || exit.Code != 0 {
		return "", fmt.Errorf("it ended with %v: %s", exit, errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func TestRealForkHasEverythingOfItsParent(t *testing.T) {
	c := newColony(t)
	p := c.start()
	c.python(p, `
import os, random, subprocess, threading, time, uuid
x = 41
random.seed(7)
open("/root/note", "w").write("from the parent")
held = open("/root/held", "w+"); held.write("unflushed")
child = subprocess.Popen(["sh", "-c", "while :; do echo >>/tmp/count; sleep .05; done"])
def grows(f, deadline=60):
    a, end = f(), time.monotonic() + deadline
    while f() <= a and time.monotonic() < end:
        time.sleep(.01)
    return f() > a
def count():
    return os.path.getsize("/tmp/count") if os.path.exists("/tmp/count") else 0
assert grows(count)
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(.02)
threading.Thread(target=tick, daemon=True).start()
`)
	children := c.fork(p, 3)
	seen := map[string]string{}
	for n, i := range append([]*worker.Instance{p}, children...) {
		who := fmt.Sprintf("machine %d", n)
		if got := c.python(i, `x += 1; held.flush(); print(x, open("/root/note").read(), open("/root/held").read(), child.poll())`); got != "42 from the parent unflushed None" {
			t.Errorf("%s: %q", who, got)
		}
		if got := c.python(i, `print(grows(lambda: ticks), grows(count))`); got != "True True" {
			t.Errorf("%s: its thread and its process go on: %s", who, got)
		}
		for _, what := range []string{
			`os.urandom(8).hex()`, `uuid.uuid4()`, `random.random()`, `os.uname().nodename`, `open("/etc/machine-id").read()`, `os.environ["OWN"]`,
		} {
			got := c.python(i, "print("+what+")")
			if other, ok := seen[what+got]; ok {
				t.Errorf("%s and %s have the same %s: %s", who, other, what, got)
			}
			seen[what+got] = who
		}
		before := time.Now()
		var at float64
		if _, err := fmt.Sscan(c.python(i, "print(time.time())"), &at); err != nil {
			t.Fatal(err)
		}
		if guest := time.UnixMicro(int64(at * 1e6)); guest.Before(before.Add(-50*time.Millisecond)) || guest.After(time.Now().Add(50*time.Millisecond)) {
			t.Errorf("%s: its clock says %s, between %s and now", who, guest, before)
		}
	}
	c.bash(children[0], "echo changed >/root/note; echo new >/root/new; sync")
	if got := c.bash(p, "cat /root/note; ls /root/new 2>&1 || true"); !strings.HasPrefix(got, "from the parent") || !strings.Contains(got, "No such file") {
		t.Errorf("the parent sees its child's files: %q", got)
	}
	if got := c.bash(children[1], "cat /root/note"); got != "from the parent" {
		t.Errorf("a child sees its sibling's files: %q", got)
	}
}

func TestRealForkOfForkTenDeep(t *testing.T) {
	c := newColony(t)
	i := c.start()
	c.python(i, "generations = []")
	for n := range 10 {
		c.python(i, fmt.Sprintf("generations.append(%d); open('/root/g%d','w').write('x' * 100000)", n, n))
		child := c.fork(i, 1)[0]
		c.stop(i)
		i = child
	}
	if got := c.python(i, "print(generations)"); got != "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" {
		t.Error(got)
	}
	if DriverOfTests() != "gvisor" { // which has no such cache
		c.bash(i, "echo 3 >/proc/sys/vm/drop_caches")
	}
	if got := c.bash(i, "cat /root/g* | wc -c; dmesg | grep -ci 'ext4.*error' || true"); got != "1000000\n0" {
		t.Error(got)
	}
}

func TestRealHibernateAndWake(t *testing.T) {
	c := newColony(t)
	i := c.start()
	c.python(i, `
import os, subprocess, time, random
rounds = 0
random.seed(1); first = random.random(); random.seed(1)
child = subprocess.Popen(["sh", "-c", "while :; do echo >>/tmp/count; sleep .05; done"])
def grows(f, deadline=60):
    a, end = f(), time.monotonic() + deadline
    while f() <= a and time.monotonic() < end:
        time.sleep(.01)
    return f() > a
def count():
    return os.path.getsize("/tmp/count") if os.path.exists("/tmp/count") else 0
assert grows(count)
`)
	ctx := t.Context()
	for n := range 3 {
		c.python(i, fmt.Sprintf("rounds += 1; open('/root/f%d','w').write('%d' * 1000)", n, n))
		snap := sandbox.NewSnapshotID()
		info, err := c.Save(ctx, i.ID, worker.SaveRequest{Snapshot: snap, Stay: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("hibernate: %d KB dirty, %d KB on the disk, %v", info.DirtyBytes>>10, info.SizeBytes>>10, info.Steps)
		c.stop(i)
		if !c.HasSnapshot(snap) {
			t.Fatal("it is not there")
		}
		if err := c.VerifySnapshot(ctx, snap); err != nil {
			t.Fatal(err)
		}
		r := c.request()
		r.Snapshot, r.TemplateHash, r.KeepSeed, r.ColdFallback = snap, i.Template.Hash, true, true
		begin := time.Now()
		if i, err = c.Start(ctx, r); err != nil {
			t.Fatal(err)
		}
		t.Logf("wake: %s %v %s", time.Since(begin), i.Steps, i.ColdBecause)
		if err := c.RemoveSnapshot(ctx, snap); err != nil {
			t.Fatal(err)
		}
		if got := c.python(i, `print(rounds, child.poll(), grows(count))`); got != fmt.Sprintf("%d None True", n+1) {
			t.Errorf("round %d: %s", n, got)
		}
	}
	if got := c.python(i, "print(random.random() == first)"); got != "True" {
		t.Error("the generator was reseeded by a wake")
	}
}

func TestRealColdFallback(t *testing.T) {
	c := newColony(t)
	i := c.start()
	c.bash(i, "echo kept >/root/note")
	ctx := t.Context()
	snap := sandbox.NewSnapshotID()
	if _, err := c.Save(ctx, i.ID, worker.SaveRequest{Snapshot: snap}); err != nil {
		t.Fatal(err)
	}
	if got := c.bash(i, "cat /root/note"); got != "kept" {
		t.Errorf("after the save: %q", got)
	}
	path := filepath.Join(c.dir, "snapshots", string(snap), MemoryFile())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.VerifySnapshot(ctx, snap); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("verify: %v", err)
	}
	r := c.request()
	r.Snapshot, r.TemplateHash = snap, i.Template.Hash
	if _, err := c.Start(ctx, r); err == nil {
		t.Fatal("a damaged snapshot was restored")
	}
	r.ColdFallback = true
	cold, err := c.Start(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if cold.ColdBecause == "" {
		t.Error("it does not say that it booted cold")
	}
	if got := c.bash(cold, "cat /root/note; free -m | awk '/Mem/{print ($2 > 900)}'; dmesg | grep -i 'ext4.*error' || true"); got != "kept\n1" {
		t.Error(got)
	}
	disk := sandbox.NewSnapshotID()
	if _, err := c.Save(ctx, cold.ID, worker.SaveRequest{Snapshot: disk, DiskOnly: true}); err != nil {
		t.Fatal(err)
	}
	r = c.request()
	r.Snapshot, r.TemplateHash = disk, i.Template.Hash
	booted, err := c.Start(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.bash(booted, "cat /root/note"); got != "kept" {
		t.Error(got)
	}
	// A machine that booted cold can be forked too.
	if got := c.bash(c.fork(booted, 1)[0], "cat /root/note"); got != "kept" {
		t.Error(got)
	}
	for _, s := range []sandbox.SnapshotID{snap, disk} {
		if err := c.RemoveSnapshot(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
}
