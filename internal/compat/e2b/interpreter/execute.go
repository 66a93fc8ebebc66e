package interpreter

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

const (
	// keepAlive is the silence after which a stream says that it lives.
	keepAlive = 5 * time.Second
	// patience is how long a stream waits for its first event, which may be an error with a status.
	patience = time.Second
)

// execution is a request to run code.
type execution struct {
	Code      *string           `json:"code"`
	ContextID *string           `json:"context_id"`
	Language  *string           `json:"language"`
	EnvVars   map[string]string `json:"env_vars"`
}

// execute runs code and streams what comes of it. A client that leaves interrupts it.
func (s *Server) execute(w http.ResponseWriter, r *http.Request) {
	t := targetOf(r)
	if !authorized(r, t.Token) {
		s.fail(w, r, &refusal{http.StatusUnauthorized, "Invalid access token"})
		return
	}
	var req execution
	err := decode(w, r, &req)
	switch {
	case err != nil:
	case req.Code == nil:
		err = &refusal{http.StatusUnprocessableEntity, "code is missing; give the source to run"}
	case value(req.ContextID) != "" && value(req.Language) != "":
		err = &refusal{http.StatusBadRequest, "Only one of context_id or language can be provided"}
	}
	var p place
	if err == nil {
		p, err = find(value(req.ContextID), value(req.Language))
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if err := s.prepare(ctx, t, p.context); err != nil {
		s.fail(w, r, err)
		return
	}
	stream, err := s.control.Run(ctx, t.Project, t.ID, p.request(*req.Code, req.EnvVars))
	if err != nil {
		s.fail(w, r, contextError(err, p.context))
		return
	}
	events := make(chan received)
	go receive(ctx, stream, events)
	// First end the reader, then close: a stream has one reader.
	defer func() {
		cancel()
		for range events {
		}
		stream.Close()
	}()
	o := &output{s: s, w: w, r: r, place: p, lines: newLines(w)}
	o.copy(ctx, events)
}

// received is one outcome of a stream.
type received struct {
	event *agentv1.Event
	err   error
}

// receive passes on a stream until it or ctx ends. The channel is closed at its end.
func receive(ctx context.Context, stream *control.Stream, events chan<- received) {
	defer close(events)
	for {
		e, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		select {
		case events <- received{e, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// output is the answer to one execution.
type output struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	place place
	lines *lines
	// held is what was printed to stderr last. Interpreters print what they have not caught there, too, just
	// before the end; clients get that as an error alone.
	held []byte
}

const (
	// holdFor is how long what was printed to stderr is held, and maxHeld how much, in bytes.
	holdFor = 50 * time.Millisecond
	maxHeld = 1 << 20
)

// letGo writes what is held.
func (o *output) letGo() error {
	if len(o.held) == 0 {
		return nil
	}
	b := o.held
	o.held = nil
	return o.lines.write(printed("stderr", b))
}

// withoutTrace takes an error's own text off the end of what was printed.
func withoutTrace(b []byte, trace string) []byte {
	trace = strings.TrimSpace(trace)
	if trace == "" {
		return b
	}
	if rest, ok := bytes.CutSuffix(bytes.TrimSpace(b), []byte(trace)); ok {
		return rest
	}
	return b
}

// begin sends the number of the execution, which goes before everything else.
func (o *output) begin() error {
	if o.lines.begun {
		return nil
	}
	n := o.s.known.count(targetOf(o.r).ID, o.place.context)
	return o.lines.write(map[string]any{"type": "number_of_executions", "execution_count": n})
}

// copy writes events as they come.
func (o *output) copy(ctx context.Context, events <-chan received) {
	quiet := time.NewTimer(patience)
	defer quiet.Stop()
	for {
		var err error
		select {
		case got, ok := <-events:
			if !ok {
				return
			}
			if got.err != nil {
				o.broken(got.err)
				return
			}
			if err = o.begin(); err == nil {
				err = o.pass(got.event)
			}
		case <-quiet.C:
			switch {
			case len(o.held) > 0:
				err = o.letGo()
			case o.lines.begun:
				err = o.lines.write(map[string]any{"type": "keepalive"})
			default:
				err = o.begin()
			}
		case <-o.s.draining.Done():
			o.broken(sandbox.Errorf(sandbox.Unavailable, "shutting_down", "the server is shutting down; run the code again in a moment"))
			return
		case <-ctx.Done():
			return
		}
		if err != nil {
			return // the client has left
		}
		if len(o.held) > 0 {
			quiet.Reset(holdFor)
		} else {
			quiet.Reset(keepAlive)
		}
	}
}

// broken ends an answer that its run did not end.
func (o *output) broken(err error) {
	if !o.lines.begun {
		o.s.fail(o.w, o.r, contextError(err, o.place.context))
		return
	}
	if o.r.Context().Err() != nil {
		return
	}
	message := o.s.judge(o.r, contextError(err, o.place.context)).message
	_ = errors.Join( // a client that is gone is its own business
		o.letGo(),
		o.lines.write(failure("UnexpectedEndOfExecution", message, message)),
		o.lines.write(map[string]any{"type": "end_of_execution"}),
	)
}

func failure(name, value, traceback string) map[string]any {
	return map[string]any{"type": "error", "name": name, "value": value, "traceback": traceback}
}

// pass writes what an event means.
func (o *output) pass(e *agentv1.Event) error {
	if k, ok := e.Kind.(*agentv1.Event_Stderr); ok {
		if o.held = append(o.held, k.Stderr...); len(o.held) > maxHeld {
			return o.letGo()
		}
		return nil
	}
	if exit := e.GetExit(); exit != nil {
		o.held = withoutTrace(o.held, exit.GetError().GetTraceback())
	}
	if err := o.letGo(); err != nil {
		return err
	}
	switch k := e.Kind.(type) {
	case *agentv1.Event_Stdout:
		return o.lines.write(printed("stdout", k.Stdout))
	case *agentv1.Event_Result:
		return o.lines.write(result(k.Result))
	case *agentv1.Event_Truncated:
		return o.lines.write(printed("stderr", []byte(control.DroppedNotice(k.Truncated.Bytes)+"\n")))
	case *agentv1.Event_Exit:
		if f := ending(k.Exit, o.place.isPython()); f != nil {
			if err := o.lines.write(f); err != nil {
				return err
			}
		}
		if k.Exit.Reason == agentv1.Reason_INTERPRETER_DIED || k.Exit.Reason == agentv1.Reason_OUT_OF_MEMORY {
			o.s.known.forget(targetOf(o.r).ID, o.place.context)
		}
		return o.lines.write(map[string]any{"type": "end_of_execution"})
	}
	return nil
}

func printed(kind string, b []byte) map[string]any {
	return map[string]any{"type": kind, "text": string(b), "timestamp": time.Now().UTC().Format(time.RFC3339Nano)}
}

// ending says what was wrong with a run that has ended, nil when nothing.
func ending(exit *agentv1.Exit, python bool) map[string]any {
	if e := exit.Error; e != nil {
		return failure(e.Name, e.Value, e.Traceback)
	}
	switch exit.Reason {
	case agentv1.Reason_EXITED:
		if exit.Code == 0 {
			return nil
		}
		if python { // the only way without an error
			return failure("SystemExit", itoa(exit.Code), "SystemExit: "+itoa(exit.Code))
		}
		// What a shell says; code in other languages has thrown something.
		status := "exit status " + itoa(exit.Code)
		return failure("ExitStatus", status, status)
	case agentv1.Reason_INTERRUPTED:
		return failure("KeyboardInterrupt", exit.Message, exit.Message)
	case agentv1.Reason_TIMEOUT:
		return failure("TimeoutError", exit.Message, exit.Message)
	}
	return failure("UnexpectedEndOfExecution", exit.Message, exit.Message)
}
