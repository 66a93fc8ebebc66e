package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// run is one execution, from its request until it is forgotten.
type run struct {
	id       string
	language string // empty: a program
	argv     []string
	detach   bool
	started  time.Time
	journal  *journal
	registry *registry

	mu      sync.Mutex
	context string // that it runs in; empty: none
	pid     int
	kill    func(unix.Signal) error // nil: not started, or ended
	alone   func()                  // lets nothing of its process group outlive it; nil: it cannot, or has ended
	stdin   *os.File                // nil: none, closed, or ended
	had     bool                    // stdin was a pipe or a terminal
	term    *terminal               // whose master stdin is; nil: none, or ended
	ended   time.Time

	tag       string
	pty       bool              // it was started on a terminal
	env       map[string]string // as in the request; nil when it has ended
	cwd, user string            // where and as whom it was started

	writing sync.Mutex // one Input message at a time
}

func (r *run) stdout(b []byte) {
	if len(b) > 0 {
		r.journal.append(&agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: b}})
	}
}

func (r *run) stderr(b []byte) {
	if len(b) > 0 {
		r.journal.append(&agentv1.Event{Kind: &agentv1.Event_Stderr{Stderr: b}})
	}
}

// note keeps what its starter said of a program.
func (r *run) note(tag string, pty bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tag, r.pty = tag, pty
}

// place keeps with what environment, where and as whom a process is started.
func (r *run) place(env map[string]string, cwd, user string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env, r.cwd, r.user = env, cwd, user
}

// begin makes the run's process known and writes its first event.
func (r *run) begin(pid int, kill func(unix.Signal) error) {
	r.mu.Lock()
	r.pid, r.kill = pid, kill
	r.started = time.Now()
	r.mu.Unlock()
	r.journal.append(&agentv1.Event{Kind: &agentv1.Event_Started{Started: &agentv1.Started{Pid: int32(pid), RunId: r.id}}})
}

// finish writes the last event. Only the first call counts.
func (r *run) finish(exit *agentv1.Exit) {
	r.mu.Lock()
	if !r.ended.IsZero() {
		r.mu.Unlock()
		return
	}
	r.ended = time.Now()
	r.kill, r.alone, r.term, r.env = nil, nil, nil, nil
	stdin := r.stdin
	r.stdin = nil
	exit.Micros = r.ended.Sub(r.started).Microseconds()
	r.mu.Unlock()
	if stdin != nil {
		stdin.Close()
	}
	r.journal.append(&agentv1.Event{Kind: &agentv1.Event_Exit{Exit: exit}})
	r.registry.finished(r)
}

// signal sends a signal to what the run runs. After the end it returns
// os.ErrProcessDone.
func (r *run) signal(sig unix.Signal) error {
	r.mu.Lock()
	kill := r.kill
	r.mu.Unlock()
	if kill == nil {
		return os.ErrProcessDone
	}
	return kill(sig)
}

// endGroup makes the end of the run that of its whole process group, where it has one of its own.
func (r *run) endGroup() {
	r.mu.Lock()
	alone := r.alone
	r.mu.Unlock()
	if alone != nil {
		alone()
	}
}

// input writes to the standard input and closes it at eof; on a terminal it types
// the end-of-file character instead, and more can follow. It blocks as long as
// the program does not read.
func (r *run) input(ctx context.Context, data []byte, eof bool) (int, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	stdin, had, term, ended := r.stdin, r.had, r.term, !r.ended.IsZero()
	r.mu.Unlock()
	switch {
	case !had:
		return 0, precondition("run %s was started without standard input", r.id)
	case ended:
		return 0, precondition("run %s has ended", r.id)
	case stdin == nil:
		return 0, precondition("standard input of run %s is closed", r.id)
	}
	n, err := r.write(ctx, stdin, data)
	if term != nil {
		term.typed(data[:n])
	}
	if err != nil || !eof {
		return n, err
	}
	if term != nil {
		end, err := term.endOfFile()
		if err == nil {
			_, err = r.write(ctx, stdin, end)
		}
		return n, err
	}
	r.mu.Lock()
	r.stdin = nil
	r.mu.Unlock()
	stdin.Close()
	return n, nil
}

// write writes to the standard input until ctx ends.
func (r *run) write(ctx context.Context, stdin *os.File, data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	// A deadline is the only way to stop a write that the program blocks.
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = stdin.SetWriteDeadline(time.Unix(1, 0))
		close(cut)
	})
	n, err := stdin.Write(data)
	if !stop() {
		<-cut
		_ = stdin.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return n, connect.NewError(connect.CodeCanceled, context.Cause(ctx))
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, os.ErrClosed):
		return n, precondition("run %s has ended or does not read its standard input any more", r.id)
	}
	return n, fmt.Errorf("write to run %s: %w", r.id, err)
}

func precondition(format string, args ...any) error {
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(format, args...))
}

func (r *run) info() *agentv1.RunInfo {
	next, exit := r.journal.state()
	r.mu.Lock()
	defer r.mu.Unlock()
	return &agentv1.RunInfo{
		RunId: r.id, Pid: int32(r.pid), Argv: r.argv, Language: r.language,
		StartedUnixMillis: r.started.UnixMilli(), Exit: exit, NextSeq: next,
		Tag: r.tag, Pty: r.pty, Env: r.env, Cwd: r.cwd, User: r.user, Detached: r.detach,
		Context: r.context,
	}
}

// registry knows the runs that go on and a bounded number of finished ones.
type registry struct {
	cfg *Config

	mu       sync.Mutex
	byID     map[string]*run
	order    []*run // oldest first
	live     int
	finishes []*run // foreground, in the order of their end
	detached []*run // detached, in the order of their end
}

func (g *registry) init(cfg *Config) {
	g.cfg = cfg
	g.byID = make(map[string]*run)
}

func (g *registry) add(r *run) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetLocked(time.Now())
	if g.byID[r.id] != nil {
		return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("there is already a run %q", r.id))
	}
	if g.live >= g.cfg.MaxRuns {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d runs go on already, which is the limit", g.live))
	}
	g.live++
	g.byID[r.id] = r
	g.order = append(g.order, r)
	return nil
}

func (g *registry) finished(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live--
	if r.detach {
		g.detached = append(g.detached, r)
	} else {
		g.finishes = append(g.finishes, r)
	}
	g.forgetLocked(time.Now())
}

// forgetLocked drops finished runs that are too many or too old.
func (g *registry) forgetLocked(now time.Time) {
	drop := max(0, len(g.finishes)-g.cfg.KeepRuns)
	for drop < len(g.finishes) && now.Sub(g.finishes[drop].endedAt()) > g.cfg.KeepFor {
		drop++
	}
	g.finishes = g.dropLocked(g.finishes, drop)
	g.detached = g.dropLocked(g.detached, max(0, len(g.detached)-g.cfg.KeepDetached))
}

func (g *registry) dropLocked(runs []*run, n int) []*run {
	if n == 0 {
		return runs
	}
	for _, r := range runs[:n] {
		delete(g.byID, r.id)
		r.journal.release()
	}
	kept := g.order[:0]
	for _, r := range g.order {
		if g.byID[r.id] == r {
			kept = append(kept, r)
		}
	}
	clear(g.order[len(kept):])
	g.order = kept
	return append([]*run(nil), runs[n:]...)
}

func (r *run) endedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

func (g *registry) get(id string) *run {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetLocked(time.Now())
	return g.byID[id]
}

func (g *registry) list() []*run {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetLocked(time.Now())
	return append([]*run(nil), g.order...)
}

// close releases every journal.
func (g *registry) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.order {
		r.journal.release()
	}
}
