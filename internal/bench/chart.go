package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// The chart's measures, in pixels.
const (
	chartWidth  = 1000
	chartLeft   = 170 // where the axis begins; names are left of it
	chartRight  = 770 // where it ends; figures are right of it
	chartTop    = 84  // of the first row
	chartRow    = 26
	chartBar    = 12
	chartGap    = 24 // above a group
	chartFooter = 18 // a line of the caption
)

// The chart's colours, which also people tell apart who do not see red and green.
const (
	inkText   = "#1f2933"
	inkFaint  = "#6b7785"
	inkGrid   = "#e3e7ec"
	inkOurs   = "#3b76b0"
	inkPale   = "#b9d0e6"
	inkOthers = "#a0a8b2"
	inkFloor  = "#111111"
	inkBudget = "#d9730d"
)

// WriteChart draws a report as SVG: for each benchmark that was timed a bar to
// its median, a whisker to its 99th percentile, and marks for its floor and its
// budget, on a logarithmic axis. What a step is compared of has a pale bar to that
// step. A report of a scaling run alone gets its chart, WriteScaleChart.
func WriteChart(w io.Writer, r *Report) error {
	groups := chartGroups(r)
	if len(groups) == 0 {
		return WriteScaleChart(w, r)
	}
	return writeSheet(w, drawChart(r, groups, newAxis(r.Results, Budgets(r.Host.Isolation)), chartTitle))
}

// WriteCharts draws several reports below each other, with one axis.
func WriteCharts(w io.Writer, reports []*Report) error {
	var timed []*Report
	var shared axis
	for _, r := range reports {
		if len(chartGroups(r)) == 0 {
			continue
		}
		a := newAxis(r.Results, Budgets(r.Host.Isolation))
		if len(timed) > 0 {
			a = axis{low: min(a.low, shared.low), high: max(a.high, shared.high)}
		}
		shared = a
		timed = append(timed, r)
	}
	if len(timed) == 0 {
		return WriteScaleCharts(w, reports)
	}
	var sheets []sheet
	for _, r := range timed {
		title := "ramet bench --driver " + r.Host.Driver + ": milliseconds, less is better"
		sheets = append(sheets, drawChart(r, chartGroups(r), shared, title))
	}
	return writeSheets(w, sheets)
}

// sheet is a whole chart.
type sheet struct {
	svg           string
	width, height int
}

func writeSheet(w io.Writer, s sheet) error {
	_, err := io.WriteString(w, s.svg)
	return err
}

