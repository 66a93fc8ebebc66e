package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
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

// patience bounds every wait of these tests.
const patience = 20 * time.Second

// bench is a worker on fake machines, whose guests have an agent in memory that
// speaks the real protocol.
type bench struct {
	*Worker
	t        testing.TB
	host     *fake.Host
	driver   *driver
	template Template
	log      *safeBuffer

	mu        sync.Mutex
	refreshes []*agentv1.RefreshRequest // guarded by mu
	refresh   error                     // guarded by mu; what Refresh answers
	freeze    error                     // guarded by mu; what Freeze answers
	frozen    int                       // guarded by mu; how often a guest was frozen
	thawed    int                       // guarded by mu; and thawed
	run       func(ctx context.Context) // guarded by mu; called by each run
	went      []string                  // guarded by mu; the directories that runs named
	homeless  bool                      // guarded by mu; no directory that a run names is there
	hung      bool                      // guarded by mu; agents read and say nothing
	prints    string                    // guarded by mu; what a guest prints when it starts
	agents    []net.Conn                // guarded by mu; the guests' ends
	networks  chan net.Conn             // the guests' ends
}

// driver counts, and has hooks.
type driver struct {
	vmm.Driver
	mu       sync.Mutex
	cold     int          // guarded by mu
	restored int          // guarded by mu
	onRemove func(string) // guarded by mu
}

func (d *driver) Start(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	d.mu.Lock()
	if c.Source.Snapshot == "" {
		d.cold++
	} else {
		d.restored++
	}
	d.mu.Unlock()
	return d.Driver.Start(ctx, c)
}

func (d *driver) Prepare(ctx context.Context, c vmm.Config) (vmm.Waiting, error) {
	return d.Driver.(vmm.Preparer).Prepare(ctx, c)
}

func (d *driver) Remove(ctx context.Context, dir string) error {
	d.mu.Lock()
	f := d.onRemove
	d.mu.Unlock()
	if f != nil {
		f(dir)
	}
	return d.Driver.Remove(ctx, dir)
}

func (d *driver) coldStarts() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cold
}

// newBench makes a worker. Change is for its configuration; it may be nil.
func newBench(t testing.TB, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, log: &safeBuffer{}, networks: make(chan net.Conn, 64)}
	b.host = fake.NewHost(fake.Config{Serve: b.serveAgent, Network: b.serveNetwork})
	b.driver = &driver{Driver: b.host.Driver()}
	b.template = Template{Name: "default", Hash: "h", Dir: filepath.Join(t.TempDir(), "default"), Image: vmm.Image{Hash: "image"}, Env: map[string]string{"A": "template", "B": "template"}}
	if err := os.Mkdir(b.template.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Dir: filepath.Join(t.TempDir(), "instances"), SnapshotDir: filepath.Join(t.TempDir(), "snapshots"), Driver: b.driver, Network: network.New(network.Config{}),
		Templates: func(string) (Template, error) { return b.template, nil },
		Build:     func(string, string) (Template, error) { return b.template, nil },
		CABundle:  []byte("certificates"),
		Log:       slog.New(slog.NewTextHandler(b.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.Worker, err = New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.setRun(nil)
		b.stopAll()
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		b.nothingLeft()
	})
	return b
}

func (b *bench) request() Request {
	return Request{
		Instance: sandbox.NewInstanceID(), Template: "default",
		Shape:    sandbox.Shape{VCPUs: 2, MemoryMB: 1024, DiskMB: 2 * sandbox.DefaultDiskMB},
		Identity: Identity{Hostname: "sbx", MachineID: "0123", Env: map[string]string{"B": "own"}},
	}
}

// mustStart starts a machine.
func (b *bench) mustStart() *Instance {
	b.t.Helper()
	i, err := b.Start(b.ctx(), b.request())
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

// ctx ends when the test has waited too long.
func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

// stopAll ends all machines, which Close does not.
func (b *bench) stopAll() {
	b.Worker.mu.Lock()
	left := slices.Collect(maps.Keys(b.instances))
	b.Worker.mu.Unlock()
	for _, id := range left {
		if err := b.Stop(b.ctx(), id); err != nil {
			b.t.Errorf("stop: %v", err)
		}
	}
}

// nothingLeft checks that no machine has left anything on the host.
func (b *bench) nothingLeft() {
	b.t.Helper()
	if m := b.host.Machines(); len(m) != 0 {
		b.t.Errorf("%d machines are left", len(m))
	}
	left, err := os.ReadDir(b.cfg.Dir)
	if err != nil || len(left) != 0 {
		b.t.Errorf("left in the instance directory: %v, %v", left, err)
	}
	b.Worker.mu.Lock()
	defer b.Worker.mu.Unlock()
	if len(b.instances)+len(b.freeing)+len(b.makings) != 0 {
		b.t.Errorf("left in the worker: %d instances, %d being freed, %d makings", len(b.instances), len(b.freeing), len(b.makings))
	}
}

// hang makes the agents of all guests silent, now and after a new connection.
func (b *bench) hang() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hung = true
	for _, c := range b.agents {
		c.Close()
	}
	b.agents = nil
}

