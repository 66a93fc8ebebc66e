package worker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest/wire"
	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/fake"
)

// poolAgent is the agent of a fake guest: it keeps its identity in the guest's memory.
type poolAgent struct {
	agentv1connect.UnimplementedMachineHandler
	agentv1connect.UnimplementedExecHandler
	g *fake.Guest
}

func (a poolAgent) Refresh(_ context.Context, r *agentv1.RefreshRequest) (*agentv1.RefreshResponse, error) {
	a.g.Set("hostname", r.Hostname)
	a.g.Set("who", r.Env["WHO"])
	return &agentv1.RefreshResponse{}, nil
}

func (poolAgent) Hello(context.Context, *agentv1.HelloRequest) (*agentv1.HelloResponse, error) {
	return &agentv1.HelloResponse{Protocol: 1, MonotonicNanos: 1}, nil
}

func (a poolAgent) Freeze(context.Context, *agentv1.FreezeRequest) (*agentv1.FreezeResponse, error) {
	return &agentv1.FreezeResponse{}, nil
}

func (a poolAgent) Run(_ context.Context, r *agentv1.RunRequest, out *connect.ServerStream[agentv1.Event]) error {
	if a.g.Get("run "+r.RunId) != "" {
		return connect.NewError(connect.CodeAlreadyExists, errors.New("there is such a run"))
	}
	a.g.Set("run "+r.RunId, "done")
	n, _ := strconv.Atoi(a.g.Get("runs"))
	a.g.Set("runs", strconv.Itoa(n+1))
	return out.Send(&agentv1.Event{Kind: &agentv1.Event_Exit{Exit: &agentv1.Exit{Reason: agentv1.Reason_EXITED}}})
}

func serveAgent(g *fake.Guest, conn net.Conn) {
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewMachineHandler(poolAgent{g: g}))
	mux.Handle(agentv1connect.NewExecHandler(poolAgent{g: g}))
	_ = wire.Serve(context.Background(), conn, mux, slog.New(slog.DiscardHandler)) // ends with the connection
}

// poolBench is a host with a template, on which workers come and go.
type poolBench struct {
	host *fake.Host
	dir  string
	free atomic.Int64 // MiB
	size int

	unpromised atomic.Int64 // MiB
	keepWarm   time.Duration
}

