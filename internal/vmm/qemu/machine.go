package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/console"
	"ramet.dev/ramet/internal/vmm/process"
	"ramet.dev/ramet/internal/vmm/qemu/qmp"
)

// killTimeout bounds the end of a process after SIGKILL. Only a process that
// hangs in the kernel takes longer.
const killTimeout = 30 * time.Second

// Machine is one QEMU process.
type Machine struct {
	d       *Driver
	dir     string
	image   vmm.Image
	log     loggerWith
	pid     int
	pidfd   *os.File
	console *console.Console
	qmp     *qmp.Client
	// memory is the boot memory's file; base counts the driver's golden, and is
	// nil for a golden machine, whose memory is its own.
	memory *os.File
	base   *golden
	// reap collects the exit status; nil when another process started the machine.
	reap func() error

	done       chan struct{}
	err        error           // set before done is closed
	life       context.Context // ends with the process
	background sync.WaitGroup

	mu      sync.Mutex
	rec     record   // guarded by mu
	agent   net.Conn // guarded by mu; the open stream, if any
	network net.Conn // guarded by mu
	running bool     // guarded by mu; what the caller asked for
	nextSet int      // guarded by mu; the next add-fd set

	flattening *flattening // guarded by mu; nil: none, and no save

	released atomic.Bool // the process may go on without us
}

var _ vmm.Machine = (*Machine)(nil)

// ExitError says how a machine's process ended.
type ExitError struct {
	// State is the process's own: "exit status 1", "signal: killed", or that it
	// is not known because an earlier server started the machine.
	State string
	// Stderr is the tail of what QEMU said, on one line.
	Stderr string
}

func (e *ExitError) Error() string {
	if e.Stderr == "" {
		return "the machine's process ended (" + e.State + ")"
	}
	return "the machine's process ended (" + e.State + "): " + e.Stderr
}

// Unwrap makes it a vmm.ErrGone.
func (e *ExitError) Unwrap() error { return vmm.ErrGone }

func (d *Driver) newMachine(c vmm.Config, rec record, pid int, con *console.Console) (*Machine, error) {
	f, err := process.Open(pid)
	if err != nil {
		return nil, err
	}
	return &Machine{
		d: d, dir: c.Dir, image: c.Source.Image, rec: rec,
		log: loggerWith{d.log, c.Instance}, pid: pid, pidfd: f, console: con,
		done: make(chan struct{}), nextSet: firstNewSet,
	}, nil
}

// errReleased is how a Machine ends that the server let go of.
var errReleased = errors.New("the server let go of the machine")

// watch starts the goroutine that waits for the process's end, or for Release,
// and then gives back all that the machine holds in this process.
func (m *Machine) watch() {
	life, end := context.WithCancel(context.Background())
	m.life = life
	go func() {
		defer close(m.done)
		werr := process.Wait(m.pidfd)
		end()
		var errs []error
		if werr != nil && m.released.Load() {
			m.err = errReleased
			errs = append(errs, m.console.Abandon())
		} else {
			m.err = m.exitError(werr)
			errs = append(errs, m.console.Finish())
		}
		if err := m.pidfd.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
		var exit *ExitError
		if errors.As(m.err, &exit) {
			exit.Stderr = m.console.Stderr()
		}
		m.hangUp()
		m.mu.Lock()
		q, base, memory := m.qmp, m.base, m.memory
		m.base, m.memory = nil, nil
		m.mu.Unlock()
		if q != nil {
			errs = append(errs, q.Close())
		}
		m.background.Wait()
		if base != nil {
			m.d.goldens.release(base)
		} else if memory != nil {
			errs = append(errs, memory.Close())
		}
		if err := errors.Join(errs...); err != nil {
			m.log.warn("clean up after the process", err)
		}
	}()
}

