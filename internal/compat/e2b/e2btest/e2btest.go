// Package e2btest has a server of the E2B surfaces inside a sandbox for tests: envd and the
// code interpreter of fake machines, behind as much of the control API as the official clients
// need to get a sandbox.
package e2btest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/compat/e2b/envd"
	"ramet.dev/ramet/internal/compat/e2b/interpreter"
	"ramet.dev/ramet/internal/compat/e2b/traffic"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// Token is the X-Access-Token of every sandbox.
const Token = "a-token-of-tests"

// Env is a server on fake machines with one sandbox.
type Env struct {
	T        *testing.T
	URL      string
	ID       sandbox.ID
	Instance sandbox.InstanceID // what the services are told of its machine
	Control  *control.Control
	Machines *controltest.Machines
	Envd     *envd.Server

	Interpreter *interpreter.Server
}

// Start starts a server.
func Start(t *testing.T) *Env {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), filepath.Join(dir, "ramet.db"))
	if err != nil {
		t.Fatal(err)
	}
	logs := &lockedBuffer{}
	logger := slog.New(slog.NewTextHandler(logs, nil))
	e := &Env{T: t, Machines: controltest.NewMachines(filepath.Join(dir, "instances"))}
	e.Control, err = control.New(t.Context(), control.Config{
		Store: st, Machines: e.Machines, Templates: controltest.NewTemplates(), Log: logger, Region: "local", Node: "n1",
		KillDelay: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Envd = envd.New(envd.Config{Control: e.Control, Log: logger})
	e.Interpreter = interpreter.New(interpreter.Config{Control: e.Control, Log: logger})
	server := httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	e.URL = server.URL
	t.Cleanup(func() {
		e.Envd.Close()
		e.Interpreter.Drain()
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.Control.Close(ctx); err != nil {
			t.Errorf("close control: %v", err)
		}
		e.Machines.StopAll()
		if err := st.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
		if t.Failed() {
			t.Log(logs.String())
		}
	})
	e.ID = e.create(t.Context())
	return e
}

func (e *Env) create(ctx context.Context) sandbox.ID {
	sb, _, err := e.Control.Create(ctx, sandbox.DefaultProject, control.CreateRequest{Env: map[string]string{"GIVEN": "at-create"}})
	if err != nil {
		e.T.Fatal(err)
	}
	return sb.ID
}

// Target is the sandbox as the services are told of it.
func (e *Env) Target() traffic.Target {
	return traffic.Target{Project: sandbox.DefaultProject, ID: e.ID, Instance: e.Instance, Shown: "itest", Token: Token, User: "user"}
}

func (e *Env) serve(w http.ResponseWriter, r *http.Request) {
	switch r.Header.Get("E2b-Sandbox-Port") {
	case "49983":
		e.Envd.Serve(w, r, e.Target())
		return
	case "49999":
		e.Interpreter.Serve(w, r, e.Target())
		return
	}
	if r.URL.Query().Has("signature") {
		e.Envd.Serve(w, r, e.Target())
		return
	}
	e.api(w, r)
}

// api is what of the control API a client needs.
func (e *Env) api(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxes"), strings.HasSuffix(r.URL.Path, "/connect"):
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"sandboxID": "itest", "templateID": "base", "clientID": "local", "envdVersion": "0.6.13", "envdAccessToken": Token,
		})
	default:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": 404, "message": "there is nothing at " + r.Method + " " + r.URL.Path})
	}
}

// lockedBuffer is a buffer for several writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
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
