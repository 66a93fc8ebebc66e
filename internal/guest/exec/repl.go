package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// repl supervises the interpreter of one context: it starts and restarts it, queues
// calls and gives them to it one at a time.
type repl struct {
	s    *Service
	id   string
	lang *language
	cwd  string // where its interpreters start; empty: HOME

	mu     sync.Mutex
	interp *interpreter // nil: none
	queue  []*call      // waiting, in order
	active *call        // given to the interpreter
	number uint64       // of the last call
	env    map[string]string
	lost   bool   // the next call must be told that state was lost
	notice string // what the next call must be told about its interpreter
	late   late
	closed string // why it takes no calls any more; empty: it does
}

// call is one run of code in the interpreter.
type call struct {
	run     *run
	req     request
	timeout time.Duration

	// Guarded by repl.mu.
	interrupted bool        // a client sent SIGINT
	timedOut    bool        // the limit passed
	killed      bool        // we sent SIGKILL
	file        *os.File    // that the interpreter reads, until the call ends
	limit       *time.Timer // to SIGINT, then to SIGKILL
}

var errBeginIn = invalid("only a Python interpreter can be told where to begin; give another context a directory when it is made")

// runIn runs code in the interpreter of a context.
func (s *Service) runIn(ctx context.Context, r *repl, language string, req *agentv1.RunRequest, out *connect.ServerStream[agentv1.Event]) error {
	if req.GetUser() != "" && req.GetUser() != "root" {
		return invalid("%s code runs as root; a user can be named for bash without a context and for programs", r.lang.title)
	}
	if req.GetBeginIn() != "" && r.lang.name != "python" {
		return errBeginIn
	}
	if r.lang.checkRun != nil {
		if err := r.lang.checkRun(req); err != nil {
			return err
		}
	}
	run, err := s.newRun(req.GetRunId(), language, nil, false)
	if err != nil {
		return err
	}
	run.mu.Lock()
	run.context = r.id
	run.mu.Unlock()
	c := &call{
		run:     run,
		req:     request{Op: "run", Code: req.GetCode(), Env: req.GetEnv(), Cwd: req.GetCwd(), Begin: req.GetBeginIn(), Strip: language == typescript},
		timeout: time.Duration(req.GetTimeoutMillis()) * time.Millisecond,
	}
	if err := r.submit(c); err != nil {
		run.finish(&agentv1.Exit{Code: 1, Reason: agentv1.Reason_START_FAILED, Message: err.Error()})
		return err
	}
	err = s.stream(ctx, run, 0, out)
	if err != nil {
		r.abandon(c)
	}
	return err
}

// submit puts a call at the end of the queue.
func (r *repl) submit(c *call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != "" {
		return connect.NewError(connect.CodeUnavailable, errors.New(r.closed))
	}
	if len(r.queue) >= r.s.cfg.MaxQueue {
		return connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("%d calls wait for the %s already, which is the limit", len(r.queue), r.lang.title))
	}
	c.run.mu.Lock()
	c.run.kill = func(sig unix.Signal) error { return r.signal(c, sig) }
	c.run.mu.Unlock()
	r.queue = append(r.queue, c)
	r.dispatchLocked()
	return nil
}

// abandon takes a call out of the queue whose client has gone. A call that
// runs goes on: its client may attach again.
func (r *repl) abandon(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unqueueLocked(c) {
		c.run.finish(&agentv1.Exit{
			Code: 130, Reason: agentv1.Reason_INTERRUPTED, Message: "the client left before the interpreter was free",
		})
	}
}

func (r *repl) unqueueLocked(c *call) bool {
	for i, q := range r.queue {
		if q == c {
			r.queue = append(r.queue[:i:i], r.queue[i+1:]...)
			return true
		}
	}
	return false
}

// signal delivers a signal to a call. The lock makes sure that it cannot hit
// the call after it: the next call is sent only under the lock too, and by
// then the kernel has delivered this signal.
func (r *repl) signal(c *call, sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unqueueLocked(c) {
		c.run.finish(&agentv1.Exit{
			Code: 128 + int32(sig), Reason: agentv1.Reason_INTERRUPTED, Message: "the call was removed from the queue",
		})
		return nil
	}
	if r.active != c || r.interp == nil {
		return os.ErrProcessDone
	}
	switch sig {
	case unix.SIGINT:
		c.interrupted = true
	case unix.SIGKILL:
		c.killed = true
	}
	return r.interp.proc.SignalGroup(sig)
}

