package podflare

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// ptyCreate is the body of a call that starts a program on a terminal. A command line runs
// in a login shell, a list is the program itself.
type ptyCreate struct {
	ShellCmd *string    `json:"shellCmd"`
	Argv     []string   `json:"argv"`
	Cols     int        `json:"cols"`
	Rows     int        `json:"rows"`
	Env      [][]string `json:"env"`
	Cwd      string     `json:"cwd"`
}

// ptyEvent is a line of a terminal's stream: pty_ready has the session, pty_data what the
// terminal showed, pty_exit the exit code as data, pty_error a message.
type ptyEvent struct {
	Type    string  `json:"type"`
	Session string  `json:"session_id,omitempty"`
	DataB64 *string `json:"data_b64,omitempty"`
	Data    *int    `json:"data,omitempty"`
	Message string  `json:"message,omitempty"`
	Seq     uint64  `json:"seq"`
}

// line writes v as one line of JSON. The client splits lines where Python does, at U+0085,
// U+2028 and U+2029 too; what is sent here has only ASCII in it, or is escaped by encoding/json.
func line(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(escapeNextLine(b), '\n'))
	return err
}

// shell is what a command line runs in.
var shell = []string{"bash", "-lc"}

func (b *ptyCreate) request() (control.ProgramRequest, error) {
	r := control.ProgramRequest{
		Argv: b.Argv, Cwd: b.Cwd, Env: make(map[string]string, len(b.Env)+1), Detach: true,
		Pty: &control.PtySize{Columns: b.Cols, Rows: b.Rows},
	}
	switch {
	case b.ShellCmd != nil && len(b.Argv) > 0:
		return r, sandbox.Errorf(sandbox.Invalid, "two_names", "shellCmd and argv both say what to run; give one of them")
	case b.ShellCmd != nil:
		r.Argv = append(slices.Clone(shell), *b.ShellCmd)
	case len(b.Argv) == 0:
		return r, sandbox.Errorf(sandbox.Invalid, "invalid_argv", "give a command line as shellCmd, or a program and its arguments as argv")
	}
	if r.Pty.Columns == 0 {
		r.Pty.Columns = 80
	}
	if r.Pty.Rows == 0 {
		r.Pty.Rows = 24
	}
	r.Env["TERM"] = "xterm-256color"
	for _, pair := range b.Env {
		if len(pair) != 2 {
			return r, sandbox.Errorf(sandbox.Invalid, "invalid_env", "env has to be a list of [name, value]")
		}
		r.Env[pair[0]] = pair[1]
	}
	return r, nil
}

// createPty starts a program on a terminal and follows it. It goes on when the client leaves:
// its starter may be a session that ends before the program does.
func (s *Server) createPty(w http.ResponseWriter, r *http.Request) {
	var body ptyCreate
	err := s.cfg.Decode(w, r, &body)
	var req control.ProgramRequest
	if err == nil {
		req, err = body.request()
	}
	s.follow(w, r, err, true, func(ctx context.Context, id sandbox.ID) (*control.Stream, error) {
		return s.cfg.Control.StartProgram(ctx, s.cfg.Project(r), id, req)
	})
}

// attachPty follows a terminal from its first output on that is kept.
func (s *Server) attachPty(w http.ResponseWriter, r *http.Request) {
	s.follow(w, r, nil, false, func(ctx context.Context, id sandbox.ID) (*control.Stream, error) {
		return s.cfg.Control.Attach(ctx, s.cfg.Project(r), id, r.PathValue("pty"), 0)
	})
}

// follow serves the stream of a terminal, which began with an error or is opened now.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, err error, ready bool,
	open func(context.Context, sandbox.ID) (*control.Stream, error),
) {
	var id sandbox.ID
	if err == nil {
		id, err = sandbox.ParseID(r.PathValue("id"))
	}
	if err != nil {
		s.cfg.Refuse(w, r, err)
		return
	}
	p, err := start(r.Context(), func(ctx context.Context) (*control.Stream, error) { return open(ctx, id) })
	if err != nil {
		s.cfg.Refuse(w, r, err)
		return
	}
	defer p.close()
	w.Header().Set("X-Run-Id", p.stream.Run)
	s.copyOut(w, r, p, ready)
}

// copyOut writes what comes until the program, the client or the server ends.
func (s *Server) copyOut(w http.ResponseWriter, r *http.Request, p *pump, ready bool) {
	flusher := http.NewResponseController(w)
	begun := false
	// send writes events and flushes. Without any it keeps the stream alive.
	send := func(events ...ptyEvent) bool {
		if !begun {
			begun = true
			beginLines(w)
		}
		for _, e := range events {
			if line(w, e) != nil {
				return false
			}
		}
		if len(events) == 0 {
			if _, err := w.Write([]byte{'\n'}); err != nil {
				return false
			}
		}
		return flusher.Flush() == nil
	}
	fail := func(err error) {
		if !begun {
			s.cfg.Refuse(w, r, err)
			return
		}
		send(ptyEvent{Type: "pty_error", Message: message(err)})
	}
	quiet := time.NewTimer(s.cfg.KeepAlive)
	defer quiet.Stop()
	for {
		select {
		case got, ok := <-p.out:
			if !ok {
				return
			}
			if got.err != nil {
				fail(got.err)
				return
			}
			if events := convert(got.event, ready); len(events) > 0 && !send(events...) {
				return
			}
		case <-quiet.C:
			if !send() {
				return
			}
		case <-s.cfg.Draining:
			fail(errDraining)
			return
		case <-r.Context().Done():
			if err := s.cfg.Ended(r); err != nil {
				fail(err)
			}
			return
		}
		quiet.Reset(s.cfg.KeepAlive)
	}
}

