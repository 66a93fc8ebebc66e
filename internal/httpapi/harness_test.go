package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// env is a whole server on fake machines.
type env struct {
	t         *testing.T
	url       string
	key       string
	client    *rametv1.ClientWithResponses
	control   *control.Control
	store     *store.Store
	machines  *controltest.Machines
	templates *controltest.Templates
	api       *httpapi.Server
	dbPath    string
	log       *bytes.Buffer
}

type options struct {
	noAuth      bool
	control     func(*control.Config)
	api         func(*httpapi.Config)
	keepAlive   time.Duration
	bodyTimeout time.Duration
}

func start(t *testing.T, o options) *env {
	t.Helper()
	ctx := t.Context()
	dir := t.TempDir()
	e := &env{t: t, dbPath: filepath.Join(dir, "ramet.db"), templates: controltest.NewTemplates()}
	var err error
	if e.store, err = store.Open(ctx, e.dbPath); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	e.machines = controltest.NewMachines(filepath.Join(dir, "instances"))
	logs := &lockedBuffer{}
	e.log = &logs.Buffer
	logger := slog.New(slog.NewTextHandler(logs, nil))
	cfg := control.Config{
		Store: e.store, Machines: e.machines, Templates: e.templates, Log: logger, Region: "local", Node: "n1",
		KillDelay: 300 * time.Millisecond,
		Isolation: func() sandbox.Isolation { return sandbox.IsolationEmulated },
	}
	if o.control != nil {
		o.control(&cfg)
	}
	if cfg.Files.Dir != "" {
		cfg.Files.Database = e.dbPath
	}
	if e.control, err = control.New(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	api := httpapi.Config{
		Control: e.control, Log: logger, NoAuth: o.noAuth, KeepAlive: o.keepAlive, BodyTimeout: o.bodyTimeout,
		Info: httpapi.Info{Version: "test", Driver: "fake", Isolation: sandbox.IsolationEmulated, Region: "local", Node: "n1", PID: 1},
	}
	if o.api != nil {
		o.api(&api)
	}
	e.api = httpapi.New(api)
	server := httptest.NewServer(e.api.Handler())
	e.url = server.URL
	t.Cleanup(func() {
		e.api.Drain()
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.control.Close(ctx); err != nil {
			t.Errorf("close control: %v", err)
		}
		e.machines.StopAll()
		if t.Failed() {
			logs.mu.Lock()
			defer logs.mu.Unlock()
			t.Log(logs.String())
		}
	})
	_, secret, err := e.control.CreateKey(ctx, sandbox.DefaultProject, "test")
	if err != nil {
		t.Fatal(err)
	}
	e.key = secret
	e.client, err = rametv1.NewClientWithResponses(e.url, rametv1.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+e.key)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// do makes a raw request. A body that is a string is sent as JSON.
func (e *env) do(method, path, body string, header ...string) (*http.Response, []byte) {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res, b
}

// create makes a sandbox and returns its id.
func (e *env) create() string {
	e.t.Helper()
	res, err := e.client.CreateSandboxWithResponse(e.t.Context(), nil, rametv1.SandboxCreate{})
	if err != nil {
		e.t.Fatal(err)
	}
	if res.JSON200 == nil {
		e.t.Fatalf("create: %d %s", res.StatusCode(), res.Body)
	}
	return res.JSON200.Id
}

func (e *env) instance(id string) sandbox.InstanceID {
	e.t.Helper()
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		e.t.Fatal(err)
	}
	sb, err := e.store.Get(e.t.Context(), sandbox.DefaultProject, parsed)
	if err != nil {
		e.t.Fatal(err)
	}
	return sb.Instance
}

// events reads a whole stream.
func events(t *testing.T, body []byte) []rametv1.Event {
	t.Helper()
	var out []rametv1.Event
	for line := range strings.SplitSeq(string(body), "\n") {
		if line == "" {
			continue
		}
		var e rametv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, e)
	}
	return out
}

// brief is a stream in a form that is easy to compare.
func brief(events []rametv1.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Type + ":" + string(e.Data))
		if e.Eol != nil {
			b.WriteString(" no-eol")
		}
		if e.Reason != nil {
			b.WriteString(" " + *e.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// waitFor waits until cond holds.
func waitFor(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after %s still not: %s", within, what)
		}
	}
}

// openStream begins a streaming call and returns its lines as they come.
func (e *env) openStream(ctx context.Context, method, path, body string) (*http.Response, *bufio.Reader) {
	e.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.key)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { res.Body.Close() })
	return res, bufio.NewReader(res.Body)
}

// readEvent reads the next event, skipping empty lines.
func readEvent(t *testing.T, r *bufio.Reader) rametv1.Event {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("read an event: %v", err)
		}
		if line == "\n" {
			continue
		}
		var e rametv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		return e
	}
}

// with returns the same server for a subtest.
func (e *env) with(t *testing.T) *env {
	c := *e
	c.t = t
	return &c
}