// dispatchLocked gives the next call to the interpreter if that is free, and
// starts one if there is none.
func (r *repl) dispatchLocked() {
	if r.active != nil || len(r.queue) == 0 || r.closed != "" {
		return
	}
	if r.interp == nil {
		_ = r.spawnLocked() // the calls that wait were told
		return
	}
	if !r.interp.ready {
		return
	}
	c := r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	r.active = c
	r.number++
	c.req.ID = r.number
	frame, file, err := r.lang.encode(&c.req)
	c.file = file
	c.req.Code = "" // it may be megabytes
	if err == nil {
		var first []byte
		first, err = r.interp.settleLocked()
		frame = append(first, frame...)
	}
	if err != nil {
		// It could not be put where the interpreter reads it.
		r.finishLocked(&agentv1.Exit{Code: 1, Reason: agentv1.Reason_START_FAILED, Message: err.Error()})
		return
	}
	r.interp.sendLocked(frame)
	c.run.begin(r.interp.proc.Pid, func(sig unix.Signal) error { return r.signal(c, sig) })
	if r.lost {
		r.lost = false
		c.run.stderr([]byte(r.lang.lost))
	}
	c.run.stderr([]byte(r.notice))
	r.notice = ""
	for _, e := range r.late.take() {
		c.run.journal.append(e)
	}
	if c.timeout > 0 {
		c.limit = time.AfterFunc(c.timeout, func() { r.timeout(c) })
	}
}

// finishLocked ends the active call and starts the next.
func (r *repl) finishLocked(exit *agentv1.Exit) {
	c := r.active
	r.active = nil
	c.end()
	r.dispatchLocked()
	c.run.finish(exit)
}

// end frees what a call held while it ran.
func (c *call) end() {
	if c.limit != nil {
		c.limit.Stop()
	}
	if c.file != nil {
		c.file.Close()
	}
}

func (r *repl) timeout(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active != c || r.interp == nil {
		return
	}
	c.timedOut = true
	_ = r.interp.proc.SignalGroup(unix.SIGINT) // it may have died just now
	c.limit = time.AfterFunc(r.s.cfg.ReplGrace, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.active == c && r.interp != nil {
			c.killed = true
			_ = r.interp.proc.SignalGroup(unix.SIGKILL)
		}
	})
}

// done ends the active call as the interpreter reported it.
func (r *repl) done(in *interpreter, m *message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.active
	if c == nil || c.req.ID != m.ID {
		return fmt.Errorf("the interpreter ended call %d, which does not run", m.ID)
	}
	if err := in.learnLocked(m.Numbers); err != nil {
		return err
	}
	in.flushLocked(c.run)
	if m.Result != nil {
		c.run.result(m.Result)
	}
	exit := &agentv1.Exit{Code: m.Code, Reason: agentv1.Reason_EXITED}
	if m.Error != nil {
		exit.Error = &agentv1.ErrorInfo{Name: m.Error.Name, Value: m.Error.Value, Traceback: m.Error.Traceback}
	}
	switch {
	case m.StartFailed != "":
		exit.Reason, exit.Message = agentv1.Reason_START_FAILED, m.StartFailed
	case c.timedOut:
		exit.Reason = agentv1.Reason_TIMEOUT
		exit.Message = "the code was interrupted at its time limit; the interpreter kept its state"
	case c.interrupted && m.Interrupted:
		exit.Reason, exit.Message = agentv1.Reason_INTERRUPTED, "the code was interrupted"
	}
	r.finishLocked(exit)
	return nil
}

// result adds a displayed object to the journal.
func (r *run) result(m *result) {
	for _, e := range resultEvents(m) {
		r.journal.append(e)
	}
}

func resultEvents(m *result) []*agentv1.Event {
	var events []*agentv1.Event
	if m.Dropped > 0 {
		events = append(events, &agentv1.Event{Kind: &agentv1.Event_Truncated{Truncated: &agentv1.Truncated{Bytes: m.Dropped}}})
	}
	data := make(map[string]string, len(m.Data))
	for k, v := range m.Data {
		data[strings.ToValidUTF8(k, "\uFFFD")] = v
	}
	return append(events, &agentv1.Event{Kind: &agentv1.Event_Result{Result: &agentv1.Result{Data: data, Main: m.Main}}})
}

// deliver passes on an event to the call that runs, or keeps it for the next.
func (r *repl) deliver(e *agentv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active != nil {
		r.active.run.journal.append(e)
	} else {
		r.late.add(e)
	}
}

// start starts the interpreter, unless it runs, and waits until it is ready.
func (r *repl) start(ctx context.Context) error {
	r.mu.Lock()
	if r.closed != "" {
		r.mu.Unlock()
		return fmt.Errorf("start interpreter: %s", r.closed)
	}
	var failed error
	if r.interp == nil {
		failed = r.spawnLocked()
	}
	in := r.interp
	r.mu.Unlock()
	if in == nil {
		return fmt.Errorf("start interpreter: %w", failed)
	}
	select {
	case <-in.started:
		return nil
	case <-in.gone:
		return fmt.Errorf("start interpreter: it ended before it was ready%s", in.lastWords())
	case <-ctx.Done():
		return fmt.Errorf("start interpreter: %w", context.Cause(ctx))
	}
}

