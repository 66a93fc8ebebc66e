package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/compat/podflare"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// converter turns events of the agent into those of a stream.
type converter interface {
	// convert returns the events to send for one of the agent's.
	convert(*agentv1.Event) []rametv1.Event
	// failed returns what to send when the stream cannot go on.
	failed(message, code string) []rametv1.Event
}

func text(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string cannot fail
	return b
}

func number[N int32 | uint64 | int](n N) json.RawMessage {
	return strconv.AppendInt(nil, int64(n), 10)
}

// output makes an event of output bytes.
func output(typ string, b []byte) rametv1.Event {
	e := rametv1.Event{Type: typ}
	if utf8.Valid(b) {
		e.Data = text(string(b))
		return e
	}
	e.Data = text(strings.ToValidUTF8(string(b), "\uFFFD"))
	exact := base64.StdEncoding.EncodeToString(b)
	e.DataB64 = &exact
	return e
}

// reasons are the words for ends that were not the program's own.
var reasons = map[agentv1.Reason]string{
	agentv1.Reason_SIGNALED:         "signaled",
	agentv1.Reason_TIMEOUT:          "timeout",
	agentv1.Reason_INTERRUPTED:      "interrupted",
	agentv1.Reason_INTERPRETER_DIED: "interpreter_died",
	agentv1.Reason_OUT_OF_MEMORY:    "out_of_memory",
	agentv1.Reason_START_FAILED:     "start_failed",
}

// other converts everything but output: the same in both formats.
func other(e *agentv1.Event) []rametv1.Event {
	switch k := e.Kind.(type) {
	case *agentv1.Event_Started:
		return []rametv1.Event{{Type: "started", Data: number(k.Started.Pid), Process: &k.Started.RunId}}
	case *agentv1.Event_Result:
		data, err := json.Marshal(k.Result.Data)
		if err != nil || k.Result.Data == nil {
			data = json.RawMessage("{}")
		}
		return []rametv1.Event{{Type: "result", Data: data, Main: &k.Result.Main}}
	case *agentv1.Event_Truncated:
		return []rametv1.Event{{Type: "truncated", Data: number(k.Truncated.Bytes)}}
	case *agentv1.Event_Exit:
		return exit(k.Exit)
	}
	return nil
}

func exit(x *agentv1.Exit) []rametv1.Event {
	var events []rametv1.Event
	if i := x.Error; i != nil {
		summary := i.Name
		if i.Value != "" {
			summary += ": " + i.Value
		}
		events = append(events, rametv1.Event{Type: "error", Data: text(summary), Name: &i.Name, Value: &i.Value, Traceback: &i.Traceback})
	}
	ms := float64(x.Micros) / 1000
	e := rametv1.Event{Type: "exit", Data: number(x.Code), DurationMs: &ms}
	if word, ok := reasons[x.Reason]; ok {
		e.Reason = &word
	}
	if x.Signal != 0 {
		n := int(x.Signal)
		e.Signal = &n
	}
	if x.Message != "" {
		e.Message = &x.Message
	}
	return append(events, e)
}

func streamError(message, code string) rametv1.Event {
	return rametv1.Event{Type: "stream_error", Data: text(message), Code: &code}
}

// chunks passes the journal on as it is.
type chunks struct {
	now  func() time.Time
	next int64
}

func (c *chunks) convert(e *agentv1.Event) []rametv1.Event {
	var out []rametv1.Event
	switch k := e.Kind.(type) {
	case *agentv1.Event_Stdout:
		out = []rametv1.Event{output("stdout", k.Stdout)}
	case *agentv1.Event_Stderr:
		out = []rametv1.Event{output("stderr", k.Stderr)}
	default:
		out = other(e)
	}
	c.next = int64(e.Seq) + 1
	for i := range out {
		out[i].Seq, out[i].Ts = int64(e.Seq), c.now().UnixMilli()
	}
	return out
}

func (c *chunks) failed(message, code string) []rametv1.Event {
	e := streamError(message, code)
	e.Seq, e.Ts = c.next, c.now().UnixMilli()
	return []rametv1.Event{e}
}

