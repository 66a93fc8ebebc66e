package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest/rawio"
	"ramet.dev/ramet/internal/guest/reap"
)

// interpreter is one process that runs the code of a context. One goroutine reads its pipes
// and its socket; whoever has something to say writes to the socket.
type interpreter struct {
	r      *repl
	proc   *reap.Process
	out    *outputs
	ctl    int // our end of the socket
	base   map[string]string
	frames frameReader
	oomWas uint64
	notice string // set when it is in the spare group

	started chan struct{} // closed when it is ready
	gone    chan struct{} // closed when it has ended and its call too
	exited  chan struct{} // closed when its process has ended
	guard   *time.Timer   // kills it when it takes too long to start

	// Guarded by repl.mu.
	ready     bool
	dead      bool
	broken    string            // why we killed it, when it broke the protocol
	restarted bool              // we killed it, to start another
	last      string            // how it ended
	env       map[string]string // that it knows
	owed      owed
	seeds     seeds
	unsent    []byte // bytes that did not fit into the socket
}

// newInterpreterLocked starts the process. It is ready some time later.
func (r *repl) newInterpreterLocked() (*interpreter, error) {
	if !r.s.enter() {
		return nil, errors.New("the service is closed")
	}
	in, err := r.launchLocked()
	if err != nil {
		r.s.work.Done()
		return nil, err
	}
	in.guard = time.AfterFunc(r.s.cfg.ReplStart, func() { in.breakDown("it was not ready in time") })
	r.s.work.Add(1)
	go in.watch()
	go in.loop()
	return in, nil
}

func (r *repl) launchLocked() (*interpreter, error) {
	user, err := r.s.cfg.Users.Lookup("root")
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("create socket: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "repl")
	defer theirs.Close()
	in := &interpreter{
		r: r, ctl: pair[0], base: baseEnv(user), oomWas: r.s.oom.read(), env: r.env,
		started: make(chan struct{}), gone: make(chan struct{}), exited: make(chan struct{}),
	}
	out, stdout, stderr, err := newOutputs()
	if err != nil {
		unix.Close(in.ctl)
		return nil, err
	}
	defer stdout.Close()
	defer stderr.Close()
	in.out = out
	err = unix.SetNonblock(in.ctl, true)
	if err == nil {
		err = out.poller.add(in.ctl)
	}
	if err == nil {
		p := r.lang.command(r.s)
		in.proc, in.notice, err = r.s.startInCgroup(&exec.Cmd{
			Path: p.path, Args: p.args, Dir: r.directory(user),
			Env:    environ(in.base, p.env, r.env),
			Stdout: stdout, Stderr: stderr, ExtraFiles: append([]*os.File{theirs}, r.s.scripts[r.lang.name]...),
			SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		})
		if errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("%s is not installed in this sandbox", p.path)
		}
	}
	if err != nil {
		unix.Close(in.ctl)
		out.close()
		return nil, err
	}
	return in, nil
}

// directory returns where an interpreter starts: the context's directory, else home.
func (r *repl) directory(user *User) string {
	for _, dir := range []string{r.cwd, user.Home} {
		if info, err := os.Stat(dir); dir != "" && err == nil && info.IsDir() {
			return dir
		}
	}
	return "/"
}

// watch waits for the process.
func (in *interpreter) watch() {
	defer in.r.s.work.Done()
	<-in.proc.Done()
	close(in.exited)
	in.out.poller.wake()
}

// loop reads pipes and socket until the process has ended.
func (in *interpreter) loop() {
	defer in.r.s.work.Done()
	defer in.out.close()
	buf := make([]byte, chunk)
	for {
		events, err := in.out.poller.wait()
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				in.r.s.log.Error("read from interpreter", "error", err)
				in.breakDown("its pipes cannot be read")
			}
			break
		}
		for _, e := range events {
			if int(e.Fd) != in.ctl {
				in.out.take(int(e.Fd), in)
				continue
			}
			if e.Events&unix.EPOLLOUT != 0 {
				in.flushUnsent()
			}
			if e.Events&^unix.EPOLLOUT != 0 && !in.readSocket(buf) {
				in.out.poller.remove(in.ctl)
			}
		}
	}
	<-in.exited
	in.out.drain(in)
	for in.readSocket(buf) && len(in.frames.buf) > 0 {
		// A last frame may be larger than one read.
	}
	in.died()
	unix.Close(in.ctl)
	close(in.gone)
	in.out.discard(in.r.s.stop)
}

