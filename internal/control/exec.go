package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// MaxCode bounds the source of one run, in bytes.
const MaxCode = 8 << 20

// RunRequest is code to run.
type RunRequest struct {
	Code     string
	Language string // "" is that of the context, or python
	Context  string // the interpreter to run in; "" is the language's own, and for bash a fresh process
	Timeout  float64
	Env      map[string]string
	Cwd      string
	User     string
	// BeginIn is a directory that the first call moves a Python interpreter to that is still where
	// it began. It stays there. A directory that is not there is passed by.
	BeginIn string
}

// ProgramRequest is a program to start.
type ProgramRequest struct {
	Argv    []string
	Cwd     string
	Env     map[string]string
	User    string
	Timeout float64
	Stdin   bool
	Detach  bool
	Pty     *PtySize // run it on a terminal, which stands for stdin, stdout and stderr; nil: on pipes
	Tag     string   // a name for its starter, told by Runs
}

// Stream is the events of a run. It has one reader.
type Stream struct {
	// Run is the id of the run in its sandbox.
	Run string

	c      *Control
	sb     sandbox.Sandbox
	ctx    context.Context
	cancel context.CancelFunc
	events *connect.ServerStreamForClient[agentv1.Event]
	// owned runs end with their stream.
	owned bool
	first syscall.Signal // what they get at first
	next  uint64         // sequence number of the event that comes next
	ended bool           // exit was seen
	heard bool           // something was received
	// inContext: what is not found is the context.
	inContext bool
}

// Run runs code. The run ends with its stream: see Stream.Close.
func (c *Control) Run(ctx context.Context, project string, id sandbox.ID, r RunRequest) (*Stream, error) {
	if r.Language == "" && r.Context == "" {
		r.Language = "python"
	}
	if r.Language != "" {
		var err error
		if r.Language, err = language(r.Language); err != nil {
			return nil, err
		}
	}
	if r.Context != "" {
		if err := checkContext(r.Context); err != nil {
			return nil, err
		}
	}
	if len(r.Code) > MaxCode {
		return nil, sandbox.Errorf(sandbox.Invalid, "code_too_large", "code has %d bytes; it can have %d, so upload it as a file", len(r.Code), MaxCode)
	}
	if r.User != "" && r.User != "root" && (r.Language != "bash" || r.Context != "") {
		return nil, sandbox.Errorf(sandbox.Invalid, "invalid_user", "user is for bash without a context; interpreters run as root")
	}
	timeout, err := checkRun(r.Timeout, r.Env, r.Cwd, r.User)
	if err := firstOf(err, checkCwd(r.BeginIn)); err != nil {
		return nil, err
	}
	req := &agentv1.RunRequest{
		Code: r.Code, Language: r.Language, Env: r.Env, Cwd: r.Cwd, TimeoutMillis: timeout, User: r.User, RunId: newRunID(),
		Context: r.Context, BeginIn: r.BeginIn,
	}
	s, err := c.follow(ctx, project, id, req.RunId, true, func(ctx context.Context, g Guest) (*connect.ServerStreamForClient[agentv1.Event], error) {
		return g.Exec().Run(ctx, req)
	})
	if s != nil {
		s.inContext = r.Context != ""
	}
	return s, err
}

// StartProgram starts a program. Without Detach it ends with its stream: see Stream.Close.
func (c *Control) StartProgram(ctx context.Context, project string, id sandbox.ID, r ProgramRequest) (*Stream, error) {
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "invalid_argv", "argv is empty; give the program and its arguments")
	}
	size := 0
	for _, a := range r.Argv {
		if strings.ContainsRune(a, 0) {
			return nil, sandbox.Errorf(sandbox.Invalid, "invalid_argv", "argv holds a NUL byte, which no argument can hold")
		}
		size += len(a) + 1
	}
	if size > 1<<20 {
		return nil, sandbox.Errorf(sandbox.Invalid, "invalid_argv", "argv has %d bytes; it can have %d", size, 1<<20)
	}
	timeout, err := checkRun(r.Timeout, r.Env, r.Cwd, r.User)
	if err := firstOf(err, checkTag(r.Tag), checkPty(r.Pty)); err != nil {
		return nil, err
	}
	req := &agentv1.StartRequest{
		Argv: r.Argv, Env: r.Env, Cwd: r.Cwd, User: r.User, TimeoutMillis: timeout, Stdin: r.Stdin, Detach: r.Detach, RunId: newRunID(),
		Pty: r.Pty.message(), Tag: r.Tag,
	}
	s, err := c.follow(ctx, project, id, req.RunId, !r.Detach, func(ctx context.Context, g Guest) (*connect.ServerStreamForClient[agentv1.Event], error) {
		if err := c.knowsTerminals(ctx, g, req); err != nil {
			return nil, err
		}
		return g.Exec().Start(ctx, req)
	})
	if s != nil && r.Pty != nil {
		s.first = syscall.SIGHUP // as when a window is closed; shells take no notice of SIGINT
	}
	return s, err
}

