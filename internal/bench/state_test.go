package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/cli/clitest"
	"ramet.dev/ramet/internal/client"
)

func isFork(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/fork") }

// refuse answers as a server that has no room, or for 500 as one whose machine failed.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	e := v1.Error{Error: "the host is full", Code: "host_memory_full"}
	switch status {
	case http.StatusTooManyRequests:
		e.Code = "quota_sandboxes"
	case http.StatusInternalServerError:
		status, e = http.StatusServiceUnavailable, v1.Error{Error: "the sandbox's machine did not start", Code: "boot_failed"}
	}
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(e)
}

// nothingLeft looks for sandboxes and checkpoints.
func nothingLeft(t *testing.T, c *client.Client) {
	t.Helper()
	if n := left(t, c); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	for ckp, err := range c.Checkpoints(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("checkpoint %s is left", ckp.Id)
	}
}

func TestForksAndSavesHaveStepsAndPauses(t *testing.T) {
	c := server(t, nil)
	want := map[string]struct {
		paused float64
		steps  []string
	}{
		"fork_first":         {12.5, []string{"save", "total", bench.StepFirstAnswer}},
		"fork_1":             {12.5, []string{"save", "total", bench.StepFirstAnswer}},
		"fork_5":             {12.5, []string{"save", "total", bench.StepFirstAnswer, bench.StepAllAnswers}},
		"fork_32":            {12.5, []string{"save", "total", bench.StepFirstAnswer, bench.StepAllAnswers}},
		"merge":              {0, []string{"save", "total", bench.StepFirstAnswer}},
		"hibernate":          {0, []string{"save", "total"}},
		"wake":               {0, []string{"save", "total", bench.StepFirstAnswer}},
		"checkpoint":         {11.5, []string{"save", "total"}},
		"restore_checkpoint": {0, []string{"save", "total", bench.StepFirstAnswer}},
	}
	var names []string
	for name := range want {
		names = append(names, name)
	}
	report, err := bench.Run(t.Context(), bench.Options{Client: c, N: 2, Names: names, NoFloors: "this is a test"})
	if err != nil || len(report.Results) != len(want) {
		t.Fatalf("error %v, %d results", err, len(report.Results))
	}
	for _, r := range report.Results {
		w := want[r.Name]
		if r.N != 2 || r.Failures != 0 || r.P50MS <= 0 || len(r.SamplesSteps) != 2 {
			t.Errorf("%s: %+v", r.Name, r)
		}
		for _, step := range []string{bench.StepFirstAnswer, bench.StepAllAnswers} {
			if _, found := r.Steps[step]; found != slices.Contains(w.steps, step) {
				t.Errorf("%s: step %s in %v", r.Name, step, r.Steps)
			}
		}
		for _, step := range w.steps {
			if r.Steps[step] <= 0 || r.SamplesSteps[1][step] <= 0 {
				t.Errorf("%s: no step %s in %v", r.Name, step, r.Steps)
			}
		}
		if first := r.Steps[bench.StepFirstAnswer]; first != 0 && first <= r.MinMS {
			t.Errorf("%s: it answered a call after %g ms, before it was there, %g", r.Name, first, r.MinMS)
		}
		switch {
		case (w.paused > 0) != (r.Paused != nil):
			t.Errorf("%s: paused %+v", r.Name, r.Paused)
		case r.Paused != nil && (r.Paused.P50MS != w.paused || r.Paused.DirtyMB != 3 || !slices.Equal(r.SamplesPaused, []float64{w.paused, w.paused})):
			t.Errorf("%s: paused %+v, %v", r.Name, r.Paused, r.SamplesPaused)
		}
	}
	nothingLeft(t, c)
}