// readSocket handles what is in the socket. Before it, what was written to the
// pipes before: it belongs to the call that a frame may end. False: the
// interpreter has closed the socket or broken the protocol.
func (in *interpreter) readSocket(buf []byte) bool {
	in.out.drain(in)
	n, _, eof := readNow(in.ctl, buf)
	if eof {
		// Most likely it is ending, and its status comes in a moment.
		in.guard.Stop()
		in.guard = time.AfterFunc(time.Second, func() { in.breakDown("it closed the connection to the agent") })
		return false
	}
	if n == 0 {
		return false
	}
	in.frames.push(buf[:n])
	for {
		m, err := in.frames.next()
		if err == nil && m == nil {
			return true
		}
		if err == nil {
			err = in.handle(m)
		}
		if err != nil {
			in.r.s.log.Warn("interpreter broke the protocol", "error", err)
			in.breakDown("it broke the protocol with the agent")
			return false
		}
	}
}

func (in *interpreter) handle(m *message) error {
	switch m.Op {
	case "ready":
		return in.becomeReady(m)
	case "result":
		for _, e := range resultEvents(&m.result) {
			in.r.deliver(e)
		}
		return nil
	case "done":
		return in.r.done(in, m)
	}
	return fmt.Errorf("frame %q is not known", m.Op)
}

func (in *interpreter) becomeReady(m *message) error {
	in.guard.Stop()
	in.r.mu.Lock()
	defer in.r.mu.Unlock()
	if in.ready {
		return nil
	}
	in.ready = true
	if err := in.learnLocked(m.Numbers); err != nil {
		return err
	}
	in.r.notice = in.notice
	in.r.s.log.Info("interpreter is ready", "context", in.r.id, "pid", in.proc.Pid, "version", m.Version, "ipython", m.IPython)
	if frames, err := in.settleLocked(); err != nil {
		return err
	} else if len(frames) > 0 {
		in.sendLocked(frames)
	}
	close(in.started)
	in.r.dispatchLocked()
	return nil
}

// stdout and stderr make the interpreter the sink of its pipes.
func (in *interpreter) stdout(b []byte) {
	if len(b) > 0 {
		in.r.deliver(&agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: b}})
	}
}

func (in *interpreter) stderr(b []byte) {
	if len(b) > 0 {
		in.r.deliver(&agentv1.Event{Kind: &agentv1.Event_Stderr{Stderr: b}})
	}
}

// flushLocked passes on incomplete characters at the end of a call.
func (in *interpreter) flushLocked(r *run) {
	r.stdout(in.out.split[0].flush())
	r.stderr(in.out.split[1].flush())
}

// sendLocked writes a frame to the socket; what does not fit the loop sends
// later. A dead interpreter's calls end elsewhere.
func (in *interpreter) sendLocked(frame []byte) {
	waiting := len(in.unsent) > 0
	in.unsent = append(in.unsent, frame...)
	if !waiting {
		in.writeLocked()
	}
}

