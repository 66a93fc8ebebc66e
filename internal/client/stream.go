package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// Event types of a run's stream.
const (
	EventStarted     = "started"
	EventStdout      = "stdout"
	EventStderr      = "stderr"
	EventResult      = "result"
	EventError       = "error"
	EventTruncated   = "truncated"
	EventExit        = "exit"
	EventStreamError = "stream_error"
)

// ErrCut is wrapped by the error of a stream whose connection broke before its
// last event. What it was following may still run.
var ErrCut = errors.New("the connection was lost before the end")

// maxLine bounds one line of a stream, in bytes. Results with images are the longest.
const maxLine = 64 << 20

// silence is how long a stream may say nothing at all before it counts as cut.
// The server sends an empty line every 10 seconds.
const silence = 60 * time.Second

// lines reads NDJSON and skips the empty lines that keep a stream alive.
type lines struct {
	body   io.ReadCloser
	r      *bufio.Reader
	cancel context.CancelCauseFunc
	timer  *time.Timer
	ctx    context.Context
}

func newLines(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser) *lines {
	l := &lines{body: body, cancel: cancel, ctx: ctx}
	l.timer = time.AfterFunc(silence, func() {
		cancel(fmt.Errorf("nothing came from the server for %s: %w", silence, ErrCut))
	})
	l.r = bufio.NewReaderSize(watched{l}, 64<<10)
	return l
}

// watched restarts the timer at every byte.
type watched struct{ l *lines }

func (w watched) Read(p []byte) (int, error) {
	n, err := w.l.body.Read(p)
	if n > 0 {
		w.l.timer.Reset(silence)
	}
	return n, err
}

// next returns the next line that is not empty. At the end of the stream it
// returns an error that wraps ErrCut, since the caller stops at the last event.
func (l *lines) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, l.end(err)
		default:
			if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
				return trimmed, nil
			}
			line = line[:0]
		}
		if len(line) > maxLine {
			return nil, fmt.Errorf("a line of the stream is longer than %d MiB", maxLine>>20)
		}
	}
}

// end says why a stream ended early.
func (l *lines) end(err error) error {
	if cause := context.Cause(l.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return ErrCut
	}
	return fmt.Errorf("%w (%w)", ErrCut, err)
}

func (l *lines) close() {
	l.timer.Stop()
	l.cancel(context.Canceled)
	l.body.Close()
}

// Run is the stream of one run. It is used by one goroutine; the methods that
// act on the run itself are on Client.
type Run struct {
	// ID names the run for Signal and WriteStdin.
	ID    string
	lines *lines
	done  bool
}

// Exec runs code in a sandbox. Ending ctx, or Close, before the last event
// makes the server interrupt the code.
func (c *Client) Exec(ctx context.Context, id string, req v1.ExecRequest) (*Run, error) {
	chunks := "chunks"
	req.Format = &chunks
	return c.run(ctx, func(ctx context.Context) (*http.Response, error) { return c.api.Exec(ctx, id, req) })
}

// Start starts a program in a sandbox. Ending ctx, or Close, before the last
// event makes the server interrupt the program unless it is detached.
func (c *Client) Start(ctx context.Context, id string, req v1.ProcessStart) (*Run, error) {
	return c.run(ctx, func(ctx context.Context) (*http.Response, error) { return c.api.StartProcess(ctx, id, nil, req) })
}

func (c *Client) run(ctx context.Context, call func(context.Context) (*http.Response, error)) (*Run, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	resp, err := c.check(call(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &Run{ID: resp.Header.Get("X-Run-Id"), lines: newLines(ctx, cancel, resp.Body)}, nil
}

// Next returns the next event. After the event "exit" it returns io.EOF. A
// stream that ends otherwise is an error: *Error when the server said why,
// one that wraps ErrCut when it did not.
func (r *Run) Next() (*v1.Event, error) {
	if r.done {
		return nil, io.EOF
	}
	line, err := r.lines.next()
	if err != nil {
		return nil, err
	}
	var e v1.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	switch e.Type {
	case EventExit:
		r.done = true
	case EventStreamError:
		out := &Error{Message: "the server could not go on"}
		if s, err := Text(&e); err == nil {
			out.Message = string(s)
		}
		if e.Code != nil {
			out.Code = *e.Code
		}
		return nil, out
	}
	return &e, nil
}

// Close ends the stream.
func (r *Run) Close() { r.lines.close() }

// Text returns the exact bytes of an event whose data is text.
func Text(e *v1.Event) ([]byte, error) {
	if e.DataB64 != nil {
		b, err := base64.StdEncoding.DecodeString(*e.DataB64)
		if err != nil {
			return nil, fmt.Errorf("read the bytes of an event: %w", err)
		}
		return b, nil
	}
	var s string
	if err := json.Unmarshal(e.Data, &s); err != nil {
		return nil, fmt.Errorf("read the text of an event: %w", err)
	}
	return []byte(s), nil
}

// Number returns the data of an event that holds a number: exit, truncated, started.
func Number(e *v1.Event) (int64, error) {
	var n int64
	if err := json.Unmarshal(e.Data, &n); err != nil {
		return 0, fmt.Errorf("read the number of an event: %w", err)
	}
	return n, nil
}

// Result returns the data of a result event by MIME type.
func Result(e *v1.Event) (map[string]string, error) {
	var m map[string]string
	if err := json.Unmarshal(e.Data, &m); err != nil {
		return nil, fmt.Errorf("read the result of an event: %w", err)
	}
	return m, nil
}

// Signal sends a signal, by name, to a run's process group.
func (c *Client) Signal(ctx context.Context, id, run, signal string) error {
	name, err := json.Marshal(signal)
	if err != nil {
		return fmt.Errorf("encode the signal: %w", err)
	}
	return c.none(c.api.SignalProcess(ctx, id, run, v1.SignalRequest{Signal: name}))
}

// Resize sets the size of a run's terminal, in characters.
func (c *Client) Resize(ctx context.Context, id, run string, size v1.PtySize) error {
	return c.none(c.api.ResizeProcess(ctx, id, run, size))
}

// WriteStdin passes body to a program's standard input as it arrives, and its
// end with eof.
func (c *Client) WriteStdin(ctx context.Context, id, run string, body io.Reader, eof bool) error {
	resp, err := c.api.WriteStdinWithBody(ctx, id, run, &v1.WriteStdinParams{Eof: &eof}, "application/octet-stream", body)
	_, err = decode[v1.Written](c, resp, err)
	return err
}

// BuildTemplate builds a template and reports its progress to each. The build
// goes on when ctx ends.
func (c *Client) BuildTemplate(ctx context.Context, name string, each func(v1.BuildEvent)) (*v1.Template, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	resp, err := c.check(c.api.BuildTemplate(ctx, v1.TemplateBuild{Name: name}))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	l := newLines(ctx, cancel, resp.Body)
	defer l.close()
	for {
		line, err := l.next()
		if err != nil {
			return nil, err
		}
		var e v1.BuildEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the stream: %w", err)
		}
		switch e.Type {
		case "progress":
			each(e)
		case "done":
			if e.Template == nil {
				return nil, errors.New("the server did not say what it built")
			}
			return e.Template, nil
		case "error":
			out := &Error{Message: "the build failed"}
			if e.Error != nil {
				out.Message = *e.Error
			}
			if e.Code != nil {
				out.Code = *e.Code
			}
			if e.RequestId != nil {
				out.RequestID = *e.RequestId
			}
			return nil, out
		}
	}
}
