//go:build integration

package app_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/app"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/progress"
)

// The real server of these tests: one app with real machines, shared by the
// tests that do not break it.
var shared struct {
	once sync.Once
	srv  *server
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.srv != nil {
		if err := shared.srv.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the shared server:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// realServer returns the shared server.
func realServer(t *testing.T) *server {
	t.Helper()
	shared.once.Do(func() {
		shared.srv, shared.err = startServer(testHome(), nil)
	})
	if shared.err != nil {
		t.Fatalf("start the server: %v", shared.err)
	}
	return shared.srv
}

// testHome is a data directory that is kept between runs, so that the
// template is built once.
func testHome() string {
	if home := os.Getenv("RAMET_TEST_HOME"); home != "" {
		return home
	}
	return filepath.Join(os.TempDir(), "ramet-test-home")
}

// freshHome returns a data directory of the test's own that shares the built
// template with the shared one.
func freshHome(t *testing.T) string {
	t.Helper()
	realServer(t) // builds the template
	home := t.TempDir()
	linkTemplates(t, home)
	return home
}

func linkTemplates(t *testing.T, home string) {
	t.Helper()
	if err := os.Chmod(home, 0o711); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(home); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(testHome(), "templates"), filepath.Join(home, "templates")); err != nil {
		t.Fatal(err)
	}
}

// server is an app that serves, and a client of it.
type server struct {
	app  *app.App
	url  string
	key  string
	home string

	cancel context.CancelFunc
	done   chan error
}

// startServer builds what is missing in home and serves.
func startServer(home string, change func(*config.Server)) (*server, error) {
	return start(home, true, change)
}

// start serves; without prepare it takes the template that is there.
func start(home string, prepare bool, change func(*config.Server)) (*server, error) {
	cfg := config.Server{
		Home: home, Listen: "127.0.0.1:0", Driver: app.DriverOfTests(), Accel: "auto",
		LogFormat: "text", LogLevel: "info", GuestCA: "host", Region: "local", Node: "test", Template: "default",
		// The network that TestRealGuestReaches… makes for itself.
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("10.213.0.0/24")},
		// These tests write little, and the host that runs them may be small.
		DiskOvercommit: 16,
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	last := ""
	ctx = progress.With(ctx, func(e progress.Event) {
		if e.Step != last {
			last = e.Step
			slog.Info("setting up", "step", e.Step)
		}
	})
	if prepare {
		if err := app.Prepare(ctx, cfg); err != nil {
			cancel()
			return nil, err
		}
	}
	a, err := app.New(ctx, cfg, "test")
	if err != nil {
		cancel()
		return nil, err
	}
	s := &server{app: a, url: a.URL(), home: home, cancel: cancel, done: make(chan error, 1)}
	key, err := os.ReadFile(filepath.Join(home, "key"))
	if err != nil {
		cancel()
		a.Close()
		return nil, err
	}
	s.key = strings.TrimSpace(string(key))
	go func() { s.done <- a.Run(ctx) }()
	return s, nil
}

func (s *server) stop() error {
	s.cancel()
	err := <-s.done
	if cerr := s.app.Close(); err == nil {
		err = cerr
	}
	return err
}

// ownServer starts a server for one test, which may break it.
func ownServer(t *testing.T, home string, change func(*config.Server)) *server {
	t.Helper()
	s, err := startServer(home, change)
	if err != nil {
		t.Fatalf("start a server: %v", err)
	}
	s.stopAtEnd(t)
	return s
}

func (s *server) stopAtEnd(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("stop the server: %v", err)
		}
	})
}

// do makes one call and returns its status and body.
func (s *server) do(t *testing.T, method, path string, body any) (int, []byte) {
	t.Helper()
	return s.doWithin(t, 3*time.Minute, method, path, body)
}

// doWithin is do for calls with a deadline of their own.
func (s *server) doWithin(t *testing.T, d time.Duration, method, path string, body any) (int, []byte) {
	t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		r = b
	default:
		j, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		r = bytes.NewReader(j)
	}
	// Cleanups call too, when the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), d)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	if _, raw := body.(io.Reader); raw {
		req.Header.Set("Content-Type", "application/octet-stream")
	} else if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return resp.StatusCode, b
}

// call is do for calls that must succeed; it decodes the answer into out.
func (s *server) call(t *testing.T, method, path string, body, out any) {
	t.Helper()
	status, b := s.do(t, method, path, body)
	if status/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, status, b)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, b)
		}
	}
}

type obj = map[string]any

