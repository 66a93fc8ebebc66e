package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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
	list  bool
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

Figures depend on what else the host does: see its load in the output.`,
		Example: `  ramet bench --list
  ramet bench --names create,hot_exec --n 200
  ramet bench --json | jq '.results[] | {name, p50_ms}'
  ramet bench --out results.json       # with all samples`,
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
	f.BoolVar(&o.list, "list", false, "say what there is to measure, and end")
	nameValue(f, "names", "A,B")
	nameValue(f, "n", "N")
	nameValue(f, "out", "FILE")
	f.Lookup("n").DefValue = "" // the help says it in words
	cmd.MarkFlagFilename("out", "json")
	cmd.RegisterFlagCompletionFunc("names", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, b := range bench.Benchmarks() {
			names = append(names, b.Name+"\t"+b.About)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

func (p *program) benchList() error {
	var rows [][]string
	for _, b := range bench.Benchmarks() {
		rows = append(rows, []string{b.Name, strconv.Itoa(b.Default), b.About})
	}
	return table(p.Out, []string{"NAME", "SAMPLES", "WHAT"}, rows)
}

func (p *program) bench(ctx context.Context, o benchOptions, nGiven bool) error {
	if nGiven && o.n < 1 {
		return usageErrorf("--n %d: must be a positive number", o.n)
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	out, err := newOutFile(o.out)
	if err != nil {
		return err
	}
	defer out.discard()

	d := newDrawer(p.Err)
	defer d.Close()
	opts := bench.Options{Client: c, Names: o.names, N: o.n, Remote: !localURL(c.URL())}
	p.chooseFloors(&opts, c)
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
	if err := errors.Join(err, out.commit(report)); err != nil {
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

func (p *program) printBench(r *bench.Report, asJSON bool) error {
	if asJSON {
		return printJSON(p.Out, r.WithoutSamples())
	}
	h := r.Host
	where := ""
	if h.Remote {
		where = " (of this host; the server is on another)"
	}
	fmt.Fprintf(p.Out, "%s, %d cores, %s of memory%s; %s/%s, server %s; load %.2f at the start, %.2f at the end\n\n",
		clean(h.CPU), h.Cores, megabytes(h.MemoryMB), where, h.Driver, h.Isolation, h.Version, h.Load1, h.Load1End)
	if err := timesTable(p.Out, r.Results); err != nil {
		return err
	}
	for _, res := range r.Results {
		if m := res.Memory; m != nil {
			fmt.Fprintf(p.Out, "\n%s: %d idle sandboxes, each %.1f MB (PSS; at most %.1f), of that %d pages of 4 KiB its own (at most %d)\n",
				res.Name, res.N, m.PSSMBP50, m.PSSMBMax, m.OwnPagesP50, m.OwnPagesMax)
		}
	}
	printSteps(p.Out, r.Results)
	for _, n := range r.Notes {
		fmt.Fprintf(p.Out, "\nNote: %s\n", clean(n))
	}
	for _, res := range r.Results {
		if res.Error != "" {
			fmt.Fprintf(p.Out, "\n%s failed %d times, first with: %s\n", res.Name, res.Failures, clean(res.Error))
		}
	}
	if r.Interrupted {
		fmt.Fprintln(p.Out, "\nInterrupted: this is what there was by then.")
	}
	return nil
}

// timesTable writes all results that have times. Numbers are aligned at their right.
func timesTable(w io.Writer, results []bench.Result) error {
	rows := [][]string{{"MILLISECONDS", "N", "FAILED", "COLD", "MIN", "MEAN", "P50", "P90", "P95", "P99", "MAX", "MB/S", "FLOOR", "RATIO", ""}}
	for _, r := range results {
		if r.Times == nil {
			continue
		}
		row := []string{r.Name, strconv.Itoa(r.N), strconv.Itoa(r.Failures)}
		for _, v := range []float64{r.FirstMS, r.MinMS, r.MeanMS, r.P50MS, r.P90MS, r.P95MS, r.P99MS, r.MaxMS} {
			row = append(row, figure(v))
		}
		row = append(row, figure(r.MBPerS), "", "", "")
		if r.Floor != nil {
			copy(row[12:], []string{figure(r.Floor.P50MS), fmt.Sprintf("%.2f", r.Ratio()), r.Floor.Name})
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return nil
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			switch i {
			case 0, len(row) - 1:
				fmt.Fprintf(&b, "%-*s  ", width[i], cell)
			default:
				fmt.Fprintf(&b, "%*s  ", width[i], cell)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// figure shows three digits or so; nothing for 0.
func figure(v float64) string {
	switch {
	case v == 0:
		return ""
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// printSteps says where the time goes, where that is known.
func printSteps(w io.Writer, results []bench.Result) {
	for _, r := range results {
		if len(r.Steps) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(r.Steps))
		slices.SortStableFunc(names, func(a, b string) int {
			return int(1000 * (r.Steps[b] - r.Steps[a])) // the longest first
		})
		parts := make([]string, 0, len(names))
		for _, n := range names {
			parts = append(parts, fmt.Sprintf("%s %.1f", clean(n), r.Steps[n]))
		}
		fmt.Fprintf(w, "\nSteps of %s, medians in ms: %s\n", r.Name, strings.Join(parts, ", "))
	}
}

// outFile is the file of --out. It gets its name when it is whole; a place that
// cannot be written is found out before the measuring.
type outFile struct {
	path string
	tmp  *os.File
}

func newOutFile(path string) (*outFile, error) {
	if path == "" {
		return &outFile{}, nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ramet-bench-*")
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	return &outFile{path, tmp}, nil
}

func (o *outFile) commit(r *bench.Report) error {
	if o.tmp == nil {
		return nil
	}
	err := printJSON(o.tmp, r)
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
