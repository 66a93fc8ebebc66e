package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// rebuild puts the output of one stream together again, exactly.
func rebuild(t *testing.T, events []rametv1.Event, typ string) []byte {
	t.Helper()
	var out []byte
	for i, e := range events {
		if e.Seq != int64(i) {
			t.Fatalf("event %d has seq %d", i, e.Seq)
		}
		if e.Type != typ {
			continue
		}
		if e.DataB64 != nil {
			b, err := base64.StdEncoding.DecodeString(*e.DataB64)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b...)
		} else {
			var s string
			if err := json.Unmarshal(e.Data, &s); err != nil {
				t.Fatal(err)
			}
			out = append(out, s...)
		}
		if e.Eol == nil {
			out = append(out, '\n')
		}
	}
	return out
}

// FuzzLines checks that no output is lost, added or moved between streams, however it is
// cut into events.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb"), []byte{1})
	f.Add([]byte("\n\n\xff\xfe\n"), []byte{0, 3, 1})
	f.Add([]byte("ä€😀\r\n\u0085"), []byte{2})
	f.Fuzz(func(t *testing.T, output, cuts []byte) {
		l := &lines{now: time.Now}
		var events []rametv1.Event
		rest := output
		for _, c := range cuts {
			n := min(int(c), len(rest))
			events = append(events, l.convert(&agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: rest[:n]}})...)
			events = append(events, l.convert(&agentv1.Event{Kind: &agentv1.Event_Stderr{Stderr: []byte("x\n")}})...)
			rest = rest[n:]
		}
		events = append(events, l.convert(&agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: rest}})...)
		events = append(events, l.convert(&agentv1.Event{Kind: &agentv1.Event_Exit{Exit: &agentv1.Exit{}}})...)
		if got := rebuild(t, events, "stdout"); !bytes.Equal(got, output) {
			t.Errorf("stdout %q, want %q", got, output)
		}
		if got := rebuild(t, events, "stderr"); string(got) != strings.Repeat("x\n", len(cuts)) {
			t.Errorf("stderr %q", got)
		}
		// Every line of the answer is one line for Python too.
		w := httptest.NewRecorder()
		n := newNDJSON(w)
		for _, e := range events {
			if err := n.write(e); err != nil {
				t.Fatal(err)
			}
		}
		body := w.Body.String()
		if strings.ContainsAny(body, "\u0085\u2028\u2029\x0b\x0c\x1c\x1d\x1e\r") || strings.Count(body, "\n") != len(events) {
			t.Errorf("body %q", body)
		}
	})
}

func TestLongLinesAreCutBetweenCharacters(t *testing.T) {
	l := &lines{now: time.Now}
	output := append([]byte("x"), bytes.Repeat([]byte("€"), maxLine/3*2)...)
	var events []rametv1.Event
	for rest := output; len(rest) > 0; {
		n := min(len(rest), 1<<20)
		events = append(events, l.convert(&agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: rest[:n]}})...)
		rest = rest[n:]
		if len(l.stdout) > maxLine {
			t.Fatalf("%d bytes are buffered", len(l.stdout))
		}
	}
	events = append(events, l.convert(&agentv1.Event{Kind: &agentv1.Event_Exit{Exit: &agentv1.Exit{}}})...)
	if got := rebuild(t, events, "stdout"); !bytes.Equal(got, output) {
		t.Error("output is not the same")
	}
	for _, e := range events {
		if e.DataB64 != nil {
			t.Error("a character was split")
		}
	}
}

