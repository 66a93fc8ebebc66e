package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"unicode/utf8"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

// outcome is how a run ended.
type outcome struct {
	code    int
	reason  string // "" when it ended by itself
	message string
	signal  int
	ms      float64
}

// follow shows a run's events as they come, until its end.
func (p *program) follow(run *client.Run) (*outcome, error) {
	for {
		e, err := run.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = client.ErrCut
			}
			return nil, err
		}
		switch e.Type {
		case client.EventStdout:
			err = writeText(p.Out, e)
		case client.EventStderr:
			err = writeText(p.Err, e)
		case client.EventResult:
			err = p.showResult(e)
		case client.EventTruncated:
			if n, errN := client.Number(e); errN == nil {
				_, err = fmt.Fprintf(p.Err, "\nramet: %s of output were dropped here\n", byteSize(n))
			}
		case client.EventExit:
			return readOutcome(e)
		}
		if err != nil {
			return nil, err
		}
	}
}

func writeText(w *os.File, e *v1.Event) error {
	b, err := client.Text(e)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// showResult prints a value as an interactive Python does, and names what has no text.
func (p *program) showResult(e *v1.Event) error {
	data, err := client.Result(e)
	if err != nil {
		return err
	}
	text, found := data["text/plain"]
	if !found {
		text = "<" + strings.Join(mimeTypes(data), ", ") + ">"
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err = io.WriteString(p.Out, text)
	return err
}

func mimeTypes(data map[string]string) []string {
	types := make([]string, 0, len(data))
	for t := range data {
		types = append(types, clean(t))
	}
	sort.Strings(types)
	return types
}

func readOutcome(e *v1.Event) (*outcome, error) {
	code, err := client.Number(e)
	if err != nil {
		return nil, err
	}
	o := &outcome{code: int(code)}
	if e.Reason != nil {
		o.reason = *e.Reason
	}
	if e.Message != nil {
		o.message = *e.Message
	}
	if e.Signal != nil {
		o.signal = *e.Signal
	}
	if e.DurationMs != nil {
		o.ms = *e.DurationMs
	}
	return o, nil
}

// exitCode is the code to end with. A process has one of 0 to 255; what does
// not fit must at least not look like success.
func (o *outcome) exitCode() int {
	switch {
	case o.reason == "timeout":
		return exitTimeout
	case o.code == 0 || (o.code > 0 && o.code < 256):
		return o.code
	case o.code&0xff != 0:
		return o.code & 0xff
	}
	return exitFailed
}

// exitOf ends the program as the run ended. How the code itself ended it has
// said itself; anything else is said here.
func (p *program) exitOf(o *outcome) error {
	if o.message != "" && o.reason != "" && o.reason != "interrupted" {
		fmt.Fprintf(p.Err, "ramet: %s\n", clean(o.message))
	}
	if code := o.exitCode(); code != 0 {
		return exitStatus(code)
	}
	return nil
}

// runResultJSON is what 'run --json' prints; docs/cli-json.md describes it.
type runResultJSON struct {
	Sandbox        string              `json:"sandbox"`
	Kept           bool                `json:"kept"`
	Stdout         string              `json:"stdout"`
	Stderr         string              `json:"stderr"`
	StdoutB64      []byte              `json:"stdout_b64,omitempty"`
	StderrB64      []byte              `json:"stderr_b64,omitempty"`
	Result         map[string]string   `json:"result,omitempty"`
	Displayed      []map[string]string `json:"displayed,omitempty"`
	Error          *runErrorJSON       `json:"error,omitempty"`
	ExitCode       int                 `json:"exit_code"`
	Reason         string              `json:"reason"`
	Signal         int                 `json:"signal,omitempty"`
	Message        string              `json:"message,omitempty"`
	DurationMS     float64             `json:"duration_ms"`
	TruncatedBytes int64               `json:"truncated_bytes,omitempty"`
}

type runErrorJSON struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// maxCollected bounds what 'run --json' keeps of each output and of all
// results, in bytes. What is beyond counts as truncated.
const maxCollected = 64 << 20

// runJSON follows a run in silence and prints all of it at the end.
func (p *program) runJSON(run *client.Run, id string, kept bool) error {
	r := runResultJSON{Sandbox: id, Kept: kept, Reason: "exited"}
	var out, errs []byte
	displayed := 0
	for {
		e, err := run.Next()
		if err != nil {
			return ours(err)
		}
		switch e.Type {
		case client.EventStdout:
			out, err = r.collect(out, e)
		case client.EventStderr:
			errs, err = r.collect(errs, e)
		case client.EventResult:
			displayed += len(e.Data)
			err = r.addResult(e, displayed)
		case client.EventError:
			r.Error = &runErrorJSON{Name: deref(e.Name), Value: deref(e.Value), Traceback: deref(e.Traceback)}
		case client.EventTruncated:
			var n int64
			n, err = client.Number(e)
			r.TruncatedBytes += n
		case client.EventExit:
			o, err := readOutcome(e)
			if err != nil {
				return ours(err)
			}
			r.ExitCode, r.Signal, r.Message, r.DurationMS = o.code, o.signal, o.message, o.ms
			if o.reason != "" {
				r.Reason = o.reason
			}
			r.Stdout, r.StdoutB64 = jsonText(out)
			r.Stderr, r.StderrB64 = jsonText(errs)
			if err := printJSON(p.Out, r); err != nil {
				return ours(err)
			}
			if code := o.exitCode(); code != 0 {
				return exitStatus(code)
			}
			return nil
		}
		if err != nil {
			return ours(err)
		}
	}
}

func (r *runResultJSON) collect(have []byte, e *v1.Event) ([]byte, error) {
	b, err := client.Text(e)
	if err != nil {
		return have, err
	}
	room := maxCollected - len(have)
	if len(b) > room {
		r.TruncatedBytes += int64(len(b) - room)
		b = b[:room]
	}
	return append(have, b...), nil
}

func (r *runResultJSON) addResult(e *v1.Event, total int) error {
	if total > maxCollected {
		r.TruncatedBytes += int64(len(e.Data))
		return nil
	}
	data, err := client.Result(e)
	if err != nil {
		return err
	}
	if e.Main != nil && *e.Main {
		r.Result = data
	} else {
		r.Displayed = append(r.Displayed, data)
	}
	return nil
}

// jsonText returns b as text, and the exact bytes beside it when text cannot
// hold them.
func jsonText(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), b
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