// spawnLocked starts an interpreter. When that fails every waiting call fails.
func (r *repl) spawnLocked() error {
	in, err := r.newInterpreterLocked()
	if err == nil {
		r.interp = in
		return nil
	}
	r.s.log.Error("start interpreter", "context", r.id, "language", r.lang.name, "error", err)
	r.failQueueLocked(codeNotFound, fmt.Sprintf("the %s cannot be started: %v", r.lang.title, err))
	return err
}

func (r *repl) failQueueLocked(code int32, message string) {
	for _, c := range r.queue {
		c.run.finish(&agentv1.Exit{Code: code, Reason: agentv1.Reason_START_FAILED, Message: message})
	}
	r.queue = nil
}

// renew tells the interpreter what has changed, or lets it wait.
func (r *repl) renew(n Renewal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env = n.Env
	in := r.interp
	if in == nil {
		return nil
	}
	in.owed.renamed = in.owed.renamed || n.Renamed
	in.owed.entropy = in.owed.entropy || n.Entropy
	in.owed.reseed = in.owed.reseed || n.Reseed
	if !in.ready || n.Later && r.active == nil {
		return nil // it is told when it is ready, or with its next call
	}
	if n.Reseed {
		// Of a language whose generators are in reach.
		if err := in.seeds.renew(); err != nil {
			r.s.log.Warn("renew random numbers in place", "error", err) // it reseeds itself, a moment later
		}
	}
	frames, err := in.settleLocked()
	if err != nil || len(frames) == 0 {
		return err
	}
	in.sendLocked(frames)
	if r.active == nil || !r.lang.pokes {
		return nil
	}
	if err := in.proc.Signal(poke); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("tell interpreter: %w", err)
	}
	return nil
}

// owed is what an interpreter has yet to be told, besides a new environment.
type owed struct{ renamed, entropy, reseed bool }

// settleLocked returns the frames that tell the interpreter what it is owed. They
// must be sent before any other.
func (in *interpreter) settleLocked() ([]byte, error) {
	o, before := in.owed, in.env
	in.owed, in.env = owed{}, in.r.env
	var frames []byte
	if o.renamed || !maps.Equal(before, in.env) {
		frame, _, err := in.r.lang.encode(in.envRequest(before))
		if err != nil {
			return nil, err
		}
		frames = frame
	}
	if o.entropy || o.reseed {
		r := request{Op: "entropy"}
		if o.reseed {
			r.Op = "reseed"
		}
		frame, _, err := in.r.lang.encode(&r)
		if err != nil {
			return nil, err
		}
		frames = append(frames, frame...)
	}
	return frames, nil
}

// envRequest is the difference of the interpreter's environment to the one before.
func (in *interpreter) envRequest(before map[string]string) *request {
	set := maps.Clone(in.env)
	var unset []string
	for k := range before {
		if _, ok := in.env[k]; ok {
			continue
		}
		if v, ok := in.base[k]; ok {
			if set == nil {
				set = make(map[string]string)
			}
			set[k] = v
		} else {
			unset = append(unset, k)
		}
	}
	return &request{Op: "env", Set: set, Unset: unset}
}

// poke is the signal on which repl.py reads its socket in the middle of a call.
const poke = unix.Signal(64) // SIGRTMAX

// close kills the interpreter and ends all calls. The Service waits for its goroutines.
func (r *repl) close(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = why
	for _, c := range r.queue {
		c.run.finish(&agentv1.Exit{Code: 130, Reason: agentv1.Reason_INTERRUPTED, Message: why})
	}
	r.queue = nil
	if r.interp != nil {
		_ = r.interp.proc.SignalGroup(unix.SIGKILL)
	}
}

// running says whether the context has an interpreter.
func (r *repl) running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.interp != nil
}

// restart ends the interpreter, and the call that it runs, and starts another. Calls that
// wait are for the new one.
func (r *repl) restart(ctx context.Context) error {
	r.mu.Lock()
	in := r.interp
	if in != nil {
		in.restarted = true
		_ = in.proc.SignalGroup(unix.SIGKILL) // it may have died just now
	}
	r.lost = false // whoever asks knows
	r.mu.Unlock()
	if in != nil {
		select {
		case <-in.gone:
		case <-ctx.Done():
			return fmt.Errorf("restart interpreter: %w", context.Cause(ctx))
		}
	}
	return r.start(ctx)
}