func (b *bench) setRun(f func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.run = f
}

// blockRuns makes runs wait until release is called; entered gets one token for each.
func (b *bench) blockRuns() (entered <-chan struct{}, release func()) {
	in, out := make(chan struct{}, 16), make(chan struct{})
	b.setRun(func(ctx context.Context) {
		in <- struct{}{}
		select {
		case <-out:
		case <-ctx.Done():
		}
	})
	return in, sync.OnceFunc(func() { b.setRun(nil); close(out) })
}

func (b *bench) setRefresh(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refresh = err
}

func (b *bench) refreshed() []*agentv1.RefreshRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.refreshes)
}

// serveAgent is the agent of a guest.
func (b *bench) serveAgent(g *fake.Guest, conn net.Conn) {
	b.mu.Lock()
	hung, prints := b.hung, b.prints
	b.agents = append(b.agents, conn)
	b.mu.Unlock()
	g.Print(prints)
	if hung {
		_, _ = io.Copy(io.Discard, conn) // until it is closed
		return
	}
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewMachineHandler(machineService{b: b}))
	mux.Handle(agentv1connect.NewExecHandler(execService{b: b}))
	_ = wire.Serve(context.Background(), conn, mux, slog.New(slog.DiscardHandler)) // until it is closed
}

// serveNetwork is a guest that says nothing.
func (b *bench) serveNetwork(_ *fake.Guest, conn net.Conn) {
	b.networks <- conn
	_, _ = io.Copy(io.Discard, conn) // until it is closed
}

// nextNetwork returns the guest's end of the next stream that is attached.
func (b *bench) nextNetwork() net.Conn {
	b.t.Helper()
	select {
	case c := <-b.networks:
		return c
	case <-time.After(patience):
		b.t.Fatal("no gateway was attached")
		return nil
	}
}

func (b *bench) nextExit() sandbox.MachineExit {
	b.t.Helper()
	select {
	case e := <-b.Exits():
		return e
	case <-time.After(patience):
		b.t.Fatal("no exit was reported")
		return sandbox.MachineExit{}
	}
}

type machineService struct {
	agentv1connect.UnimplementedMachineHandler
	b *bench
}

func (s machineService) Refresh(_ context.Context, r *agentv1.RefreshRequest) (*agentv1.RefreshResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.refreshes = append(s.b.refreshes, r)
	return &agentv1.RefreshResponse{}, s.b.refresh
}

func (machineService) Hello(context.Context, *agentv1.HelloRequest) (*agentv1.HelloResponse, error) {
	return &agentv1.HelloResponse{Protocol: 1, MonotonicNanos: 1}, nil
}

func (s machineService) Freeze(context.Context, *agentv1.FreezeRequest) (*agentv1.FreezeResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.b.freeze == nil {
		s.b.frozen++
	}
	return &agentv1.FreezeResponse{}, s.b.freeze
}

func (s machineService) Thaw(context.Context, *agentv1.ThawRequest) (*agentv1.ThawResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.thawed++
	return &agentv1.ThawResponse{}, nil
}

func (machineService) Sync(context.Context, *agentv1.SyncRequest) (*agentv1.SyncResponse, error) {
	return &agentv1.SyncResponse{}, nil
}

type execService struct {
	agentv1connect.UnimplementedExecHandler
	b *bench
}

func (s execService) Run(ctx context.Context, req *agentv1.RunRequest, stream *connect.ServerStream[agentv1.Event]) error {
	s.b.mu.Lock()
	run, homeless := s.b.run, s.b.homeless
	if req.GetCwd() != "" {
		s.b.went = append(s.b.went, req.GetCwd())
	}
	s.b.mu.Unlock()
	if run != nil {
		run(ctx)
	}
	exit := &agentv1.Exit{Reason: agentv1.Reason_EXITED}
	if homeless && req.GetCwd() != "" {
		exit.Code, exit.Reason = 1, agentv1.Reason_START_FAILED
	}
	if req.GetCode() == "exit 3" {
		exit.Code = 3
	}
	return stream.Send(&agentv1.Event{Kind: &agentv1.Event_Exit{Exit: exit}})
}

// safeBuffer is a log that is written and read at once.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// userError returns what a user is told.
func userError(t testing.TB, err error) *sandbox.Error {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no error for a user", err)
	}
	return e
}
