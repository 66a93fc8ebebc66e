package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// Exec runs code.
func (s *Server) Exec(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	var body rametv1.ExecRequest
	if err := decode(w, r, maxCodeBody, false, &body); err != nil {
		s.writeError(w, r, err)
		return
	}
	if body.Code == "" {
		s.writeError(w, r, badRequest("invalid_code", "code is missing or empty; give the source to run"))
		return
	}
	var conv converter = &lines{now: time.Now}
	switch f := value(body.Format); f {
	case "", "lines":
	case "chunks":
		conv = &chunks{now: time.Now}
	default:
		s.writeError(w, r, badRequest("invalid_format", "format %q does not exist; use lines or chunks", short(f)))
		return
	}
	s.serveRun(w, r, id, conv, func(ctx context.Context, sb sandbox.ID) (*control.Stream, error) {
		return s.control.Run(ctx, project(r), sb, control.RunRequest{
			Code: body.Code, Language: value(body.Language), Context: value(body.Context), Timeout: value(body.TimeoutS),
			Env: value(body.Env), Cwd: value(body.Cwd), User: value(body.User),
		})
	})
}

// StartProcess starts a program.
func (s *Server) StartProcess(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, _ rametv1.StartProcessParams) {
	var body rametv1.ProcessStart
	if err := decode(w, r, 2*maxBody, false, &body); err != nil {
		s.writeError(w, r, err)
		return
	}
	start := func(ctx context.Context, sb sandbox.ID) (*control.Stream, error) {
		return s.control.StartProgram(ctx, project(r), sb, control.ProgramRequest{
			Argv: body.Argv, Cwd: value(body.Cwd), Env: value(body.Env), User: value(body.User),
			Timeout: value(body.TimeoutS), Stdin: value(body.Stdin), Detach: value(body.Detach),
			Pty: toPtySize(body.Pty), Tag: value(body.Tag),
		})
	}
	if value(body.Detach) && r.Header.Get("Idempotency-Key") != "" {
		start = s.startOnce(w, r, body, start)
	}
	s.serveRun(w, r, id, &chunks{now: time.Now}, start)
}

// StreamProcess follows a run again.
func (s *Server) StreamProcess(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, process rametv1.ProcessID, params rametv1.StreamProcessParams) {
	from := value(params.FromSeq)
	if from < 0 {
		s.writeError(w, r, badRequest("invalid_parameter", "from_seq is %d; it cannot be negative", from))
		return
	}
	s.serveRun(w, r, id, &chunks{now: time.Now, next: from}, func(ctx context.Context, sb sandbox.ID) (*control.Stream, error) {
		if value(params.Latest) {
			return s.control.Follow(ctx, project(r), sb, process)
		}
		return s.control.Attach(ctx, project(r), sb, process, uint64(from))
	})
}

// serveRun opens a run's stream and serves it until the run, the client or the server ends.
func (s *Server) serveRun(w http.ResponseWriter, r *http.Request, id string, conv converter,
	open func(context.Context, sandbox.ID) (*control.Stream, error),
) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stream, err := open(ctx, parsed)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	w.Header().Set("X-Run-Id", stream.Run)

	pump := pumpEvents(ctx, stream.Next)
	// First end the pump, then close: a stream has one reader.
	defer func() {
		cancel()
		for range pump.out {
		}
		stream.Close()
	}()
	s.copyEvents(w, r, pump, conv)
}

// received is one outcome of a stream.
type received struct {
	event *agentv1.Event
	err   error
	size  int64 // its share of the pump's budget, in bytes
}

// pumpBudget bounds what a pump holds ahead of its client, in bytes. A guest can make
// one event larger than that; then there is no other beside it.
const pumpBudget = 1 << 20

// pump receives events in the background.
type pump struct {
	out    chan received
	budget *semaphore.Weighted
}

