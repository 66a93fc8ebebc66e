package bench

import (
	"maps"
	"math"
	"slices"
)

// Report is the outcome of a run, as 'ramet bench --json' prints it;
// docs/cli-json.md describes it. Durations are milliseconds.
type Report struct {
	Host        Host     `json:"host"`
	Results     []Result `json:"results"`
	Notes       []string `json:"notes,omitempty"`
	Interrupted bool     `json:"interrupted,omitempty"`
}

// Result is one benchmark's.
type Result struct {
	Name     string `json:"name"`
	Group    string `json:"group,omitempty"`  // GroupComparison, or nothing
	Beside   string `json:"beside,omitempty"` // of a comparison: the result to compare it with
	N        int    `json:"n"`                // samples in the percentiles
	Failures int    `json:"failures"`
	Error    string `json:"error,omitempty"` // the first failure
	// Times is nil when nothing was timed.
	*Times
	// FirstMS is the first, cold sample. It is not in Times.
	FirstMS  float64            `json:"first_ms,omitempty"`
	MBPerS   float64            `json:"mb_per_s,omitempty"` // MiB a second at the median
	Steps    map[string]float64 `json:"steps,omitempty"`    // medians
	StepsP99 map[string]float64 `json:"steps_p99,omitempty"`
	Paused   *Paused            `json:"paused,omitempty"`
	Pool     *PoolSplit         `json:"pool,omitempty"` // nil: the server has none
	Rate     *Rate              `json:"rate,omitempty"`
	Memory   *Memory            `json:"memory,omitempty"`
	Floor    *Floor             `json:"floor,omitempty"`
	Axis     string             `json:"axis,omitempty"` // what X of Points is
	Points   []Point            `json:"points,omitempty"`
	Samples  []float64          `json:"samples_ms,omitempty"` // those of Times, in order
	Machines []MachineMemory    `json:"machines,omitempty"`
	// Those of Steps and Paused, in the order of Samples.
	SamplesSteps  []map[string]float64 `json:"samples_steps_ms,omitempty"`
	SamplesPaused []float64            `json:"samples_paused_ms,omitempty"`

	err     error
	refused error // why there are fewer samples than wanted, which is no failure
}

// Paused says how long the sandbox stood still that was copied, as the server says.
type Paused struct {
	P50MS   float64 `json:"p50_ms"`
	P99MS   float64 `json:"p99_ms"`
	MaxMS   float64 `json:"max_ms"`
	DirtyMB float64 `json:"dirty_mb"` // copied, at the median
}

// Times sums up samples.
type Times struct {
	MinMS  float64 `json:"min_ms"`
	MeanMS float64 `json:"mean_ms"`
	P50MS  float64 `json:"p50_ms"`
	P90MS  float64 `json:"p90_ms"`
	P95MS  float64 `json:"p95_ms"`
	P99MS  float64 `json:"p99_ms"`
	MaxMS  float64 `json:"max_ms"`
}

// Floor is what the same work costs without the server.
type Floor struct {
	Name    string    `json:"name"`
	Step    string    `json:"step,omitempty"` // the step that it is the floor of; "": the whole sample
	N       int       `json:"n"`
	P50MS   float64   `json:"p50_ms"`
	Samples []float64 `json:"samples_ms,omitempty"`
}

// PoolSplit says which way the creates of a benchmark took, all of them, also
// those that are no samples.
type PoolSplit struct {
	Hits   int64 `json:"hits"`   // took a warm machine
	Misses int64 `json:"misses"` // had to boot one
}

// Rate is how many sandboxes several clients made in a second. Each client deletes
// its sandbox before it makes the next one.
type Rate struct {
	Clients       int     `json:"clients"`
	BurstN        int     `json:"burst_n"`     // until the pool was empty, over all rounds
	BurstPerS     float64 `json:"burst_per_s"` // 0: there was no burst
	SustainedN    int     `json:"sustained_n"` // after that
	SustainedPerS float64 `json:"sustained_per_s"`
	SustainedHits int     `json:"sustained_hits"` // those that found a machine that had just been made
}

// Memory is what idle machines cost the host; the middle one and the largest.
type Memory struct {
	PSSMBP50    float64 `json:"pss_mb_p50"`
	PSSMBMax    float64 `json:"pss_mb_max"`
	OwnPagesP50 int64   `json:"own_pages_p50"` // pages of 4 KiB
	OwnPagesMax int64   `json:"own_pages_max"`
}

// MachineMemory is one machine's.
type MachineMemory struct {
	PSSBytes int64 `json:"pss_bytes"`
	OwnPages int64 `json:"own_pages"`
}

