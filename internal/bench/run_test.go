package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/cli/clitest"
	"ramet.dev/ramet/internal/client"
)

// aroundServer is a fake server whose calls somebody else may answer.
type aroundServer struct {
	next http.Handler
	// around, when not nil, is asked before each call and says whether it has answered it.
	around func(http.ResponseWriter, *http.Request) bool
}

// serverAround is a fake server without a warm pool of the default shape. Its around is set before the first call.
func serverAround(t *testing.T) (*client.Client, *aroundServer) {
	t.Helper()
	a := &aroundServer{next: clitest.New(t.TempDir()).Handler()}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.around == nil || !a.around(w, r) {
			a.next.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	c, err := client.New(srv.URL, clitest.Key, "bench test")
	if err != nil {
		t.Fatal(err)
	}
	return c, a
}

func server(t *testing.T, around func(http.ResponseWriter, *http.Request) bool) *client.Client {
	t.Helper()
	c, a := serverAround(t)
	a.around = around
	return c
}

// left counts the sandboxes that have not been deleted.
func left(t *testing.T, c *client.Client) int {
	t.Helper()
	n := 0
	for _, err := range c.Sandboxes(t.Context(), client.ListFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// hold calls f and returns when the client has left. A server only sees that it
// has once the body is read.
func hold(r *http.Request, f func()) {
	_, _ = io.Copy(io.Discard, r.Body)
	f()
	select {
	case <-r.Context().Done():
	case <-time.After(30 * time.Second):
	}
}

func isExec(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/exec") }

func TestRunMeasuresOverHTTP(t *testing.T) {
	c := server(t, nil)
	var names []string // all but the large files, whose code is that of the small ones
	for _, b := range bench.Benchmarks() {
		if !strings.HasSuffix(b.Name, "_64m") {
			names = append(names, b.Name)
		}
	}
	report, err := bench.Run(t.Context(), bench.Options{Client: c, N: 2, Names: names, NoFloors: "this is a test"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bench.Result{}
	for _, r := range report.Results {
		got[r.Name] = r
	}
	for _, name := range []string{
		"create", "first_exec", "hot_exec", "bash", "roundtrip", "delete",
		"upload_256k", "download_256k",
	} {
		r := got[name]
		if r.N != 2 || r.Failures != 0 || r.Times == nil || len(r.Samples) != 2 || r.P50MS <= 0 || r.FirstMS <= 0 {
			t.Errorf("%s: %+v %+v", name, r, r.Times)
		}
		if r.Floor != nil {
			t.Errorf("%s has a floor", name)
		}
	}
	if got["upload_256k"].MBPerS <= 0 || got["create"].MBPerS != 0 {
		t.Errorf("throughput: %g of an upload, %g of a create", got["upload_256k"].MBPerS, got["create"].MBPerS)
	}
	if got["create"].Steps["restore"] != 40.5 {
		t.Errorf("the server's own steps: %v", got["create"].Steps)
	}
	if d := got["density"]; d.N != 2 || d.Times != nil || d.Memory == nil || d.Memory.PSSMBP50 != 60 || d.Memory.OwnPagesMax != 512 {
		t.Errorf("density: %+v %+v", d, d.Memory)
	}
	for _, name := range []string{"restore", "handoff", "agent_hello", "cold_boot"} {
		if _, found := got[name]; found {
			t.Errorf("%s was measured without floors", name)
		}
	}
	notes := strings.Join(report.Notes, "\n")
	if !strings.Contains(notes, "this is a test") || !strings.Contains(notes, "cold_boot was not measured") {
		t.Errorf("notes: %s", notes)
	}
	if h := report.Host; h.Cores < 1 || h.MemoryMB < 1 || h.Driver != "qemu" || h.Isolation != "emulated" || h.Time.IsZero() {
		t.Errorf("host: %+v", h)
	}
	if n := left(t, c); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

// TestRunInterruptedInTheMiddle ends a run while a call is open.
func TestRunInterruptedInTheMiddle(t *testing.T) {
	stop := errors.New("ctrl-c")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var execs atomic.Int64
	c := server(t, func(_ http.ResponseWriter, r *http.Request) bool {
		// The cold call, 5 that are not kept, and 2 samples are answered.
		if !isExec(r) || execs.Add(1) < 9 {
			return false
		}
		hold(r, func() { cancel(stop) })
		return true
	})
	report, err := bench.Run(ctx, bench.Options{Client: c, N: 5, Names: []string{"create", "bash", "upload_256k"}})
	if !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	if !report.Interrupted || len(report.Results) != 2 {
		t.Fatalf("%+v", report)
	}
	if r := report.Results[0]; r.Name != "create" || r.N != 5 {
		t.Errorf("what was whole: %+v", r)
	}
	if r := report.Results[1]; r.Name != "bash" || r.N != 2 || r.Failures != 0 || r.P50MS <= 0 {
		t.Errorf("what was interrupted: %+v %+v", r, r.Times)
	}
	if n := left(t, c); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

// TestRunInterruptedDuringACreate leaves no sandbox whose id nobody was told.
func TestRunInterruptedDuringACreate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fake := clitest.New(t.TempDir()).Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/sandboxes" {
			fake.ServeHTTP(httptest.NewRecorder(), r) // made, but the answer is lost
			hold(r, cancel)
			return
		}
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, clitest.Key, "bench test")
	if err != nil {
		t.Fatal(err)
	}
	report, err := bench.Run(ctx, bench.Options{Client: c, Names: []string{"create"}})
	if !errors.Is(err, context.Canceled) || !report.Interrupted {
		t.Errorf("error %v, %+v", err, report)
	}
	if n := left(t, c); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

func TestRunCountsFailures(t *testing.T) {
	refuse := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		json.NewEncoder(w).Encode(map[string]string{"error": "it broke", "code": "internal"})
	}
	var execs atomic.Int64
	for name, c := range map[string]struct {
		fails       func(n int64) bool
		n, failures int
		cold        bool
	}{
		"now and then":  {func(n int64) bool { return n == 7 || n == 9 }, 3, 2, true},
		"the cold call": {func(n int64) bool { return n == 1 }, 5, 1, false},
		"always":        {func(int64) bool { return true }, 0, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			execs.Store(0)
			cl := server(t, func(w http.ResponseWriter, r *http.Request) bool {
				if !isExec(r) || !c.fails(execs.Add(1)) {
					return false
				}
				refuse(w)
				return true
			})
			report, err := bench.Run(t.Context(), bench.Options{Client: cl, N: 5, Names: []string{"bash"}})
			if err != nil {
				t.Fatal(err)
			}
			r := report.Results[0]
			if r.N != c.n || r.Failures != c.failures || (r.FirstMS > 0) != c.cold || !strings.Contains(r.Error, "it broke") {
				t.Errorf("%+v", r)
			}
			if n := left(t, cl); n != 0 {
				t.Errorf("%d sandboxes are left", n)
			}
		})
	}
}

// TestRunTakesNoWrongAnswer counts a run that printed something else as failed.
func TestRunTakesNoWrongAnswer(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !isExec(r) {
			return false
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.Write([]byte(`{"type":"stdout","data":"2\n","seq":0,"ts":1}` + "\n" + `{"type":"exit","data":0,"seq":1,"ts":1}` + "\n"))
		return true
	})
	report, err := bench.Run(t.Context(), bench.Options{Client: c, N: 3, Names: []string{"hot_exec"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := report.Results[0]; r.N != 0 || r.Failures == 0 || !strings.Contains(r.Error, "printed") {
		t.Errorf("%+v", r)
	}
}

func TestRunRefusesUnknownNames(t *testing.T) {
	var unknown *bench.UnknownError
	if _, err := bench.Run(t.Context(), bench.Options{Client: server(t, nil), Names: []string{"create", "nosuch"}}); !errors.As(err, &unknown) || unknown.Name != "nosuch" {
		t.Errorf("error %v", err)
	}
}

// floors is a host whose every floor takes the same time.
type floors struct {
	cfg    bench.FloorConfig
	opened map[string]int
	open   int
	closed bool
}

func (f *floors) Open(_ context.Context, name string) (bench.Probe, error) {
	if name == bench.FloorBash {
		return bench.Probe{}, errors.New("no machine")
	}
	f.open++
	return bench.Probe{
		Once: func(context.Context) (bench.Sample, error) {
			f.opened[name]++
			return bench.Sample{Took: 2 * time.Millisecond}, nil
		},
		Close: func(context.Context) error { f.open--; return nil },
	}, nil
}

func (f *floors) Close(context.Context) error { f.closed = true; return nil }

// TestRunOnGVisorHasNoFloors: those there are would be of machines of another kind.
func TestRunOnGVisorHasNoFloors(t *testing.T) {
	srv := httptest.NewServer(clitest.New(t.TempDir()).OnGVisor().Handler())
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, clitest.Key, "bench test")
	if err != nil {
		t.Fatal(err)
	}
	report, err := bench.Run(t.Context(), bench.Options{
		Client: c, N: 2, Names: []string{"bash", "restore"},
		OpenFloors: func(context.Context, bench.FloorConfig) (bench.Floors, error) {
			t.Error("floors were opened")
			return &floors{}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 1 || report.Results[0].N != 2 || report.Results[0].Floor != nil {
		t.Errorf("results: %+v", report.Results)
	}
	notes := strings.Join(report.Notes, "\n")
	for _, want := range []string{"floors were not measured: they are of bare QEMU machines", "restore was not measured: it is of bare QEMU machines"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in the notes: %s", want, notes)
		}
	}
	if h := report.Host; h.Driver != "gvisor" || h.Isolation != "gvisor" || h.QEMU != "" {
		t.Errorf("host: %+v", h)
	}
}

func TestRunWithFloors(t *testing.T) {
	f := &floors{opened: map[string]int{}}
	report, err := bench.Run(t.Context(), bench.Options{
		Client: server(t, nil), N: 3, Names: []string{"create", "bash", "cold_boot"},
		OpenFloors: func(_ context.Context, cfg bench.FloorConfig) (bench.Floors, error) { f.cfg = cfg; return f, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	create, bash, cold := report.Results[0], report.Results[1], report.Results[2]
	if fl := create.Floor; fl == nil || fl.Name != bench.FloorCreate || fl.N != 3 || fl.P50MS != 2 || create.Ratio() != create.P50MS/2 {
		t.Errorf("create: %+v %+v", create, fl)
	}
	if bash.N != 3 || bash.Floor != nil || !strings.Contains(strings.Join(report.Notes, "\n"), "no machine") {
		t.Errorf("a floor that failed: %+v, %v", bash, report.Notes)
	}
	if cold.N != 3 || cold.P50MS != 2 || cold.Floor != nil {
		t.Errorf("measured without the server: %+v", cold)
	}
	if f.opened[bench.FloorCreate] != 4 || f.open != 0 || !f.closed {
		t.Errorf("%d calls, %d open, closed %t", f.opened[bench.FloorCreate], f.open, f.closed)
	}
	if f.cfg.Template != "default" || f.cfg.TemplateHash == "" || f.cfg.Isolation != "emulated" || f.cfg.VCPUs != 2 {
		t.Errorf("floors of %+v", f.cfg)
	}
}

// TestRunWithoutItsFloors goes on when the floors cannot be opened.
func TestRunWithoutItsFloors(t *testing.T) {
	report, err := bench.Run(t.Context(), bench.Options{
		Client: server(t, nil), N: 1, Names: []string{"bash"},
		OpenFloors: func(context.Context, bench.FloorConfig) (bench.Floors, error) { return nil, errors.New("no QEMU") },
	})
	if err != nil || report.Results[0].N != 1 || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "no QEMU") {
		t.Errorf("error %v, %+v", err, report)
	}
}
