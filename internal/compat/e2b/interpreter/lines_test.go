package interpreter

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"testing"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

func TestResultsHaveTheNamesThatClientsKnow(t *testing.T) {
	r := &agentv1.Result{Main: true, Data: map[string]string{
		"text/plain": "'quoted'", "image/png": "aGk=", "application/json": `{"a": 1}`, "application/vnd.ramet.chart+json": `{"type":"line"}`,
		"application/vnd.ramet.data+json": `not json`, "application/x-own": "own", "text/latex": "$x$",
	}}
	b, err := ascii(result(r))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "result", "is_main_result": true, "text": "quoted", "png": "aGk=", "json": map[string]any{"a": 1.0},
		"chart": map[string]any{"type": "line"}, "latex": "$x$",
		"extra": map[string]any{"application/x-own": "own", "application/vnd.ramet.data+json": "not json"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s", b)
	}
}

func TestOnePairOfQuotesIsTakenOff(t *testing.T) {
	for in, want := range map[string]string{"'a'": "a", `"it's"`: "it's", "''": "", "'": "'", "": "", "'a\"": "'a\"", "''a''": "'a'", "1": "1"} {
		if got := unquoted(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestEndings(t *testing.T) {
	for name, test := range map[string]struct {
		exit   *agentv1.Exit
		python bool
		want   string
	}{
		"well":        {&agentv1.Exit{Reason: agentv1.Reason_EXITED}, false, ""},
		"thrown":      {&agentv1.Exit{Reason: agentv1.Reason_EXITED, Code: 1, Error: &agentv1.ErrorInfo{Name: "ValueError"}}, false, "ValueError"},
		"a shell":     {&agentv1.Exit{Reason: agentv1.Reason_EXITED, Code: 3}, false, "ExitStatus"},
		"sys.exit":    {&agentv1.Exit{Reason: agentv1.Reason_EXITED, Code: 3}, true, "SystemExit"},
		"interrupted": {&agentv1.Exit{Reason: agentv1.Reason_INTERRUPTED}, false, "KeyboardInterrupt"},
		"died":        {&agentv1.Exit{Reason: agentv1.Reason_INTERPRETER_DIED, Message: "it died"}, false, "UnexpectedEndOfExecution"},
		"memory":      {&agentv1.Exit{Reason: agentv1.Reason_OUT_OF_MEMORY}, false, "UnexpectedEndOfExecution"},
	} {
		got := ""
		if f := ending(test.exit, test.python); f != nil {
			got, _ = f["name"].(string)
		}
		if got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestAnErrorIsNotPrintedAsWell(t *testing.T) {
	const trace = "Traceback (most recent call last):\n  1/0\nZeroDivisionError: division by zero"
	for in, want := range map[string]string{
		"two\n" + trace + "\n": "two\n", trace: "", "other\n": "other\n", "": "", trace + "\nmore\n": trace + "\nmore\n",
	} {
		if got := string(withoutTrace([]byte(in), trace+"\n")); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := string(withoutTrace([]byte("x"), "")); got != "x" {
		t.Errorf("without an error: %q", got)
	}
}

func TestMissingOutputIsTold(t *testing.T) {
	w := httptest.NewRecorder()
	o := &output{w: w, lines: newLines(w)}
	if err := o.pass(&agentv1.Event{Kind: &agentv1.Event_Truncated{Truncated: &agentv1.Truncated{Bytes: 7}}}); err != nil {
		t.Fatal(err)
	}
	var line struct{ Type, Text string }
	if err := json.Unmarshal(w.Body.Bytes(), &line); err != nil || line.Type != "stderr" || line.Text != "[ramet] 7 bytes of output were dropped here\n" {
		t.Errorf("%s, %v", w.Body, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var m memory
	first := sandbox.NewID()
	m.setPlaced(first, "", "a")
	for range maxRemembered {
		m.count(sandbox.NewID(), "a")
	}
	if m.isPlaced(first, "", "a") {
		t.Error("the oldest is remembered")
	}
	if n := m.order.Len(); n != maxRemembered || len(m.byID) != n {
		t.Errorf("%d and %d are remembered", n, len(m.byID))
	}
	id := sandbox.NewID()
	for i := range 3 * maxEach {
		m.count(id, string(rune('a'+i)))
	}
	if n := len(m.ofLocked(id).counts); n > maxEach {
		t.Errorf("%d contexts are remembered", n)
	}
}

func FuzzASCII(f *testing.F) {
	for _, s := range []string{"", "plain", "é\u2028😀", "\xff\xfe", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		plain, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		b, err := ascii(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range b {
			if c > 0x7f {
				t.Fatalf("%q is not ASCII", b)
			}
		}
		var got, want string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(plain, &want); err != nil || got != want {
			t.Fatalf("%q became %q", want, got)
		}
	})
}