// maxLine is the longest line that is sent as one event, in bytes. A stream keeps up
// to that of each output while it waits for the newline.
const maxLine = 8 << 20

// lines cuts output into lines, as Podflare's client needs it: it joins the data of
// events by newlines.
type lines struct {
	now            func() time.Time
	seq            int64
	stdout, stderr []byte // output without its newline yet
}

func (l *lines) convert(e *agentv1.Event) []rametv1.Event {
	var out []rametv1.Event
	switch k := e.Kind.(type) {
	case *agentv1.Event_Started:
		return nil
	case *agentv1.Event_Stdout:
		out = cut("stdout", &l.stdout, k.Stdout)
	case *agentv1.Event_Stderr:
		out = cut("stderr", &l.stderr, k.Stderr)
	case *agentv1.Event_Exit:
		out = l.rest()
		if toSay[k.Exit.Reason] && k.Exit.Message != "" {
			out = append(out, notice(k.Exit.Message))
		}
		out = append(out, other(e)...)
	case *agentv1.Event_Truncated:
		out = append([]rametv1.Event{output("stderr", []byte(control.DroppedNotice(k.Truncated.Bytes)))}, other(e)...)
	default:
		out = other(e)
	}
	return l.number(out)
}

func (l *lines) failed(message, code string) []rametv1.Event {
	return l.number(append(l.rest(), notice(message), streamError(message, code)))
}

// toSay are the ends of which a caller has to be told more than an exit code. Podflare's client reads nothing
// but that and output, and makes up -1 where a stream breaks: so why is on stderr too.
var toSay = map[agentv1.Reason]bool{
	agentv1.Reason_INTERPRETER_DIED: true, agentv1.Reason_OUT_OF_MEMORY: true, agentv1.Reason_START_FAILED: true,
}

// notice is a line of ours among a run's own.
func notice(message string) rametv1.Event { return output("stderr", []byte("[ramet] "+message)) }

func (l *lines) number(events []rametv1.Event) []rametv1.Event {
	for i := range events {
		events[i].Seq, events[i].Ts = l.seq, l.now().UnixMilli()
		l.seq++
	}
	return events
}

// remembered are lines that Podflare's replay tells again.
type remembered struct {
	lines
	history *podflare.History
	project string
	id      string
}

func (m *remembered) convert(e *agentv1.Event) []rametv1.Event {
	return m.note(m.lines.convert(e))
}

func (m *remembered) failed(message, code string) []rametv1.Event {
	return m.note(m.lines.failed(message, code))
}

func (m *remembered) note(events []rametv1.Event) []rametv1.Event {
	id, err := sandbox.ParseID(m.id)
	if err != nil {
		return events // and there is no such stream
	}
	for _, e := range events {
		m.history.Add(m.project, id, e)
	}
	return events
}

// rest returns what did not end with a newline.
func (l *lines) rest() []rametv1.Event {
	var out []rametv1.Event
	for _, s := range []struct {
		typ string
		buf *[]byte
	}{{"stdout", &l.stdout}, {"stderr", &l.stderr}} {
		if len(*s.buf) > 0 {
			out = append(out, unended(s.typ, *s.buf))
			*s.buf = nil
		}
	}
	return out
}

func unended(typ string, b []byte) rametv1.Event {
	e := output(typ, b)
	no := false
	e.Eol = &no
	return e
}

// cut takes the whole lines out of what is buffered and new.
func cut(typ string, buf *[]byte, b []byte) []rametv1.Event {
	var out []rametv1.Event
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			*buf = append(*buf, b...)
			break
		}
		line := b[:i]
		if len(*buf) > 0 {
			line = append(*buf, line...)
			*buf = nil
		}
		out = append(out, output(typ, line))
		b = b[i+1:]
	}
	for len(*buf) > maxLine {
		part := (*buf)[:charBoundary(*buf, maxLine)]
		out = append(out, unended(typ, part))
		*buf = append([]byte(nil), (*buf)[len(part):]...)
	}
	return out
}

// charBoundary returns the last place at or before n, more than 0, at which b can be cut
// without splitting a character. Bytes that are no UTF-8 are cut anywhere.
func charBoundary(b []byte, n int) int {
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return n
}
