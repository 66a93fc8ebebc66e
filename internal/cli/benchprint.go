package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/bench"
)

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
	printRates(p.Out, r.Results)
	printPauses(p.Out, r.Results, bench.Budgets(h.Isolation))
	printSteps(p.Out, r.Results)
	if err := printPoints(p.Out, r.Results, h.Isolation == "emulated"); err != nil {
		return err
	}
	if err := printChecks(p.Out, r); err != nil {
		return err
	}
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
			of := r.Floor.Name
			if r.Floor.Step != "" {
				of += ", beside " + r.Floor.Step
			}
			copy(row[12:], []string{figure(r.Floor.P50MS), fmt.Sprintf("%.2f", r.Ratio()), of})
		}
		if r.Beside != "" {
			row[14] = "instead of a server; see " + r.Beside
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return nil
	}
	return aligned(w, rows, 0, len(rows[0])-1)
}

// aligned writes rows of numbers, aligned at their right, but for the columns of text.
func aligned(w io.Writer, rows [][]string, text ...int) error {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			if slices.Contains(text, i) {
				fmt.Fprintf(&b, "%-*s  ", width[i], cell)
			} else {
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

// printRates says how fast sandboxes were made, and how the pool has done.
func printRates(w io.Writer, results []bench.Result) {
	for _, r := range results {
		if rate := r.Rate; rate != nil {
			fmt.Fprintf(w, "\n%s: %d clients, each deletes its sandbox before it creates the next: ", r.Name, rate.Clients)
			if rate.BurstN > 0 {
				fmt.Fprintf(w, "%.1f creates a second until the pool was empty (%d), ", rate.BurstPerS, rate.BurstN)
			}
			fmt.Fprintf(w, "%.1f a second sustained (%d)\n", rate.SustainedPerS, rate.SustainedN)
		}
	}
	var split []string
	for _, r := range results {
		if r.Pool != nil {
			split = append(split, fmt.Sprintf("%s %d of %d", r.Name, r.Pool.Hits, r.Pool.Hits+r.Pool.Misses))
		}
	}
	if len(split) > 0 {
		fmt.Fprintf(w, "\nCreates from the pool: %s\n", strings.Join(split, ", "))
	}
}

// printPauses says how long sandboxes stood still that were copied.
func printPauses(w io.Writer, results []bench.Result, budgets map[string]bench.Budget) {
	for _, r := range results {
		if p := r.Paused; p != nil {
			fmt.Fprintf(w, "\n%s: the sandbox stood still for %s ms (p99 %s, at most %s)", r.Name, figure(p.P50MS), figure(p.P99MS), figure(p.MaxMS))
			if b := budgets[r.Name].PausedMS; b > 0 {
				fmt.Fprintf(w, ", wanted %s", figure(b))
			}
			fmt.Fprintf(w, "; %s MB were copied\n", figure(p.DirtyMB))
		}
	}
}

// printChecks says which budgets were met.
func printChecks(w io.Writer, r *bench.Report) error {
	rows := [][]string{{"BUDGETS (" + r.Host.Isolation + ")", "", "MEASURED", "WANTED", ""}}
	for _, c := range bench.Checks(r) {
		verdict := "met"
		if !c.Met() {
			verdict = "missed"
		}
		rows = append(rows, []string{c.Name, c.What, figure(c.Got) + " " + c.Unit, figure(c.Wanted) + " " + c.Unit, verdict})
	}
	if len(rows) == 1 {
		return nil
	}
	fmt.Fprintln(w)
	return aligned(w, rows, 0, 1, 4)
}

// printPoints writes what a scaling run gave, medians in milliseconds.
func printPoints(w io.Writer, results []bench.Result, budgets bool) error {
	for _, r := range results {
		if len(r.Points) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s: X is %s; medians in ms\n", r.Name, clean(r.Axis))
		rows := make([][]string, 0, len(r.Points))
		for _, p := range r.Points {
			paused := figure(p.PausedMS)
			if r.Name == bench.ScaleDirty && budgets {
				paused += fmt.Sprintf(" (wanted %.0f)", bench.PauseBudgetMS(p.X))
			}
			rows = append(rows, []string{strconv.Itoa(p.X), strconv.Itoa(p.N), figure(p.P50MS), figure(p.FirstAnswerMS), paused, figure(p.DirtyMB)})
		}
		if err := table(w, []string{"X", "N", "FORK", "FIRST ANSWER", "PAUSED", "MB COPIED"}, rows); err != nil {
			return err
		}
	}
	return nil
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