var errDraining = sandbox.Errorf(sandbox.Unavailable, "shutting_down", "the server is shutting down; attach again in a moment")

// message is what a user may read of an error.
func message(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Kind != sandbox.Internal {
		return e.Message
	}
	return "internal error; the server's log has more"
}

// convert turns an event of the agent into lines. ready says that the beginning is told.
func convert(e *agentv1.Event, ready bool) []ptyEvent {
	switch k := e.Kind.(type) {
	case *agentv1.Event_Started:
		if ready {
			return []ptyEvent{{Type: "pty_ready", Session: k.Started.RunId, Seq: e.Seq}}
		}
	case *agentv1.Event_Stdout:
		return []ptyEvent{data(k.Stdout, e.Seq)}
	case *agentv1.Event_Stderr:
		return []ptyEvent{data(k.Stderr, e.Seq)}
	case *agentv1.Event_Truncated:
		return []ptyEvent{{Type: "pty_error", Message: "output was dropped here: there was more than is kept", Seq: e.Seq}}
	case *agentv1.Event_Exit:
		code := int(k.Exit.Code)
		var events []ptyEvent
		if k.Exit.Reason == agentv1.Reason_START_FAILED {
			events = append(events, ptyEvent{Type: "pty_error", Message: k.Exit.Message, Seq: e.Seq})
		}
		return append(events, ptyEvent{Type: "pty_exit", Data: &code, Seq: e.Seq})
	}
	return nil
}

func data(b []byte, seq uint64) ptyEvent {
	text := base64.StdEncoding.EncodeToString(b)
	return ptyEvent{Type: "pty_data", DataB64: &text, Seq: seq}
}

// ptySession is an entry of the list of terminals.
type ptySession struct {
	ID        string `json:"pty_id"`
	Label     string `json:"cmd_label"`
	CreatedAt int64  `json:"created_at_ms"`
	ExitCode  *int   `json:"exit_code"` // null while it runs
}

// listPty lists the terminals of a sandbox, and those that have ended as long as their output is kept.
func (s *Server) listPty(w http.ResponseWriter, r *http.Request) {
	id, err := sandbox.ParseID(r.PathValue("id"))
	var runs []*agentv1.RunInfo
	if err == nil {
		runs, err = s.cfg.Control.Runs(r.Context(), s.cfg.Project(r), id)
	}
	if err != nil {
		s.cfg.Refuse(w, r, err)
		return
	}
	out := []ptySession{}
	for _, run := range runs {
		if !run.Pty {
			continue
		}
		session := ptySession{ID: run.RunId, Label: label(run.Argv), CreatedAt: run.StartedUnixMillis}
		if run.Exit != nil {
			code := int(run.Exit.Code)
			session.ExitCode = &code
		}
		out = append(out, session)
	}
	writeJSON(w, out)
}

