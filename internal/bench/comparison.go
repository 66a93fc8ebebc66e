package bench

import (
	"context"
	"errors"

	"ramet.dev/ramet/internal/progress"
)

// GroupComparison is the Result.Group of what people would use instead of the server.
const GroupComparison = "comparison"

// Comparison is one thing that people would use instead of the server on this host.
type Comparison struct {
	Name   string
	Beside string // the benchmark to compare it with
	About  string // one line for people
	// Default is how many samples are taken, Max the most, Warm how many calls
	// after the cold one are not kept.
	Default, Max, Warm int
	// Open makes the probe. An UnavailableError says what is missing on this host.
	Open func(context.Context) (Probe, error)
}

// UnavailableError says that a comparison cannot be made here, and what would help.
type UnavailableError struct {
	What string // one clause
	Err  error  // may be nil
}

func (e *UnavailableError) Error() string {
	if e.Err != nil {
		return e.What + ": " + e.Err.Error()
	}
	return e.What
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// QEMUIncoming is the name of the comparison that package bench makes itself.
const QEMUIncoming = "qemu_incoming"

// compare makes all comparisons that this host allows; of the others it notes
// what is missing.
func (r *run) compare(ctx context.Context, cfg FloorConfig) error {
	all := []Comparison{{
		Name: QEMUIncoming, Beside: "create", Default: 30, Max: 1000,
		About: "start QEMU by hand with -incoming from a snapshot, until the guest answers",
		Open: func(ctx context.Context) (Probe, error) {
			if r.floors == nil {
				return Probe{}, &UnavailableError{What: "it needs what floors need"}
			}
			return r.floors.Open(ctx, FloorRestore)
		},
	}}
	if r.o.Comparisons != nil {
		all = append(all, r.o.Comparisons(cfg)...)
	}
	for _, c := range all {
		if err := r.compareOne(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) compareOne(ctx context.Context, c Comparison) error {
	done := progress.Step(ctx, c.Name)
	defer done()
	r.session.begin(c.Name)
	b := Benchmark{Name: c.Name, Default: c.Default, Max: c.Max, warm: c.Warm}
	col := newCollector(b, c.Name, b.samples(r.o.N), c.Open)
	r.inTurns(ctx, col)
	var missing *UnavailableError
	if errors.As(col.series.err, &missing) {
		r.note("%s was not compared: %v", c.Name, missing)
		return nil
	}
	res := Result{Name: c.Name, Group: GroupComparison, Beside: c.Beside}
	res.fill(col.series, 0)
	return r.add(ctx, res)
}
