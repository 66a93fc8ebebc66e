// Package reap owns wait4(2) in the agent. As PID 1 the agent inherits every
// orphan of the guest, so somebody must wait for any child at all; but a
// process that waits for any child also takes the exit statuses that others
// wait for. So there is one Reaper, it starts every process, and it hands each
// exit status to whoever started that pid. Statuses of orphans are dropped.
//
// It does not own pipes, process groups, cgroups or time limits; package exec
// does. Nothing in the same program may call (*exec.Cmd).Wait, Run or Output
// while a Reaper runs: it would lose the race for its status.
//
// Start reading at Reaper.Start.
package reap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reaper starts processes and collects the exit status of every child of this
// program. There may be one at a time.
type Reaper struct {
	// gate keeps a child from being collected before it is in procs, and a pid
	// from being freed while a signal is on its way to it: starting and
	// signalling hold it shared, collecting holds it alone.
	gate sync.RWMutex

	mu    sync.Mutex
	procs map[int]*Process // by pid, not yet collected

	signals chan os.Signal
	stop    chan struct{}
	done    chan struct{}
}

// New starts a Reaper. When this program is not PID 1 it becomes the subreaper
// of its descendants, so that orphans come to it as they would to PID 1.
// Close ends it.
func New() *Reaper {
	if os.Getpid() != 1 {
		// It cannot fail on a kernel that Go runs on.
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	r := &Reaper{
		procs:   make(map[int]*Process),
		signals: make(chan os.Signal, 1), // one is enough: a pass collects all
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	signal.Notify(r.signals, unix.SIGCHLD)
	go r.run()
	return r
}

// Close stops collecting. Processes go on; waits for them end only with their
// context.
func (r *Reaper) Close() {
	signal.Stop(r.signals)
	close(r.stop)
	<-r.done
}

func (r *Reaper) run() {
	defer close(r.done)
	for {
		r.collect()
		select {
		case <-r.signals:
		case <-r.stop:
			return
		}
	}
}

// collect takes every child that has ended.
func (r *Reaper) collect() {
	r.gate.Lock()
	defer r.gate.Unlock()
	for {
		ended := endedChild()
		if ended == 0 {
			return
		}
		r.mu.Lock()
		p := r.procs[ended]
		r.mu.Unlock()
		if p != nil && p.alone.Load() {
			// The group's number cannot be another's before its leader is collected.
			_ = unix.Kill(-ended, unix.SIGKILL)
		}
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(ended, &status, unix.WNOHANG, &usage)
		if err != nil || pid <= 0 {
			continue // it was interrupted, or somebody has waited for this one, who should not: there may be others
		}
		r.mu.Lock()
		delete(r.procs, pid)
		r.mu.Unlock()
		if p != nil {
			p.finish(status, usage)
		}
	}
}

// childInfo is what waitid says of a child, as a siginfo_t of 64-bit Linux has it.
type childInfo struct {
	signo, errno, code, _ int32
	pid                   int32
	_                     [108]byte
}

// endedChild returns the pid of a child that has ended and leaves it to be collected, 0 when there is none.
func endedChild() int {
	for {
		var info childInfo
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			if err != nil {
				return 0 // there is no child at all
			}
			return int(info.pid)
		}
	}
}

// Start starts cmd and takes it over: cmd must not be used afterwards, above all
// not its Wait. The standard streams must be files or nil, and cmd
// must not come from exec.CommandContext, because only Wait ends the
// goroutines that os/exec starts for those.
func (r *Reaper) Start(cmd *exec.Cmd) (*Process, error) {
	if !isFile(cmd.Stdin) || !isFile(cmd.Stdout) || !isFile(cmd.Stderr) {
		return nil, fmt.Errorf("start %s: standard streams must be files", cmd.Path)
	}
	if cmd.Cancel != nil {
		return nil, fmt.Errorf("start %s: a command with a context cannot be taken over", cmd.Path)
	}
	r.gate.RLock()
	defer r.gate.RUnlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{Pid: cmd.Process.Pid, reaper: r, done: make(chan struct{})}
	r.mu.Lock()
	r.procs[p.Pid] = p
	r.mu.Unlock()
	// os keeps a pidfd for Wait, which nobody will call.
	_ = cmd.Process.Release()
	return p, nil
}

// isFile says whether a stream of an exec.Cmd needs no copying goroutine.
func isFile(stream any) bool {
	switch s := stream.(type) {
	case nil:
		return true
	case *os.File:
		return s != nil
	}
	return false
}

// Process is a process that a Reaper started.
type Process struct {
	Pid int

	reaper *Reaper
	alone  atomic.Bool // nothing of its group outlives it
	// status and usage are set before done is closed.
	status unix.WaitStatus
	usage  unix.Rusage
	done   chan struct{}
}

func (p *Process) finish(status unix.WaitStatus, usage unix.Rusage) {
	p.status, p.usage = status, usage
	close(p.done)
}

// Done is closed when the process has ended and its status is known.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns what the kernel said about the process's end, or the context's
// error when that comes first. Any number of callers may wait, also afterwards.
func (p *Process) Wait(ctx context.Context) (unix.WaitStatus, unix.Rusage, error) {
	select {
	case <-p.done:
		return p.status, p.usage, nil
	default:
	}
	select {
	case <-p.done:
		return p.status, p.usage, nil
	case <-ctx.Done():
		return 0, unix.Rusage{}, context.Cause(ctx)
	}
}

// Signal sends a signal to the process alone. After its end it returns
// os.ErrProcessDone, and never reaches a stranger that got the same pid.
//
// The kernel has ended a process some time before it is collected; a signal in
// between goes to the zombie and is lost, without an error.
func (p *Process) Signal(sig unix.Signal) error {
	return p.send(p.Pid, sig)
}

// SignalGroup sends a signal to the process group that the process leads
// (SysProcAttr.Setpgid or Setsid). It returns os.ErrProcessDone once the leader
// has been collected: the group may be gone then and its number taken. What
// outlives its leader is reached through its cgroup.
func (p *Process) SignalGroup(sig unix.Signal) error {
	return p.send(-p.Pid, sig)
}

// EndGroup lets nothing of the process group that the process leads outlive it: what is left
// at its end is killed. It does nothing to the process itself, and nothing any more after its end.
func (p *Process) EndGroup() { p.alone.Store(true) }

func (p *Process) send(target int, sig unix.Signal) error {
	return p.WhileItLasts(func() error {
		if err := unix.Kill(target, sig); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return os.ErrProcessDone
			}
			return fmt.Errorf("signal %d to %d: %w", sig, target, err)
		}
		return nil
	})
}

// WhileItLasts calls f while the pid cannot become another process's, although the process may
// have ended. It returns os.ErrProcessDone when that is too late. No process is
// collected meanwhile.
func (p *Process) WhileItLasts(f func() error) error {
	p.reaper.gate.RLock()
	defer p.reaper.gate.RUnlock()
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
	}
	return f()
}
