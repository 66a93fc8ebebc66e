// Package controltest has what tests of control and of the surfaces above it
// need instead of real machines: Machines, whose guests speak the agent's real
// protocol over the real byte stream but run their programs as processes of the
// test and keep their files in a temporary folder, and Templates.
package controltest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/guest/agent/ports"
	"ramet.dev/ramet/internal/guest/wire"
	"ramet.dev/ramet/internal/sandbox"
)

// Machines is a control.Machines. Set the hooks before use.
type Machines struct {
	// OnStart, when set, is called at each start; its error fails the start.
	OnStart func(ctx context.Context, r control.StartRequest) error
	// OnStop, when set, is called before a machine is stopped; its error fails the stop.
	OnStop func(ctx context.Context, id sandbox.InstanceID) error
	// HandOff, when set, gives the instance that a start uses in place of the
	// sandbox's, as a warm pool does.
	HandOff func() sandbox.InstanceID
	// Ready is how many machines are kept ready for Claim.
	Ready atomic.Int64
	// Vanish makes machines end right after their start, untold.
	Vanish bool

	// OnStep, when set, is called at the named steps of operations: "fork.pause", "fork.child",
	// "fork.done", "save.half", "save.whole", "save.end", "continue", "rename", "verify" and
	// "remove". Its error fails the operation there; ErrKilled leaves what there is as it is.
	OnStep func(step string) error
	// OnClaimed and OnInventory, when set, are called when a machine was claimed and when
	// Instances has looked which there are.
	OnClaimed, OnInventory func()
	// OnCold, when set, says why a snapshot's memory does not fit, "" when it does.
	OnCold func(id sandbox.SnapshotID) string
	// OldAgents makes every guest that starts after it one of an old version.
	OldAgents bool
	// NewExec, when set, makes what runs programs in a guest whose files are below root, in place of
	// the fake: a path and its handler, as agentv1connect.NewExecHandler gives them, and its end.
	NewExec func(root string, env map[string]string) (path string, h http.Handler, end func(), err error)

	// longNames and nameBytes, when set, are the entries of every listing; see LongNames.
	longNames, nameBytes int

	dir   string
	exits chan sandbox.MachineExit
	// Refused is what the networks of the guests refuse; tests send it.
	Refused chan sandbox.EgressDenial

	mu       sync.Mutex
	machines map[sandbox.InstanceID]*machine // guarded by mu
	started  int                             // guarded by mu
	stopped  int                             // guarded by mu
}

// machine is one fake machine.
type machine struct {
	root   string
	name   sandbox.ID // whose identity it has
	memory map[string]string
	paused bool // guarded by Machines.mu, as name and memory
	agent  *agent
	exec   func() // ends what NewExec made
	cancel context.CancelFunc
	served chan struct{}

	mu     sync.Mutex
	reach  sandbox.Sandbox // guarded by mu; the record that says what it may reach
	client *guest.Client   // guarded by mu
	port   *switchable     // guarded by mu
}

// NewMachines makes Machines that keep the files of their guests below dir.
func NewMachines(dir string) *Machines {
	return &Machines{
		dir: dir, exits: make(chan sandbox.MachineExit, 64), machines: make(map[sandbox.InstanceID]*machine),
		Refused: make(chan sandbox.EgressDenial),
	}
}

// LongNames makes every guest that starts after it a hostile one, whose listings have n
// entries with names of size bytes each.
func (m *Machines) LongNames(n, size int) { m.longNames, m.nameBytes = n, size }

// Start boots a fake machine.
func (m *Machines) Start(ctx context.Context, r control.StartRequest) (control.Started, error) {
	if m.OnStart != nil {
		if err := m.OnStart(ctx, r); err != nil {
			return control.Started{}, err
		}
	}
	id := r.Sandbox.Instance
	if m.HandOff != nil {
		id = m.HandOff()
	}
	cold, err := m.boot(ctx, id, r)
	if err != nil {
		return control.Started{}, err
	}
	if m.Vanish {
		m.mu.Lock()
		v := m.machines[id]
		delete(m.machines, id)
		m.mu.Unlock()
		_ = v.end() // nobody is told
	}
	return control.Started{
		Instance:  id,
		Isolation: sandbox.IsolationEmulated, TemplateHash: r.Sandbox.TemplateHash, ColdBecause: cold,
		Steps: []sandbox.StepTime{{Name: "start_vmm", Took: time.Millisecond}, {Name: "identity", Took: time.Microsecond}},
	}, nil
}