// Ratio is the median in units of the floor's, or 0 when there is no floor.
func (r Result) Ratio() float64 {
	if r.Times == nil || r.Floor == nil || r.Floor.P50MS <= 0 {
		return 0
	}
	return r.stepP50(r.Floor.Step) / r.Floor.P50MS
}

// stepP50 is the median of a step, or with "" of the whole.
func (r Result) stepP50(step string) float64 {
	if step == "" {
		return r.P50MS
	}
	return r.Steps[step]
}

// WithoutSamples is the report without its raw samples.
func (r *Report) WithoutSamples() *Report {
	short := *r
	short.Results = slices.Clone(r.Results)
	for i := range short.Results {
		res := &short.Results[i]
		res.Samples, res.Machines, res.SamplesSteps, res.SamplesPaused = nil, nil, nil, nil
		res.Points = slices.Clone(res.Points)
		for j := range res.Points {
			p := &res.Points[j]
			p.Samples, p.SamplesFirst, p.SamplesPaused = nil, nil, nil
		}
		if res.Floor != nil {
			f := *res.Floor
			f.Samples = nil
			res.Floor = &f
		}
	}
	return &short
}

// fail notes a failure that has no series.
func (r *Result) fail(err error) {
	r.Failures++
	if r.err == nil {
		r.err, r.Error = err, err.Error()
	}
}

// fill takes a series over. bytes is what each sample moved.
func (r *Result) fill(s series, bytes int64) {
	r.Failures, r.err, r.refused = s.failures, s.err, s.refused
	if s.err != nil {
		r.Error = s.err.Error()
	}
	if s.first != nil {
		r.FirstMS = ms(s.first.Took)
	}
	r.sum(s.samples)
	if bytes > 0 && r.Times != nil && r.P50MS > 0 {
		r.MBPerS = math.Round(float64(bytes)/(1<<20)/(r.P50MS/1000)*10) / 10
	}
}

// sum takes samples over.
func (r *Result) sum(samples []Sample) {
	r.N = len(samples)
	if r.N == 0 {
		return
	}
	r.Samples = took(samples)
	r.Times = summarise(r.Samples)
	r.Steps, r.StepsP99 = stepPercentile(samples, 50), stepPercentile(samples, 99)
	var bytes []float64
	for _, s := range samples {
		if r.Steps != nil {
			r.SamplesSteps = append(r.SamplesSteps, s.Steps)
		}
		if s.Pause != nil {
			r.SamplesPaused = append(r.SamplesPaused, s.Pause.MS)
			bytes = append(bytes, float64(s.Pause.DirtyBytes))
		}
	}
	if len(bytes) > 0 {
		t := summarise(r.SamplesPaused)
		r.Paused = &Paused{P50MS: t.P50MS, P99MS: t.P99MS, MaxMS: t.MaxMS, DirtyMB: round3(median(bytes) / (1 << 20))}
	}
}

// median is the 50th percentile of values in any order, of which there is at least one.
func median(values []float64) float64 { return percentile(slices.Sorted(slices.Values(values)), 50) }

func makeFloor(name string, s series) *Floor {
	if len(s.samples) == 0 {
		return nil
	}
	all := took(s.samples)
	return &Floor{Name: name, N: len(all), P50MS: summarise(all).P50MS, Samples: all}
}

func took(samples []Sample) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = ms(s.Took)
	}
	return out
}

// stepPercentile is a percentile of each step, over the samples that have it.
func stepPercentile(samples []Sample, p int) map[string]float64 {
	byName := map[string][]float64{}
	for _, s := range samples {
		for name, v := range s.Steps {
			byName[name] = append(byName[name], v)
		}
	}
	if len(byName) == 0 {
		return nil
	}
	out := map[string]float64{}
	for name := range maps.Keys(byName) {
		slices.Sort(byName[name])
		out[name] = round3(percentile(byName[name], p))
	}
	return out
}

// summarise sums up samples, of which there is at least one.
func summarise(samples []float64) *Times {
	sorted := slices.Sorted(slices.Values(samples))
	sum := 0.0
	for _, v := range sorted {
		sum += v
	}
	return &Times{
		MinMS: sorted[0], MaxMS: sorted[len(sorted)-1], MeanMS: round3(sum / float64(len(sorted))),
		P50MS: percentile(sorted, 50), P90MS: percentile(sorted, 90),
		P95MS: percentile(sorted, 95), P99MS: percentile(sorted, 99),
	}
}

// percentile is the nearest-rank percentile of sorted values: the smallest one
// that at least p percent of them do not exceed. It is always a value that was
// measured; with fewer than 100 samples the 99th is the largest.
func percentile(sorted []float64, p int) float64 {
	rank := (p*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}
