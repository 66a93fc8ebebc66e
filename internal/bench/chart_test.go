package bench

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wellFormed reads a chart to its end and returns all of its text.
func wellFormed(t *testing.T, chart string) string {
	t.Helper()
	var text strings.Builder
	d := xml.NewDecoder(strings.NewReader(chart))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, chart)
		}
		if c, ok := tok.(xml.CharData); ok {
			text.Write(c)
			text.WriteByte('\n')
		}
		if e, ok := tok.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
	return text.String()
}

func draw(t *testing.T, r *Report) (chart, text string) {
	t.Helper()
	var b strings.Builder
	if err := WriteChart(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String(), wellFormed(t, b.String())
}

func TestChartShowsEachResultWithItsMarks(t *testing.T) {
	r := &Report{
		Host: Host{CPU: "a <cpu> & \"more\"", Cores: 2, MemoryMB: 24000, Kernel: "6.1", QEMU: "7.2.22", Driver: "qemu", Isolation: "emulated", Load1: 0.5},
		Results: []Result{
			{Name: "hot_exec", N: 200, Times: &Times{P50MS: 6, P99MS: 12}, Floor: &Floor{P50MS: 3}},
			{Name: "<script>", N: 1, Times: &Times{P50MS: 1, P99MS: 1}},
			{Name: "restore", N: 3, Times: &Times{P50MS: 140, P99MS: 150}},
			{Name: "density", N: 16},
			{Name: "jupyter_exec", Group: GroupComparison, N: 9, Times: &Times{P50MS: 4, P99MS: 5}},
			{Name: "burst", N: 9, Times: &Times{P50MS: 9, P99MS: 20}, Rate: &Rate{Clients: 4, BurstN: 9, BurstPerS: 55.5, SustainedPerS: 4.25}},
		},
	}
	chart, text := draw(t, r)
	if strings.Contains(chart, "<script>") || strings.Contains(chart, "<cpu>") {
		t.Errorf("text is not escaped:\n%s", chart)
	}
	for _, want := range []string{
		"hot_exec", "<script>", "restore", "jupyter_exec", "p50 6.00, p99 12.0, n 200", `a <cpu> & "more", 2 cores`, "QEMU 7.2.22",
		"over HTTP", "without the server", "what people would use instead", "1 ms", "1 s", "55.5 creates a second",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "density") {
		t.Error("density has no time, but a bar")
	}
	// One mark is in the legend, the other is hot_exec's.
	if n := strings.Count(chart, `stroke="`+inkFloor); n != 2 {
		t.Errorf("%d marks of floors", n)
	}
	if n := strings.Count(chart, `stroke="`+inkBudget); n != 2 {
		t.Errorf("%d marks of budgets", n)
	}
	r.Host.Isolation = "kvm"
	if chart, _ = draw(t, r); strings.Count(chart, `stroke="`+inkBudget) != 1 {
		t.Error("a budget for emulation on a host with KVM")
	}
}

func TestChartAxis(t *testing.T) {
	a := newAxis([]Result{
		{Name: "x", Times: &Times{P50MS: 2, P99MS: 300}, Floor: &Floor{P50MS: 0.4}},
		{Name: "none"},
	}, nil)
	if a.low != -1 || a.high != 3 {
		t.Fatalf("%+v", a)
	}
	if x := a.x(0.1); math.Abs(x-chartLeft) > 0.01 {
		t.Errorf("the least is at %g", x)
	}
	if x := a.x(1000); math.Abs(x-chartRight) > 0.01 {
		t.Errorf("the most is at %g", x)
	}
	if d1, d2 := a.x(10)-a.x(1), a.x(100)-a.x(10); math.Abs(d1-d2) > 0.01 {
		t.Errorf("powers of ten are %g and %g apart", d1, d2)
	}
}

func TestBudgetForTheMedian(t *testing.T) {
	all := Budgets("emulated")
	for name, c := range map[string]struct {
		budget string
		r      Result
		want   float64
	}{
		"milliseconds":            {"hot_exec", Result{}, 5},
		"a ratio":                 {"refill", Result{Floor: &Floor{P50MS: 100}}, 130},
		"a ratio without floor":   {"refill", Result{}, 0},
		"of a pool":               {"create", Result{Pool: &PoolSplit{}}, 3},
		"of a pool there is not":  {"create", Result{}, 0},
		"nobody wishes anything":  {"bash", Result{Floor: &Floor{P50MS: 100}}, 0},
		"time and ratio of files": {"upload_64m", Result{Floor: &Floor{P50MS: 70}}, 100},
	} {
		if got := all[c.budget].median(c.r); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %g, not %g", name, got, c.want)
		}
	}
}

func TestBudgetsAreOfBenchmarks(t *testing.T) {
	names := map[string]bool{}
	for _, b := range Benchmarks() {
		if names[b.Name] {
			t.Errorf("there are two benchmarks %s", b.Name)
		}
		names[b.Name] = true
	}
	for _, isolation := range []string{"emulated", "gvisor"} {
		budgets := Budgets(isolation)
		if len(budgets) == 0 {
			t.Errorf("no budgets for %s", isolation)
		}
		for name := range budgets {
			if !names[name] {
				t.Errorf("a budget of %s, which is not measured", name)
			}
		}
	}
}

func TestChartOfNothing(t *testing.T) {
	if err := WriteChart(io.Discard, &Report{Results: []Result{{Name: "density"}}}); !errors.Is(err, ErrNothingToDraw) {
		t.Errorf("error %v", err)
	}
}

// TestKeptResultsHaveCharts compares the charts that are kept with what is drawn
// now of the files beside them.
func TestKeptResultsHaveCharts(t *testing.T) {
	files, err := filepath.Glob("../../bench/results/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no results: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		got, _ := draw(t, &r)
		path := strings.TrimSuffix(file, ".json") + ".svg"
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || string(want) != got {
			t.Errorf("%s is not what is drawn now (-update writes it): %v", path, err)
		}
	}
}
