package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// errKilled is how a machine ends that was killed.
var errKilled = fmt.Errorf("the machine was killed: %w", vmm.ErrGone)

// ErrShutDown is how a machine ends whose guest shut down; pass it to Exit.
var ErrShutDown = fmt.Errorf("the guest shut down: %w", vmm.ErrGone)

// Guest is what a machine's guest has: its memory, which snapshots keep.
type Guest struct {
	Instance sandbox.InstanceID
	Dir      string // of the instance
	machine  *Machine

	mu   sync.Mutex
	data guestData // guarded by mu
}

type guestData struct {
	MemoryMB int               `json:"memory_mb"`
	DiskMB   int               `json:"disk_mb"`
	OwnPages int64             `json:"own_pages"`
	Values   map[string]string `json:"values"`
}

// Get returns a value of the guest's memory.
func (g *Guest) Get(key string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.data.Values[key]
}

// Set keeps a value in the guest's memory.
func (g *Guest) Set(key, value string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.data.Values[key] = value
}

// MemoryMB and DiskMB are the sizes that the guest sees.
func (g *Guest) MemoryMB() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.data.MemoryMB
}

// DiskMB is the size of the guest's disk.
func (g *Guest) DiskMB() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.data.DiskMB
}

// SetOwnPages says how much memory the guest claims to have written, for Stats.
func (g *Guest) SetOwnPages(pages int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.data.OwnPages = pages
}

// Print writes to the guest's console.
func (g *Guest) Print(text string) { g.machine.print(text) }

// Exit ends the guest's machine.
func (g *Guest) Exit(err error) { g.machine.Exit(err) }

func (g *Guest) snapshot() guestData {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.data
	d.Values = maps.Clone(d.Values)
	return d
}

// Machine implements vmm.Machine.
type Machine struct {
	host  *Host
	cfg   vmm.Config
	guest *Guest
	pid   int
	began time.Time
	done  chan struct{}
	life  context.Context // ends with the machine
	end   context.CancelCauseFunc
	tasks sync.WaitGroup // connections being served

	mu      sync.Mutex
	running chan struct{} // guarded by mu; closed while the vCPUs run
	on      bool          // guarded by mu
	ended   bool          // guarded by mu
	agent   net.Conn      // guarded by mu; the host's ends
	network net.Conn      // guarded by mu
	console string        // guarded by mu

	background bool // guarded by mu
}

var _ vmm.Machine = (*Machine)(nil)

func newMachine(h *Host, c vmm.Config, g *Guest) *Machine {
	m := &Machine{host: h, cfg: c, guest: g, pid: int(h.nextPID.Add(1)), began: time.Now(), done: make(chan struct{}), running: make(chan struct{})}
	m.life, m.end = context.WithCancelCause(context.Background())
	g.machine = m
	return m
}

// PID is a number that no process has.
func (m *Machine) PID() int { return m.pid }

// Isolation is the driver's.
func (m *Machine) Isolation() sandbox.Isolation { return sandbox.IsolationEmulated }

// Instance is the machine's instance id.
func (m *Machine) Instance() sandbox.InstanceID { return m.cfg.Instance }

// Guest is the machine's guest.
func (m *Machine) Guest() *Guest { return m.guest }

// step begins a call: it fails if it was told to or if the machine has ended.
func (m *Machine) step(ctx context.Context, name string) error {
	if err := m.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return errors.Join(m.host.failure(name), context.Cause(ctx))
}

// Resume implements vmm.Machine.
func (m *Machine) Resume(ctx context.Context) error {
	if err := m.step(ctx, StepResume); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.on {
		m.on = true
		close(m.running)
	}
	return nil
}

// Pause implements vmm.Machine. The guest's bytes stop; what Serve computes
// meanwhile goes on.
func (m *Machine) Pause(ctx context.Context) error {
	if err := m.step(ctx, StepPause); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.on {
		m.on = false
		m.running = make(chan struct{})
	}
	return nil
}

// awaitRunning blocks while the machine is paused; false when it has ended.
func (m *Machine) awaitRunning() bool {
	m.mu.Lock()
	running := m.running
	m.mu.Unlock()
	select {
	case <-running:
		return true
	case <-m.life.Done():
		return false
	}
}

// Save implements vmm.Machine.
func (m *Machine) Save(ctx context.Context, dir string, o vmm.SaveOptions) (vmm.Saving, error) {
	m.mu.Lock()
	on := m.on
	m.mu.Unlock()
	begin := time.Now()
	if on {
		if err := m.Pause(ctx); err != nil {
			return nil, err
		}
	}
	err := m.step(ctx, StepSave)
	s := &saving{disk: m.host.cfg.Disk, dir: dir, volatile: o.Ephemeral, saved: saved{
		ImageHash: m.cfg.Source.Image.Hash, VCPUs: m.cfg.Shape.VCPUs, DiskOnly: o.DiskOnly, Guest: m.guest.snapshot(),
	}}
	s.info.DirtyBytes = s.saved.Guest.OwnPages * 4096
	if on && (err != nil || !o.Stay) {
		err = errors.Join(err, m.Resume(context.WithoutCancel(ctx)))
		s.info.Paused = time.Since(begin)
	}
	if err != nil {
		return nil, err
	}
	s.finish = func(ctx context.Context) error { return errors.Join(m.host.failure(StepFinish), context.Cause(ctx)) }
	return s, nil
}

// Flatten implements vmm.Machine.
func (m *Machine) Flatten(ctx context.Context) error { return m.step(ctx, StepFlatten) }

// saving is a captured snapshot.
type saving struct {
	disk *durable.Disk
	dir  string
	// volatile snapshots need not survive a power cut.
	volatile bool
	saved    saved
	info     sandbox.SaveInfo
	finish   func(context.Context) error
}