// TestARefusalIsNoFailure is about servers without room for many children.
func TestARefusalIsNoFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		bench, wanted string
		status, after int
		n, failures   int
		shown         bool
	}{
		"from the begin":     {"fork_32", "fork_32", 503, 0, 0, 0, false},
		"in the middle":      {"fork_32", "fork_32", 429, 2, 1, 0, true},
		"five":               {"fork_5", "fork_5", 503, 0, 0, 0, false},
		"one":                {"fork_1", "", 503, 0, 0, 4, true},
		"a failed boot":      {"fork_32", "", 500, 0, 0, 3, true},
		"siblings":           {bench.ScaleSiblings, bench.ScaleSiblings, 503, 12, 6, 0, true},
		"siblings, at once":  {bench.ScaleSiblings, bench.ScaleSiblings, 429, 0, 0, 0, false},
		"siblings, an error": {bench.ScaleSiblings, "", 500, 6, 2, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			var forks atomic.Int64
			c := server(t, func(w http.ResponseWriter, r *http.Request) bool {
				if !isFork(r) || forks.Add(1) <= int64(tc.after) {
					return false
				}
				refuse(w, tc.status)
				return true
			})
			report, err := bench.Run(t.Context(), bench.Options{Client: c, N: 2, Names: []string{tc.bench}, NoFloors: "this is a test"})
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(report.Notes, "\n"); tc.wanted != "" && !strings.Contains(notes, tc.wanted+": the server has no room") {
				t.Errorf("notes: %s", notes)
			}
			if !tc.shown {
				if len(report.Results) != 0 {
					t.Errorf("%+v", report.Results)
				}
			} else if r := report.Results[0]; r.N != tc.n || r.Failures != tc.failures || (r.Error != "") != (tc.failures > 0) {
				t.Errorf("%+v", r)
			}
			nothingLeft(t, c)
		})
	}
}

