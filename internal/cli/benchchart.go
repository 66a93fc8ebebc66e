package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/bench"
)

// maxReport bounds a file of results, in bytes.
const maxReport = 64 << 20

func (p *program) benchChartCommand() *cobra.Command {
	var out string
	var scaling bool
	cmd := &cobra.Command{
		Use:   "chart RESULTS.json",
		Short: "Draw a chart of results that were kept",
		Long: `Draw a chart of what 'ramet bench --out' or '--json' has written, as SVG: for each
benchmark a bar to the median, a whisker to the 99th percentile, and marks for
its floor and its budget. The drivers of a run with '--driver all' are below each
other, with one axis. No server is needed.

--scaling draws the scaling run in them instead: forks against dirty memory,
siblings and depth. Where there is nothing else it is drawn without that.`,
		Example: `  ramet bench chart results.json -o results.svg
  ramet bench chart results.json > results.svg
  ramet bench chart --scaling results.json -o fork-scaling.svg`,
		Args: exactly(1, "RESULTS.json"),
		RunE: withSignals(func(_ context.Context, _ *cobra.Command, args []string) error {
			return p.benchChart(args[0], out, scaling)
		}),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "file to write (default: standard output)")
	f.BoolVar(&scaling, "scaling", false, "draw the scaling run")
	nameValue(f, "output", "FILE.svg")
	cmd.MarkFlagFilename("output", "svg")
	return cmd
}

func (p *program) benchChart(path, out string, scaling bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxReport+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if len(raw) > maxReport {
		return fmt.Errorf("%s is too large for results", path)
	}
	// Either a report, or those of several drivers.
	var kept struct {
		bench.Report
		Reports []*bench.Report `json:"reports"`
	}
	if err := json.Unmarshal(raw, &kept); err != nil {
		return fmt.Errorf("%s has no results of 'ramet bench': %w", path, err)
	}
	write := func(w io.Writer) error { return bench.WriteChart(w, &kept.Report) }
	switch several := len(kept.Reports) > 0; {
	case several && scaling:
		write = func(w io.Writer) error { return bench.WriteScaleCharts(w, kept.Reports) }
	case several:
		write = func(w io.Writer) error { return bench.WriteCharts(w, kept.Reports) }
	case scaling:
		write = func(w io.Writer) error { return bench.WriteScaleChart(w, &kept.Report) }
	}
	if out == "" {
		return write(p.Out)
	}
	file, err := newOutFile("--output", out)
	if err != nil {
		return err
	}
	defer file.discard()
	return file.commit(write)
}