// writeSheets puts charts below each other.
func writeSheets(w io.Writer, sheets []sheet) error {
	width, height := 0, 0
	for _, s := range sheets {
		width, height = max(width, s.width), height+s.height
	}
	out := &drawing{}
	out.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">`, width, height, width, height)
	out.add(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	y := 0
	for _, s := range sheets {
		out.add(`<g transform="translate(0 %d)">`, y)
		out.b.WriteString(s.svg)
		out.add("</g>")
		y += s.height
	}
	out.add("</svg>")
	_, err := io.WriteString(w, out.b.String())
	return err
}

const chartTitle = "ramet bench: milliseconds, less is better"

func drawChart(r *Report, groups []chartGroup, a axis, title string) sheet {
	d := &drawing{axis: a, budgets: Budgets(r.Host.Isolation)}
	d.groups(groups)
	bottom := d.y + 8
	caption := chartCaption(r)
	height := bottom + 30 + chartFooter*len(caption)

	out := &drawing{axis: d.axis}
	out.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12">`, chartWidth, height, chartWidth, height)
	out.element("title", "ramet bench, "+r.Host.Time.Format("2006-01-02"))
	out.add(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	out.head(title, strings.Contains(d.b.String(), inkPale))
	out.grid(bottom)
	out.b.WriteString(d.b.String())
	for i, line := range caption {
		out.text(20, bottom+38+chartFooter*i, inkFaint, "", line)
	}
	out.add("</svg>")
	return sheet{out.b.String(), chartWidth, height}
}

// chartError is an error of WriteChart.
type chartError string

func (e chartError) Error() string { return string(e) }

// ErrNothingToDraw says that a report has no times.
const ErrNothingToDraw = chartError("there is nothing to draw: nothing was timed")

// chartGroup is some rows with a title.
type chartGroup struct {
	title string
	rows  []Result
}

// chartGroups sorts what was timed.
func chartGroups(r *Report) []chartGroup {
	below := map[string]bool{}
	for _, b := range Benchmarks() {
		below[b.Name] = b.open == nil && b.whole == nil
	}
	all := []chartGroup{{title: "over HTTP"}, {title: "without the server"}, {title: "what people would use instead"}}
	for _, res := range r.Results {
		switch {
		case res.Times == nil || res.P50MS <= 0:
		case res.Group == GroupComparison:
			all[2].rows = append(all[2].rows, res)
		case below[res.Name]:
			all[1].rows = append(all[1].rows, res)
		default:
			all[0].rows = append(all[0].rows, res)
		}
	}
	var out []chartGroup
	for _, g := range all {
		if len(g.rows) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// axis maps milliseconds to pixels.
type axis struct{ low, high int } // powers of ten

func newAxis(results []Result, budgets map[string]Budget) axis {
	least, most := math.Inf(1), 0.0
	for _, r := range results {
		if r.Times == nil || r.P50MS <= 0 {
			continue
		}
		all := []float64{r.P50MS, r.P99MS, r.stepP50(r.compared(budgets[r.Name])), budgets[r.Name].median(r)} // 0: not drawn
		if r.Floor != nil {
			all = append(all, r.Floor.P50MS)
		}
		for _, v := range all {
			if v > 0 {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	a := axis{low: int(math.Floor(math.Log10(least) - 0.05)), high: int(math.Ceil(math.Log10(most)))}
	a.high = max(a.high, a.low+1)
	return a
}

func (a axis) x(ms float64) float64 {
	part := (math.Log10(ms) - float64(a.low)) / float64(a.high-a.low)
	return chartLeft + part*(chartRight-chartLeft)
}

// compared is the step of a result that its floor and its budget are of, "" when
// they are of the whole or there are none.
func (r Result) compared(b Budget) string {
	if r.Floor != nil && r.Floor.Step != "" {
		return r.Floor.Step
	}
	if _, known := r.Steps[b.Step]; known {
		return b.Step
	}
	return ""
}

// drawing is SVG that is being written.
type drawing struct {
	axis    axis
	budgets map[string]Budget
	b       strings.Builder
	y       int // the next row's middle
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.b, format+"\n", args...) }

// element writes an element of text alone, which may be anybody's.
func (d *drawing) element(start, text string) {
	name, _, _ := strings.Cut(start, " ")
	d.b.WriteString("<" + start + ">")
	_ = xml.EscapeText(&d.b, []byte(text)) // a strings.Builder takes everything
	d.b.WriteString("</" + name + ">\n")
}

func (d *drawing) text(x, y int, ink, more, text string) {
	d.element(fmt.Sprintf(`text x="%d" y="%d" fill="%s" %s`, x, y, ink, more), text)
}

func (d *drawing) bar(from, to float64, y int, ink string) {
	d.add(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, from, y-chartBar/2, max(to-from, 1), chartBar, ink)
}

// whisker is a line with a cap.
func (d *drawing) whisker(from, to float64, y int) {
	d.add(`<path d="M%.1f %d H%.1f M%.1f %d V%d" stroke="%s" stroke-width="1.2" fill="none"/>`, from, y, to, to, y-4, y+4, inkText)
}

func (d *drawing) floorMark(x float64, y int) {
	d.add(`<path d="M%.1f %d V%d" stroke="%s" stroke-width="2.5"/>`, x, y-9, y+9, inkFloor)
}

func (d *drawing) budgetMark(x float64, y int) {
	d.add(`<path d="M%.1f %d l5 -8 h-10 z M%.1f %d V%d" fill="%s" stroke="%s" stroke-width="1.5"/>`, x, y-3, x, y-3, y+9, inkBudget, inkBudget)
}

// legend is a mark and what it means.
type legend struct {
	draw  func(x float64)
	text  string
	width int
}

// head writes the title and explains the marks, the pale bar where there is one.
func (d *drawing) head(title string, pale bool) {
	d.text(20, 28, inkText, `font-size="17" font-weight="600"`, title)
	const y = 52
	x := 20
	marks := []legend{
		{func(x float64) { d.bar(x, x+26, y, inkOurs) }, "median", 100},
		{func(x float64) { d.whisker(x, x+26, y) }, "up to the 99th percentile", 200},
		{func(x float64) { d.floorMark(x+13, y) }, "floor: the same work without the server", 285},
		{func(x float64) { d.budgetMark(x+13, y) }, "budget for the median", 190},
	}
	if pale {
		marks = append(marks, legend{func(x float64) { d.bar(x, x+26, y, inkPale) }, "with a first call", 150})
	}
	for _, mark := range marks {
		mark.draw(float64(x))
		d.text(x+34, y+4, inkText, "", mark.text)
		x += mark.width
	}
}

// grid writes the axis.
func (d *drawing) grid(bottom int) {
	for e := d.axis.low; e <= d.axis.high; e++ {
		x := d.axis.x(math.Pow(10, float64(e)))
		d.add(`<path d="M%.1f %d V%d" stroke="%s"/>`, x, chartTop-6, bottom, inkGrid)
		d.text(int(x), bottom+15, inkFaint, `text-anchor="middle"`, tick(e))
	}
}

// tick is a power of ten milliseconds as people say it.
func tick(e int) string {
	if e >= 3 {
		return fmt.Sprintf("%g s", math.Pow(10, float64(e-3)))
	}
	return fmt.Sprintf("%g ms", math.Pow(10, float64(e)))
}

func (d *drawing) groups(groups []chartGroup) {
	d.y = chartTop
	for _, g := range groups {
		d.text(20, d.y+4, inkFaint, `font-weight="600"`, g.title)
		d.y += chartGap
		for _, r := range g.rows {
			d.row(r)
			d.y += chartRow
		}
		d.y += 4
	}
	d.y -= chartRow / 2
}

func (d *drawing) row(r Result) {
	ink, p50 := inkOurs, d.axis.x(r.P50MS)
	if r.Group == GroupComparison {
		ink = inkOthers
	}
	d.text(chartLeft-10, d.y+4, inkText, `text-anchor="end"`, r.Name)
	if step := r.compared(d.budgets[r.Name]); step != "" && r.Steps[step] > r.P50MS {
		d.bar(p50, d.axis.x(r.Steps[step]), d.y, inkPale)
	}
	d.bar(chartLeft, p50, d.y, ink)
	d.whisker(p50, d.axis.x(max(r.P99MS, r.P50MS)), d.y)
	if r.Floor != nil && r.Floor.P50MS > 0 {
		d.floorMark(d.axis.x(r.Floor.P50MS), d.y)
	}
	if b := d.budgets[r.Name].median(r); b > 0 {
		d.budgetMark(d.axis.x(b), d.y)
	}
	figures := fmt.Sprintf("p50 %s, p99 %s, n %d", threeDigits(r.P50MS), threeDigits(r.P99MS), r.N)
	if step := r.compared(d.budgets[r.Name]); step != "" {
		figures = fmt.Sprintf("p50 %s (%s with a call), n %d", threeDigits(r.P50MS), threeDigits(r.Steps[step]), r.N)
	}
	d.text(chartRight+14, d.y+4, inkText, "", figures)
}

func threeDigits(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// chartCaption says what was measured, and on what.
func chartCaption(r *Report) []string {
	h := r.Host
	where := fmt.Sprintf("%s, %d cores, %d MB of memory, kernel %s", h.CPU, h.Cores, h.MemoryMB, h.Kernel)
	if h.Remote {
		where = "Client: " + where + "; the server was on another host"
	}
	what := fmt.Sprintf("Machines: %s, %s", h.Driver, h.Isolation)
	if h.QEMU != "" {
		what += ", QEMU " + h.QEMU
	}
	out := []string{
		where,
		fmt.Sprintf("%s. Server %s. Load average %.2f at the start, %.2f at the end. %s", what, h.Version, h.Load1, h.Load1End, h.Time.UTC().Format("2006-01-02 15:04 UTC")),
	}
	for _, res := range r.Results {
		if rate := res.Rate; rate != nil && rate.BurstN > 0 {
			out = append(out, fmt.Sprintf("%s: %.1f creates a second by %d clients until the pool was empty, %.1f a second sustained", res.Name, rate.BurstPerS, rate.Clients, rate.SustainedPerS))
		}
	}
	return out
}
