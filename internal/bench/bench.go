// Package bench measures a running server from outside: each benchmark is a
// call, or a few, over HTTP, timed by the client. It also describes the host
// and makes the report. What lies below the server (a bare machine, the agent
// without an API) it knows only through Floors, which package floor implements.
// It prints nothing; the command line does.
//
// Start reading at Run, then at the table in benchmarks.go.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

const (
	// callTimeout bounds one sample with all that is made ready for it.
	callTimeout = 3 * time.Minute
	// cleanUpTimeout bounds the removal of what a run leaves.
	cleanUpTimeout = time.Minute
	// maxFailures in a row end a benchmark: it will not come right.
	maxFailures = 5
)

// Options says what to measure.
type Options struct {
	Client *client.Client
	// Names are those of Benchmarks; none means all.
	Names []string
	// N is how many samples to take of each; 0 means each one's own default.
	// Slow benchmarks take fewer, see Benchmark.Max.
	N int
	// OpenFloors makes the floors. It is nil where they cannot be measured, and
	// NoFloors then says why, in one sentence.
	OpenFloors func(context.Context, FloorConfig) (Floors, error)
	NoFloors   string
	// Remote says that the server runs on another host, of which we know little.
	Remote bool
}

// Sample is one measurement.
type Sample struct {
	Took time.Duration
	// Steps are parts of Took, in milliseconds, where they are known.
	Steps map[string]float64
}

// Probe is something that can be measured again and again. It is used by one goroutine.
type Probe struct {
	// Once takes one sample. What it makes ready before and cleans up after is
	// not part of the sample.
	Once func(context.Context) (Sample, error)
	// Close frees what the probe holds; nil when that is nothing.
	Close func(context.Context) error
}

// FloorConfig says which machines to measure.
type FloorConfig struct {
	Template, TemplateHash  string
	Isolation               string // of the server's machines
	VCPUs, MemoryMB, DiskMB int
}

// Floors measures what the server stands on, without the server. Open takes one
// of the Floor… names. Close also frees what probes that failed have left.
type Floors interface {
	Open(ctx context.Context, name string) (Probe, error)
	Close(ctx context.Context) error
}

// The floors. The names are what a report shows.
const (
	FloorRestore      = "raw restore" // spawn QEMU, load the golden snapshot, continue, first answer of the agent
	FloorCreate       = "raw restore + synced transaction"
	FloorFirstExec    = "agent first print(1)"
	FloorHello        = "agent hello"
	FloorExec         = "agent print(1)"
	FloorBash         = "agent bash"
	FloorRoundTrip    = "raw restore + agent first print(1) + kill"
	FloorDelete       = "raw kill"
	FloorUpload256K   = "agent upload 256 KB"
	FloorDownload256K = "agent download 256 KB"
	FloorUpload64M    = "agent upload 64 MB"
	FloorDownload64M  = "agent download 64 MB"
	FloorColdBoot     = "raw cold boot"
	FloorHandOff      = "synced transaction + cont + agent hello"
)

// Run measures. When ctx ends it returns what there is, marked as interrupted,
// together with the context's cause. All sandboxes that it made are then gone.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	list, err := pick(o.Names)
	if err != nil {
		return nil, err
	}
	info, err := o.Client.Info(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{o: o, report: &Report{Host: describeHost(ctx, o.Remote, info)}, session: newSession(o.Client)}
	defer func() {
		r.report.Host.Load1End = load1()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		err = errors.Join(err, r.session.cleanUp(ctx))
		if r.floors != nil {
			err = errors.Join(err, r.floors.Close(ctx))
		}
	}()
	r.openFloors(ctx, info.Isolation)
	for _, b := range list {
		if err := r.benchmark(ctx, b); err != nil {
			return r.report, err
		}
	}
	return r.report, nil
}

// run is one call of Run.
type run struct {
	o       Options
	report  *Report
	session *session
	floors  Floors // nil: none
}