// Attach follows a run from a sequence number. Closing the stream does nothing to the run.
func (c *Control) Attach(ctx context.Context, project string, id sandbox.ID, run string, from uint64) (*Stream, error) {
	if err := checkRunID(run); err != nil {
		return nil, err
	}
	s, err := c.follow(ctx, project, id, run, false, func(ctx context.Context, g Guest) (*connect.ServerStreamForClient[agentv1.Event], error) {
		return g.Exec().Attach(ctx, &agentv1.AttachRequest{RunId: run, FromSeq: from})
	})
	if s != nil {
		s.next = from
	}
	return s, err
}

// Follow follows a run from what comes next: what happens after it has returned is
// in the stream. Of a run that has ended that is its exit. Closing the stream does nothing to the run.
func (c *Control) Follow(ctx context.Context, project string, id sandbox.ID, run string) (*Stream, error) {
	if err := checkRunID(run); err != nil {
		return nil, err
	}
	return c.follow(ctx, project, id, run, false, func(ctx context.Context, g Guest) (*connect.ServerStreamForClient[agentv1.Event], error) {
		return g.Exec().Attach(ctx, &agentv1.AttachRequest{RunId: run, Latest: true})
	})
}

func checkRun(seconds float64, env map[string]string, cwd, user string) (timeout int64, err error) {
	if timeout, err = timeoutMillis(seconds); err != nil {
		return 0, err
	}
	return timeout, firstOf(checkEnv(env), checkCwd(cwd), checkUser(user))
}

// firstOf returns the first error: a caller reads one sentence.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// newRunID returns an id that is unique in any machine, also in a fork that
// has the runs of its parent.
func newRunID() string { return "run_" + string(sandbox.NewInstanceID()) }

func checkRunID(id string) error {
	if id == "" || len(id) > 128 || hasControl(id) {
		return sandbox.Errorf(sandbox.NotFound, "process_not_found", "process not found")
	}
	return nil
}

func (c *Control) follow(ctx context.Context, project string, id sandbox.ID, run string, owned bool,
	open func(context.Context, Guest) (*connect.ServerStreamForClient[agentv1.Event], error),
) (*Stream, error) {
	sb, g, done, err := c.reach(ctx, project, id)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	cancel := func() { stop(); done() }
	events, err := open(ctx, g)
	if err != nil {
		err = c.explain(ctx, sb, err)
		cancel()
		if owned {
			_ = c.spawn(func() { c.endUnheard(sb, run) }) // not at a shutdown: see Close
		}
		return nil, err
	}
	return &Stream{Run: run, c: c, sb: sb, ctx: ctx, cancel: cancel, events: events, owned: owned, first: syscall.SIGINT}, nil
}

// Next returns the next event, keep-alives left out, and io.EOF after the exit.
func (s *Stream) Next() (*agentv1.Event, error) {
	if s.ended {
		return nil, io.EOF
	}
	for s.events.Receive() {
		if !s.heard {
			s.heard = true
			s.c.answered(s.ctx, s.sb)
		}
		e := s.events.Msg()
		switch e.Kind.(type) {
		case nil, *agentv1.Event_KeepAlive:
			continue // or a kind that a newer agent knows
		case *agentv1.Event_Exit:
			s.ended = true
		}
		s.next = e.Seq + 1
		return e, nil
	}
	if err := s.events.Err(); err != nil {
		err = s.c.explain(s.ctx, s.sb, err)
		if s.inContext && !s.heard {
			err = contextError(err)
		}
		return nil, err
	}
	// A stream that ends well without an exit is a broken promise; an exit is never made up.
	return nil, sandbox.Errorf(sandbox.Unavailable, "stream_ended", "the sandbox ended the stream before the run had ended")
}

// Close ends the stream. A run that it owns and that still runs is interrupted (its
// terminal, if it has one, is hung up) and, when it does not end within the kill delay, killed.
// With it ends what is left of its process group. Close does not wait for that.
func (s *Stream) Close() {
	s.cancel()
	_ = s.events.Close() // says only what the cancel did
	if s.owned && !s.ended {
		// At a shutdown nobody interrupts: the machine goes on or ends as a whole.
		_ = s.c.spawn(func() { s.c.endRun(s.sb, s.Run, s.first, s.next) })
	}
}

// againUnheard is the pause between the two attempts of endUnheard.
const againUnheard = time.Second

// endUnheard ends a run of which nothing was heard: its request may have reached
// the guest all the same. It tries twice, because the first signal may overtake the
// start; a run that is not there costs nothing.
func (c *Control) endUnheard(sb sandbox.Sandbox, run string) {
	c.endRun(sb, run, syscall.SIGINT, 0)
	select {
	case <-time.After(againUnheard):
		c.endRun(sb, run, syscall.SIGINT, 0)
	case <-c.life.Done():
	}
}

