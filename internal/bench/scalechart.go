package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// The measures of the chart of a scaling run, in pixels.
const (
	panelLeft   = 64 // where the first panel's axis begins
	panelWidth  = 262
	panelGap    = 58
	panelTop    = 96
	panelHeight = 250
)

// A line of a panel.
type panelLine struct {
	name, ink string
	of        func(Point) float64
}

func panelLines() []panelLine {
	return []panelLine{
		{"until a child has answered a call", inkOthers, func(p Point) float64 { return p.FirstAnswerMS }},
		{"until the fork is answered", inkOurs, func(p Point) float64 { return p.P50MS }},
		{"the parent stands still", inkBudget, func(p Point) float64 { return p.PausedMS }},
	}
}

// WriteScaleChart draws the scaling run of a report as SVG: a panel for what grows,
// with a line for each figure. Both axes are logarithmic, and the panels share the upright one.
func WriteScaleChart(w io.Writer, r *Report) error {
	s, drawn := drawScaleChart(r)
	if !drawn {
		return ErrNothingToDraw
	}
	return writeSheet(w, s)
}

// WriteScaleCharts draws the scaling runs of several reports below each other.
func WriteScaleCharts(w io.Writer, reports []*Report) error {
	var sheets []sheet
	for _, r := range reports {
		if s, drawn := drawScaleChart(r); drawn {
			sheets = append(sheets, s)
		}
	}
	if len(sheets) == 0 {
		return ErrNothingToDraw
	}
	return writeSheets(w, sheets)
}

// drawScaleChart reports whether there was anything to draw.
func drawScaleChart(r *Report) (sheet, bool) {
	var panels []Result
	for _, res := range r.Results {
		if len(res.Points) > 0 {
			panels = append(panels, res)
		}
	}
	if len(panels) == 0 {
		return sheet{}, false
	}
	width := panelLeft + len(panels)*(panelWidth+panelGap)
	width = max(width, panelLeft+3*(panelWidth+panelGap)) // the caption wants as much
	bottom := panelTop + panelHeight
	caption := chartCaption(r)
	height := bottom + 62 + chartFooter*len(caption)
	out := &drawing{}
	out.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12">`, width, height, width, height)
	out.element("title", "ramet bench --scaling, "+r.Host.Time.Format("2006-01-02"))
	out.add(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	out.text(20, 28, inkText, `font-size="17" font-weight="600"`, "fork(1): milliseconds, medians, less is better")
	x := 20
	for _, l := range panelLines() {
		out.add(`<path d="M%d 48 h26" stroke="%s" stroke-width="2.5"/><circle cx="%d" cy="48" r="3.5" fill="%s"/>`, x, l.ink, x+13, l.ink)
		out.text(x+34, 52, inkText, "", l.name)
		x += 60 + 7*len(l.name)
	}
	up := panelAxis(panels)
	for i, p := range panels {
		out.panel(p, up, panelLeft+i*(panelWidth+panelGap))
	}
	for i, line := range caption {
		out.text(20, bottom+70+chartFooter*i, inkFaint, "", line)
	}
	out.add("</svg>")
	return sheet{out.b.String(), width, height}, true
}

// panelAxis holds all figures of all panels. Its pixels count from the axis upwards.
func panelAxis(panels []Result) scale {
	least, most := math.Inf(1), 0.0
	for _, r := range panels {
		for _, p := range r.Points {
			for _, l := range panelLines() {
				if v := l.of(p); v > 0 {
					least, most = min(least, v), max(most, v)
				}
			}
		}
	}
	if most == 0 {
		least, most = 1, 10
	}
	marks := gridMarks(least, most)
	return scale{least: marks[0], most: marks[len(marks)-1], length: panelHeight}
}

// gridMarks are the 1, 2 and 5 of each power of ten from one that is not above
// least to one that is not below most, which are milliseconds. There are at least two.
func gridMarks(least, most float64) []float64 {
	var marks []float64
	for e := math.Floor(math.Log10(least)); len(marks) < 2 || marks[len(marks)-1] < most; e++ {
		for _, step := range []float64{1, 2, 5} {
			v := step * math.Pow(10, e)
			if v <= least {
				marks = marks[:0] // the least one is the last that is not above
			}
			if marks = append(marks, v); len(marks) > 1 && v >= most {
				break
			}
		}
	}
	return marks
}

// duration is a mark of the axis as people say it.
func duration(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.4g s", ms/1000)
	}
	return fmt.Sprintf("%.4g ms", ms)
}

// scale maps values to pixels, logarithmically.
type scale struct{ least, most, length float64 }

func (s scale) at(v float64) float64 {
	return s.length * math.Log(v/s.least) / math.Log(s.most/s.least)
}

func (d *drawing) panel(r Result, up scale, left int) {
	bottom := panelTop + panelHeight
	d.text(left, panelTop-16, inkText, `font-weight="600"`, r.Name)
	for _, v := range gridMarks(up.least, up.most) {
		y := float64(bottom) - up.at(v)
		d.add(`<path d="M%d %.1f h%d" stroke="%s"/>`, left, y, panelWidth, inkGrid)
		d.text(left-8, int(y)+4, inkFaint, `text-anchor="end"`, duration(v))
	}
	points := slices.Clone(r.Points)
	slices.SortFunc(points, func(a, b Point) int { return a.X - b.X })
	// A point without a place on the axis is not drawn.
	points = slices.DeleteFunc(points, func(p Point) bool { return p.X < 1 })
	if len(points) == 0 {
		return
	}
	along := scale{least: float64(points[0].X), most: float64(max(points[len(points)-1].X, 2*points[0].X)), length: panelWidth - 28}
	x := func(p Point) float64 { return float64(left) + 14 + along.at(float64(p.X)) }
	for _, p := range points {
		d.text(int(x(p)), bottom+17, inkFaint, `text-anchor="middle"`, fmt.Sprint(p.X))
	}
	d.text(left+panelWidth/2, bottom+36, inkText, `text-anchor="middle"`, r.Axis)
	for _, l := range panelLines() {
		d.line(l, points, x, func(v float64) float64 { return float64(bottom) - up.at(v) })
	}
}

// line draws one figure of all points, with its first and its last value.
func (d *drawing) line(l panelLine, points []Point, x func(Point) float64, y func(float64) float64) {
	points = slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return l.of(p) <= 0 })
	var path strings.Builder
	for i, p := range points {
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(p), y(l.of(p)))
	}
	if path.Len() > 0 {
		d.add(`<path d="%s" stroke="%s" stroke-width="2" fill="none"/>`, path.String(), l.ink)
	}
	for i, p := range points {
		d.add(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`, x(p), y(l.of(p)), l.ink)
		if i == 0 || i == len(points)-1 {
			// The two lines that are close to each other have their figures on either side.
			away := -9
			if l.ink == inkOurs {
				away = 18
			}
			d.text(int(x(p)), int(y(l.of(p)))+away, inkText, `font-size="11" text-anchor="middle"`, threeDigits(l.of(p)))
		}
	}
}