func (m *Machine) exitError(werr error) error {
	if werr != nil {
		return fmt.Errorf("wait for the machine's process: %w", werr)
	}
	if m.reap == nil {
		return &ExitError{State: "status unknown"}
	}
	err := m.reap()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return &ExitError{State: "exit status 0, the guest shut down"}
	case errors.As(err, &exit):
		return &ExitError{State: exit.ProcessState.String()}
	}
	return fmt.Errorf("wait for the machine's process: %w", err)
}

// hangUp closes the streams that are open.
func (m *Machine) hangUp() {
	m.mu.Lock()
	conns := []net.Conn{m.agent, m.network}
	m.mu.Unlock()
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
}

// explain adds to err how the machine ended, when that is why it failed.
func (m *Machine) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if m.pidfdReadable() || errors.Is(err, qmp.ErrClosed) {
		select {
		case <-m.done:
			return fmt.Errorf("%w (%w)", m.err, err)
		case <-ctx.Done():
		}
	}
	return err
}

func (m *Machine) pidfdReadable() bool {
	exited := true
	rc, err := m.pidfd.SyscallConn()
	if err == nil {
		err = rc.Control(func(fd uintptr) { exited = process.Exited(int(fd)) })
	}
	return err != nil || exited
}

// PID is the process's id.
func (m *Machine) PID() int { return m.pid }

// Isolation is that of the accelerator that the machine runs with.
func (m *Machine) Isolation() sandbox.Isolation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return isolationOf(m.rec.Accel)
}

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

// Console returns the tails of the guest's console and of QEMU's errors.
func (m *Machine) Console() string { return m.console.String() }

// Resume starts or continues the vCPUs.
func (m *Machine) Resume(ctx context.Context) error {
	m.setRunning(true)
	return m.run(ctx, "cont", nil, nil)
}

// Pause stops the vCPUs; block I/O is drained when it returns.
func (m *Machine) Pause(ctx context.Context) error {
	m.setRunning(false)
	return m.run(ctx, "stop", nil, nil)
}

func (m *Machine) setRunning(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = on
}

func (m *Machine) run(ctx context.Context, command string, args, out any, files ...*os.File) error {
	return m.explain(ctx, m.qmp.Run(ctx, command, args, out, files...))
}

// DialAgent opens the stream to the agent's port and ends the one before.
func (m *Machine) DialAgent(ctx context.Context) (net.Conn, error) {
	return m.dial(ctx, agentName, &m.agent)
}

// DialNetwork opens the stream of Ethernet frames and ends the one before.
//
// It returns when QEMU has accepted it: QEMU 7.2 crashes when the guest sends a
// frame before. Nothing tells, but each command is answered in a turn of the main
// loop. The turn of the first may have looked at the sockets before we connected; the
// next one did not, and is over when the third is answered.
func (m *Machine) DialNetwork(ctx context.Context) (net.Conn, error) {
	conn, err := m.dial(ctx, networkName, &m.network)
	if err != nil {
		return nil, err
	}
	for range 3 {
		if err := m.run(ctx, "query-status", nil, nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// dial connects. QEMU serves one connection and keeps the next waiting until
// it has seen the end of that one.
func (m *Machine) dial(ctx context.Context, name string, slot *net.Conn) (net.Conn, error) {
	if err := m.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	old := *slot
	*slot = nil
	m.mu.Unlock()
	if old != nil {
		old.Close()
	}
	conn, err := dialUnix(ctx, filepath.Join(m.dir, name))
	if err != nil {
		return nil, m.explain(ctx, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	*slot = conn
	return conn, nil
}

// Kill ends the process at once and waits until it is gone.
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

// Release closes all that this process has of the machine. QEMU sees its
// connections end and listens again.
func (m *Machine) Release() error {
	m.released.Store(true)
	if err := m.pidfd.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("release machine: %w", err)
	}
	<-m.done
	return nil
}

// destroy is Kill for a start that failed.
func (m *Machine) destroy() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	err := m.Kill(ctx)
	m.d.cgroups.Remove(strconv.Itoa(m.rec.UID))
	return err
}