// boot makes a machine, with the files and the memory of a snapshot where the request has one.
func (m *Machines) boot(ctx context.Context, id sandbox.InstanceID, r control.StartRequest) (cold string, err error) {
	root := filepath.Join(m.dir, string(id))
	memory := map[string]string{}
	if r.Snapshot != "" {
		memory, cold, err = m.unpack(r.Snapshot, root, r.ColdFallback)
		if r.Cold {
			memory, cold = map[string]string{}, ""
		}
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(root))
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "root"), 0o755); err != nil {
		return "", err
	}
	v, err := m.serve(ctx, root, r.Sandbox)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(root))
	}
	v.memory = memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machines[id] = v
	m.started++
	return cold, nil
}

// serve makes a machine on the files that are below root.
func (m *Machines) serve(ctx context.Context, root string, sb sandbox.Sandbox) (*machine, error) {
	a := newAgent(root, sb.Env)
	hostEnd, guestEnd := net.Pipe()
	life, cancel := context.WithCancel(context.Background())
	v := &machine{root: root, name: sb.ID, agent: a, cancel: cancel, served: make(chan struct{}), port: newSwitchable(hostEnd), reach: sb}
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewMachineHandler(a))
	if err := m.handleExec(v, mux, sb.Env); err != nil {
		cancel()
		return nil, err
	}
	mux.Handle(agentv1connect.NewFilesHandler(fileService{root: root, long: m.longNames, nameBytes: m.nameBytes, old: m.OldAgents}))
	// Ports of a guest are those of this host.
	dial := ports.New()
	if !m.OldAgents {
		mux.Handle(agentv1connect.NewPortsHandler(dial))
	}
	go func() {
		defer close(v.served)
		defer dial.Close()
		_ = wire.Serve(life, guestEnd, mux, slog.New(slog.DiscardHandler)) // ends by cancel
	}()
	client, err := guest.Dial(ctx, v.port)
	if err != nil {
		cancel()
		v.exec()
		return nil, err
	}
	v.client = client
	return v, nil
}

func (m *Machines) handleExec(v *machine, mux *http.ServeMux, env map[string]string) error {
	v.exec = func() {}
	if m.NewExec == nil {
		mux.Handle(agentv1connect.NewExecHandler(execService{a: v.agent}))
		return nil
	}
	path, handler, end, err := m.NewExec(v.root, env)
	if err != nil {
		return err
	}
	mux.Handle(path, handler)
	v.exec = end
	return nil
}

// Claim implements control.Claimer.
func (m *Machines) Claim(ctx context.Context, r control.StartRequest) (control.Started, bool, error) {
	if m.Ready.Add(-1) < 0 {
		m.Ready.Add(1)
		return control.Started{}, false, nil
	}
	r.Sandbox.ID, r.Sandbox.Instance, r.Sandbox.TemplateHash = sandbox.NewID(), sandbox.NewInstanceID(), "of-the-machine"
	started, err := m.Start(ctx, r)
	if err == nil && m.OnClaimed != nil {
		m.OnClaimed()
	}
	started.ID = r.Sandbox.ID
	return started, err == nil, err
}

func (m *Machines) get(id sandbox.InstanceID) (*machine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.machines[id]; ok {
		return v, nil
	}
	return nil, sandbox.Errorf(sandbox.Unavailable, "machine_gone", "the sandbox's machine is not running")
}

// Guest returns the connection to a fake guest.
func (m *Machines) Guest(_ context.Context, id sandbox.InstanceID) (control.Guest, error) {
	v, err := m.get(id)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.client.Err(); err != nil {
		return nil, &sandbox.Error{Kind: sandbox.Unavailable, Code: "guest_unreachable", Message: "the sandbox does not answer", Err: err}
	}
	return v.client, nil
}

