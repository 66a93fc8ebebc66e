package bench

// Budget is what the project wants a benchmark to reach. 0 is no wish.
type Budget struct {
	P50MS, P95MS, P99MS float64
	// FloorRatio is the most that the median may be, in medians of the floor.
	FloorRatio float64
	// Step is the step that P50MS is of, "" for the whole sample.
	Step string
	// PausedMS is the most that the sandbox shall stand still that is copied, at the median.
	PausedMS float64
	// WithPool is a budget for servers that have a warm pool.
	WithPool bool
	// PSSMB is the most that an idle sandbox shall cost the host, at the median.
	PSSMB float64
}

// Budgets are those for a host with two cores, by the names of benchmarks.
// For hosts with KVM there are none yet, as nobody has measured one.
func Budgets(isolation string) map[string]Budget {
	switch isolation {
	case "emulated":
		return emulatedBudgets()
	case "gvisor":
		return gvisorBudgets()
	}
	return nil
}

func emulatedBudgets() map[string]Budget {
	return map[string]Budget{
		"create":      {P50MS: 3, P99MS: 25, WithPool: true},
		"hot_exec":    {P50MS: 5},
		"roundtrip":   {P50MS: 30, P95MS: 78, P99MS: 188, WithPool: true},
		"refill":      {FloorRatio: 1.3},
		"fork_first":  {PausedMS: PauseBudgetMS(0)},
		"fork_1":      {P50MS: 170, Step: StepFirstAnswer, PausedMS: PauseBudgetMS(0)},
		"fork_5":      {P50MS: 700, Step: StepAllAnswers},
		"merge":       {P50MS: 50},
		"hibernate":   {P50MS: 300},
		"wake":        {P50MS: 400},
		"upload_256k": {P50MS: 15},
		"upload_64m":  {FloorRatio: 1 / 0.7},
		"density":     {PSSMB: 60},
	}
}

func gvisorBudgets() map[string]Budget {
	const paused = 90
	return map[string]Budget{
		"create":     {P50MS: 2, P99MS: 15, WithPool: true},
		"hot_exec":   {P50MS: 1.5},
		"roundtrip":  {P50MS: 10, P99MS: 60, WithPool: true},
		"fork_first": {PausedMS: paused},
		"fork_1":     {P50MS: 150, Step: StepFirstAnswer, PausedMS: paused},
		"fork_5":     {P50MS: 450, Step: StepAllAnswers},
		"hibernate":  {P50MS: 250},
		"wake":       {P50MS: 250},
		"density":    {PSSMB: 90},
	}
}

// PauseBudgetMS is the most that an emulated sandbox shall stand still while it is copied,
// for what it has written since it was copied before, in MB; 0 is no wish.
func PauseBudgetMS(dirtyMB int) float64 {
	switch {
	case dirtyMB <= 4:
		return 25
	case dirtyMB <= 64:
		return 60
	case dirtyMB <= 300:
		return 200
	}
	return 0
}

// median is the budget for a result's median in milliseconds, or 0.
func (b Budget) median(r Result) float64 {
	if b.WithPool && r.Pool == nil {
		return 0
	}
	if b.P50MS == 0 && r.Floor != nil {
		return b.FloorRatio * r.Floor.P50MS
	}
	return b.P50MS
}

// Check is one wish of a budget beside what was measured.
type Check struct {
	Name string // of the result
	What string // "p50", "first_answer p50", "stood still p50" …
	Unit string // "ms" or "MB"
	// Got is what was measured, Wanted the most that it shall be.
	Got, Wanted float64
}

// Met says whether the wish is fulfilled.
func (c Check) Met() bool { return c.Got <= c.Wanted }

// Checks compares a report with the budgets of its isolation, in the order of its results.
// What was not measured is not among them.
func Checks(r *Report) []Check {
	var out []Check
	budgets := Budgets(r.Host.Isolation)
	for _, res := range r.Results {
		b, wished := budgets[res.Name]
		if !wished {
			continue
		}
		add := func(what, unit string, got, wanted float64) {
			if got > 0 && wanted > 0 {
				out = append(out, Check{res.Name, what, unit, got, wanted})
			}
		}
		if res.Times != nil {
			median := "p50"
			if b.Step != "" {
				median = b.Step + " p50"
			}
			add(median, "ms", res.stepP50(b.Step), b.median(res))
			if !b.WithPool || res.Pool != nil {
				add("p95", "ms", res.P95MS, b.P95MS)
				add("p99", "ms", res.P99MS, b.P99MS)
			}
		}
		if res.Paused != nil {
			add("stood still p50", "ms", res.Paused.P50MS, b.PausedMS)
		}
		if res.Memory != nil {
			add("PSS p50", "MB", res.Memory.PSSMBP50, b.PSSMB)
		}
	}
	return out
}
