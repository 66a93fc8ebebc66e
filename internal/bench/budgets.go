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
}

// Budgets are those for a host with emulated guests and two cores, by the names
// of benchmarks. For hosts with KVM there are none yet, as nobody has measured one.
func Budgets(isolation string) map[string]Budget {
	if isolation != "emulated" {
		return nil
	}
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
	}
}

// PauseBudgetMS is the most that a sandbox shall stand still while it is copied,
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
