package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

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

Figures depend on what else the host does: see its load in the output.`,
		Example: `  ramet bench --list
  ramet bench --names create,hot_exec --n 200
  ramet bench --json | jq '.results[] | {name, p50_ms}'
  ramet bench --out results.json       # with all samples
  ramet bench --compare --out results.json --chart results.svg
  ramet bench --names fork_1,fork_5,merge,hibernate,wake
  ramet bench --scaling --out scaling.json --chart fork-scaling.svg`,
		Args: none,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if o.list {
				return p.benchList()
			}
			return p.bench(ctx, o, cmd.Flags().Changed("n"))
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
	f.BoolVar(&o.list, "list", false, "say what there is to measure, and end")
	nameValue(f, "names", "A,B")
	nameValue(f, "n", "N")
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

func (p *program) bench(ctx context.Context, o benchOptions, nGiven bool) error {
	if nGiven && o.n < 1 {
		return usageErrorf("--n %d: must be a positive number", o.n)
	}
	if o.scaling {
		o.names = append(o.names, bench.Scaling()...)
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
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

	d := newDrawer(p.Err)
	defer d.Close()
	opts := bench.Options{Client: c, Names: o.names, N: o.n, Remote: !localURL(c.URL())}
	p.chooseFloors(&opts, c)
	p.chooseComparisons(&opts, c, o.compare)
	report, err := bench.Run(progress.With(ctx, d.Event), opts)
	d.Close()
	var unknown *bench.UnknownError
	if errors.As(err, &unknown) {
		return usageErrorf("--names: %w", err)
	}
	if report == nil {
		return err
	}
	// What was measured is shown whatever ended the run.
	if perr := p.printBench(report, o.json); perr != nil {
		return errors.Join(err, perr)
	}
	err = errors.Join(err, out.commit(func(w io.Writer) error { return printJSON(w, report) }))
	err = errors.Join(err, chart.commit(func(w io.Writer) error { return bench.WriteChart(w, report) }))
	if err != nil {
		return err
	}
	for _, r := range report.Results {
		if r.N == 0 {
			return fmt.Errorf("%s could not be measured: %s", r.Name, r.Error)
		}
	}
	return nil
}

// chooseFloors says whether floors can be measured: they need root, and the
// data directory of the very server that is measured.
func (p *program) chooseFloors(o *bench.Options, c *client.Client) {
	home := p.resolved.Client().Home
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
func (p *program) chooseComparisons(o *bench.Options, c *client.Client, wanted bool) {
	if o.Compare = wanted; !wanted || p.Comparisons == nil {
		return
	}
	home := p.resolved.Client().Home
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
