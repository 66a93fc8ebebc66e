package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write the golden files")

func TestPercentile(t *testing.T) {
	upTo := func(n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = float64(i + 1)
		}
		return out
	}
	for _, c := range []struct {
		n, p int
		want float64
	}{
		{1, 50, 1},
		{1, 99, 1},
		{2, 50, 1},
		{2, 90, 2},
		{3, 50, 2},
		{10, 50, 5},
		{10, 90, 9},
		{10, 95, 10},
		{20, 95, 19},
		{99, 99, 99},
		{100, 50, 50},
		{100, 99, 99},
		{200, 95, 190},
		{200, 99, 198},
		{201, 99, 199},
	} {
		if got := percentile(upTo(c.n), c.p); got != c.want {
			t.Errorf("percentile %d of 1..%d is %g, not %g", c.p, c.n, got, c.want)
		}
	}
}

func TestSummarise(t *testing.T) {
	in := []float64{9, 1, 5, 3, 2}
	got := summarise(in)
	want := &Times{MinMS: 1, MeanMS: 4, P50MS: 3, P90MS: 9, P95MS: 9, P99MS: 9, MaxMS: 9}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if in[0] != 9 {
		t.Error("the samples were put into another order")
	}
}

func TestStepPercentile(t *testing.T) {
	samples := []Sample{
		{Steps: map[string]float64{"a": 1, "b": 10}},
		{Steps: map[string]float64{"a": 3}},
		{Steps: map[string]float64{"a": 2}},
	}
	for p, want := range map[int]map[string]float64{50: {"a": 2, "b": 10}, 99: {"a": 3, "b": 10}} {
		if d := cmp.Diff(want, stepPercentile(samples, p)); d != "" {
			t.Errorf("%d: %s", p, d)
		}
	}
	if got := stepPercentile([]Sample{{}}, 50); got != nil {
		t.Errorf("steps of nothing: %v", got)
	}
}

// TestFillKeepsTheColdSampleApart looks at what of a series is in the percentiles.
func TestFillKeepsTheColdSampleApart(t *testing.T) {
	cold := Sample{Took: time.Second}
	var r Result
	r.fill(series{first: &cold, samples: []Sample{{Took: 2 * time.Millisecond}, {Took: 4 * time.Millisecond}}}, 1<<20)
	if r.FirstMS != 1000 || r.N != 2 || r.MaxMS != 4 || r.MBPerS != 500 {
		t.Errorf("%+v, %+v", r, r.Times)
	}
	r = Result{}
	r.fill(series{failures: 3, err: errors.New("no")}, 0)
	if r.N != 0 || r.Times != nil || r.Failures != 3 || r.Error != "no" {
		t.Errorf("%+v", r)
	}
}

func TestRatio(t *testing.T) {
	for name, c := range map[string]struct {
		r    Result
		want float64
	}{
		"half of it is the floor": {Result{Times: &Times{P50MS: 4}, Floor: &Floor{P50MS: 2}}, 2},
		"no floor":                {Result{Times: &Times{P50MS: 4}}, 0},
		"no times":                {Result{Floor: &Floor{P50MS: 2}}, 0},
		"a floor of nothing":      {Result{Times: &Times{P50MS: 4}, Floor: &Floor{}}, 0},
	} {
		if got := c.r.Ratio(); got != c.want {
			t.Errorf("%s: %g", name, got)
		}
	}
}

// TestReportJSON compares the shape that others read with the golden file.
func TestReportJSON(t *testing.T) {
	r := &Report{
		Host: Host{
			CPU: "cpu", Cores: 2, MemoryMB: 24000, Kernel: "6.1.0", QEMU: "7.2.22", Driver: "qemu", Isolation: "emulated",
			Load1: 0.5, Load1End: 1.5, Version: "1.2.3", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		},
		Results: []Result{
			{
				Name: "create", N: 2, FirstMS: 9, Times: summarise([]float64{1, 3}), Steps: map[string]float64{"total": 1},
				Floor: &Floor{Name: "f", N: 1, P50MS: 1, Samples: []float64{1}}, Samples: []float64{1, 3},
			},
			{
				Name: "burst", N: 1, Times: summarise([]float64{7}), StepsP99: map[string]float64{"total": 6}, Pool: &PoolSplit{Hits: 4, Misses: 3},
				Rate: &Rate{Clients: 4, BurstN: 1, BurstPerS: 50, SustainedN: 6, SustainedPerS: 4.5, SustainedHits: 3},
			},
			{Name: "jupyter_exec", Group: GroupComparison, Beside: "hot_exec", N: 1, Times: summarise([]float64{3})},
			{
				Name: "fork_1", N: 1, Times: summarise([]float64{90}), Steps: map[string]float64{StepFirstAnswer: 150}, Paused: &Paused{P50MS: 12, P99MS: 13, MaxMS: 14, DirtyMB: 5},
				Floor:   &Floor{Name: "f", Step: StepFirstAnswer, N: 1, P50MS: 100, Samples: []float64{100}},
				Samples: []float64{90}, SamplesSteps: []map[string]float64{{StepFirstAnswer: 150}}, SamplesPaused: []float64{12},
			},
			{
				Name: ScaleDirty, N: 1, Axis: "MB", Points: []Point{makePoint(16, []Sample{{
					Took: 95 * time.Millisecond, Steps: map[string]float64{StepFirstAnswer: 160}, Pause: &Pause{MS: 20, DirtyBytes: 18 << 20},
				}})},
			},
			{Name: "upload_64m", N: 1, MBPerS: 20, Times: summarise([]float64{2})},
			{
				Name: "density", N: 1, Memory: sumUp([]MachineMemory{{PSSBytes: 60 << 20, OwnPages: 700}}),
				Machines: []MachineMemory{{PSSBytes: 60 << 20, OwnPages: 700}},
			},
			{Name: "bash", Failures: 5, Error: "it broke"},
		},
		Notes: []string{"a note"}, Interrupted: true,
	}
	for path, v := range map[string]*Report{"testdata/report.json": r.WithoutSamples(), "testdata/report-samples.json": r} {
		got, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s (-update writes it):\n%s", path, cmp.Diff(string(want), string(got)))
		}
		var back Report
		if err := json.Unmarshal(want, &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(v, &back, cmpopts.IgnoreUnexported(Result{})); d != "" {
			t.Errorf("%s is not read as it was written:\n%s", path, d)
		}
	}
	if r.Results[0].Samples == nil || r.Results[0].Floor.Samples == nil {
		t.Error("WithoutSamples took them from the report itself")
	}
}
