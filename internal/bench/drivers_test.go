package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func twoDrivers() *Drivers {
	emulated := &Report{
		Host: Host{Driver: "qemu", Isolation: "emulated"},
		Results: []Result{
			{Name: "create", N: 2, Times: summarise([]float64{7, 9}), Samples: []float64{7, 9}},
			{
				Name: "fork_1", N: 1, Times: summarise([]float64{200}), Paused: &Paused{P50MS: 12, P99MS: 13},
				Steps: map[string]float64{StepFirstAnswer: 280, "total": 190}, StepsP99: map[string]float64{StepFirstAnswer: 290},
			},
			{Name: "density", N: 2, Memory: &Memory{PSSMBP50: 60}},
			{Name: "restore", N: 1, Times: summarise([]float64{140})},
			{Name: "wake", N: 1, Times: summarise([]float64{300})},
		},
	}
	native := &Report{
		Host: Host{Driver: "gvisor", Isolation: "gvisor"},
		Results: []Result{
			{Name: "create", N: 2, Failures: 1, Error: "no", Times: summarise([]float64{2, 4}), Samples: []float64{2, 4}},
			{
				Name: "fork_1", N: 1, Times: summarise([]float64{100}), Paused: &Paused{P50MS: 80, P99MS: 81},
				Steps: map[string]float64{StepFirstAnswer: 140}, StepsP99: map[string]float64{StepFirstAnswer: 150},
			},
			{Name: "density", N: 2, Memory: &Memory{PSSMBP50: 80}},
			{Name: "wake", Failures: 5, Error: "it lost its memory"},
			{Name: "merge", Failures: 5, Error: "no"},
		},
	}
	return &Drivers{Reports: []*Report{emulated, native}}
}

func TestDriversSideBySide(t *testing.T) {
	d := twoDrivers()
	d.Compare()
	d.Compare() // says the same again
	row := func(name, step string, ratio float64, qemu, gvisor DriverTimes) SideBySide {
		qemu.Driver, gvisor.Driver = "qemu", "gvisor"
		return SideBySide{Name: name, Step: step, Ratio: ratio, Drivers: []DriverTimes{qemu, gvisor}}
	}
	want := []SideBySide{
		row("create", "", 3.5, DriverTimes{N: 2, P50MS: 7, P99MS: 9}, DriverTimes{N: 2, Failures: 1, P50MS: 2, P99MS: 4}),
		row("fork_1", "", 2, DriverTimes{N: 1, P50MS: 200, P99MS: 200}, DriverTimes{N: 1, P50MS: 100, P99MS: 100}),
		row("fork_1", StepFirstAnswer, 2, DriverTimes{N: 1, P50MS: 280, P99MS: 290}, DriverTimes{N: 1, P50MS: 140, P99MS: 150}),
		row("fork_1", StepPaused, 0.15, DriverTimes{N: 1, P50MS: 12, P99MS: 13}, DriverTimes{N: 1, P50MS: 80, P99MS: 81}),
		row("restore", "", 0, DriverTimes{N: 1, P50MS: 140, P99MS: 140}, DriverTimes{}),
		row("wake", "", 0, DriverTimes{N: 1, P50MS: 300, P99MS: 300}, DriverTimes{Failures: 5}),
		row("merge", "", 0, DriverTimes{}, DriverTimes{Failures: 5}),
	}
	if diff := cmp.Diff(want, d.SideBySide); diff != "" {
		t.Error(diff)
	}
	d.Reports = d.Reports[:1]
	if d.Compare(); d.SideBySide != nil {
		t.Errorf("one report beside nothing: %+v", d.SideBySide)
	}
}

// TestDriversJSON compares the shape that others read with the golden file.
func TestDriversJSON(t *testing.T) {
	d := twoDrivers()
	d.Failed = []DriverError{{Driver: "other", Error: "there is none"}}
	d.Compare()
	short := d.WithoutSamples()
	got, err := json.MarshalIndent(short, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const path = "testdata/drivers.json"
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
	var back Drivers
	if err := json.Unmarshal(want, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(short, &back, cmpopts.IgnoreUnexported(Result{})); diff != "" {
		t.Errorf("%s is not read as it was written:\n%s", path, diff)
	}
	if d.Reports[0].Results[0].Samples == nil {
		t.Error("WithoutSamples took them from the report itself")
	}
}

func TestChartsOfSeveralDriversShareAnAxis(t *testing.T) {
	d := twoDrivers()
	d.Reports[0].Results[0].Times = &Times{P50MS: 2000, P99MS: 3000}
	var b strings.Builder
	if err := WriteCharts(&b, d.Reports); err != nil {
		t.Fatal(err)
	}
	text := wellFormed(t, b.String())
	for _, want := range []string{"--driver qemu: ", "--driver gvisor: ", "Machines: gvisor, gvisor"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	// The slower one needs it; the other one ends there too.
	if n := strings.Count(text, "10 s\n"); n != 2 {
		t.Errorf("%d axes end at 10 s:\n%s", n, text)
	}
	if err := WriteCharts(io.Discard, []*Report{{}, {Results: []Result{{Name: "density"}}}}); !errors.Is(err, ErrNothingToDraw) {
		t.Errorf("of nothing: %v", err)
	}
	scaled := &Report{Results: []Result{{Name: ScaleDepth, Points: []Point{{X: 1, N: 1, P50MS: 9, FirstAnswerMS: 12, PausedMS: 3}}}}}
	b.Reset()
	if err := WriteCharts(&b, []*Report{scaled, {}, scaled}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(wellFormed(t, b.String()), "fork(1): milliseconds"); n != 2 {
		t.Errorf("%d charts of scaling runs", n)
	}
}
