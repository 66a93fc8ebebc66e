package e2b_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/compat/e2b"
	"ramet.dev/ramet/internal/compat/e2b/envd"
	"ramet.dev/ramet/internal/compat/e2b/interpreter"
	"ramet.dev/ramet/internal/httpapi"
)

// whole is a server of everything that the clients call, on fake machines. The files of a
// guest are in a temporary folder, and its programs are processes of this machine.
func whole(t *testing.T) (url, key string) {
	t.Helper()
	e := start(t, options{})
	log := slog.New(slog.NewTextHandler(e.log, nil))
	seed, err := e.store.Secret(t.Context(), "traffic")
	if err != nil {
		t.Fatal(err)
	}
	api := httpapi.New(httpapi.Config{Control: e.control, Log: log})
	inside := envd.New(envd.Config{Control: e.control, Log: log})
	code := interpreter.New(interpreter.Config{Control: e.control, Log: log})
	s := e2b.New(e2b.Config{Control: e.control, Front: api, Log: log, Seed: seed, Envd: inside, Interpreter: code})
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.HTTPServer()
	server.Config.Handler = api.Around(s.Route(api.Native()))
	server.Start()
	t.Cleanup(func() {
		api.Drain()
		inside.Close()
		code.Drain()
		server.Close()
	})
	return server.URL, e.key
}

// runClient runs a program of an official client against a server.
func runClient(t *testing.T, dir string, argv ...string) {
	t.Helper()
	url, key := whole(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "E2B_API_KEY="+key, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_DEBUG=", "E2B_DOMAIN=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all is well") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestThePythonClientWorks(t *testing.T) {
	python := os.Getenv("RAMET_TEST_E2B_PYTHON")
	if python == "" {
		t.Skip("RAMET_TEST_E2B_PYTHON is the Python of an environment with e2b-code-interpreter; make test-unit sets it")
	}
	runClient(t, ".", python, "testdata/client.py")
}

func TestTheJavaScriptClientWorks(t *testing.T) {
	modules := os.Getenv("RAMET_TEST_E2B_NODE")
	if modules == "" {
		t.Skip("RAMET_TEST_E2B_NODE is a node_modules folder with @e2b/code-interpreter; make test-unit sets it")
	}
	dir := t.TempDir() // Node looks for packages beside the program
	program, err := os.ReadFile("testdata/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "client.mjs"), program, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	runClient(t, dir, "node", "client.mjs")
}
