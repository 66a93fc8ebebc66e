package interpreter_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/compat/e2b/e2btest"
)

const patience = 30 * time.Second

type env struct {
	*e2btest.Env
	t *testing.T
}

func start(t *testing.T) *env { return &env{e2btest.Start(t), t} }

func (e *env) open(ctx context.Context, method, path, body, token string) *http.Response {
	e.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, e.URL+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("E2b-Sandbox-Port", "49999")
	if token != "" {
		r.Header.Set("X-Access-Token", token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { res.Body.Close() })
	return res
}

func (e *env) do(method, path, body string) (int, string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	res := e.open(ctx, method, path, body, e2btest.Token)
	b, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, string(b)
}

// lines reads an answer; their timestamps become true.
func lines(t *testing.T, body string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// text joins what one stream printed.
func text(all []map[string]any, kind string) string {
	var b strings.Builder
	for _, m := range all {
		if m["type"] == kind {
			s, _ := m["text"].(string)
			b.WriteString(s)
		}
	}
	return b.String()
}

func TestAnExecutionTellsItsNumberOutputAndEnd(t *testing.T) {
	e := start(t)
	for n := 1; n <= 2; n++ {
		status, body := e.do("POST", "/execute", `{"code":"import os,sys\nprint('hé \u2028 \ud83d\ude00', os.environ['X'])\nprint('e', file=sys.stderr)","context_id":null,"language":null,"env_vars":{"X":"y"}}`)
		all := lines(t, body)
		if status != 200 || all[0]["type"] != "number_of_executions" || all[0]["execution_count"] != float64(n) || all[len(all)-1]["type"] != "end_of_execution" {
			t.Errorf("%d %s", status, body)
		}
		if got := text(all, "stdout"); got != "hé \u2028 😀 y\n" || text(all, "stderr") != "e\n" {
			t.Errorf("stdout %q stderr %q", got, text(all, "stderr"))
		}
		for _, m := range all {
			if m["type"] == "stdout" {
				if _, err := time.Parse(time.RFC3339Nano, m["timestamp"].(string)); err != nil {
					t.Error(err)
				}
			}
		}
		for _, c := range body {
			if c > 0x7f {
				t.Fatalf("a character %q is not escaped", c)
			}
		}
	}
}

func TestRefusalsOfExecutions(t *testing.T) {
	e := start(t)
	for name, test := range map[string]struct {
		body   string
		status int
		text   string
	}{
		"both":             {`{"code":"1","context_id":"x","language":"python"}`, 400, "Only one of context_id or language can be provided"},
		"unknown context":  {`{"code":"1","context_id":"nothere"}`, 404, "Context nothere not found"},
		"unknown language": {`{"code":"1","language":"cobol"}`, 400, "cobol"},
		"no code":          {`{}`, 422, "code is missing"},
		"nothing":          {``, 422, ""},
		"no JSON":          {`code`, 422, ""},
		"a wrong type":     {`{"code":1}`, 422, "code has the wrong type"},
		"too large":        {`{"code":"` + strings.Repeat("x", 18<<20) + `"}`, 413, ""},
	} {
		status, body := e.do("POST", "/execute", test.body)
		if status != test.status || !strings.Contains(body, test.text) {
			t.Errorf("%s: %d %.200s", name, status, body)
		}
	}
	res := e.open(t.Context(), "POST", "/execute", `{"code":"1"}`, "")
	if res.StatusCode != 401 {
		t.Errorf("without a token: %d", res.StatusCode)
	}
}

func TestAClientThatLeavesInterruptsItsCode(t *testing.T) {
	e := start(t)
	ctx, leave := context.WithCancel(t.Context())
	res := e.open(ctx, "POST", "/execute", `{"code":"print('on', flush=True)\nimport time\ntime.sleep(600)"}`, e2btest.Token)
	in := bufio.NewReader(res.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"on`) {
			break
		}
	}
	leave()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for e.running() > 0 {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("the code still runs")
		}
	}
}

// running counts what runs in the sandbox.
func (e *env) running() int {
	e.t.Helper()
	runs, err := e.Control.Runs(e.t.Context(), e.Target().Project, e.ID)
	if err != nil {
		e.t.Fatal(err)
	}
	n := 0
	for _, r := range runs {
		if r.Exit == nil {
			n++
		}
	}
	return n
}

func TestSilenceIsFilled(t *testing.T) {
	e := start(t)
	_, body := e.do("POST", "/execute", `{"code":"import time\ntime.sleep(7)"}`)
	if all := lines(t, body); all[0]["type"] != "number_of_executions" || all[1]["type"] != "keepalive" {
		t.Errorf("%s", body)
	}
}

func TestOtherPaths(t *testing.T) {
	e := start(t)
	if status, _ := e.do("GET", "/nothing", ""); status != 404 {
		t.Errorf("%d", status)
	}
	if status, body := e.do("GET", "/health", ""); status != 200 || body != "OK" {
		t.Errorf("%d %s", status, body)
	}
}