func TestPythonErrorAndResult(t *testing.T) {
	l := &lines{now: func() time.Time { return time.UnixMilli(5) }}
	var got []rametv1.Event
	for _, e := range []*agentv1.Event{
		{Kind: &agentv1.Event_Result{Result: &agentv1.Result{Data: map[string]string{"text/plain": "42"}, Main: true}}},
		{Kind: &agentv1.Event_Truncated{Truncated: &agentv1.Truncated{Bytes: 1 << 40}}},
		{Kind: &agentv1.Event_KeepAlive{}},
		{Kind: &agentv1.Event_Exit{Exit: &agentv1.Exit{
			Code: 1, Error: &agentv1.ErrorInfo{Name: "E", Value: "v", Traceback: "t"}, Micros: 1500,
		}}},
	} {
		got = append(got, l.convert(e)...)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"data":{"text/plain":"42"},"main":true,"seq":0,"ts":5,"type":"result"},` +
		`{"data":"[ramet] 1099511627776 bytes of output were dropped here","seq":1,"ts":5,"type":"stderr"},` +
		`{"data":1099511627776,"seq":2,"ts":5,"type":"truncated"},` +
		`{"data":"E: v","name":"E","seq":3,"traceback":"t","ts":5,"type":"error","value":"v"},` +
		`{"data":1,"duration_ms":1.5,"seq":4,"ts":5,"type":"exit"}]`
	if !jsonEqual(t, string(b), want) {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

// A client that reads only output and the exit code is told on stderr what else it should know.
func TestLinesSayWhyOnStderr(t *testing.T) {
	half := &agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: []byte("half")}}
	for _, c := range []struct {
		reason agentv1.Reason
		want   string
	}{
		{agentv1.Reason_INTERPRETER_DIED, "stdout half|stderr [ramet] why|exit 9|"},
		{agentv1.Reason_OUT_OF_MEMORY, "stdout half|stderr [ramet] why|exit 9|"},
		{agentv1.Reason_START_FAILED, "stdout half|stderr [ramet] why|exit 9|"},
		// What the caller has asked for, or its program has done.
		{agentv1.Reason_TIMEOUT, "stdout half|exit 9|"},
		{agentv1.Reason_SIGNALED, "stdout half|exit 9|"},
		{agentv1.Reason_EXITED, "stdout half|exit 9|"},
	} {
		l := &lines{now: time.Now}
		l.convert(half)
		got := l.convert(&agentv1.Event{Kind: &agentv1.Event_Exit{Exit: &agentv1.Exit{Code: 9, Reason: c.reason, Message: "why"}}})
		if shown(t, got) != c.want {
			t.Errorf("%v: %s", c.reason, shown(t, got))
		}
	}
	l := &lines{now: time.Now}
	l.convert(half)
	if got := shown(t, l.failed("the machine ended", "sandbox_failed")); got != "stdout half|stderr [ramet] the machine ended|stream_error the machine ended|" {
		t.Errorf("a broken stream: %s", got)
	}
}

// shown is what events say, in short.
func shown(t *testing.T, events []rametv1.Event) string {
	t.Helper()
	out := ""
	for _, e := range events {
		var data any
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		out += fmt.Sprintf("%s %v|", e.Type, data)
	}
	return out
}

func jsonEqual(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{
		{sandbox.Errorf(sandbox.Invalid, "x", "x"), 400},
		{sandbox.Errorf(sandbox.NotFound, "x", "x"), 404},
		{sandbox.Errorf(sandbox.Conflict, "x", "x"), 409},
		{sandbox.Errorf(sandbox.Exhausted, "x", "x"), 429},
		{sandbox.Errorf(sandbox.Unavailable, "x", "x"), 503},
		{sandbox.Errorf(sandbox.Unsupported, "x", "x"), 501},
		{sandbox.Errorf(sandbox.Internal, "x", "x"), 500},
		{sandbox.Errorf(sandbox.Invalid, "permission_denied", "x"), 403},
		{sandbox.Errorf(sandbox.Exhausted, "no_space", "x"), 507},
		{fmt.Errorf("wrapped: %w", sandbox.Errorf(sandbox.NotFound, "x", "x")), 404},
		{errors.New("secret detail"), 500},
	} {
		if got := statusOf(c.err); got != c.status {
			t.Errorf("%v is %d, want %d", c.err, got, c.status)
		}
	}
	for _, err := range []error{errors.New("secret detail"), sandbox.Errorf(sandbox.Internal, "x", "secret detail")} {
		d := describe(err, "id1")
		if d.Code != "internal" || strings.Contains(d.Error, "secret") || !strings.Contains(d.Error, "id1") {
			t.Errorf("%+v", d)
		}
	}
	if got := retryAfter(&sandbox.Error{RetryAfter: 1500 * time.Millisecond}); got != "2" {
		t.Errorf("Retry-After %s", got)
	}
}

func TestPanicsAreAnswered(t *testing.T) {
	var log bytes.Buffer
	s := New(Config{Log: testLogger(&log)})
	h := s.identify(s.recoverPanics(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret detail") })))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/x", nil))
	if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), `"code":"internal"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "secret detail") || !strings.Contains(log.String(), "events_test.go") {
		t.Errorf("log %s", log.String())
	}
}

func TestTraceparent(t *testing.T) {
	for header, want := range map[string]string{
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": "4bf92f3577b34da6a3ce929d0e0e4736",
		"": "", "x": "", "00-zz-1-1": "", "00-" + strings.Repeat("z", 32) + "-1-1": "",
	} {
		if got := traceID(header); got != want {
			t.Errorf("%q gives %q", header, got)
		}
	}
}
