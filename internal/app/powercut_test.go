package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/durable/durabletest"
	"ramet.dev/ramet/internal/guest/wire"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/fake"
	"ramet.dev/ramet/internal/worker"
)

// powerPatience bounds every wait of these tests.
const powerPatience = 30 * time.Second

// computer is a host with a server, all of it but the machines, the guests' agents and the API.
type computer struct {
	*control.Control
	t       testing.TB
	disk    string // all that is on its disk
	records *store.Store
	worker  *worker.Worker
	host    *fake.Host
}

// switchOn starts the server of a computer with what is on its disk.
func switchOn(t testing.TB, disk string, files *durable.Disk) *computer {
	t.Helper()
	c := &computer{t: t, disk: disk}
	c.host = fake.NewHost(fake.Config{Serve: serveGuest, Network: silentNetwork, Disk: files})
	ctx, cancel := context.WithTimeout(context.Background(), powerPatience)
	defer cancel()
	template := worker.Template{Name: "default", Hash: "h", Dir: filepath.Join(disk, "templates", "default"), Image: vmm.Image{Hash: "image"}}
	if err := os.MkdirAll(template.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	find := func(string) (worker.Template, error) { return template, nil }
	var err error
	c.worker, err = worker.New(ctx, worker.Config{
		Dir: filepath.Join(disk, "instances"), SnapshotDir: filepath.Join(disk, "snapshots"), Disk: files, Driver: c.host.Driver(),
		Network: network.New(network.Config{}), Templates: find, Build: func(string, string) (worker.Template, error) { return template, nil },
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.records, err = store.Open(ctx, filepath.Join(disk, "ramet.db")); err != nil {
		t.Fatal(err)
	}
	builder, err := image.New(image.Config{TemplatesDir: filepath.Join(disk, "templates")})
	if err != nil {
		t.Fatal(err)
	}
	a := &App{worker: c.worker, builder: builder, log: slog.New(slog.DiscardHandler)}
	if err := a.adopt(ctx, c.records); err != nil {
		t.Fatal(err)
	}
	c.Control, err = control.New(ctx, control.Config{
		Store: c.records, Machines: machines{c.worker}, Templates: controltest.NewTemplates(), Log: slog.New(slog.DiscardHandler), Region: "local", Node: "n1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// switchOff ends the server and what runs on the computer.
func (c *computer) switchOff() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), powerPatience)
	defer cancel()
	errs := []error{c.Control.Close(ctx), c.worker.Close(), c.records.Close()}
	for _, m := range c.host.Machines() {
		errs = append(errs, m.Kill(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		c.t.Errorf("switch off: %v", err)
	}
}

// copyRecords copies the records of now: what is committed is on the disk, see package store.
func (c *computer) copyRecords(to string) error {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(c.disk, "ramet.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	_, err = db.Exec("VACUUM INTO ?", to)
	return errors.Join(err, db.Close())
}

// guest is the memory of a sandbox that runs.
func (c *computer) guest(sb sandbox.Sandbox) *fake.Guest {
	c.t.Helper()
	for _, m := range c.host.Machines() {
		if m.Instance() == sb.Instance {
			return m.Guest()
		}
	}
	c.t.Fatalf("sandbox %s (%s) has no machine", sb.ID, sb.State)
	return nil
}

// snapshots are the ids and names of what is kept of a kind.
func (c *computer) snapshots(use sandbox.SnapshotUse) map[sandbox.SnapshotID]string {
	c.t.Helper()
	list, _, err := c.Snapshots(c.t.Context(), sandbox.DefaultProject, control.SnapshotQuery{Use: use, Limit: 100})
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[sandbox.SnapshotID]string{}
	for _, s := range list {
		all[s.ID] = s.Name
	}
	return all
}

// promise is what a client was told is there.
type promise struct {
	asleep      map[sandbox.ID]string         // hibernated sandboxes, and what they remember
	checkpoints map[sandbox.SnapshotID]string // and what is in them
	spaces      map[sandbox.SnapshotID]string // the same
	values      map[sandbox.SnapshotID]string // of all that ever were
	memories    map[sandbox.ID]string         // of all sandboxes that ever were
	gone        map[sandbox.SnapshotID]bool   // was deleted
	busy        map[sandbox.ID]bool           // has an operation under way that may change it
	using       map[sandbox.SnapshotID]bool   // the same, of a snapshot
}

func (p promise) clone() promise {
	return promise{
		clone(p.asleep), clone(p.checkpoints), clone(p.spaces), clone(p.values), clone(p.memories), clone(p.gone), clone(p.busy), clone(p.using),
	}
}

func clone[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// story is a client's doings on a computer whose power may fail at each step.
type story struct {
	*computer
	images string
	rec    *durabletest.Recorder

	mu      sync.Mutex // steps are made in the background too
	promise promise    // guarded by mu
	steps   []step     // guarded by mu
}

// tells changes what was promised.
func (s *story) tells(f func(p *promise)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.promise)
}

// step is a moment at which the power may fail.
type step struct {
	op      durable.Op
	losses  []durabletest.Loss
	dirs    []string // what the disk has after each loss
	promise promise
}

// record makes what the disk would have if the power failed before op.
func (s *story) record(op durable.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.steps)
	st := step{op: op, promise: s.promise.clone(), losses: []durabletest.Loss{durabletest.Everything, durabletest.Content, durabletest.Some(uint64(n))}}
	for i, loss := range st.losses {
		dir, records := filepath.Join(s.images, fmt.Sprintf("%d-%d", n, i)), filepath.Join(s.images, fmt.Sprintf("%d-%d.db", n, i))
		// First the records: who works beside this cannot begin a step, but may end one, and then commit what
		// depends on it. The other way round there would be a record of what the image has not seen yet.
		err := errors.Join(s.copyRecords(records), os.Mkdir(dir, 0o755), s.rec.Image(dir, loss))
		for _, suffix := range []string{"", "-wal", "-shm"} {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, "ramet.db"+suffix)))
		}
		if err = errors.Join(err, os.Rename(records, filepath.Join(dir, "ramet.db"))); err != nil {
			s.t.Errorf("build what is left before %s: %v", op, err)
		}
		st.dirs = append(st.dirs, dir)
	}
	s.steps = append(s.steps, st)
}

// TestPowerFailsAtEachStepOfEveryOperation does each operation once, and at each step that
// it makes on the disk builds what a power cut would leave: with nothing that was not
// synced, with names whose files are empty, and with some of it all. A server that starts
// with that has to have all that was acknowledged, whole, and nothing half.
func TestPowerFailsAtEachStepOfEveryOperation(t *testing.T) {
	base := t.TempDir()
	s := &story{images: filepath.Join(base, "images"), promise: promise{}.clone()}
	disk, keep := filepath.Join(base, "disk"), filepath.Join(base, "keep")
	for _, dir := range []string{disk, keep, s.images, filepath.Join(disk, "instances"), filepath.Join(disk, "snapshots"), filepath.Join(disk, "templates")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if s.rec, err = durabletest.New(disk, keep); err != nil {
		t.Fatal(err)
	}
	s.computer = switchOn(t, disk, durable.New(s.rec))
	s.rec.OnStep = s.record
	s.tell()
	s.switchOff()
	s.record(durable.Op{Label: "the end"})
	if err := s.rec.Close(); err != nil {
		t.Fatal(err)
	}
	labels := map[string]bool{}
	for n, st := range s.steps {
		labels[st.op.Label] = true
		for i, loss := range st.losses {
			t.Run(fmt.Sprintf("%d %s %s, losing %s", n, st.op.Label, st.op.Kind, loss), func(t *testing.T) {
				t.Parallel()
				checkAfterPowerCut(t, st.dirs[i], st.promise)
			})
		}
	}
	for _, l := range []string{"golden.place", "snapshot.directory", "snapshot.manifest", "snapshot.place", "snapshot.remove"} {
		if !labels[l] {
			t.Errorf("no operation came past %s", l)
		}
	}
}

// during notes that an operation is under way, and what may be another when it was cut short.
func (s *story) during(name string, ids []sandbox.ID, snaps []sandbox.SnapshotID, f func(ctx context.Context) error) {
	s.t.Helper()
	s.tells(func(p *promise) {
		for _, id := range ids {
			p.busy[id] = true
		}
		for _, id := range snaps {
			p.using[id] = true
		}
	})
	ctx, cancel := context.WithTimeout(s.t.Context(), powerPatience)
	defer cancel()
	if err := f(ctx); err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	s.tells(func(p *promise) {
		clear(p.busy)
		clear(p.using)
	})
}

func (s *story) create(value string, r control.CreateRequest) sandbox.Sandbox {
	s.t.Helper()
	var sb sandbox.Sandbox
	s.during("create", nil, nil, func(ctx context.Context) (err error) {
		sb, _, err = s.Create(ctx, sandbox.DefaultProject, r)
		return err
	})
	if value != "" {
		s.guest(sb).Set("v", value)
	}
	value = s.guest(sb).Get("v")
	s.tells(func(p *promise) { p.memories[sb.ID] = value })
	return sb
}

func (s *story) hibernate(id sandbox.ID) {
	s.t.Helper()
	s.during("hibernate", []sandbox.ID{id}, nil, func(ctx context.Context) error {
		_, _, err := s.Hibernate(ctx, sandbox.DefaultProject, id)
		return err
	})
	s.tells(func(p *promise) { p.asleep[id] = p.memories[id] })
}

func (s *story) checkpoint(id sandbox.ID, kind sandbox.SnapshotKind) sandbox.SnapshotID {
	s.t.Helper()
	var snap sandbox.Snapshot
	s.during("checkpoint", []sandbox.ID{id}, nil, func(ctx context.Context) (err error) {
		snap, _, err = s.Checkpoint(ctx, sandbox.DefaultProject, id, control.CheckpointRequest{Kind: kind})
		return err
	})
	s.tells(func(p *promise) {
		if kind == sandbox.SnapshotFull {
			p.values[snap.ID] = p.memories[id]
		}
		p.checkpoints[snap.ID] = p.values[snap.ID]
	})
	return snap.ID
}

// tell does every operation that changes the disk.
func (s *story) tell() {
	project := sandbox.DefaultProject
	a := s.create("a", control.CreateRequest{}) // makes the golden snapshot
	s.hibernate(a.ID)
	b := s.create("b", control.CreateRequest{})
	full := s.checkpoint(b.ID, sandbox.SnapshotFull)
	s.checkpoint(b.ID, sandbox.SnapshotDisk)

	s.tells(func(p *promise) { delete(p.asleep, a.ID) }) // what runs is lost with the power
	s.during("wake", []sandbox.ID{a.ID}, nil, func(ctx context.Context) error {
		_, _, err := s.Wake(ctx, project, a.ID)
		return err
	})
	s.hibernate(a.ID)
	s.during("restore", []sandbox.ID{b.ID}, nil, func(ctx context.Context) error {
		_, _, err := s.Restore(ctx, project, b.ID, full)
		return err
	})
	s.create("", control.CreateRequest{Checkpoint: full})
	s.during("fork", []sandbox.ID{b.ID}, nil, func(ctx context.Context) error {
		children, err := s.Fork(ctx, project, b.ID, control.ForkRequest{N: 2})
		s.tells(func(p *promise) {
			for _, c := range children.Children {
				p.memories[c.ID] = "b"
			}
		})
		return err
	})
	c := s.create("c", control.CreateRequest{})
	s.during("merge", []sandbox.ID{b.ID, c.ID}, nil, func(ctx context.Context) error {
		_, _, err := s.Merge(ctx, project, b.ID, c.ID)
		s.tells(func(p *promise) { p.memories[b.ID] = "c" })
		return err
	})
	s.hibernate(b.ID)
	s.tells(func(p *promise) { delete(p.checkpoints, full) })
	s.during("delete a checkpoint", nil, []sandbox.SnapshotID{full}, func(ctx context.Context) error {
		return s.DeleteSnapshot(ctx, project, full, sandbox.UseCheckpoint)
	})
	s.tells(func(p *promise) { p.gone[full] = true })

	p := s.create("p", control.CreateRequest{Persistent: true})
	s.during("become a Space", []sandbox.ID{p.ID}, nil, func(ctx context.Context) error {
		soon := time.Second
		_, err := s.Update(ctx, project, p.ID, control.UpdateRequest{IdleTimeout: &soon})
		return errors.Join(err, s.awaitStop(ctx, p.ID))
	})
	var space sandbox.SnapshotID
	for id := range s.snapshots(sandbox.UseSpace) {
		space = id
	}
	s.tells(func(p *promise) { p.values[space], p.spaces[space] = "p", "p" })
	s.checkpoint(s.create("d", control.CreateRequest{}).ID, sandbox.SnapshotDisk) // time for the power to fail
	s.tells(func(p *promise) { delete(p.spaces, space) })
	s.during("resume a Space", nil, []sandbox.SnapshotID{space}, func(ctx context.Context) error {
		sb, _, err := s.ResumeSpace(ctx, project, space, control.ResumeRequest{})
		s.tells(func(p *promise) { p.memories[sb.ID] = "p" })
		return err
	})
	s.tells(func(p *promise) { delete(p.asleep, a.ID) })
	s.during("delete a hibernated one", []sandbox.ID{a.ID}, nil, func(ctx context.Context) error { return s.Delete(ctx, project, a.ID) })
}

// awaitStop follows a sandbox's events until it has ended.
func (s *story) awaitStop(ctx context.Context, id sandbox.ID) error {
	feed, err := s.Feed(ctx, sandbox.DefaultProject, id, control.FeedStart{})
	if err != nil {
		return err
	}
	for {
		events, more, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(events, func(e control.Event) bool { return e.Type == string(sandbox.Stopped) }) {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// checkAfterPowerCut starts a server with what a power cut has left.
func checkAfterPowerCut(t *testing.T, disk string, want promise) {
	c := switchOn(t, disk, nil)
	defer c.switchOff()
	ctx, cancel := context.WithTimeout(t.Context(), powerPatience)
	defer cancel()
	project := sandbox.DefaultProject
	if intents, err := c.records.Intents(ctx); err != nil || len(intents) != 0 {
		t.Errorf("unfinished: %v %v", intents, err)
	}
	if g, err := c.GC(ctx, true); err != nil || len(g.Snapshots)+len(g.Instances) != 0 {
		t.Errorf("garbage is left: %+v %v", g, err)
	}
	have := map[sandbox.ID]sandbox.Sandbox{}
	list, err := c.records.OfNode(ctx, "n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		have[sb.ID] = sb
		if sb.State != sandbox.Hibernated && sb.State != sandbox.Failed {
			t.Errorf("sandbox %s is %s without power", sb.ID, sb.State)
		}
	}
	for id := range want.asleep {
		if sb := have[id]; !want.busy[id] && sb.State != sandbox.Hibernated {
			t.Errorf("sandbox %s was hibernated and is %q (%s)", id, sb.State, sb.FailReason)
		}
	}
	// What says that it is hibernated wakes as it was.
	for id, sb := range have {
		if sb.State == sandbox.Failed {
			if err := c.Delete(ctx, project, id); err != nil {
				t.Errorf("delete what has failed: %v", err)
			}
			continue
		}
		if err := c.worker.VerifySnapshot(ctx, sb.Hibernation); err != nil {
			t.Errorf("hibernation of %s: %v", id, err)
		}
		w, _, err := c.Wake(ctx, project, id)
		if err != nil {
			t.Errorf("wake %s: %v", id, err)
			continue
		}
		if v := c.guest(w).Get("v"); v != want.memories[id] {
			t.Errorf("sandbox %s remembers %q, want %q (%s)", id, v, want.memories[id], w.BootNote)
		}
	}
	for use, promised := range map[sandbox.SnapshotUse]map[sandbox.SnapshotID]string{sandbox.UseCheckpoint: want.checkpoints, sandbox.UseSpace: want.spaces} {
		there := c.snapshots(use)
		for id := range promised {
			if _, ok := there[id]; !ok && !want.using[id] {
				t.Errorf("%s %s is lost", use, id)
			}
		}
		for id := range there {
			if want.gone[id] {
				t.Errorf("%s %s is back from the dead", use, id)
			}
			c.checkStart(ctx, use, id, want.values[id])
		}
	}
}

// checkStart starts a sandbox from a snapshot.
func (c *computer) checkStart(ctx context.Context, use sandbox.SnapshotUse, id sandbox.SnapshotID, value string) {
	c.t.Helper()
	if err := c.worker.VerifySnapshot(ctx, id); err != nil {
		c.t.Errorf("%s %s: %v", use, id, err)
	}
	var sb sandbox.Sandbox
	var err error
	if use == sandbox.UseSpace {
		sb, _, err = c.ResumeSpace(ctx, sandbox.DefaultProject, id, control.ResumeRequest{})
	} else {
		sb, _, err = c.Create(ctx, sandbox.DefaultProject, control.CreateRequest{Checkpoint: id})
	}
	if err != nil {
		c.t.Errorf("start from %s %s: %v", use, id, err)
		return
	}
	// One that was never acknowledged is whole too, but what is in it was told to nobody.
	if v := c.guest(sb).Get("v"); value != "" && v != value {
		c.t.Errorf("%s %s has %q, want %q", use, id, v, value)
	}
}

// silentNetwork is a guest that says nothing.
func silentNetwork(_ *fake.Guest, conn net.Conn) {
	_, _ = io.Copy(io.Discard, conn) // until it is closed
}

// serveGuest is an agent that does what a save needs, and no more.
func serveGuest(_ *fake.Guest, conn net.Conn) {
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewMachineHandler(quietMachine{}))
	mux.Handle(agentv1connect.NewExecHandler(quietExec{}))
	_ = wire.Serve(context.Background(), conn, mux, slog.New(slog.DiscardHandler)) // until it is closed
}

type quietMachine struct {
	agentv1connect.UnimplementedMachineHandler
}

func (quietMachine) Hello(context.Context, *agentv1.HelloRequest) (*agentv1.HelloResponse, error) {
	return &agentv1.HelloResponse{Protocol: 1, MonotonicNanos: 1}, nil
}

func (quietMachine) Refresh(context.Context, *agentv1.RefreshRequest) (*agentv1.RefreshResponse, error) {
	return &agentv1.RefreshResponse{}, nil
}

func (quietMachine) Freeze(context.Context, *agentv1.FreezeRequest) (*agentv1.FreezeResponse, error) {
	return &agentv1.FreezeResponse{}, nil
}

func (quietMachine) Thaw(context.Context, *agentv1.ThawRequest) (*agentv1.ThawResponse, error) {
	return &agentv1.ThawResponse{}, nil
}

func (quietMachine) Sync(context.Context, *agentv1.SyncRequest) (*agentv1.SyncResponse, error) {
	return &agentv1.SyncResponse{}, nil
}

func (quietMachine) GrowDisk(context.Context, *agentv1.GrowDiskRequest) (*agentv1.GrowDiskResponse, error) {
	return &agentv1.GrowDiskResponse{}, nil
}

type quietExec struct {
	agentv1connect.UnimplementedExecHandler
}

func (quietExec) Run(_ context.Context, _ *agentv1.RunRequest, stream *connect.ServerStream[agentv1.Event]) error {
	return stream.Send(&agentv1.Event{Kind: &agentv1.Event_Exit{Exit: &agentv1.Exit{Reason: agentv1.Reason_EXITED}}})
}
