package bench

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func scaleReport() *Report {
	return &Report{
		Host: Host{CPU: "a <cpu>", Cores: 2, Driver: "qemu", Isolation: "emulated"},
		Results: []Result{
			{Name: ScaleDirty, Axis: "MB <written>", Points: []Point{
				{X: 64, N: 3, P50MS: 310, FirstAnswerMS: 380, PausedMS: 48.5}, {X: 1, N: 3, P50MS: 97, FirstAnswerMS: 161, PausedMS: 12.5},
			}},
			{Name: ScaleSiblings, Axis: "siblings", Points: []Point{{X: 1, N: 3, P50MS: 101, FirstAnswerMS: 171, PausedMS: 13.5}}},
			{Name: ScaleDepth, Axis: "depth", Points: []Point{
				{X: 0, N: 3, P50MS: 5, FirstAnswerMS: 6, PausedMS: 7}, {X: 1, N: 3, P50MS: 99, FirstAnswerMS: 163}, {X: 32, N: 3, P50MS: 105, FirstAnswerMS: 168},
			}},
			{Name: "hot_exec", N: 2, Times: &Times{P50MS: 6, P99MS: 12}},
		},
	}
}

func TestScaleChartHasPanels(t *testing.T) {
	var b strings.Builder
	if err := WriteScaleChart(&b, scaleReport()); err != nil {
		t.Fatal(err)
	}
	chart := b.String()
	text := wellFormed(t, chart)
	for _, want := range []string{
		ScaleDirty, ScaleSiblings, ScaleDepth, "MB <written>", "siblings", "depth", "a <cpu>, 2 cores",
		"310", "380", "48.5", "97.0", "12.5", "101", "10 ms", "20 ms", "500 ms", "the parent stands still",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "hot_exec") || strings.Contains(chart, "<written>") {
		t.Errorf("more than the panels, or text that is not escaped:\n%s", chart)
	}
	// 3 in the legend, 2 and 1 points of three lines, and 2 points of two: what is 0 is left out.
	if n := strings.Count(chart, "<circle "); n != 3+6+3+4 {
		t.Errorf("%d circles", n)
	}
}

// TestScaleChartIsDrawnWhereThereIsNothingElse draws what a report has.
func TestScaleChartIsDrawnWhereThereIsNothingElse(t *testing.T) {
	r := scaleReport()
	if _, text := draw(t, r); !strings.Contains(text, "hot_exec") || strings.Contains(text, ScaleDirty) {
		t.Errorf("bars of a report with both:\n%s", text)
	}
	r.Results = r.Results[:3]
	if _, text := draw(t, r); !strings.Contains(text, ScaleDirty) {
		t.Errorf("no panels:\n%s", text)
	}
	for i := range r.Results {
		r.Results[i].Points = nil
	}
	if err := WriteScaleChart(io.Discard, r); !errors.Is(err, ErrNothingToDraw) {
		t.Errorf("error %v", err)
	}
}

func TestScaleIsLogarithmic(t *testing.T) {
	s := scale{least: 1, most: 1000, length: 300}
	for v, want := range map[float64]float64{1: 0, 10: 100, 1000: 300} {
		if got := s.at(v); math.Abs(got-want) > 1e-6 {
			t.Errorf("%g is at %g", v, got)
		}
	}
}

func TestGridMarks(t *testing.T) {
	for _, c := range []struct {
		least, most float64
		want        []float64
	}{
		{12.5, 1500, []float64{10, 20, 50, 100, 200, 500, 1000, 2000}},
		{10, 100, []float64{10, 20, 50, 100}},
		{6, 6, []float64{5, 10}},
		{0.3, 0.4, []float64{0.2, 0.5}},
		{5, 5, []float64{5, 10}},
	} {
		got := gridMarks(c.least, c.most)
		if len(got) != len(c.want) {
			t.Errorf("%g to %g: %v", c.least, c.most, got)
			continue
		}
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-9 {
				t.Errorf("%g to %g: %v", c.least, c.most, got)
			}
		}
	}
}

// TestChartOfASecondStep shows the step that floor and budget are of.
func TestChartOfASecondStep(t *testing.T) {
	r := &Report{Host: Host{Isolation: "emulated"}, Results: []Result{{
		Name: "fork_1", N: 40, Times: &Times{P50MS: 96, P99MS: 150}, Steps: map[string]float64{StepFirstAnswer: 155},
		Floor: &Floor{P50MS: 140, Step: StepFirstAnswer},
	}}}
	chart, text := draw(t, r)
	if !strings.Contains(text, "p50 96.0 (155 with a call), n 40") || strings.Count(chart, inkPale) != 2 {
		t.Errorf("%s", chart)
	}
	r.Results[0].Steps, r.Results[0].Floor = nil, nil
	if chart, text = draw(t, r); strings.Contains(chart, inkPale) || !strings.Contains(text, "p50 96.0, p99 150, n 40") {
		t.Errorf("%s", chart)
	}
}

func TestPauseBudget(t *testing.T) {
	for mb, want := range map[int]float64{0: 25, 4: 25, 5: 60, 64: 60, 65: 200, 256: 200, 301: 0} {
		if got := PauseBudgetMS(mb); got != want {
			t.Errorf("%d MB: %g", mb, got)
		}
	}
}