func (in *interpreter) writeLocked() {
	for len(in.unsent) > 0 {
		n, err := rawio.Send(in.ctl, in.unsent)
		switch {
		case err == nil:
			in.unsent = in.unsent[n:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			_ = in.out.poller.wantWrite(in.ctl, true)
			return
		default:
			in.unsent = nil // it has died, and watch sees it
		}
	}
	in.unsent = nil
}

func (in *interpreter) flushUnsent() {
	in.r.mu.Lock()
	defer in.r.mu.Unlock()
	in.writeLocked()
	if len(in.unsent) == 0 {
		_ = in.out.poller.wantWrite(in.ctl, false)
		if in.r.active != nil && in.r.lang.pokes {
			// What was just completed may be meant for now.
			_ = in.proc.Signal(poke)
		}
	}
}

// breakDown kills an interpreter that is of no use any more.
func (in *interpreter) breakDown(why string) {
	in.r.mu.Lock()
	defer in.r.mu.Unlock()
	if in.dead {
		return
	}
	select {
	case <-in.exited:
		return // it ended by itself; the kernel says how
	default:
	}
	if in.broken == "" {
		in.broken = why
	}
	_ = in.proc.SignalGroup(unix.SIGKILL)
}

// died ends the call that ran and starts another interpreter.
func (in *interpreter) died() {
	in.guard.Stop()
	r := in.r
	status, _, _ := in.proc.Wait(context.Background()) // it has ended
	r.mu.Lock()
	defer r.mu.Unlock()
	in.dead = true
	in.seeds.forget()
	r.interp = nil
	if r.closed != "" {
		if r.active != nil {
			in.flushLocked(r.active.run)
			r.finishLocked(&agentv1.Exit{Code: 137, Signal: 9, Reason: agentv1.Reason_SIGNALED, Message: r.closed})
		}
		return
	}
	exit := in.exit(status)
	in.last = exit.GetMessage()
	r.s.log.Warn("interpreter ended", "context", r.id, "pid", in.proc.Pid, "message", exit.GetMessage(), "ready", in.ready)
	if !in.ready && in.notice == "" && in.r.s.cfg.SpareCgroup != "" && in.r.s.oom.read() > in.oomWas {
		_ = r.spawnLocked() // in the spare group, which has memory of its own
		return
	}
	if !in.ready {
		// Starting it again would most likely end the same way.
		for _, c := range r.queue {
			for _, e := range r.late.take() {
				c.run.journal.append(e)
			}
		}
		r.failQueueLocked(1, "the "+r.lang.title+" does not start: "+exit.GetMessage())
		return
	}
	r.lost = !in.restarted
	if r.active != nil {
		in.flushLocked(r.active.run)
		c := r.active
		r.active = nil
		c.end()
		c.run.finish(exit)
	}
	_ = r.spawnLocked() // it has told the calls that wait
}

// exit says how the interpreter ended, for the call that it took with it.
func (in *interpreter) exit(status unix.WaitStatus) *agentv1.Exit {
	exit := exitOf(status)
	exit.Reason = agentv1.Reason_INTERPRETER_DIED
	restarted := "; it was restarted and its state is lost"
	if !in.ready {
		restarted = ""
	}
	c := in.r.active
	killed := exit.GetSignal() == int32(unix.SIGKILL)
	switch {
	case c != nil && c.timedOut:
		exit.Reason = agentv1.Reason_TIMEOUT
		exit.Message = "the code did not stop at its time limit and the interpreter was killed" + restarted
	case in.restarted:
		exit.Reason = agentv1.Reason_SIGNALED
		exit.Message = "the interpreter was killed, because its context was restarted"
	case c != nil && c.killed:
		exit.Reason = agentv1.Reason_SIGNALED
		exit.Message = "the interpreter was killed on request" + restarted
	case in.broken != "":
		exit.Message = "the interpreter was killed because " + in.broken + restarted
	case killed && in.r.s.oom.read() > in.oomWas:
		exit.Reason = agentv1.Reason_OUT_OF_MEMORY
		exit.Message = "the machine ran out of memory and the kernel killed the interpreter" + restarted
	case c != nil && in.ready && in.r.lang.exits && exit.GetSignal() == 0:
		exit.Reason = agentv1.Reason_EXITED // as the code has asked for; the next call is told
	case exit.GetSignal() != 0:
		exit.Message = "the interpreter was ended by " + unix.SignalName(unix.Signal(exit.GetSignal())) + restarted
	default:
		exit.Message = fmt.Sprintf("the interpreter ended by itself with exit code %d", exit.GetCode()) + restarted
	}
	return exit
}

// lastWords says how the interpreter ended, in the middle of a sentence.
func (in *interpreter) lastWords() string {
	in.r.mu.Lock()
	defer in.r.mu.Unlock()
	if in.last == "" {
		return ""
	}
	return ": " + in.last
}
