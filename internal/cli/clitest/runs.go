package clitest

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// Code for a fake sandbox is lines of a word and its argument:
//
//	out TEXT      write a line to standard output; "err TEXT" to standard error
//	echo TEXT     the same as "out"; "print(1)" writes a 1: what 'bench' runs
//	raw HEX       write bytes, which need not be UTF-8, to standard output
//	result TEXT   a value of the last expression; "image" one without text
//	lost N        N bytes of output were dropped
//	raise NAME    an uncaught exception, exit code 1
//	env NAME      write a variable of the call; "cwd" and "user" likewise
//	wait          until SIGINT, then end as interrupted
//	stubborn      until the client leaves; says "got SIGINT" at one
//	cut           break the connection off; "broken" end with a stream_error
//	timeout       end as the timeout does; "killed" as SIGKILL does
//	exit N        end with a code

// run is something that runs in a fake sandbox.
type run struct {
	box     string
	signals chan string
	stdin   *io.PipeReader
	feed    *io.PipeWriter
	sizes   chan v1.PtySize // of its terminal; nil: it has none
}

// emitter writes the events of one run.
type emitter struct {
	w   http.ResponseWriter
	seq int64
}

func (e *emitter) send(ev v1.Event) {
	ev.Seq, ev.Ts = e.seq, time.Now().UnixMilli()
	e.seq++
	json.NewEncoder(e.w).Encode(ev)
	fmt.Fprintln(e.w) // a keep-alive after each event: clients must skip it
	e.w.(http.Flusher).Flush()
}

func (e *emitter) text(kind, s string) {
	e.send(v1.Event{Type: kind, Data: quote(s)})
}

func (e *emitter) exit(code int, reason, message string) {
	ms := 1.5
	ev := v1.Event{Type: "exit", Data: json.RawMessage(strconv.Itoa(code)), DurationMs: &ms}
	if reason != "" {
		ev.Reason, ev.Message = &reason, &message
	}
	e.send(ev)
}

func quote(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always marshal
	}
	return b
}

// begin registers a run and starts its answer.
func (s *Server) begin(w http.ResponseWriter, box string, terminal bool) (string, *run, *emitter) {
	s.mu.Lock()
	s.begun++ // a run that has sent its exit may still be in s.runs
	id := fmt.Sprintf("run-%d", s.begun)
	r := &run{box: box, signals: make(chan string, 8)}
	r.stdin, r.feed = io.Pipe()
	if terminal {
		r.sizes = make(chan v1.PtySize, 8)
	}
	s.runs[id] = r
	s.mu.Unlock()
	w.Header().Set("X-Run-Id", id)
	w.Header().Set("Content-Type", "application/x-ndjson")
	e := &emitter{w: w}
	e.send(v1.Event{Type: "started", Data: json.RawMessage("42"), Process: &id})
	return id, r, e
}

func (s *Server) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[id].stdin.Close()
	delete(s.runs, id)
}

// Exec implements the API.
func (s *Server) Exec(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	req, ok := read[v1.ExecRequest](w, r)
	if !ok {
		return
	}
	if req.Context != nil && b.context(w, *req.Context) == nil {
		return
	}
	if lang := valueOr(req.Language, "python"); lang != "python" && lang != "bash" && lang != "javascript" {
		fail(w, 400, "unknown_language", fmt.Sprintf("the language %q is not known: use python or bash", lang))
		return
	}
	if valueOr(req.Format, "") != "chunks" {
		fail(w, 400, "wrong_format", "the command line asks for chunks")
		return
	}
	runID, run, e := s.begin(w, id, false)
	defer s.end(runID)
	for line := range strings.Lines(req.Code) {
		if e.step(r, run, strings.TrimSpace(line), call{valueOr(req.Env, nil), valueOr(req.Cwd, "/root"), valueOr(req.User, "root"), valueOr(req.TimeoutS, 0), valueOr(req.Context, "default")}) {
			return
		}
	}
	e.exit(0, "", "")
}

// call is what a run was called with.
type call struct {
	env       map[string]string
	cwd, user string
	timeout   float64
	context   string
}

// step does one line. It reports whether the run is over.
func (e *emitter) step(r *http.Request, run *run, line string, c call) bool {
	word, arg, _ := strings.Cut(line, " ")
	switch word {
	case "out", "echo":
		e.text("stdout", arg+"\n")
	case "print(1)":
		e.text("stdout", "1\n")
	case "err":
		e.text("stderr", arg+"\n")
	case "raw":
		b, err := hex.DecodeString(arg)
		if err != nil {
			panic(err)
		}
		exact := base64.StdEncoding.EncodeToString(b)
		e.send(v1.Event{Type: "stdout", Data: quote(strings.ToValidUTF8(string(b), "\uFFFD")), DataB64: &exact})
	case "result", "image":
		data := map[string]string{"text/plain": arg}
		if word == "image" {
			data = map[string]string{"image/png": "iVBORw0KGgo="}
		}
		b, _ := json.Marshal(data) // a map of strings always marshals
		yes := true
		e.send(v1.Event{Type: "result", Data: b, Main: &yes})
	case "lost":
		e.send(v1.Event{Type: "truncated", Data: json.RawMessage(arg)})
	case "env":
		e.text("stdout", c.env[arg]+"\n")
	case "cwd":
		e.text("stdout", c.cwd+"\n")
	case "context":
		e.text("stdout", c.context+"\n")
	case "user":
		e.text("stdout", c.user+"\n")
	default:
		return e.finish(r, run, word, arg, c)
	}
	return false
}

