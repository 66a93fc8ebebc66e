package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/compat/e2b"
	"ramet.dev/ramet/internal/compat/e2b/traffic"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/preview"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// env is a server of all surfaces on fake machines.
type env struct {
	t        *testing.T
	dir      string
	url      string
	key      string
	control  *control.Control
	store    *store.Store
	machines *controltest.Machines
	log      *lockedBuffer
	close    func()

	mu    sync.Mutex
	calls []call // guarded by mu
}

// call is one that reached a service or a port.
type call struct {
	to     string
	target traffic.Target
	port   e2b.Port
	head   http.Header
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// told is a service that notes who calls it.
type told struct {
	e    *env
	name string
}

func (s told) Serve(w http.ResponseWriter, r *http.Request, t traffic.Target) {
	s.e.note(call{to: s.name, target: t, head: r.Header.Clone()})
	if r.URL.Path == "/panic" {
		panic("on purpose")
	}
	if r.URL.Path == "/stat" { // something that needs the guest
		if _, err := s.e.control.Stat(r.Context(), t.Project, t.ID, "/", "", true); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	fmt.Fprintf(w, "%s of %s", s.name, t.Shown)
}

func (e *env) note(c call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, c)
}

func (e *env) last() call {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.calls) == 0 {
		return call{}
	}
	return e.calls[len(e.calls)-1]
}

type options struct {
	noAuth  bool
	preview bool // the real one
	domain  string
	origins []string
	control func(*control.Config)
}

func start(t *testing.T, o options) *env {
	t.Helper()
	dir := t.TempDir()
	m := controltest.NewMachines(filepath.Join(dir, "instances"))
	t.Cleanup(m.StopAll)
	return open(t, dir, m, o)
}

// open starts a server on what is in a directory.
func open(t *testing.T, dir string, m *controltest.Machines, o options) *env {
	t.Helper()
	e := &env{t: t, dir: dir, machines: m, log: &lockedBuffer{}}
	var err error
	if e.store, err = store.Open(t.Context(), filepath.Join(dir, "ramet.db")); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(e.log, nil))
	cfg := control.Config{Store: e.store, Machines: m, Templates: controltest.NewTemplates(), Log: log, Region: "local", Node: "n1"}
	if o.control != nil {
		o.control(&cfg)
	}
	if e.control, err = control.New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	seed, err := e.store.Secret(t.Context(), "traffic")
	if err != nil {
		t.Fatal(err)
	}
	api := httpapi.New(httpapi.Config{Control: e.control, Log: log, NoAuth: o.noAuth, CORSOrigins: o.origins})
	var s *e2b.Server
	var proxy *preview.Proxy
	s = e2b.New(e2b.Config{
		Control: e.control, Front: api, Log: log, Seed: seed, Domain: o.domain,
		Envd: told{e, "envd"}, Interpreter: told{e, "interpreter"},
		Preview: func(w http.ResponseWriter, r *http.Request, p e2b.Port) {
			if o.preview {
				proxy.Serve(w, r, preview.Target{Project: p.Project, ID: p.ID, Port: p.Port})
				return
			}
			e.note(call{to: "port", port: p, head: r.Header.Clone()})
			if p.Port == 9999 {
				s.PreviewFailed(w, r, p, sandbox.Errorf(sandbox.Conflict, "port_closed", "nothing listens there"))
				return
			}
			fmt.Fprintf(w, "port %d of %s", p.Port, p.ID.Alphanumeric())
		},
	})
	proxy = preview.New(preview.Config{Control: e.control, Log: log, Fail: func(w http.ResponseWriter, r *http.Request, t preview.Target, err error) {
		s.PreviewFailed(w, r, e2b.Port{Project: t.Project, ID: t.ID, Port: t.Port}, err)
	}})
	server := httptest.NewServer(api.Around(s.Route(api.Native())))
	e.url = server.URL
	e.close = sync.OnceFunc(func() {
		api.Drain()
		proxy.Drain()
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.control.Close(ctx); err != nil {
			t.Errorf("close control: %v", err)
		}
		if err := e.store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
		if t.Failed() {
			t.Log(e.log.String())
		}
	})
	t.Cleanup(e.close)
	if _, e.key, err = e.control.CreateKeyAs(t.Context(), sandbox.DefaultProject, "test", control.KeyE2B); err != nil {
		t.Fatal(err)
	}
	return e
}

// answer is what came back.
type answer struct {
	status int
	head   http.Header
	body   []byte
}

// do makes a request. The header Host sets its host; X-Api-Key, when "-", leaves the key out.
func (e *env) do(method, path, body string, header ...string) answer {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", e.key)
	for i := 0; i+1 < len(header); i += 2 {
		switch {
		case header[i] == "Host":
			r.Host = header[i+1]
		case header[i+1] == "-":
			r.Header.Del(header[i])
		default:
			r.Header.Set(header[i], header[i+1])
		}
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
	return answer{res.StatusCode, res.Header, b}
}

// object is the JSON object of an answer.
func (a answer) object(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return v
}

func (a answer) list(t *testing.T) []map[string]any {
	t.Helper()
	var v []map[string]any
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return v
}

// fails checks an error: its status, the number in its body and a part of its message.
func (a answer) fails(t *testing.T, what string, status int, message string) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: %d %s, want %d", what, a.status, a.body, status)
		return
	}
	o := a.object(t)
	if o["code"] != float64(status) || !strings.Contains(fmt.Sprint(o["message"]), message) {
		t.Errorf("%s: the body is %s, want code %d and %q", what, a.body, status, message)
	}
}

// create makes a sandbox and returns what the answer says of it.
func (e *env) create(body string) map[string]any {
	e.t.Helper()
	a := e.do("POST", "/v2/sandboxes", body)
	if a.status != http.StatusCreated {
		e.t.Fatalf("create: %d %s", a.status, a.body)
	}
	return a.object(e.t)
}

func (e *env) id(sb map[string]any) string { return sb["sandboxID"].(string) }

func (e *env) record(id string) sandbox.Sandbox {
	e.t.Helper()
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		e.t.Fatal(err)
	}
	sb, err := e.store.Get(e.t.Context(), sandbox.DefaultProject, parsed)
	if err != nil {
		e.t.Fatal(err)
	}
	return sb
}

// waitFor waits until cond holds.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("still not: %s", what)
		}
	}
}
