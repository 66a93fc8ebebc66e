package bench

import "slices"

// Drivers is the outcome of the same benchmarks on servers with different drivers, as
// 'ramet bench --driver all --json' prints it; docs/cli-json.md describes it.
type Drivers struct {
	Reports    []*Report     `json:"reports"` // in the order in which they were measured
	SideBySide []SideBySide  `json:"side_by_side,omitempty"`
	Failed     []DriverError `json:"failed,omitempty"`
}

// SideBySide is a row of the comparison: what was timed, on each driver.
type SideBySide struct {
	Name string `json:"name"`
	// Step is a Step… of this package or StepPaused; "" for the whole.
	Step    string        `json:"step,omitempty"`
	Drivers []DriverTimes `json:"drivers"` // one of each report, in their order
	// Ratio is the median of the first report in units of the last one's; 0 where one has none.
	Ratio float64 `json:"ratio,omitempty"`
}

// StepPaused is how long a sandbox stood still that was copied.
const StepPaused = "stood_still"

// DriverTimes is what one driver took. It has no times where nothing was timed.
type DriverTimes struct {
	Driver   string  `json:"driver"`
	N        int     `json:"n"`
	Failures int     `json:"failures"`
	P50MS    float64 `json:"p50_ms,omitempty"`
	P99MS    float64 `json:"p99_ms,omitempty"`
}

// DriverError is a driver that was not measured.
type DriverError struct {
	Driver string `json:"driver"`
	Error  string `json:"error"` // one sentence
}

// Compare enters what the reports have of the same things. It can be called again.
func (d *Drivers) Compare() {
	d.SideBySide = nil
	if len(d.Reports) < 2 {
		return
	}
	for _, b := range names(d.Reports) {
		for _, step := range []string{"", StepFirstAnswer, StepAllAnswers, StepPaused} {
			row, timed := SideBySide{Name: b, Step: step}, false
			for _, r := range d.Reports {
				t := DriverTimes{Driver: r.Host.Driver}
				if i := slices.IndexFunc(r.Results, func(res Result) bool { return res.Name == b }); i >= 0 {
					t.fill(r.Results[i], step)
				}
				timed = timed || t.P50MS > 0
				row.Drivers = append(row.Drivers, t)
			}
			if first, last := row.Drivers[0], row.Drivers[len(row.Drivers)-1]; last.P50MS > 0 {
				row.Ratio = round3(first.P50MS / last.P50MS)
			}
			if timed || step == "" && row.failed() {
				d.SideBySide = append(d.SideBySide, row)
			}
		}
	}
}

// names are those of all results, in the order of the first report that has one.
func names(reports []*Report) []string {
	var all []string
	for _, r := range reports {
		for _, res := range r.Results {
			if !slices.Contains(all, res.Name) {
				all = append(all, res.Name)
			}
		}
	}
	return all
}

func (t *DriverTimes) fill(r Result, step string) {
	t.N, t.Failures = r.N, r.Failures
	switch {
	case step == StepPaused && r.Paused != nil:
		t.P50MS, t.P99MS = r.Paused.P50MS, r.Paused.P99MS
	case step == StepPaused, r.Times == nil:
	case step == "":
		t.P50MS, t.P99MS = r.P50MS, r.P99MS
	default:
		t.P50MS, t.P99MS = r.Steps[step], r.StepsP99[step]
	}
}

func (s SideBySide) failed() bool {
	return slices.ContainsFunc(s.Drivers, func(t DriverTimes) bool { return t.Failures > 0 })
}

// WithoutSamples is d without the raw samples.
func (d *Drivers) WithoutSamples() *Drivers {
	short := *d
	short.Reports = nil
	for _, r := range d.Reports {
		short.Reports = append(short.Reports, r.WithoutSamples())
	}
	return &short
}