// Stop ends a fake machine.
func (m *Machines) Stop(ctx context.Context, id sandbox.InstanceID) error {
	if m.OnStop != nil {
		if err := m.OnStop(ctx, id); err != nil {
			return err
		}
	}
	m.mu.Lock()
	v, ok := m.machines[id]
	delete(m.machines, id)
	if ok {
		m.stopped++
	}
	m.mu.Unlock()
	if !ok {
		return os.RemoveAll(filepath.Join(m.dir, string(id)))
	}
	return v.end()
}

func (v *machine) end() error {
	// Nothing of a machine is heard after its end, not how its programs ended either.
	v.mu.Lock()
	err := v.client.Close()
	v.mu.Unlock()
	v.agent.killAll()
	v.exec()
	v.cancel()
	<-v.served
	v.agent.wait()
	return errors.Join(err, os.RemoveAll(v.root))
}

// Crash ends a machine as if its process had been killed, and reports it.
func (m *Machines) Crash(id sandbox.InstanceID, reason string) {
	m.mu.Lock()
	v, ok := m.machines[id]
	delete(m.machines, id)
	m.mu.Unlock()
	if ok {
		_ = v.end() // the test looks at what is left
	}
	m.exits <- sandbox.MachineExit{Instance: id, Reason: reason}
}

// Silence makes a guest stop answering, although its machine runs; Unsilence lets it go on.
func (m *Machines) Silence(id sandbox.InstanceID) {
	if v, err := m.get(id); err == nil {
		v.port.pause()
	}
}

// Unsilence ends a Silence.
func (m *Machines) Unsilence(id sandbox.InstanceID) {
	if v, err := m.get(id); err == nil {
		v.port.resume()
	}
}

// Alive says whether a fake machine runs.
func (m *Machines) Alive(id sandbox.InstanceID) bool {
	_, err := m.get(id)
	return err == nil
}

// Console returns a console.
func (m *Machines) Console(id sandbox.InstanceID) (string, error) {
	if _, err := m.get(id); err != nil {
		return "", err
	}
	return "[    0.000000] Linux version 6.1.0\n", nil
}

// Stats returns made-up figures.
func (m *Machines) Stats(id sandbox.InstanceID) (sandbox.MachineStats, error) {
	_, err := m.get(id)
	return sandbox.MachineStats{PSSBytes: 47 << 20, OwnPages: 600, DiskBytes: 1 << 20, CPUTime: time.Second}, err
}

// SetEgress keeps what a fake machine may reach.
func (m *Machines) SetEgress(sb sandbox.Sandbox) error {
	v, err := m.get(sb.Instance)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reach = sb
	return nil
}

// Egress returns what a fake machine may reach.
func (m *Machines) Egress(id sandbox.InstanceID) (bool, sandbox.EgressPolicy) {
	v, err := m.get(id)
	if err != nil {
		return false, sandbox.EgressPolicy{}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.reach.Egress, v.reach.EgressPolicy
}

// Denials delivers what tests send to Refused.
func (m *Machines) Denials() <-chan sandbox.EgressDenial { return m.Refused }

// Exits delivers crashes.
func (m *Machines) Exits() <-chan sandbox.MachineExit { return m.exits }

// Running returns how many machines run.
func (m *Machines) Running() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.machines)
}

// StopAll ends every machine, as the end of the host would.
func (m *Machines) StopAll() {
	m.mu.Lock()
	all := m.machines
	m.machines = make(map[sandbox.InstanceID]*machine)
	m.mu.Unlock()
	for _, v := range all {
		_ = v.end() // nothing is left to tell
	}
}

// Runs returns how many programs run in a guest.
func (m *Machines) Runs(id sandbox.InstanceID) int {
	v, err := m.get(id)
	if err != nil {
		return 0
	}
	return v.agent.running()
}

// switchable is a connection whose incoming bytes can be held back.
type switchable struct {
	net.Conn
	mu   sync.Mutex
	hold chan struct{} // guarded by mu; closed: flows
}

func newSwitchable(c net.Conn) *switchable {
	s := &switchable{Conn: c, hold: make(chan struct{})}
	close(s.hold)
	return s
}

func (s *switchable) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = make(chan struct{})
}

func (s *switchable) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.hold:
	default:
		close(s.hold)
	}
}

func (s *switchable) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	<-hold
	return n, err
}

// Close lets a reader that is held back go.
func (s *switchable) Close() error {
	s.resume()
	return s.Conn.Close()
}

var _ io.Closer = (*switchable)(nil)