// finish does the lines that end a run.
func (e *emitter) finish(r *http.Request, run *run, word, arg string, c call) bool {
	switch word {
	case "exit":
		n, err := strconv.Atoi(arg)
		if err != nil {
			panic(err)
		}
		e.exit(n, "", "")
	case "raise":
		value, trace := "a value", "Traceback (most recent call last):\n"+arg+": a value\n"
		e.text("stderr", trace)
		e.send(v1.Event{Type: "error", Data: quote(arg + ": " + value), Name: &arg, Value: &value, Traceback: &trace})
		e.exit(1, "", "")
	case "wait":
		e.text("stdout", "waiting\n")
		select {
		case sig := <-run.signals:
			e.text("stderr", "got "+sig+"\n")
			e.exit(130, "interrupted", "it was interrupted")
		case <-r.Context().Done():
		}
	case "stubborn":
		e.text("stdout", "waiting\n")
		for {
			select {
			case sig := <-run.signals:
				e.text("stdout", "got "+sig+"\n")
				continue
			case <-r.Context().Done():
			}
			break
		}
	case "cut":
		panic(http.ErrAbortHandler)
	case "broken":
		code := "guest_lost"
		e.send(v1.Event{Type: "stream_error", Data: quote("the sandbox stopped answering"), Code: &code})
	case "timeout":
		e.exit(130, "timeout", fmt.Sprintf("it was interrupted after %g s", c.timeout))
	case "killed":
		e.exit(137, "signaled", "it was ended by SIGKILL")
	default:
		return false // a comment or an empty line
	}
	return true
}

// StartProcess implements the API. The programs are "cat", "args" (prints what
// it was started with), "code LINE..." (the language above) and "sleepy".
func (s *Server) StartProcess(w http.ResponseWriter, r *http.Request, id v1.SandboxID, _ v1.StartProcessParams) {
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	req, ok := read[v1.ProcessStart](w, r)
	if !ok {
		return
	}
	runID, run, e := s.begin(w, id, req.Pty != nil)
	defer s.end(runID)
	c := call{valueOr(req.Env, nil), valueOr(req.Cwd, "/root"), valueOr(req.User, "root"), valueOr(req.TimeoutS, 0), ""}
	if req.Pty != nil {
		s.shell(r, run, e, req, c)
		return
	}
	switch req.Argv[0] {
	case "cat":
		n := int64(0)
		if valueOr(req.Stdin, false) {
			n, _ = io.Copy(chunkWriter{e}, run.stdin)
		}
		e.text("stderr", fmt.Sprintf("%d bytes until the end\n", n))
		e.exit(0, "", "")
	case "args":
		vars := []string{}
		for k, v := range c.env {
			vars = append(vars, k+"="+v)
		}
		sort.Strings(vars)
		e.text("stdout", fmt.Sprintf("argv=%q cwd=%s user=%s env=%q timeout=%g stdin=%t detach=%t\n", req.Argv[1:], c.cwd, c.user, vars,
			c.timeout, valueOr(req.Stdin, false), valueOr(req.Detach, false)))
		e.exit(0, "", "")
	case "code":
		for _, line := range req.Argv[1:] {
			if e.step(r, run, line, c) {
				return
			}
		}
		e.exit(0, "", "")
	default:
		e.exit(127, "start_failed", "there is no program "+req.Argv[0])
	}
}

// chunkWriter sends what is written to it as standard output.
type chunkWriter struct{ e *emitter }

func (c chunkWriter) Write(p []byte) (int, error) {
	exact := base64.StdEncoding.EncodeToString(p)
	c.e.send(v1.Event{Type: "stdout", Data: quote(strings.ToValidUTF8(string(p), "\uFFFD")), DataB64: &exact})
	return len(p), nil
}

func (s *Server) run(w http.ResponseWriter, box, id string) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[id]
	if r == nil || r.box != box {
		fail(w, 404, "process_not_found", errNoRun.Error())
		return nil
	}
	return r
}

// SignalProcess implements the API.
func (s *Server) SignalProcess(w http.ResponseWriter, r *http.Request, id v1.SandboxID, process v1.ProcessID) {
	req, ok := read[v1.SignalRequest](w, r)
	if !ok {
		return
	}
	run := s.run(w, id, process)
	if run == nil {
		return
	}
	var name string
	if err := json.Unmarshal(req.Signal, &name); err != nil {
		fail(w, 400, "invalid_signal", err.Error())
		return
	}
	run.signals <- name
	w.WriteHeader(http.StatusNoContent)
}

// WriteStdin implements the API.
func (s *Server) WriteStdin(w http.ResponseWriter, r *http.Request, id v1.SandboxID, process v1.ProcessID, params v1.WriteStdinParams) {
	run := s.run(w, id, process)
	if run == nil {
		return
	}
	n, err := io.Copy(run.feed, r.Body)
	if err != nil {
		fail(w, 409, "stdin_closed", "the program does not read its standard input any more")
		return
	}
	if valueOr(params.Eof, false) {
		run.feed.Close()
	}
	answer(w, v1.Written{Bytes: n})
}

// ListProcesses implements the API.
func (s *Server) ListProcesses(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	if s.live(w, r, id) != nil {
		answer(w, v1.ProcessList{Processes: []v1.Process{}})
	}
}

// StreamProcess implements the API; the command line does not follow runs again.
func (s *Server) StreamProcess(w http.ResponseWriter, _ *http.Request, id v1.SandboxID, process v1.ProcessID, _ v1.StreamProcessParams) {
	if s.run(w, id, process) != nil {
		fail(w, 501, "unsupported", os.ErrInvalid.Error())
	}
}
