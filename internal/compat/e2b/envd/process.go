package envd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	envdv1 "ramet.dev/ramet/api/envd/v1"
	"ramet.dev/ramet/internal/control"
)

// processes is the service process.Process.
type processes struct{ *Server }

// keepAlive is the silence after which a stream says that it lives, when its client does not say.
const keepAlive = 90 * time.Second

// pings returns the silence after which a stream says that it lives.
func (c *call) pings() time.Duration {
	n, err := strconv.ParseUint(c.head.Get("Keepalive-Ping-Interval"), 10, 16)
	if err != nil || n == 0 {
		return keepAlive
	}
	return time.Duration(n) * time.Second
}

// longestRun bounds the lifetime limit of a process, which is 32 years where a client means none.
const longestRun = 365 * 24 * time.Hour

// Start starts a process. Its caller's limit is that of its life, kept in the guest; a caller
// that leaves does not end it.
func (s processes) Start(ctx context.Context, req *envdv1.StartRequest, out *connect.ServerStream[envdv1.StartResponse]) error {
	c := callOf(ctx)
	p := control.ProgramRequest{
		Argv: append([]string{req.GetProcess().GetCmd()}, req.GetProcess().GetArgs()...),
		Env:  req.GetProcess().GetEnvs(), Cwd: atHome(req.GetProcess().GetCwd()), User: c.user,
		Stdin: req.Stdin == nil || *req.Stdin, Detach: true, Tag: req.GetTag(),
	}
	if req.Pty != nil {
		p.Pty = ptySize(req.Pty)
	}
	if until, ok := deadlineOf(ctx); ok {
		// Where none is left, the context ends just now.
		p.Timeout = min(max(time.Until(until), time.Millisecond), longestRun).Seconds()
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.control.StartProgram(ctx, c.Project, c.ID, p)
	if err != nil {
		return s.rpcError(ctx, err)
	}
	r := &relay{pty: req.Pty != nil, limited: true, cancel: cancel, send: func(e *envdv1.ProcessEvent) error {
		return out.Send(&envdv1.StartResponse{Event: e})
	}}
	if err = s.relay(ctx, stream, r); r.refused == nil {
		return err
	}
	return s.startFailed(outer, c, r.refused)
}

// atHome makes a path relative to the home where it starts with a tilde.
func atHome(path string) string {
	if path == "~" {
		return ""
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return "./" + strings.TrimLeft(rest, "/")
	}
	return path
}

// ptySize reads the size of a terminal, 80 by 24 where it has none.
func ptySize(p *envdv1.PTY) *control.PtySize {
	size := &control.PtySize{Columns: int(p.GetSize().GetCols()), Rows: int(p.GetSize().GetRows())}
	if size.Columns == 0 {
		size.Columns = 80
	}
	if size.Rows == 0 {
		size.Rows = 24
	}
	return size
}

// startFailed says why a process did not start. The guest has one word for all reasons, so
// whether it was the user is asked.
func (s *Server) startFailed(ctx context.Context, c *call, exit *agentv1.Exit) error {
	if err := s.checkUser(ctx, c); err != nil {
		return s.rpcError(ctx, err)
	}
	return connect.NewError(connect.CodeInvalidArgument, errors.New(exit.Message))
}

// Connect follows a process from now on. What it has written before is not repeated.
func (s processes) Connect(ctx context.Context, req *envdv1.ConnectRequest, out *connect.ServerStream[envdv1.ConnectResponse]) error {
	c := callOf(ctx)
	run, err := s.find(ctx, c, req.GetProcess())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.control.Follow(ctx, c.Project, c.ID, run.RunId)
	if err != nil {
		return s.rpcError(ctx, err)
	}
	r := &relay{pty: run.Pty, cancel: cancel, send: func(e *envdv1.ProcessEvent) error {
		return out.Send(&envdv1.ConnectResponse{Event: e})
	}}
	if err := r.begin(run.Pid); err != nil {
		stream.Close()
		return err
	}
	return s.relay(ctx, stream, r)
}

// relay passes the events of a run to one client.
type relay struct {
	pty     bool
	limited bool // the run ends with the call's limit
	send    func(*envdv1.ProcessEvent) error
	cancel  func() // ends the stream's context
	begun   bool
	// refused is why the process did not start.
	refused *agentv1.Exit
}

// begin tells the process's number, which is what a client waits for.
func (r *relay) begin(pid int32) error {
	r.begun = true
	return r.send(&envdv1.ProcessEvent{Event: &envdv1.ProcessEvent_Start{Start: &envdv1.ProcessEvent_StartEvent{Pid: uint32(pid)}}})
}

// received is one outcome of a stream.
type received struct {
	event *agentv1.Event
	err   error
}

// relay passes on events until the process, the client or the server ends.
func (s *Server) relay(ctx context.Context, stream *control.Stream, r *relay) error {
	events := make(chan received)
	go func() {
		defer close(events)
		for {
			e, err := stream.Next()
			select {
			case events <- received{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil || e.GetExit() != nil {
				return
			}
		}
	}()
	// First end the reader, then close: a stream has one reader.
	defer func() {
		r.cancel()
		for range events {
		}
		stream.Close()
	}()
	every := callOf(ctx).pings()
	quiet := time.NewTimer(every)
	defer quiet.Stop()
	for {
		select {
		case got := <-events:
			if got.err != nil {
				return s.rpcError(ctx, got.err)
			}
			done, err := r.pass(got.event)
			if done || err != nil {
				return err
			}
		case <-quiet.C:
			if err := r.send(&envdv1.ProcessEvent{Event: &envdv1.ProcessEvent_Keepalive{Keepalive: &envdv1.ProcessEvent_KeepAlive{}}}); err != nil {
				return err
			}
		case <-s.draining.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("the server is shutting down; connect to the process again in a moment"))
		case <-ctx.Done():
			return s.rpcError(ctx, ctx.Err())
		}
		quiet.Reset(every)
	}
}

// pass sends what an event means, and says whether it was the last.
func (r *relay) pass(e *agentv1.Event) (done bool, err error) {
	switch k := e.Kind.(type) {
	case *agentv1.Event_Started:
		if !r.begun {
			return false, r.begin(k.Started.Pid)
		}
	case *agentv1.Event_Stdout:
		return false, r.data(k.Stdout, false)
	case *agentv1.Event_Stderr:
		return false, r.data(k.Stderr, true)
	case *agentv1.Event_Truncated:
		return false, r.data([]byte(r.missing(k.Truncated.Bytes)), true)
	case *agentv1.Event_Exit:
		return true, r.end(k.Exit)
	}
	return false, nil
}

func (r *relay) data(b []byte, stderr bool) error {
	d := &envdv1.ProcessEvent_DataEvent{}
	switch {
	case r.pty:
		d.Output = &envdv1.ProcessEvent_DataEvent_Pty{Pty: b}
	case stderr:
		d.Output = &envdv1.ProcessEvent_DataEvent_Stderr{Stderr: b}
	default:
		d.Output = &envdv1.ProcessEvent_DataEvent_Stdout{Stdout: b}
	}
	return r.send(&envdv1.ProcessEvent{Event: &envdv1.ProcessEvent_Data{Data: d}})
}

// missing says that output is not here. Events have no other place for that.
func (r *relay) missing(bytes uint64) string {
	eol := "\n"
	if r.pty {
		eol = "\r\n"
	}
	return eol + control.DroppedNotice(bytes) + eol
}

func (r *relay) end(exit *agentv1.Exit) error {
	if !r.begun {
		r.refused = exit
		return nil
	}
	if r.limited && exit.Reason == agentv1.Reason_TIMEOUT {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the process was ended at its time limit"))
	}
	return r.send(&envdv1.ProcessEvent{Event: &envdv1.ProcessEvent_End{End: endEvent(exit)}})
}

// endEvent tells an end in the words of E2B's servers, which are those of Go's os/exec.
func endEvent(exit *agentv1.Exit) *envdv1.ProcessEvent_EndEvent {
	end := &envdv1.ProcessEvent_EndEvent{ExitCode: exit.Code, Exited: true, Status: fmt.Sprintf("exit status %d", exit.Code)}
	if exit.Signal != 0 {
		end.ExitCode, end.Exited = -1, false
		end.Status = "signal: " + syscall.Signal(exit.Signal).String()
	}
	if end.ExitCode != 0 {
		end.Error = &end.Status
	}
	return end
}

// find finds a process that runs.
func (s *Server) find(ctx context.Context, c *call, sel *envdv1.ProcessSelector) (*agentv1.RunInfo, error) {
	var match func(*agentv1.RunInfo) bool
	var shown string
	switch k := sel.GetSelector().(type) {
	case *envdv1.ProcessSelector_Pid:
		match, shown = func(r *agentv1.RunInfo) bool { return uint32(r.Pid) == k.Pid }, fmt.Sprintf("pid %d", k.Pid)
	case *envdv1.ProcessSelector_Tag:
		match, shown = func(r *agentv1.RunInfo) bool { return r.Tag == k.Tag }, fmt.Sprintf("tag %q", shorten(k.Tag))
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("process is missing; name one by its pid or its tag"))
	}
	runs, err := s.control.Runs(ctx, c.Project, c.ID)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	var found *agentv1.RunInfo
	for _, r := range runs {
		if isProcess(r) && match(r) && (found == nil || r.StartedUnixMillis >= found.StartedUnixMillis) {
			found = r
		}
	}
	if found == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("process with %s not found", shown))
	}
	return found, nil
}