// box is a sandbox of a test; it is deleted at the test's end.
type box struct {
	t  *testing.T
	s  *server
	ID string `json:"id"`

	Status     string             `json:"status"`
	FailReason string             `json:"fail_reason"`
	Isolation  string             `json:"isolation"`
	Timings    map[string]float64 `json:"timings_ms"`
}

func (s *server) create(t *testing.T, opts obj) *box {
	t.Helper()
	if opts == nil {
		opts = obj{}
	}
	b := &box{t: t, s: s}
	s.call(t, "POST", "/v1/sandboxes", opts, b)
	t.Cleanup(func() { s.do(t, "DELETE", "/v1/sandboxes/"+b.ID, nil) })
	return b
}

func (b *box) path(p string) string { return "/v1/sandboxes/" + b.ID + p }

// result is what a run gave.
type result struct {
	stdout, stderr string
	code           int
	reason         string
	message        string
	mainText       string
	errorName      string
}

type event struct {
	Type      string          `json:"type"`
	Data      json.RawMessage `json:"data"`
	Seq       int64           `json:"seq"`
	EOL       *bool           `json:"eol"`
	Reason    string          `json:"reason"`
	Message   string          `json:"message"`
	Main      bool            `json:"main"`
	Name      string          `json:"name"`
	Code      string          `json:"code"` // of a stream_error
	ProcessID string          `json:"process"`
}

// run runs code and collects its stream.
func (b *box) run(language, code string, more obj) result {
	b.t.Helper()
	req := obj{"language": language, "code": code}
	for k, v := range more {
		req[k] = v
	}
	status, body := b.s.do(b.t, "POST", b.path("/exec"), req)
	if status != 200 {
		b.t.Fatalf("exec: %d %s", status, body)
	}
	return collect(b.t, body)
}

func (b *box) python(code string) result { b.t.Helper(); return b.run("python", code, nil) }
func (b *box) bash(code string) result   { b.t.Helper(); return b.run("bash", code, nil) }

// mustPython fails the test unless the code ended with 0, and returns its stdout.
func (b *box) mustPython(code string) string { b.t.Helper(); return b.must(b.python(code)) }
func (b *box) mustBash(code string) string   { b.t.Helper(); return b.must(b.bash(code)) }

func (b *box) must(r result) string {
	b.t.Helper()
	if r.code != 0 {
		b.t.Fatalf("code ended with %d (%s %s)\nstdout: %s\nstderr: %s", r.code, r.reason, r.message, r.stdout, r.stderr)
	}
	return r.stdout
}

// collect reads a whole NDJSON stream in the format "lines" and checks its order.
func collect(t *testing.T, body []byte) result {
	t.Helper()
	var r result
	next, ended := int64(0), false
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("bad event %q: %v", line, err)
		}
		if e.Seq != next {
			t.Fatalf("event %q has number %d, want %d", line, e.Seq, next)
		}
		next++
		if ended {
			t.Fatalf("event %q after the exit", line)
		}
		switch e.Type {
		case "stdout", "stderr":
			var text string
			if err := json.Unmarshal(e.Data, &text); err != nil {
				t.Fatalf("bad event %q: %v", line, err)
			}
			if e.EOL == nil || *e.EOL {
				text += "\n"
			}
			if e.Type == "stdout" {
				r.stdout += text
			} else {
				r.stderr += text
			}
		case "result":
			var bundle map[string]string
			if err := json.Unmarshal(e.Data, &bundle); err != nil {
				t.Fatalf("bad event %q: %v", line, err)
			}
			if e.Main {
				r.mainText = bundle["text/plain"]
			}
		case "error":
			r.errorName = e.Name
		case "exit":
			if err := json.Unmarshal(e.Data, &r.code); err != nil {
				t.Fatalf("bad event %q: %v", line, err)
			}
			r.reason, r.message, ended = e.Reason, e.Message, true
		case "stream_error":
			t.Fatalf("stream broke: %s", line)
		}
	}
	if !ended {
		t.Fatalf("the stream has no exit: %s", body)
	}
	return r
}

// stream opens an NDJSON stream and returns its events until it ends or the test does.
func (s *server) stream(t *testing.T, path string, body any) <-chan event {
	t.Helper()
	j, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+path, bytes.NewReader(j))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("POST %s: %d %s", path, resp.StatusCode, b)
	}
	events := make(chan event, 1024)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 32<<20)
		for lines.Scan() {
			var e event
			if len(lines.Bytes()) > 0 && json.Unmarshal(lines.Bytes(), &e) == nil {
				events <- e
			}
		}
	}()
	return events
}