// label is what was asked for: the command line, or program and arguments.
func label(argv []string) string {
	if len(argv) == len(shell)+1 && slices.Equal(argv[:len(shell)], shell) {
		argv = argv[len(shell):]
	}
	text := strings.Join(argv, " ")
	if len(text) > maxLabel {
		text = text[:maxLabel] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// maxLabel bounds a label, in bytes.
const maxLabel = 200

// act answers a call on a terminal that has nothing to say but that it worked.
func (s *Server) act(w http.ResponseWriter, r *http.Request, err error, f func(id sandbox.ID, run string) error) {
	var id sandbox.ID
	if err == nil {
		id, err = sandbox.ParseID(r.PathValue("id"))
	}
	if err == nil {
		err = f(id, r.PathValue("pty"))
	}
	if err != nil {
		s.cfg.Refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// codeEnded is the error of a call to a run that has ended.
const codeEnded = "failed_precondition"

// inputPty types.
func (s *Server) inputPty(w http.ResponseWriter, r *http.Request) {
	var body struct {
		DataB64 string `json:"data_b64"`
	}
	err := s.cfg.Decode(w, r, &body)
	var typed []byte
	if err == nil {
		if typed, err = base64.StdEncoding.DecodeString(body.DataB64); err != nil {
			err = sandbox.Errorf(sandbox.Invalid, "invalid_base64", "data_b64 is not base64")
		}
	}
	s.act(w, r, err, func(id sandbox.ID, run string) error {
		_, err := s.cfg.Control.Input(r.Context(), s.cfg.Project(r), id, run, bytes.NewReader(typed), false)
		return err
	})
}

// resizePty tells a terminal its size. One that has ended is no error: the package's own example does
// that when its program is quick.
func (s *Server) resizePty(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Cols int `json:"cols"`
		Rows int `json:"rows"`
	}
	err := s.cfg.Decode(w, r, &body)
	s.act(w, r, err, func(id sandbox.ID, run string) error {
		err := s.cfg.Control.Resize(r.Context(), s.cfg.Project(r), id, run, control.PtySize{Columns: body.Cols, Rows: body.Rows})
		if e := (*sandbox.Error)(nil); errors.As(err, &e) && e.Code == codeEnded {
			return nil
		}
		return err
	})
}

// killPty kills the program of a terminal and what runs in it. One that has ended is no error.
func (s *Server) killPty(w http.ResponseWriter, r *http.Request) {
	s.act(w, r, nil, func(id sandbox.ID, run string) error {
		return s.cfg.Control.Signal(r.Context(), s.cfg.Project(r), id, run, syscall.SIGKILL)
	})
}

// Bounds of a read.
const (
	maxRead     = 1 << 20
	maxReadWait = 30 * time.Second
	// settle is how long a read that has something waits for more of it.
	settle = 20 * time.Millisecond
)

// readPty waits for what a terminal shows from an event on, and answers with it at once.
func (s *Server) readPty(w http.ResponseWriter, r *http.Request) {
	var body struct {
		SinceSeq  uint64 `json:"since_seq"`
		MaxBytes  int    `json:"max_bytes"`
		TimeoutMs int    `json:"timeout_ms"`
	}
	err := s.cfg.Decode(w, r, &body)
	if err == nil && (body.MaxBytes < 0 || body.TimeoutMs < 0) {
		err = sandbox.Errorf(sandbox.Invalid, "invalid_parameter", "max_bytes and timeout_ms cannot be negative")
	}
	var id sandbox.ID
	if err == nil {
		id, err = sandbox.ParseID(r.PathValue("id"))
	}
	if err != nil {
		s.cfg.Refuse(w, r, err)
		return
	}
	p, err := start(r.Context(), func(ctx context.Context) (*control.Stream, error) {
		return s.cfg.Control.Attach(ctx, s.cfg.Project(r), id, r.PathValue("pty"), body.SinceSeq)
	})
	if err != nil {
		s.cfg.Refuse(w, r, err)
		return
	}
	defer p.close()
	most := maxRead
	if body.MaxBytes > 0 {
		most = min(body.MaxBytes, maxRead)
	}
	got, err := p.collect(r.Context(), body.SinceSeq, most, min(time.Duration(body.TimeoutMs)*time.Millisecond, maxReadWait))
	if err != nil {
		s.cfg.Refuse(w, r, err)
		return
	}
	writeJSON(w, got)
}

// ptyRead is the answer of a read. NextSeq is where the next one goes on.
type ptyRead struct {
	DataB64  string `json:"data_b64"`
	NextSeq  uint64 `json:"next_seq"`
	Exited   bool   `json:"exited"`
	ExitCode *int   `json:"exit_code"` // null while it runs
}

// collect gathers output until there is enough, nothing more comes, or the time is over.
func (p *pump) collect(ctx context.Context, since uint64, most int, wait time.Duration) (ptyRead, error) {
	out := ptyRead{NextSeq: since}
	var shown []byte
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for !out.Exited && len(shown) < most {
		select {
		case got, ok := <-p.out:
			if !ok {
				return out, nil
			}
			if got.err != nil {
				return out, got.err
			}
			e := got.event
			switch k := e.Kind.(type) {
			case *agentv1.Event_Stdout:
				if len(shown) > 0 && len(shown)+len(k.Stdout) > most {
					out.DataB64 = base64.StdEncoding.EncodeToString(shown)
					return out, nil
				}
				shown = append(shown, k.Stdout...)
				timer.Reset(settle)
			case *agentv1.Event_Exit:
				code := int(k.Exit.Code)
				out.Exited, out.ExitCode = true, &code
			}
			out.NextSeq = e.Seq + 1
			continue
		case <-timer.C:
		case <-ctx.Done():
		}
		break
	}
	out.DataB64 = base64.StdEncoding.EncodeToString(shown)
	return out, nil
}

// pump receives the events of a stream in the background, so that a silent one can be kept alive.
type pump struct {
	stream *control.Stream
	cancel context.CancelFunc
	out    chan received
}

type received struct {
	event *agentv1.Event
	err   error
}

// start opens a stream and receives from it until its end, or close.
func start(ctx context.Context, open func(context.Context) (*control.Stream, error)) (*pump, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := open(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	p := &pump{stream: stream, cancel: cancel, out: make(chan received)}
	go func() {
		defer close(p.out)
		for {
			e, err := stream.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			select {
			case p.out <- received{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return p, nil
}

// close ends the pump, then the stream: it has one reader.
func (p *pump) close() {
	p.cancel()
	for range p.out {
	}
	p.stream.Close()
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that is gone is its own business
}