// isProcess says whether a run is a program that runs: neither code nor over.
func isProcess(r *agentv1.RunInfo) bool { return r.Exit == nil && r.Language == "" && r.Pid > 0 }

// List lists the processes that run.
func (s processes) List(ctx context.Context, _ *envdv1.ListRequest) (*envdv1.ListResponse, error) {
	c := callOf(ctx)
	runs, err := s.control.Runs(ctx, c.Project, c.ID)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	res := &envdv1.ListResponse{}
	for _, r := range runs {
		if !isProcess(r) || len(r.Argv) == 0 {
			continue
		}
		p := &envdv1.ProcessInfo{Pid: uint32(r.Pid), Config: &envdv1.ProcessConfig{Cmd: r.Argv[0], Args: r.Argv[1:], Envs: r.Env}}
		if r.Cwd != "" {
			p.Config.Cwd = &r.Cwd
		}
		if r.Tag != "" {
			p.Tag = &r.Tag
		}
		res.Processes = append(res.Processes, p)
	}
	return res, nil
}

// Update resizes a terminal.
func (s processes) Update(ctx context.Context, req *envdv1.UpdateRequest) (*envdv1.UpdateResponse, error) {
	c := callOf(ctx)
	run, err := s.find(ctx, c, req.GetProcess())
	if err != nil {
		return nil, err
	}
	if req.Pty == nil {
		return &envdv1.UpdateResponse{}, nil
	}
	if !run.Pty {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has no terminal"))
	}
	if err := s.control.Resize(ctx, c.Project, c.ID, run.RunId, *ptySize(req.Pty)); err != nil {
		return nil, s.rpcError(ctx, err)
	}
	return &envdv1.UpdateResponse{}, nil
}