func (r *run) note(format string, args ...any) {
	r.report.Notes = append(r.report.Notes, fmt.Sprintf(format, args...))
}

func (r *run) openFloors(ctx context.Context, isolation string) {
	if r.o.OpenFloors == nil {
		r.note("floors were not measured: %s", r.o.NoFloors)
		return
	}
	templates, err := r.o.Client.Templates(ctx)
	if err == nil {
		cfg := FloorConfig{Isolation: isolation, Template: defaultTemplate, VCPUs: sandbox.DefaultVCPUs, MemoryMB: sandbox.DefaultMemoryMB, DiskMB: sandbox.DefaultDiskMB}
		for _, t := range templates {
			if t.Name == defaultTemplate {
				cfg.TemplateHash = t.Hash
			}
		}
		r.floors, err = r.o.OpenFloors(ctx, cfg)
	}
	if err != nil {
		r.floors = nil
		r.note("floors were not measured: %v", err)
	}
}

// benchmark runs one benchmark and its floor. It returns an error only when the
// whole run is over.
func (r *run) benchmark(ctx context.Context, b Benchmark) error {
	if b.open == nil && b.whole == nil && r.floors == nil {
		r.note("%s was not measured: it needs root on the host of the server", b.Name)
		return nil
	}
	done := progress.Step(ctx, b.Name)
	defer done()
	n := b.samples(r.o.N)
	res := Result{Name: b.Name}
	switch {
	case b.whole != nil:
		b.whole(ctx, r.session, n, &res)
	case b.open == nil:
		c := newCollector(b, b.Name, n, r.openFloor(b.floor))
		inTurns(ctx, c)
		res.fill(c.series, b.bytes)
	case b.floor == "" || r.floors == nil:
		c := newCollector(b, b.Name, n, r.openCall(b))
		inTurns(ctx, c)
		res.fill(c.series, b.bytes)
	default:
		c := newCollector(b, b.Name, n, r.openCall(b))
		floor := newCollector(b, b.floor, n, r.openFloor(b.floor))
		inTurns(ctx, c, floor)
		res.fill(c.series, b.bytes)
		res.Floor = makeFloor(b.floor, floor.series)
		if floor.series.err != nil {
			r.note("the floor %q of %s failed %d times, first with: %v", b.floor, b.Name, floor.series.failures, floor.series.err)
		}
	}
	r.report.Results = append(r.report.Results, res)
	if ctx.Err() != nil {
		r.report.Interrupted = true
		return context.Cause(ctx)
	}
	var gone *client.UnreachableError
	if errors.As(res.err, &gone) {
		return res.err
	}
	return nil
}

type opener func(context.Context) (Probe, error)

func (r *run) openCall(b Benchmark) opener {
	return func(ctx context.Context) (Probe, error) { return b.open(ctx, r.session) }
}

func (r *run) openFloor(name string) opener {
	return func(ctx context.Context) (Probe, error) { return r.floors.Open(ctx, name) }
}

func bounded[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f(ctx)
}

// ms is d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return round3(float64(d) / float64(time.Millisecond)) }

func round3(f float64) float64 { return math.Round(f*1000) / 1000 }

// pick returns the benchmarks of the names, in the table's order.
func pick(names []string) ([]Benchmark, error) {
	all := Benchmarks()
	if len(names) == 0 {
		return all, nil
	}
	var list []Benchmark
	for _, b := range all {
		if slices.Contains(names, b.Name) {
			list = append(list, b)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(all, func(b Benchmark) bool { return b.Name == n }) {
			return nil, &UnknownError{Name: n}
		}
	}
	return list, nil
}

// UnknownError names a benchmark that there is not.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string {
	var names []string
	for _, b := range Benchmarks() {
		names = append(names, b.Name)
	}
	return fmt.Sprintf("there is no benchmark %q; there are: %s", e.Name, strings.Join(names, ", "))
}