// pumpEvents receives in the background until the end or ctx does, so that a
// silent stream can be kept alive meanwhile. The channel is closed at its end.
func pumpEvents(ctx context.Context, next func() (*agentv1.Event, error)) *pump {
	p := &pump{out: make(chan received, 16), budget: semaphore.NewWeighted(pumpBudget)}
	go func() {
		defer close(p.out)
		for {
			e, err := next()
			if errors.Is(err, io.EOF) {
				return
			}
			size := min(int64(proto.Size(e)), pumpBudget)
			if p.budget.Acquire(ctx, size) != nil {
				return
			}
			select {
			case p.out <- received{e, err, size}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return p
}

// copyEvents writes events as they come. What arrives together is flushed together.
func (s *Server) copyEvents(w http.ResponseWriter, r *http.Request, in *pump, conv converter) {
	out := newNDJSON(w)
	quiet := time.NewTimer(patience)
	defer quiet.Stop()
	for {
		select {
		case got, ok := <-in.out:
			if !ok {
				if out.begun {
					_ = out.flush() // a client that is gone is its own business
				}
				return
			}
			if got.err != nil {
				s.endStream(w, r, out, conv, got.err)
				return
			}
			for _, e := range conv.convert(got.event) {
				if out.write(e) != nil {
					return
				}
			}
			in.budget.Release(got.size)
			if len(in.out) == 0 && out.begun && out.flush() != nil {
				return
			}
		case <-quiet.C:
			if out.keepAlive() != nil {
				return
			}
		case <-s.draining.Done():
			s.endStream(w, r, out, conv, errDraining)
			return
		case <-r.Context().Done():
			if err := revoked(r); err != nil {
				s.endStream(w, r, out, conv, err)
			}
			return
		}
		quiet.Reset(s.cfg.KeepAlive)
	}
}

var errDraining = sandbox.Errorf(sandbox.Unavailable, "shutting_down", "the server is shutting down; follow the process again in a moment")

// endStream ends a stream with an error: with a status when nothing was sent yet,
// else with a last event.
func (s *Server) endStream(w http.ResponseWriter, r *http.Request, out *ndjson, conv converter, err error) {
	if !out.begun {
		s.writeError(w, r, err)
		return
	}
	req := requestOf(r.Context())
	req.err = err
	if r.Context().Err() != nil && revoked(r) == nil {
		return
	}
	d := describe(err, req.id)
	for _, e := range conv.failed(d.Error, d.Code) {
		if out.write(e) != nil {
			return
		}
	}
	_ = out.flush() // a client that is gone is its own business
}

// ListProcesses lists runs and programs.
func (s *Server) ListProcesses(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	runs, err := s.control.Runs(r.Context(), project(r), parsed)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.ProcessList{Processes: make([]rametv1.Process, 0, len(runs))}
	for _, run := range runs {
		out.Processes = append(out.Processes, toProcess(run))
	}
	s.writeJSON(w, r, out)
}

// unlessZero returns a pointer to v, or nil when it says nothing.
func unlessZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func toProcess(run *agentv1.RunInfo) rametv1.Process {
	p := rametv1.Process{
		Process: run.RunId, Pid: int(run.Pid), Running: run.Exit == nil,
		StartedAt: time.UnixMilli(run.StartedUnixMillis).UTC(), NextSeq: int64(run.NextSeq),
		Language: unlessZero(run.Language), Tag: unlessZero(run.Tag), Cwd: unlessZero(run.Cwd), User: unlessZero(run.User),
		Pty: unlessZero(run.Pty), Detached: unlessZero(run.Detached),
	}
	if len(run.Argv) > 0 {
		p.Argv = &run.Argv
	}
	if run.Context != "" {
		p.Context = &run.Context
	}
	if x := run.Exit; x != nil {
		code := int(x.Code)
		p.ExitCode = &code
		if word, ok := reasons[x.Reason]; ok {
			p.Reason = &word
		}
		if x.Signal != 0 {
			n := int(x.Signal)
			p.Signal = &n
		}
		if x.Message != "" {
			p.Message = &x.Message
		}
	}
	return p
}

func toPtySize(size *rametv1.PtySize) *control.PtySize {
	if size == nil {
		return nil
	}
	return &control.PtySize{Columns: size.Columns, Rows: size.Rows}
}

// ResizeProcess sets the size of a process's terminal.
func (s *Server) ResizeProcess(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, process rametv1.ProcessID) {
	var body rametv1.PtySize
	if err := decode(w, r, maxBody, false, &body); err != nil {
		s.writeError(w, r, err)
		return
	}
	parsed, err := sandbox.ParseID(id)
	if err == nil {
		err = s.control.Resize(r.Context(), project(r), parsed, process, *toPtySize(&body))
	}
	s.writeDone(w, r, err)
}

// WriteStdin passes the body to a program.
func (s *Server) WriteStdin(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, process rametv1.ProcessID, params rametv1.WriteStdinParams) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	waitForBody(r)
	n, err := s.control.Input(r.Context(), project(r), parsed, process, r.Body, value(params.Eof))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, rametv1.Written{Bytes: int64(n)})
}

// SignalProcess signals a process group.
func (s *Server) SignalProcess(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, process rametv1.ProcessID) {
	var body rametv1.SignalRequest
	if err := decode(w, r, maxBody, false, &body); err != nil {
		s.writeError(w, r, err)
		return
	}
	sig, err := parseSignal(body.Signal)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	parsed, err := sandbox.ParseID(id)
	if err == nil {
		err = s.control.Signal(r.Context(), project(r), parsed, process, sig)
	}
	s.writeDone(w, r, err)
}

// parseSignal takes "SIGINT", "int", 2.
func parseSignal(raw json.RawMessage) (syscall.Signal, error) {
	var n int
	if json.Unmarshal(raw, &n) == nil && n >= 1 && n <= 64 {
		return syscall.Signal(n), nil
	}
	var name string
	if json.Unmarshal(raw, &name) == nil {
		name = strings.ToUpper(name)
		if !strings.HasPrefix(name, "SIG") {
			name = "SIG" + name
		}
		if sig := unix.SignalNum(name); sig != 0 {
			return sig, nil
		}
	}
	return 0, badRequest("invalid_signal", "signal has to be a name such as SIGINT or a number from 1 to 64")
}
