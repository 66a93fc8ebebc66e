package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/console"
	"ramet.dev/ramet/internal/vmm/machinefile"
	"ramet.dev/ramet/internal/vmm/process"
)

// killTimeout bounds the end of a process after SIGKILL. Only a process that
// hangs in the kernel takes longer.
const killTimeout = 30 * time.Second

// Machine is one sandbox.
type Machine struct {
	d       *Driver
	id      sandbox.InstanceID
	dir     string
	image   string // hash of the template
	log     *slog.Logger
	pid     int
	pidfd   *os.File
	console *console.Console

	done chan struct{}
	err  error           // set before done is closed
	life context.Context // ends with the process

	mu      sync.Mutex
	rec     record     // guarded by mu
	memory  []*os.File // guarded by mu; the checkpoint that the first Resume restores
	running bool       // guarded by mu
	agent   net.Conn   // guarded by mu; the open stream, if any
	network net.Conn   // guarded by mu

	released atomic.Bool // the process may go on without us
}

var _ vmm.Machine = (*Machine)(nil)

// ExitError says that a machine's process ended. It was started by another one that is gone, so
// nobody knows its status.
type ExitError struct {
	// Stderr is the tail of what the guest's first process said, on one line.
	Stderr string
}

func (e *ExitError) Error() string { return "the sandbox ended" }

// Unwrap makes it a vmm.ErrGone.
func (e *ExitError) Unwrap() error { return vmm.ErrGone }

// errReleased is how a Machine ends that the server let go of.
var errReleased = errors.New("the server let go of the machine")

func newMachine(d *Driver, c vmm.Config, rec record, pidfd *os.File, con *console.Console) *Machine {
	return &Machine{
		d: d, id: c.Instance, dir: c.Dir, image: c.Source.Image.Hash, log: d.log.With("instance", c.Instance),
		pid: rec.PID, pidfd: pidfd, console: con, rec: rec, done: make(chan struct{}),
	}
}

// watch starts the goroutine that waits for the process's end, or for Release,
// and then gives back all that the machine holds in this process.
func (m *Machine) watch() {
	life, end := context.WithCancel(context.Background())
	m.life = life
	m.d.enter(m)
	go func() {
		defer close(m.done)
		werr := process.Wait(m.pidfd)
		end()
		var errs []error
		switch {
		case werr != nil && m.released.Load():
			m.err = errReleased
			errs = append(errs, m.console.Abandon())
		case werr != nil:
			m.err = fmt.Errorf("wait for the sandbox's process: %w", werr)
			errs = append(errs, m.console.Abandon())
		default:
			m.err = &ExitError{Stderr: m.console.Stderr()}
			errs = append(errs, m.console.Abandon())
		}
		if err := m.pidfd.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
		m.mu.Lock()
		conns, memory := []net.Conn{m.agent, m.network}, m.memory
		m.agent, m.network, m.memory = nil, nil, nil
		m.mu.Unlock()
		for _, c := range conns {
			if c != nil {
				_ = c.Close() // its user may have closed it
			}
		}
		errs = append(errs, (&plan{memory: memory}).close())
		if err := errors.Join(errs...); err != nil {
			m.log.Warn("clean up after the sandbox", "err", err)
		}
	}()
}

// explain adds to err how the machine ended, when that is why it failed.
func (m *Machine) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errNoSentry) || m.hasEnded() {
		select {
		case <-m.done:
			return fmt.Errorf("%w (%w)", m.err, err)
		case <-ctx.Done():
		}
	}
	return err
}

func (m *Machine) hasEnded() bool {
	ended := true
	rc, err := m.pidfd.SyscallConn()
	if err == nil {
		err = rc.Control(func(fd uintptr) { ended = process.Exited(int(fd)) })
	}
	return err != nil || ended
}

// PID is that of the sentry.
func (m *Machine) PID() int { return m.pid }

// Isolation is gVisor's.
func (m *Machine) Isolation() sandbox.Isolation { return sandbox.IsolationGVisor }

// Done is closed when the process has ended.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Err says how the process ended; nil while it runs.
func (m *Machine) Err() error {
	select {
	case <-m.done:
		return m.err
	default:
		return nil
	}
}

// Console returns the tail of what the guest's first process said.
func (m *Machine) Console() string { return m.console.String() }

// Resume starts, restores or continues the guest.
func (m *Machine) Resume(ctx context.Context) error {
	if err := m.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	started, running, memory := m.rec.Started, m.running, m.memory
	m.mu.Unlock()
	var err error
	switch {
	case !started:
		err = m.start(ctx, memory)
	case !running:
		err = m.settle(ctx, callResume)
	}
	if err != nil {
		return fmt.Errorf("resume sandbox: %w", err)
	}
	m.setRunning(true)
	return nil
}

func (m *Machine) setRunning(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = on
}