// Finish implements vmm.Saving.
func (s *saving) Finish(ctx context.Context) error {
	if err := s.finish(ctx); err != nil {
		return err
	}
	b, err := json.Marshal(s.saved)
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	s.info.SizeBytes = int64(len(b))
	path := filepath.Join(s.dir, snapshotName)
	if s.volatile {
		err = os.WriteFile(path, b, 0o600)
	} else {
		err = s.disk.WriteFile("snapshot.manifest", path, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return nil
}

// Info implements vmm.Saving.
func (s *saving) Info() sandbox.SaveInfo { return s.info }

// Close implements vmm.Saving.
func (s *saving) Close() error { return nil }

// ResizeMemory implements vmm.Machine.
func (m *Machine) ResizeMemory(ctx context.Context, mb int) error {
	if err := m.step(ctx, StepResizeMemory); err != nil {
		return err
	}
	if mb > sandbox.MaxMemoryMB {
		return sandbox.Errorf(sandbox.Invalid, "memory_too_large", "a machine can have at most %d MB", sandbox.MaxMemoryMB)
	}
	m.guest.mu.Lock()
	defer m.guest.mu.Unlock()
	m.guest.data.MemoryMB = max(m.guest.data.MemoryMB, mb)
	return nil
}

// ResizeDisk implements vmm.Machine.
func (m *Machine) ResizeDisk(ctx context.Context, mb int) error {
	if err := m.step(ctx, StepResizeDisk); err != nil {
		return err
	}
	if mb > sandbox.MaxDiskMB {
		return sandbox.Errorf(sandbox.Invalid, "disk_too_large", "a disk can have at most %d MB", sandbox.MaxDiskMB)
	}
	m.guest.mu.Lock()
	defer m.guest.mu.Unlock()
	m.guest.data.DiskMB = max(m.guest.data.DiskMB, mb)
	return nil
}

// DialAgent implements vmm.Machine.
func (m *Machine) DialAgent(ctx context.Context) (net.Conn, error) {
	return m.dial(ctx, StepDialAgent, &m.agent, m.host.cfg.Serve)
}

// DialNetwork implements vmm.Machine.
func (m *Machine) DialNetwork(ctx context.Context) (net.Conn, error) {
	return m.dial(ctx, StepDialNetwork, &m.network, m.host.cfg.Network)
}

func (m *Machine) dial(ctx context.Context, step string, slot *net.Conn, serve func(*Guest, net.Conn)) (net.Conn, error) {
	if err := m.step(ctx, step); err != nil {
		return nil, err
	}
	host, inner, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", step, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil, errors.Join(fmt.Errorf("%s: %w", step, vmm.ErrGone), host.Close(), inner.Close())
	}
	if *slot != nil {
		(*slot).Close()
	}
	*slot = host
	g := &gated{Conn: inner, m: m}
	stop := context.AfterFunc(m.life, func() { inner.Close() })
	m.tasks.Go(func() {
		defer stop()
		defer inner.Close()
		if serve != nil {
			serve(m.guest, g)
			return
		}
		<-m.life.Done()
	})
	return host, nil
}

// gated is the guest's end of a stream; it is still while the machine is paused.
type gated struct {
	net.Conn
	m *Machine
}

func (g *gated) Read(b []byte) (int, error) {
	if !g.m.awaitRunning() {
		return 0, net.ErrClosed
	}
	n, err := g.Conn.Read(b)
	if !g.m.awaitRunning() {
		return 0, net.ErrClosed
	}
	return n, err
}

func (g *gated) Write(b []byte) (int, error) {
	if !g.m.awaitRunning() {
		return 0, net.ErrClosed
	}
	return g.Conn.Write(b)
}

// Done implements vmm.Machine.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Err implements vmm.Machine.
func (m *Machine) Err() error {
	select {
	case <-m.done:
		return context.Cause(m.life)
	default:
		return nil
	}
}

// Exit ends the machine as if its process had, with err as the reason (wrap
// vmm.ErrGone in it). Idempotent; it does not wait.
func (m *Machine) Exit(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	m.ended = true
	m.end(err)
	conns := []net.Conn{m.agent, m.network}
	go func() { // ends with done, which Kill and Remove wait for
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		m.tasks.Wait()
		close(m.done)
	}()
}

// Kill implements vmm.Machine.
func (m *Machine) Kill(ctx context.Context) error {
	if err := m.host.failure(StepKill); err != nil {
		return err
	}
	m.Exit(errKilled)
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill: %w", context.Cause(ctx))
	}
}

// SetBackground implements vmm.Machine.
func (m *Machine) SetBackground(on bool) error {
	if err := m.step(context.Background(), StepSetBackground); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.background = on
	return nil
}

// Background says whether the machine gives way to others.
func (m *Machine) Background() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.background
}

// Release implements vmm.Machine. The machine itself is the Host's.
func (m *Machine) Release() error {
	m.mu.Lock()
	conns := []net.Conn{m.agent, m.network}
	m.agent, m.network = nil, nil
	m.mu.Unlock()
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
	return nil
}

// maxConsole bounds the console, in bytes.
const maxConsole = 64 << 10

func (m *Machine) print(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.console += text
	m.console = m.console[max(0, len(m.console)-maxConsole):]
}

// Console implements vmm.Machine.
func (m *Machine) Console() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.console
}

// Stats implements vmm.Machine.
func (m *Machine) Stats() (sandbox.MachineStats, error) {
	if err := m.step(context.Background(), StepStats); err != nil {
		return sandbox.MachineStats{}, err
	}
	pages := m.guest.snapshot().OwnPages
	return sandbox.MachineStats{PSSBytes: 1<<20 + pages*4096, OwnPages: pages, DiskBytes: 4096, CPUTime: time.Since(m.began)}, nil
}