// endRun ends a run whose caller went away.
func (c *Control) endRun(sb sandbox.Sandbox, run string, first syscall.Signal, next uint64) {
	ctx, cancel := context.WithTimeout(c.life, c.cfg.KillDelay+2*c.cfg.GuestTimeout)
	defer cancel()
	err := c.interruptThenKill(ctx, sb, run, first, next)
	switch {
	case err == nil, c.life.Err() != nil, !c.machines.Alive(sb.Instance):
	case sandbox.KindOf(err) == sandbox.NotFound: // it ended by itself meanwhile
	default:
		c.log.Warn("end a run whose caller went away", "sandbox", sb.ID, "run", run, "err", err)
	}
}

func (c *Control) interruptThenKill(ctx context.Context, sb sandbox.Sandbox, run string, first syscall.Signal, next uint64) error {
	g, err := c.machines.Guest(ctx, sb.Instance)
	if err != nil {
		return err
	}
	if err := sendSignal(ctx, c, g, run, first); err != nil {
		return err
	}
	ended, err := c.awaitExit(ctx, g, run, next)
	if err != nil || ended {
		return err
	}
	c.log.Info("killing a run that ignored its interrupt", "sandbox", sb.ID, "run", run)
	return sendSignal(ctx, c, g, run, syscall.SIGKILL)
}

// sendSignal sends a signal that is to end a run and its process group.
func sendSignal(ctx context.Context, c *Control, g Guest, run string, sig syscall.Signal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.GuestTimeout, errNoAnswer)
	defer cancel()
	_, err := g.Exec().Signal(ctx, &agentv1.SignalRequest{RunId: run, Signal: int32(sig), EndGroup: true})
	if err != nil {
		return fmt.Errorf("send %s to run %s: %w", sig, run, guestError(err))
	}
	return nil
}

// awaitExit follows a run until it ends or the kill delay is over.
func (c *Control) awaitExit(ctx context.Context, g Guest, run string, next uint64) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.KillDelay)
	defer cancel()
	events, err := g.Exec().Attach(ctx, &agentv1.AttachRequest{RunId: run, FromSeq: next})
	if err == nil {
		defer func() { _ = events.Close() }()
		for events.Receive() {
			if events.Msg().GetExit() != nil {
				return true, nil
			}
		}
		err = events.Err()
	}
	// The deadline goes with the call, so the guest may be the first to end it.
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || connect.CodeOf(err) == connect.CodeDeadlineExceeded {
		return false, nil
	}
	return false, guestError(err)
}

// Runs lists what runs in a sandbox, and detached programs that have ended.
func (c *Control) Runs(ctx context.Context, project string, id sandbox.ID) ([]*agentv1.RunInfo, error) {
	r, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.ListResponse, error) {
		return g.Exec().List(ctx, &agentv1.ListRequest{})
	})
	return r.GetRuns(), err
}

// Signal sends a signal to a run's process group.
func (c *Control) Signal(ctx context.Context, project string, id sandbox.ID, run string, sig syscall.Signal) error {
	if err := checkRunID(run); err != nil {
		return err
	}
	if sig < 1 || sig > 64 {
		return sandbox.Errorf(sandbox.Invalid, "invalid_signal", "signal %d does not exist; use a name such as SIGINT or a number from 1 to 64", sig)
	}
	_, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.SignalResponse, error) {
		return g.Exec().Signal(ctx, &agentv1.SignalRequest{RunId: run, Signal: int32(sig)})
	})
	return err
}

// inputChunk is how much standard input goes in one message, in bytes.
const inputChunk = 64 << 10

// Input passes r to a program's standard input as it arrives, then closes that
// when eof is set, and returns how many bytes the program's pipe has taken.
func (c *Control) Input(ctx context.Context, project string, id sandbox.ID, run string, r io.Reader, eof bool) (uint64, error) {
	if err := checkRunID(run); err != nil {
		return 0, err
	}
	return call(ctx, c, project, id, func(ctx context.Context, g Guest) (uint64, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // a stream that is not closed properly is dropped
		stream, err := g.Exec().Input(ctx)
		if err != nil {
			return 0, err
		}
		named := false // by a message, also when there is no input at all
		err = sendAll(r, inputChunk, func(b []byte) error {
			named = true
			return stream.Send(&agentv1.InputRequest{RunId: run, Data: b})
		})
		if err == nil && (eof || !named) {
			err = stream.Send(&agentv1.InputRequest{RunId: run, Eof: eof})
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		res, err := stream.CloseAndReceive() // after an io.EOF it has the guest's reason
		return res.GetBytes(), err
	})
}

// DroppedNotice is what surfaces say, among the output of a run, in the place of output that is not
// there any more. It has no end of a line.
func DroppedNotice(bytes uint64) string {
	return fmt.Sprintf("[ramet] %d bytes of output were dropped here", bytes)
}