func newPoolBench(t *testing.T, pool int) *poolBench {
	b := &poolBench{host: fake.NewHost(fake.Config{Serve: serveAgent}), dir: t.TempDir(), size: pool}
	b.free.Store(16384)
	b.unpromised.Store(16384)
	if err := os.Mkdir(filepath.Join(b.dir, "template"), 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *poolBench) worker(t *testing.T) *Worker {
	t.Helper()
	w, err := New(t.Context(), Config{
		Dir: filepath.Join(b.dir, "instances"), SnapshotDir: filepath.Join(b.dir, "snapshots"), Driver: b.host.Driver(), Network: network.New(network.Config{Logger: slog.New(slog.DiscardHandler)}),
		Templates: func(name string) (Template, error) {
			return Template{Name: name, Hash: "h", Dir: filepath.Join(b.dir, "template"), Image: vmm.Image{Hash: "h"}}, nil
		},
		Log:          slog.New(slog.DiscardHandler),
		Pool:         PoolConfig{Size: b.size, KeepWarm: b.keepWarm, Kinds: []PoolKind{{Template: "default", Shape: sandbox.DefaultShape()}}},
		FreeMemoryMB: func() (int, error) { return int(b.free.Load()), nil },
		UnpromisedMB: func() (int, error) { return int(b.unpromised.Load()), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	closed := sync.OnceValue(w.Close)
	t.Cleanup(func() {
		if err := closed(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// filled starts a worker's pool and waits until it is full.
func (b *poolBench) filled(t *testing.T) *Worker {
	t.Helper()
	w := b.worker(t)
	if err := w.StartPool(); err != nil {
		t.Fatal(err)
	}
	b.awaitReady(t, w, b.size)
	return w
}

func (b *poolBench) awaitReady(t *testing.T, w *Worker, n int) {
	t.Helper()
	eventually(t, "the pool is full", func() bool { return w.Capacity().Pools[0].Ready == n })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}

func poolRequest(shape sandbox.Shape) Request {
	return Request{
		Instance: sandbox.NewInstanceID(), Template: "default", Shape: shape, Policy: network.Policy{Egress: true},
		Identity: Identity{Hostname: "mine", MachineID: string(sandbox.NewInstanceID()), Env: map[string]string{"WHO": "me"}},
	}
}

func (b *poolBench) machine(t *testing.T, id sandbox.InstanceID) *fake.Machine {
	t.Helper()
	for _, m := range b.host.Machines() {
		if m.Instance() == id {
			return m
		}
	}
	t.Fatalf("there is no machine of instance %s", id)
	return nil
}

func start(t *testing.T, w *Worker, r Request) *Instance {
	t.Helper()
	i, err := w.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func hasStep(i *Instance, name string) bool {
	return slices.ContainsFunc(i.Steps, func(s sandbox.StepTime) bool { return s.Name == name })
}

func TestStartTakesFromThePool(t *testing.T) {
	b := newPoolBench(t, 2)
	w := b.filled(t)
	r := poolRequest(sandbox.DefaultShape())
	i := start(t, w, r)
	if i.ID == r.Instance {
		t.Error("the machine was booted for the request")
	}
	if !hasStep(i, "claim") || hasStep(i, "start_vmm") {
		t.Errorf("clients cannot see that it was ready: %v", i.Steps)
	}
	m := b.machine(t, i.ID)
	if m.Guest().Get("hostname") != "mine" || m.Guest().Get("who") != "me" || m.Guest().MemoryMB() != sandbox.DefaultMemoryMB {
		t.Errorf("the guest is %q of %q with %d MB", m.Guest().Get("hostname"), m.Guest().Get("who"), m.Guest().MemoryMB())
	}
	if m.Background() {
		t.Error("it still gives way to others")
	}
	if !i.gateway.Policy().Egress {
		t.Error("its network is closed")
	}
	b.awaitReady(t, w, 2)
	c := w.Capacity()
	if p := c.Pools[0]; p.Hits != 1 || p.Misses != 0 || p.Refill.Count != 3 || c.Machines != 1 {
		t.Errorf("the counters say %+v", c)
	}
	for _, m := range b.host.Machines() {
		if m.Instance() != i.ID && !m.Background() {
			t.Error("a machine of the pool is in the foreground")
		}
	}
}

func TestOtherShapesBootOnDemand(t *testing.T) {
	b := newPoolBench(t, 1)
	w := b.filled(t)
	shape := sandbox.DefaultShape()
	shape.MemoryMB = 2048
	r := poolRequest(shape)
	if i := start(t, w, r); i.ID != r.Instance {
		t.Error("it is not the request's instance")
	} else if hasStep(i, "claim") || !hasStep(i, "start_vmm") {
		t.Errorf("clients cannot see that it was booted: %v", i.Steps)
	}
	if c := w.Capacity(); c.Unpooled != 1 || c.Pools[0].Hits+c.Pools[0].Misses != 0 {
		t.Errorf("the counters say %+v", c)
	}
}

func TestDeadWarmMachineIsReplaced(t *testing.T) {
	b := newPoolBench(t, 2)
	w := b.filled(t)
	dead := b.host.Machines()[0]
	dead.Exit(fake.ErrShutDown)
	eventually(t, "it is replaced", func() bool {
		p := w.Capacity().Pools[0]
		return p.Discarded == 1 && p.Ready == 2 && p.Refill.Count == 3
	})
	select {
	case e := <-w.Exits():
		t.Errorf("the end of a machine that nobody has was reported: %+v", e)
	default:
	}
	if _, err := os.Stat(w.dir(dead.Instance())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
}

func TestFailedHandOffTriesTheNextAndThenBoots(t *testing.T) {
	b := newPoolBench(t, 2)
	w := b.filled(t)
	b.host.Fail(fake.StepSetBackground, errors.New("refused"))
	r := poolRequest(sandbox.DefaultShape())
	if i := start(t, w, r); i.ID != r.Instance {
		t.Error("a machine whose hand-off failed was handed out")
	}
	if p := w.Capacity().Pools[0]; p.Discarded < 2 || p.Misses != 1 || p.OnDemand.Count != 1 {
		t.Errorf("the counters say %+v", p)
	}
}

func TestPoolGivesMemoryBack(t *testing.T) {
	b := newPoolBench(t, 4)
	w := b.filled(t)
	b.free.Store(keepFreeMB - warmCostMB - 1)
	w.pool.sweep()
	if n := w.Capacity().Pools[0].Ready; n != 2 {
		t.Errorf("%d are ready, want 2", n)
	}
	b.free.Store(16384)
	w.pool.more()
	b.awaitReady(t, w, 4)
}

func TestPoolKeepsOutOfPromisedMemory(t *testing.T) {
	b := newPoolBench(t, 4)
	w := b.filled(t)
	// The record of a sandbox has been entered; it needs what two of the pool stand in.
	b.unpromised.Store(2*warmCostMB + 1)
	shape := sandbox.DefaultShape()
	shape.MemoryMB = 2048
	i := start(t, w, poolRequest(shape))
	b.awaitReady(t, w, 2)
	if p := w.Capacity().Pools[0]; p.Discarded != 2 {
		t.Errorf("the counters say %+v", p)
	}
	// One of the pool is a sandbox's now, and its memory is promised: nothing takes its place.
	b.unpromised.Store(warmCostMB)
	start(t, w, poolRequest(sandbox.DefaultShape()))
	b.awaitReady(t, w, 1)
	if k := w.pool.lacking(); k != nil {
		t.Errorf("the pool would make a machine in promised memory")
	}
	b.unpromised.Store(-500)
	w.pool.more()
	b.awaitReady(t, w, 0)
	if err := w.Stop(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	b.unpromised.Store(16384)
	w.pool.more()
	b.awaitReady(t, w, 4)
}

func TestMachinesThatWaitAreKeptWarm(t *testing.T) {
	b := newPoolBench(t, 2)
	b.keepWarm = 20 * time.Millisecond
	w := b.filled(t)
	before := b.host.Machines()
	least := func() (n int) {
		n = math.MaxInt
		for _, m := range before {
			n = min(n, runs(m))
		}
		return n
	}
	now := least()
	eventually(t, "both have been used twice more", func() bool { return least() >= now+6 }) // three runs each time
	if p := w.Capacity().Pools[0]; p.Discarded != 0 {
		t.Errorf("the counters say %+v", p)
	}
	for range 2 { // still theirs, and as good as new
		i := start(t, w, poolRequest(sandbox.DefaultShape()))
		if err := warmUp(t.Context(), i, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestMachineThatCannotBeKeptWarmIsReplaced(t *testing.T) {
	b := newPoolBench(t, 1)
	b.keepWarm = 20 * time.Millisecond
	w := b.filled(t)
	before := b.host.Machines()[0]
	b.host.Fail(fake.StepResume, errors.New("boom"))
	eventually(t, "it is thrown away", func() bool { return before.Err() != nil && w.Capacity().Pools[0].Discarded == 1 })
	b.host.Fail(fake.StepResume, nil)
	b.awaitReady(t, w, 1)
}

// runs counts the runs that a fake guest has had.
func runs(m *fake.Machine) int {
	n, _ := strconv.Atoi(m.Guest().Get("runs"))
	return n
}

func TestStaleMachinesAreThrownOut(t *testing.T) {
	b := newPoolBench(t, 2)
	w := b.filled(t)
	if err := dropGolden(w.goldenDir(Template{Dir: filepath.Join(b.dir, "template")}, sandbox.DefaultShape())); err != nil {
		t.Fatal(err)
	}
	before := b.host.Machines()
	w.pool.sweep()
	for _, m := range before {
		if m.Err() == nil {
			t.Errorf("machine %s of the old snapshot is still there", m.Instance())
		}
	}
	w.pool.more()
	b.awaitReady(t, w, 2)
}

func TestAutoPoolSize(t *testing.T) {
	for _, c := range []struct{ free, kinds, want int }{
		{0, 1, 0}, {keepFreeMB, 1, 0}, {2048, 1, 2}, {8192, 1, 14}, {8192, 2, 7}, {1 << 20, 1, autoPoolMax},
	} {
		if got := autoPoolSize(c.free, c.kinds); got != c.want {
			t.Errorf("with %d MB free and %d kinds: %d, want %d", c.free, c.kinds, got, c.want)
		}
	}
}

func adoptable(i *Instance) Adoptable {
	return Adoptable{Instance: i.ID, Template: i.Template, Shape: sandbox.DefaultShape(), Policy: network.Policy{Egress: true}}
}

func TestCloseLeavesMachinesForTheNextWorker(t *testing.T) {
	b := newPoolBench(t, 2)
	w := b.filled(t)
	kept, lost := start(t, w, poolRequest(sandbox.DefaultShape())), start(t, w, poolRequest(sandbox.DefaultShape()))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(b.host.Machines()); n != 2 {
		t.Errorf("%d machines run after Close, want those of the two sandboxes", n)
	}
	next := b.worker(t)
	if err := next.Adopt(t.Context(), []Adoptable{adoptable(kept), {Instance: sandbox.NewInstanceID()}}); err != nil {
		t.Fatal(err)
	}
	if !next.Alive(kept.ID) || next.Alive(lost.ID) || next.Count() != 1 {
		t.Errorf("adopted: %t, %t, %d in all", next.Alive(kept.ID), next.Alive(lost.ID), next.Count())
	}
	if _, err := os.Stat(next.dir(lost.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the one without a record: %v", err)
	}
	i, err := next.Instance(kept.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Guest(t.Context()); err != nil {
		t.Error(err)
	}
	b.machine(t, kept.ID).Exit(fake.ErrShutDown)
	if e := <-next.Exits(); e.Instance != kept.ID {
		t.Errorf("reported %+v", e)
	}
}

func TestAdoptTriesAgain(t *testing.T) {
	b := newPoolBench(t, 0)
	w := b.worker(t)
	waits, stopped, dies := start(t, w, poolRequest(sandbox.DefaultShape())), start(t, w, poolRequest(sandbox.DefaultShape())), start(t, w, poolRequest(sandbox.DefaultShape()))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b.host.Fail(fake.StepAdopt, errors.New("it does not answer"))
	next := b.worker(t)
	if err := next.Adopt(t.Context(), []Adoptable{adoptable(waits), adoptable(stopped), adoptable(dies)}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []*Instance{waits, stopped, dies} {
		_, err := next.Instance(i.ID)
		var e *sandbox.Error
		if !next.Alive(i.ID) || !errors.As(err, &e) || e.Code != "machine_reconnecting" {
			t.Errorf("alive %t, %v", next.Alive(i.ID), err)
		}
	}
	if err := next.Stop(t.Context(), stopped.ID); err != nil {
		t.Fatal(err)
	}
	if next.Alive(stopped.ID) || len(b.host.Machines()) != 2 {
		t.Error("a machine that was stopped while it did not answer runs on")
	}
	b.machine(t, dies.ID).Exit(fake.ErrShutDown)
	b.host.Fail(fake.StepAdopt, nil)
	if e := <-next.Exits(); e.Instance != dies.ID {
		t.Errorf("reported %+v", e)
	}
	eventually(t, "the other is adopted", func() bool { _, err := next.Instance(waits.ID); return err == nil })
}

func TestManyStartsAtOnceLeaveNothing(t *testing.T) {
	b := newPoolBench(t, 4)
	w := b.filled(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				i, err := w.Start(context.Background(), poolRequest(sandbox.DefaultShape()))
				if err != nil {
					t.Error(err)
					return
				}
				if err := w.Stop(context.Background(), i.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	p := w.Capacity().Pools[0]
	if p.Hits+p.Misses != 80 || w.Count() != 0 {
		t.Errorf("%d instances, counters %+v", w.Count(), p)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(b.host.Machines()); n != 0 {
		t.Errorf("%d machines run", n)
	}
	if left, err := w.Left(); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestClaimedMachineHasItsOwnNames(t *testing.T) {
	b := newPoolBench(t, 1)
	w := b.filled(t)
	r := poolRequest(sandbox.DefaultShape())
	i, id, err := w.Claim(t.Context(), r)
	if err != nil || i == nil {
		t.Fatalf("%v %v", i, err)
	}
	own := IdentityOf(id, nil)
	m := b.machine(t, i.ID)
	if m.Guest().Get("hostname") != own.Hostname || m.Guest().Get("who") != "me" {
		t.Errorf("the guest of %s is %q of %q", id, m.Guest().Get("hostname"), m.Guest().Get("who"))
	}
	if m.Background() || !i.gateway.Policy().Egress {
		t.Error("it is not in use")
	}
	if got, err := w.Instance(i.ID); err != nil || got != i {
		t.Errorf("the worker does not know it: %v", err)
	}
	b.awaitReady(t, w, 1)
	r.Shape.MemoryMB = 2048
	if i, _, err := w.Claim(t.Context(), r); i != nil || err != nil {
		t.Errorf("a shape of which none is kept: %v %v", i, err)
	}
}
