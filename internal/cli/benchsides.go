package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/bench"
)

// printDrivers prints each driver's own tables, and then what they have in common beside each other.
func (p *program) printDrivers(d *bench.Drivers, asJSON bool) error {
	if asJSON {
		return printJSON(p.Out, d.WithoutSamples())
	}
	for _, r := range d.Reports {
		fmt.Fprintf(p.Out, "Driver %s\n\n", clean(r.Host.Driver))
		if err := p.printBench(r, false); err != nil {
			return err
		}
		fmt.Fprintln(p.Out)
	}
	for _, f := range d.Failed {
		fmt.Fprintf(p.Out, "The driver %s was not measured: %s\n\n", f.Driver, clean(f.Error))
	}
	if len(d.Reports) < 2 {
		return nil
	}
	var names []string
	for _, r := range d.Reports {
		names = append(names, r.Host.Driver)
	}
	fmt.Fprintf(p.Out, "Side by side: %s\n\n", clean(strings.Join(names, ", ")))
	if err := sidesTable(p.Out, d.SideBySide); err != nil {
		return err
	}
	printMemories(p.Out, d.Reports)
	return nil
}

// sidesTable writes a row for each thing that was timed, with the columns of each driver.
func sidesTable(w io.Writer, sides []bench.SideBySide) error {
	if len(sides) == 0 {
		return nil
	}
	drivers := sides[0].Drivers
	header := []string{"MILLISECONDS", ""}
	for _, t := range drivers {
		name := strings.ToUpper(t.Driver)
		header = append(header, name+" P50", "P99", "N", "FAILED")
	}
	header = append(header, strings.ToUpper(drivers[0].Driver+"/"+drivers[len(drivers)-1].Driver))
	rows := [][]string{header}
	for _, s := range sides {
		row := []string{s.Name, strings.ReplaceAll(s.Step, "_", " ")}
		for _, t := range s.Drivers {
			row = append(row, figure(t.P50MS), figure(t.P99MS), strconv.Itoa(t.N), strconv.Itoa(t.Failures))
		}
		ratio := ""
		if s.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", s.Ratio)
		}
		rows = append(rows, append(row, ratio))
	}
	return aligned(w, rows, 0, 1)
}

// printMemories says what an idle sandbox costs with each driver.
func printMemories(w io.Writer, reports []*bench.Report) {
	var parts []string
	name := ""
	for _, r := range reports {
		for _, res := range r.Results {
			if m := res.Memory; m != nil {
				name = res.Name
				parts = append(parts, fmt.Sprintf("%s %.1f MB (at most %.1f)", clean(r.Host.Driver), m.PSSMBP50, m.PSSMBMax))
			}
		}
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "\n%s: PSS of an idle sandbox: %s\n", name, strings.Join(parts, ", "))
	}
}
