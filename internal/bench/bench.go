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
	// Names are those of Benchmarks; none means all but those that are measured only when asked for.
	Names []string
	// N is how many samples to take of each; 0 means each one's own default.
	// Slow benchmarks take fewer, see Benchmark.Max.
	N int
	// OpenFloors makes the floors. It is nil where they cannot be measured, and
	// NoFloors then says why, in one sentence.
	OpenFloors func(context.Context, FloorConfig) (Floors, error)
	NoFloors   string
	// Compare also measures what people would use instead of the server on this
	// host: Comparisons, when it is not nil, and a bare machine.
	Compare     bool
	Comparisons func(FloorConfig) []Comparison
	// Remote says that the server runs on another host, of which we know little.
	Remote bool
}

// Sample is one measurement.
type Sample struct {
	Took time.Duration
	// Steps are parts of Took, in milliseconds, where they are known, and the Step… of this package.
	Steps map[string]float64
	// Pause says how long the sandbox stood still that was copied; nil where none was.
	Pause *Pause
}

// Pause is what a copy of a running sandbox meant for it, as the server says.
type Pause struct {
	MS         float64
	DirtyBytes int64 // memory that was copied
}

// Probe is something that can be measured again and again. It is used by one goroutine.
type Probe struct {
	// Before, when it is not nil, is called before each sample. It bounds itself.
	Before func(context.Context) error
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
	FloorRefill       = "raw restore + agent first print(1)"
	FloorDelete       = "raw kill"
	FloorUpload256K   = "agent upload 256 KB"
	FloorDownload256K = "agent download 256 KB"
	FloorUpload64M    = "agent upload 64 MB"
	FloorDownload64M  = "agent download 64 MB"
	FloorColdBoot     = "raw cold boot"
	FloorSave64M      = "write + fsync 64 MB" // a new file in the server's data directory
	// Those of a server that has a machine ready.
	FloorHandOff          = "synced transaction + cont + agent hello"
	FloorHandOffRoundTrip = "synced transaction + cont + agent print(1) + kill"
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
	if err := r.session.findPool(ctx); err != nil {
		return nil, err
	}
	cfg, err := r.floorConfig(ctx, info.Isolation)
	if err != nil {
		return nil, err
	}
	r.openFloors(ctx, cfg)
	for _, b := range list {
		if err := r.benchmark(ctx, b); err != nil {
			return r.report, err
		}
	}
	if o.Compare {
		err = r.compare(ctx, cfg)
	}
	return r.report, err
}

// run is one call of Run.
type run struct {
	o       Options
	report  *Report
	session *session
	floors  Floors // nil: none
	noFloor string // why what is below the server cannot be measured, one clause
}

func (r *run) note(format string, args ...any) {
	r.report.Notes = append(r.report.Notes, fmt.Sprintf(format, args...))
}

// floorConfig describes the machines of the server.
func (r *run) floorConfig(ctx context.Context, isolation string) (FloorConfig, error) {
	cfg := FloorConfig{Isolation: isolation, Template: defaultTemplate, VCPUs: sandbox.DefaultVCPUs, MemoryMB: sandbox.DefaultMemoryMB, DiskMB: sandbox.DefaultDiskMB}
	templates, err := r.o.Client.Templates(ctx)
	if err != nil {
		return cfg, err
	}
	for _, t := range templates {
		if t.Name == defaultTemplate {
			cfg.TemplateHash = t.Hash
		}
	}
	return cfg, nil
}

func (r *run) openFloors(ctx context.Context, cfg FloorConfig) {
	r.noFloor = "it needs root on the host of the server"
	if driver := r.report.Host.Driver; driver != qemuDriver {
		r.noFloor = fmt.Sprintf("it is of bare QEMU machines, and this server's are of the driver %s", driver)
		r.note("floors were not measured: they are of bare QEMU machines, and this server's are of the driver %s", driver)
		return
	}
	if r.o.OpenFloors == nil {
		r.note("floors were not measured: %s", r.o.NoFloors)
		return
	}
	var err error
	if r.floors, err = r.o.OpenFloors(ctx, cfg); err != nil {
		r.floors = nil
		r.note("floors were not measured: %v", err)
	}
}

// benchmark runs one benchmark and its floor. It returns an error only when the
// whole run is over.
func (r *run) benchmark(ctx context.Context, b Benchmark) error {
	switch {
	case b.open == nil && b.whole == nil && r.floors == nil:
		r.note("%s was not measured: %s", b.Name, r.noFloor)
		return nil
	case b.pool == poolNeeded && r.session.pool == nil:
		r.note("%s was not measured: the server keeps no warm machines of the default template and shape (pool_size)", b.Name)
		return nil
	}
	done := progress.Step(ctx, b.Name)
	defer done()
	r.session.begin(b.Name)
	n, floor := b.samples(r.o.N), r.floorOf(b)
	res := Result{Name: b.Name}
	switch {
	case b.whole != nil:
		b.whole(ctx, r.session, n, &res)
	case b.open == nil:
		c := newCollector(b, b.Name, n, r.openFloor(floor))
		r.inTurns(ctx, c)
		res.fill(c.series, b.bytes)
	case floor == "" || r.floors == nil:
		c := newCollector(b, b.Name, n, r.openCall(b))
		r.inTurns(ctx, c)
		res.fill(c.series, b.bytes)
	default:
		c := newCollector(b, b.Name, n, r.openCall(b))
		f := newCollector(b, floor, n, r.openFloor(floor))
		r.inTurns(ctx, c, f)
		res.fill(c.series, b.bytes)
		if res.Floor = makeFloor(floor, f.series); res.Floor != nil {
			res.Floor.Step = b.answer
		}
		if f.series.err != nil {
			r.note("the floor %q of %s failed %d times, first with: %v", floor, b.Name, f.series.failures, f.series.err)
		}
	}
	res.Pool = r.session.split()
	if res.refused != nil {
		r.note("%s: the server has no room for more (%d samples are there): %v", b.Name, res.N, res.refused)
		if res.N == 0 && res.Failures == 0 {
			return r.over(ctx, res)
		}
	}
	return r.add(ctx, res)
}

// floorOf names what a benchmark is compared with on this server.
func (r *run) floorOf(b Benchmark) string {
	if r.session.pool != nil && b.poolFloor != "" {
		return b.poolFloor
	}
	return b.floor
}

// add takes a result into the report. It returns an error when the run is over.
func (r *run) add(ctx context.Context, res Result) error {
	r.report.Results = append(r.report.Results, res)
	return r.over(ctx, res)
}

// over returns an error when the run ends with a result.
func (r *run) over(ctx context.Context, res Result) error {
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
		return slices.DeleteFunc(all, func(b Benchmark) bool { return b.Asked }), nil
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

// CheckNames returns an UnknownError when one of the names is not a benchmark's.
func CheckNames(names []string) error {
	_, err := pick(names)
	return err
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