// TestAWakeWithoutItsMemoryIsAFailure does not time boots.
func TestAWakeWithoutItsMemoryIsAFailure(t *testing.T) {
	c := server(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/wake") {
			return false
		}
		note := "it has booted from its disk"
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(v1.Sandbox{Status: "running", BootNote: &note})
		return true
	})
	report, err := bench.Run(t.Context(), bench.Options{Client: c, N: 2, Names: []string{"wake"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := report.Results[0]; r.N != 0 || r.Failures == 0 || !strings.Contains(r.Error, "booted from its disk") {
		t.Errorf("%+v", r)
	}
	nothingLeft(t, c)
}

func TestScalingRun(t *testing.T) {
	var most, deletes atomic.Int64
	now := map[string]int64{} // sandboxes of a benchmark; one call at a time
	live := int64(0)
	c, a := serverAround(t)
	a.around = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodDelete:
			deletes.Add(1)
			live--
		case r.Method == http.MethodPost && (isFork(r) || r.URL.Path == "/v1/sandboxes"):
			live++ // the batches of siblings count as one
			most.Store(max(most.Load(), live))
		}
		return false
	}
	for name, want := range map[string][]int{
		bench.ScaleDirty: {1, 16, 64, 256}, bench.ScaleSiblings: {1, 2, 4, 8, 16, 32, 64}, bench.ScaleDepth: {1, 2, 4, 8, 16, 32},
	} {
		live = 0
		most.Store(0)
		report, err := bench.Run(t.Context(), bench.Options{Client: c, N: 2, Names: []string{name}})
		if err != nil || len(report.Results) != 1 {
			t.Fatalf("%s: error %v, %+v", name, err, report)
		}
		now[name] = most.Load()
		r := report.Results[0]
		var xs []int
		for _, p := range r.Points {
			xs = append(xs, p.X)
			if p.N != 2 || p.P50MS <= 0 || p.FirstAnswerMS <= p.P50MS || p.PausedMS != 12.5 || p.DirtyMB != 3 || len(p.Samples) != 2 || p.Steps["save"] != 14 {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if !slices.Equal(xs, want) || r.N != 2*len(want) || r.Failures != 0 || r.Axis == "" {
			t.Errorf("%s: points %v, %+v", name, xs, r)
		}
		if short := report.WithoutSamples().Results[0]; short.Points[0].Samples != nil || r.Points[0].Samples == nil {
			t.Errorf("%s: samples of points", name)
		}
		nothingLeft(t, c)
	}
	// The ancestors of a line do not pile up: one that is forked, its child, and no more.
	if now[bench.ScaleDepth] != 2 {
		t.Errorf("%d sandboxes of one line at a time", now[bench.ScaleDepth])
	}
}

// TestScalingIsOnlyDoneWhenAskedFor keeps 'ramet bench' without names short.
func TestScalingIsOnlyDoneWhenAskedFor(t *testing.T) {
	asked := 0
	for _, b := range bench.Benchmarks() {
		if b.Asked {
			asked++
		}
	}
	if asked != len(bench.Scaling()) {
		t.Errorf("%d benchmarks are measured only when asked for", asked)
	}
}

// TestInterruptedStateLeavesNothing ends runs in the middle, also while an answer
// is lost that would have named what was made.
func TestInterruptedStateLeavesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		bench, call string
		after       int64
		made        bool // the call is done, but its answer is lost
	}{
		"a fork":             {"fork_5", "/fork", 2, true},
		"siblings":           {bench.ScaleSiblings, "/fork", 9, true},
		"a line":             {bench.ScaleDepth, "/fork", 9, true},
		"a line, a call":     {bench.ScaleDepth, "/exec", 12, false},
		"while it is asleep": {"wake", "/wake", 1, false},
		"a merge":            {"merge", "/merge_into/", 2, true},
		"a checkpoint":       {"checkpoint", "/checkpoints", 1, true},
		"a restore":          {"restore_checkpoint", "/restore", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			stop := errors.New("ctrl-c")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var calls atomic.Int64
			fake := clitest.New(t.TempDir()).Handler()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || !strings.Contains(r.URL.Path, tc.call) || calls.Add(1) != tc.after+1 {
					fake.ServeHTTP(w, r)
					return
				}
				if tc.made {
					fake.ServeHTTP(httptest.NewRecorder(), r)
				}
				hold(r, func() { cancel(stop) })
			}))
			t.Cleanup(srv.Close)
			c, err := client.New(srv.URL, clitest.Key, "bench test")
			if err != nil {
				t.Fatal(err)
			}
			report, err := bench.Run(ctx, bench.Options{Client: c, N: 4, Names: []string{tc.bench}})
			if !errors.Is(err, stop) || !report.Interrupted || len(report.Results) != 1 {
				t.Fatalf("error %v, %+v", err, report)
			}
			if r := report.Results[0]; r.Failures != 0 {
				t.Errorf("%+v", r)
			}
			nothingLeft(t, c)
		})
	}
}

// TestFloorsOfASecondStep compares a step, not the whole.
func TestFloorsOfASecondStep(t *testing.T) {
	f := &floors{opened: map[string]int{}}
	report, err := bench.Run(t.Context(), bench.Options{
		Client: server(t, nil), N: 3, Names: []string{"fork_1", "hibernate"},
		OpenFloors: func(context.Context, bench.FloorConfig) (bench.Floors, error) { return f, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	fork, hibernate := report.Results[0], report.Results[1]
	if fl := fork.Floor; fl == nil || fl.Name != bench.FloorRefill || fl.Step != bench.StepFirstAnswer || fork.Ratio() != fork.Steps[bench.StepFirstAnswer]/2 {
		t.Errorf("fork_1: %+v, ratio %g", fl, fork.Ratio())
	}
	if fl := hibernate.Floor; fl == nil || fl.Name != bench.FloorSave64M || fl.Step != "" || hibernate.Ratio() != hibernate.P50MS/2 {
		t.Errorf("hibernate: %+v, ratio %g", fl, hibernate.Ratio())
	}
}
