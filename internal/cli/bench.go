package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/progress"
)

type benchOptions struct {
	names []string
	n     int
	json  bool
	out   string
	chart string
	list  bool

	compare bool
	scaling bool
	driver  string
}

func (p *program) benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the server",
		Long: `Measure the server from outside: calls over HTTP, timed by this command. It
makes sandboxes for itself and removes them, also after Ctrl-C, which prints
what there is by then. Failures are counted; the first, cold call of each
benchmark is shown apart.

As root on the host of the server it also measures floors: the same work with a
bare machine and its agent, without API, records and network. The ratio says how
far the server is from what the host can do at that moment.

With a warm pool, what takes a machine for each sample is measured in batches
that the pool can serve. Creates that found it empty are counted apart.

--compare also measures what people would use instead on this host: QEMU started
by hand, a Jupyter kernel (installed from PyPI for the run, and removed), and a
container of crun. What is missing is left out, with a note that says what to
install.

--scaling measures how a fork grows with dirty memory, with the number of siblings
and with depth. It is measured only when it is asked for, and with it alone
nothing else is.

--driver starts a server of its own for the run, with that driver, and removes it
with all that it has made; 'all' takes one driver after the other and prints them
side by side. It needs root, and a template that is built ('ramet up' does that).
The server is on a loopback address, with a data directory in that of the local
server, and has these of its settings: pool_size, pool_shapes, waiting_machines,
accel, guest_ca, and the reserves and overcommits of memory and disk.

Figures depend on what else the host does: see its load in the output.`,
		Example: `  ramet bench --list
  ramet bench --names create,hot_exec --n 200
  ramet bench --json | jq '.results[] | {name, p50_ms}'
  ramet bench --out results.json       # with all samples
  ramet bench --compare --out results.json --chart results.svg
  ramet bench --names fork_1,fork_5,merge,hibernate,wake
  ramet bench --scaling --out scaling.json --chart fork-scaling.svg
  ramet bench --driver all --out both.json --chart both.svg
  RAMET_POOL_SIZE=16 ramet bench --driver gvisor --names create,hot_exec,roundtrip`,
		Args: none,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if o.list {
				return p.benchList()
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			return p.bench(ctx, o)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.names, "names", nil, "only these benchmarks, separated by commas")
	f.IntVar(&o.n, "n", 0, "samples of each; slow benchmarks take fewer (default: each one's own)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.out, "out", "", "also write JSON with all samples to a file")
	f.StringVar(&o.chart, "chart", "", "also draw a chart into an SVG file")
	f.BoolVar(&o.compare, "compare", false, "also measure what people would use instead")
	f.BoolVar(&o.scaling, "scaling", false, "measure forks against dirty memory, siblings and depth")
	f.StringVar(&o.driver, "driver", "", "measure servers of its own: qemu, gvisor, or all of these one after the other")
	f.BoolVar(&o.list, "list", false, "say what there is to measure, and end")
	nameValue(f, "names", "A,B")
	nameValue(f, "n", "N")
	nameValue(f, "driver", "NAME")
	nameValue(f, "out", "FILE")
	nameValue(f, "chart", "FILE.svg")
	f.Lookup("n").DefValue = "" // the help says it in words
	cmd.MarkFlagFilename("out", "json")
	cmd.MarkFlagFilename("chart", "svg")
	cmd.RegisterFlagCompletionFunc("names", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, b := range bench.Benchmarks() {
			names = append(names, b.Name+"\t"+b.About)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	cmd.RegisterFlagCompletionFunc("driver", cobra.FixedCompletions(append(benchDrivers(), allDrivers), cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(p.benchChartCommand())
	return cmd
}

func (p *program) benchList() error {
	var rows [][]string
	for _, b := range bench.Benchmarks() {
		about := b.About
		if b.Asked {
			about += " (only when named)"
		}
		rows = append(rows, []string{b.Name, strconv.Itoa(b.Default), about})
	}
	return table(p.Out, []string{"NAME", "SAMPLES", "WHAT"}, rows)
}

// check finds mistakes before anything is measured.
func (o *benchOptions) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("n") && o.n < 1 {
		return usageErrorf("--n %d: must be a positive number", o.n)
	}
	if o.scaling {
		o.names = append(o.names, bench.Scaling()...)
	}
	if err := bench.CheckNames(o.names); err != nil {
		return usageErrorf("--names: %w", err)
	}
	if !cmd.Flags().Changed("driver") {
		return nil
	}
	if all := append(benchDrivers(), allDrivers); !slices.Contains(all, o.driver) {
		return usageErrorf("--driver %q: must be one of %s", o.driver, strings.Join(all, ", "))
	}
	if cmd.Flags().Changed("url") {
		return usageErrorf("--driver measures servers of its own, and --url names another one: leave one of them away")
	}
	return nil
}

// measured is what a run gave, and how it is shown.
type measured struct {
	reports []*bench.Report
	print   func() error
	json    any // with all samples
	chart   func(io.Writer) error
}

func (p *program) bench(ctx context.Context, o benchOptions) error {
	out, err := newOutFile("--out", o.out)
	if err != nil {
		return err
	}
	defer out.discard()
	chart, err := newOutFile("--chart", o.chart)
	if err != nil {
		return err
	}
	defer chart.discard()
	m, err := p.measureAll(ctx, o)
	if m == nil {
		return err
	}
	// What was measured is shown whatever ended the run.
	if perr := m.print(); perr != nil {
		return errors.Join(err, perr)
	}
	err = errors.Join(err, out.commit(func(w io.Writer) error { return printJSON(w, m.json) }))
	err = errors.Join(err, chart.commit(m.chart))
	if err != nil {
		return err
	}
	for _, report := range m.reports {
		for _, r := range report.Results {
			if r.N > 0 {
				continue
			}
			err = fmt.Errorf("%s could not be measured: %s", r.Name, r.Error)
			if len(m.reports) > 1 {
				err = fmt.Errorf("%s: %w", report.Host.Driver, err)
			}
			return err
		}
	}
	return nil
}

// measureAll measures the server that the settings name, or those of --driver. It returns
// nil when there is nothing to show.
func (p *program) measureAll(ctx context.Context, o benchOptions) (*measured, error) {
	var report *bench.Report
	var err error
	switch o.driver {
	case "":
		c, cerr := p.connect()
		if cerr != nil {
			return nil, cerr
		}
		report, err = p.measure(ctx, o, c, p.resolved.Client().Home)
	case allDrivers:
		d, err := p.measureDrivers(ctx, o, benchDrivers())
		if d == nil || len(d.Reports) == 0 {
			return nil, err
		}
		return &measured{
			reports: d.Reports, json: d,
			print: func() error { return p.printDrivers(d, o.json) },
			chart: func(w io.Writer) error { return bench.WriteCharts(w, d.Reports) },
		}, err
	default:
		var d *bench.Drivers
		if d, err = p.measureDrivers(ctx, o, []string{o.driver}); d != nil && len(d.Reports) > 0 {
			report = d.Reports[0]
		}
	}
	if report == nil {
		return nil, err
	}
	return &measured{
		reports: []*bench.Report{report}, json: report,
		print: func() error { return p.printBench(report, o.json) },
		chart: func(w io.Writer) error { return bench.WriteChart(w, report) },
	}, err
}

// measure measures one server. home is the local data directory.
func (p *program) measure(ctx context.Context, o benchOptions, c *client.Client, home string) (*bench.Report, error) {
	d := newDrawer(p.Err)
	defer d.Close()
	opts := bench.Options{Client: c, Names: o.names, N: o.n, Remote: !localURL(c.URL())}
	p.chooseFloors(&opts, c, home)
	p.chooseComparisons(&opts, c, home, o.compare)
	return bench.Run(progress.With(ctx, d.Event), opts)
}

// chooseFloors says whether floors can be measured: they need root, and the
// data directory of the very server that is measured.
func (p *program) chooseFloors(o *bench.Options, c *client.Client, home string) {
	switch {
	case p.Floors == nil:
		o.NoFloors = "this program was built without them"
	case os.Geteuid() != 0:
		o.NoFloors = "they need root"
	case !serves(config.Home(home), c.URL()):
		o.NoFloors = "they need the data directory of a server on this host (RAMET_HOME)"
	default:
		o.OpenFloors = p.Floors(home)
	}
}

// chooseComparisons says what else to measure. What needs the data directory of
// a server on this host finds out itself that there is none.
func (p *program) chooseComparisons(o *bench.Options, c *client.Client, home string, wanted bool) {
	if o.Compare = wanted; !wanted || p.Comparisons == nil {
		return
	}
	if !localURL(c.URL()) || !serves(config.Home(home), c.URL()) {
		home = ""
	}
	o.Comparisons = p.Comparisons(home)
}

// outFile is a file of --out or --chart. It gets its name when it is whole; a place that
// cannot be written is found out before the measuring.
type outFile struct {
	path string
	tmp  *os.File
}

func newOutFile(flag, path string) (*outFile, error) {
	if path == "" {
		return &outFile{}, nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ramet-bench-*")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return &outFile{path, tmp}, nil
}

func (o *outFile) commit(write func(io.Writer) error) error {
	if o.tmp == nil {
		return nil
	}
	err := write(o.tmp)
	if err = errors.Join(err, o.tmp.Chmod(0o644), o.tmp.Close()); err == nil {
		err = os.Rename(o.tmp.Name(), o.path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", o.path, err)
	}
	o.tmp = nil
	return nil
}

func (o *outFile) discard() {
	if o.tmp != nil {
		o.tmp.Close()
		os.Remove(o.tmp.Name())
	}
}