// start runs the guest for the first time: from its checkpoint, or its first process. It does not
// end with the caller's context: a sandbox that has half begun is of no use.
func (m *Machine) start(ctx context.Context, memory []*os.File) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	card, err := openCard(m.pidfd)
	if err != nil {
		return err
	}
	err = m.call(ctx, callNetwork, networkOf(card, memory != nil), nil)
	if err := errors.Join(err, card.Close()); err != nil {
		return err
	}
	if memory == nil {
		id := string(m.id)
		err = m.call(ctx, callStart, &id, nil)
	} else {
		args := &restoreArgs{HavePagesFile: true, Background: true}
		args.Files = memory
		err = m.call(ctx, callRestore, args, nil)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.rec.Started, m.memory = true, nil
	rec := m.rec
	m.mu.Unlock()
	return errors.Join((&plan{memory: memory}).close(), machinefile.Write(m.dir, rec), m.resize(ctx, resizeArgs{MemoryBytes: bytesOf(rec.MemoryMB), DiskBytes: bytesOf(rec.DiskMB)}))
}

// Pause stops all of the guest's processes.
func (m *Machine) Pause(ctx context.Context) error {
	if err := m.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	running := m.running
	m.mu.Unlock()
	if !running {
		return nil
	}
	if err := m.settle(ctx, callPause); err != nil {
		return fmt.Errorf("pause sandbox: %w", err)
	}
	m.setRunning(false)
	return nil
}

// settle makes a call that takes milliseconds and is not given up half-way with the caller's context: the
// sentry counts pauses, and one that is ended twice is a panic in it.
func (m *Machine) settle(ctx context.Context, method string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	return m.call(ctx, method, &struct{}{}, nil)
}

// goOn continues a machine whatever happened to the caller's context.
func (m *Machine) goOn() error {
	if err := m.settle(context.Background(), callResume); err != nil {
		return err
	}
	m.setRunning(true)
	return nil
}

func (m *Machine) resize(ctx context.Context, to resizeArgs) error {
	return m.call(ctx, callResize, &to, nil)
}

func bytesOf(mb int) uint64 { return uint64(mb) << 20 }

// ResizeMemory changes what the guest sees as its memory.
func (m *Machine) ResizeMemory(ctx context.Context, mb int) error {
	if mb > sandbox.MaxMemoryMB {
		return sandbox.Errorf(sandbox.Invalid, "memory_too_large", "a machine can have at most %d MB", sandbox.MaxMemoryMB)
	}
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	if mb <= rec.MemoryMB {
		return nil
	}
	if err := m.d.cgroups.AllowMemory(string(m.id), mb); err != nil {
		return fmt.Errorf("resize memory: %w", err)
	}
	if err := m.resize(ctx, resizeArgs{MemoryBytes: bytesOf(mb)}); err != nil {
		return fmt.Errorf("resize memory: %w", err)
	}
	return m.keepSize(func(r *record) { r.MemoryMB = mb })
}

// ResizeDisk changes how much the guest's writable layer may hold.
func (m *Machine) ResizeDisk(ctx context.Context, mb int) error {
	if mb > sandbox.MaxDiskMB {
		return sandbox.Errorf(sandbox.Invalid, "disk_too_large", "a disk can have at most %d MB", sandbox.MaxDiskMB)
	}
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	if mb <= rec.DiskMB {
		return nil
	}
	// The layer of a sandbox that has not started is not there yet: its start sizes it.
	if rec.Started {
		if err := m.resize(ctx, resizeArgs{DiskBytes: bytesOf(mb)}); err != nil {
			return fmt.Errorf("resize disk: %w", err)
		}
	}
	return m.keepSize(func(r *record) { r.DiskMB = mb })
}

func (m *Machine) keepSize(change func(*record)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.rec)
	return machinefile.Write(m.dir, m.rec)
}

// Flatten has nothing to do: a sandbox has one layer.
func (m *Machine) Flatten(context.Context) error { return m.Err() }

// DialAgent opens the agent's stream and ends the one before.
func (m *Machine) DialAgent(context.Context) (net.Conn, error) {
	return m.dial(&m.agent, func() (net.Conn, error) { return dialAgent(m.dir) })
}

// DialNetwork opens the stream of frames and ends the one before.
func (m *Machine) DialNetwork(context.Context) (net.Conn, error) {
	return m.dial(&m.network, func() (net.Conn, error) { return dialCard(m.pidfd) })
}

func (m *Machine) dial(slot *net.Conn, open func() (net.Conn, error)) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.Err(); err != nil {
		return nil, err
	}
	if *slot != nil {
		_ = (*slot).Close() // its user may have closed it
		*slot = nil
	}
	conn, err := open()
	if err != nil {
		if m.hasEnded() {
			return nil, errors.Join(&ExitError{}, err)
		}
		return nil, err
	}
	*slot = conn
	return conn, nil
}

// Kill ends the sandbox at once and waits until it is gone. The sentry is the first process
// of a pid namespace, so all others end with it.
func (m *Machine) Kill(ctx context.Context) error {
	// The pidfd is closed once the process has ended.
	if err := process.Signal(m.pidfd, unix.SIGKILL); err != nil && m.life.Err() == nil {
		return fmt.Errorf("kill machine: %w", err)
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill machine: %w", context.Cause(ctx))
	}
}

// destroy is Kill for a start that failed.
func (m *Machine) destroy() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	return m.Kill(ctx)
}

// Release closes all that this process has of the machine.
func (m *Machine) Release() error {
	m.released.Store(true)
	m.d.forget(m.dir)
	if err := m.pidfd.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("release machine: %w", err)
	}
	<-m.done
	return nil
}