// signals are those that clients can send.
var signals = map[envdv1.Signal]syscall.Signal{
	envdv1.Signal_SIGNAL_SIGTERM: syscall.SIGTERM,
	envdv1.Signal_SIGNAL_SIGKILL: syscall.SIGKILL,
}

// SendSignal signals a process and its children.
func (s processes) SendSignal(ctx context.Context, req *envdv1.SendSignalRequest) (*envdv1.SendSignalResponse, error) {
	c := callOf(ctx)
	sig, ok := signals[req.Signal]
	if !ok {
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("signal %d cannot be sent; use SIGTERM or SIGKILL", req.Signal))
	}
	run, err := s.find(ctx, c, req.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := s.control.Signal(ctx, c.Project, c.ID, run.RunId, sig); err != nil {
		return nil, s.rpcError(ctx, err)
	}
	if sig == syscall.SIGKILL {
		s.awaitEnd(ctx, c, run)
	}
	return &envdv1.SendSignalResponse{}, nil
}

// killedWithin is how long a killed process may take to end before its killer is answered.
const killedWithin = 2 * time.Second

// awaitEnd waits until a killed process has ended, so that whoever looks next does not find it.
func (s *Server) awaitEnd(ctx context.Context, c *call, run *agentv1.RunInfo) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(killedWithin, cancel).Stop()
	stream, err := s.control.Attach(ctx, c.Project, c.ID, run.RunId, run.NextSeq)
	if err != nil {
		return // it has ended and is forgotten, or it is too late; the signal was sent
	}
	defer stream.Close()
	for err == nil {
		_, err = stream.Next() // io.EOF comes behind the exit
	}
}
