package exec

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest/reap"
)

// limit bounds every call of these tests.
const limit = 60 * time.Second

var reaper *reap.Reaper

func TestMain(m *testing.M) {
	reaper = reap.New()
	code := m.Run()
	reaper.Close()
	os.Exit(code)
}

type fixture struct {
	t      testing.TB
	svc    *Service
	client agentv1connect.ExecClient
}

func newFixture(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	// With RAMET_TEST_NODE the tests run on another Node.js, as that of a template.
	cfg := Config{Reaper: reaper, Logger: slog.New(slog.DiscardHandler), SpoolDir: t.TempDir(), Node: os.Getenv("RAMET_TEST_NODE")}
	for _, c := range change {
		c(&cfg)
	}
	svc, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	path, handler := agentv1connect.NewExecHandler(svc, connect.WithCompression("gzip", nil, nil))
	mux.Handle(path, Batch(handler))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		svc.Close()
		transport.CloseIdleConnections()
		server.Close()
	})
	return &fixture{t, svc, agentv1connect.NewExecClient(&http.Client{Transport: transport}, server.URL)}
}

// stdlib makes the interpreter run without IPython.
func stdlib(c *Config) { c.PythonEnv = map[string]string{"RAMET_REPL_STDLIB": "1"} }

// bothInterpreters runs a test with IPython and without.
func bothInterpreters(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Run("ipython", func(t *testing.T) { test(t, newFixture(t)) })
	t.Run("stdlib", func(t *testing.T) { test(t, newFixture(t, stdlib)) })
}

// transcript is what a run said.
type transcript struct {
	stdout, stderr string
	order          string // both streams as they came
	results        []*agentv1.Result
	truncated      uint64
	started        *agentv1.Started
	exit           *agentv1.Exit
	keepAlives     int
	events         []*agentv1.Event
	last           uint64

	out, err, both []byte // what the strings are made from, by settle
}

// settle makes the strings; done at each event it would take quadratic time.
func (tr *transcript) settle() *transcript {
	tr.stdout, tr.stderr, tr.order = string(tr.out), string(tr.err), string(tr.both)
	return tr
}

// add takes one event and checks what holds for every stream.
func (tr *transcript) add(t testing.TB, e *agentv1.Event, from uint64) {
	t.Helper()
	if e.GetKeepAlive() != nil {
		tr.keepAlives++
		if e.GetSeq() != 0 {
			t.Errorf("keep-alive with seq %d", e.GetSeq())
		}
		return
	}
	if tr.exit != nil {
		t.Errorf("event after the exit: %v", e)
	}
	if want := from + uint64(len(tr.events)); e.GetSeq() != want {
		t.Fatalf("event has seq %d, want %d", e.GetSeq(), want)
	}
	tr.last = e.GetSeq()
	tr.events = append(tr.events, e)
	switch k := e.GetKind().(type) {
	case *agentv1.Event_Started:
		tr.started = k.Started
	case *agentv1.Event_Stdout:
		tr.out = append(tr.out, k.Stdout...)
		tr.both = append(tr.both, k.Stdout...)
	case *agentv1.Event_Stderr:
		tr.err = append(tr.err, k.Stderr...)
		tr.both = append(tr.both, k.Stderr...)
	case *agentv1.Event_Result:
		tr.results = append(tr.results, k.Result)
		tr.both = append(tr.both, "<"+k.Result.GetData()["text/plain"]+">"...)
	case *agentv1.Event_Truncated:
		tr.truncated += k.Truncated.GetBytes()
	case *agentv1.Event_Exit:
		tr.exit = k.Exit
	}
}

type stream interface {
	Receive() bool
	Msg() *agentv1.Event
	Err() error
	Close() error
}

// collect reads a stream to its end, which must be an Exit.
func (f *fixture) collect(s *connect.ServerStreamForClient[agentv1.Event], err error) *transcript {
	f.t.Helper()
	return f.collectFrom(s, err, 0)
}

func (f *fixture) collectFrom(s stream, err error, from uint64) *transcript {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
	defer s.Close()
	tr := &transcript{}
	for s.Receive() {
		tr.add(f.t, s.Msg(), from)
	}
	tr.settle()
	if err := s.Err(); err != nil {
		f.t.Fatalf("stream: %v (stdout %q, stderr %q)", err, tr.stdout, tr.stderr)
	}
	if tr.exit == nil {
		f.t.Fatal("the stream ended without an exit")
	}
	return tr
}

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	f.t.Cleanup(cancel)
	return ctx
}

func (f *fixture) run(req *agentv1.RunRequest) *transcript {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return f.collect(f.client.Run(ctx, req))
}

func (f *fixture) python(code string) *transcript {
	f.t.Helper()
	return f.run(&agentv1.RunRequest{Language: "python", Code: code})
}

// pythonOK runs code that must succeed and returns its standard output.
func (f *fixture) pythonOK(code string) string {
	f.t.Helper()
	tr := f.python(code)
	if tr.exit.GetCode() != 0 || tr.exit.GetReason() != agentv1.Reason_EXITED {
		f.t.Fatalf("%s\nexit %v\nstderr %s", code, tr.exit, tr.stderr)
	}
	return tr.stdout
}

func (f *fixture) bash(code string) *transcript {
	f.t.Helper()
	return f.run(&agentv1.RunRequest{Language: "bash", Code: code})
}

func (f *fixture) start(req *agentv1.StartRequest) *transcript {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return f.collect(f.client.Start(ctx, req))
}

// background starts a call and returns what is needed to watch and end it.
type background struct {
	f    *fixture
	s    *connect.ServerStreamForClient[agentv1.Event]
	tr   *transcript
	stop context.CancelFunc
}

func (f *fixture) openRun(req *agentv1.RunRequest) *background {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	f.t.Cleanup(cancel)
	s, err := f.client.Run(ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	return &background{f, s, &transcript{}, cancel}
}

func (f *fixture) openStart(req *agentv1.StartRequest) *background {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	f.t.Cleanup(cancel)
	s, err := f.client.Start(ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	return &background{f, s, &transcript{}, cancel}
}

// until reads events until stdout contains the text.
func (b *background) until(text string) {
	b.f.t.Helper()
	for !strings.Contains(b.tr.stdout, text) {
		if !b.s.Receive() {
			b.f.t.Fatalf("stream ended before %q: %v, %q %q", text, b.s.Err(), b.tr.stdout, b.tr.stderr)
		}
		b.tr.add(b.f.t, b.s.Msg(), 0)
		b.tr.settle()
	}
}

// rest reads to the end.
func (b *background) rest() *transcript {
	b.f.t.Helper()
	for b.s.Receive() {
		b.tr.add(b.f.t, b.s.Msg(), 0)
	}
	if err := b.s.Err(); err != nil {
		b.f.t.Fatal(err)
	}
	if b.tr.exit == nil {
		b.f.t.Fatal("the stream ended without an exit")
	}
	return b.tr.settle()
}

func (f *fixture) signal(id string, sig int32) error {
	_, err := f.client.Signal(f.ctx(), &agentv1.SignalRequest{RunId: id, Signal: sig})
	return err
}

// eventually waits for a condition that another process makes true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(limit)
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

func (f *fixture) renew(n Renewal) {
	f.t.Helper()
	if err := f.svc.Renew(n); err != nil {
		f.t.Fatal(err)
	}
}
