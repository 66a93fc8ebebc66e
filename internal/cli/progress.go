package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"ramet.dev/ramet/internal/progress"
)

// drawer shows progress events: on a terminal one live line per step that is
// being done, elsewhere plain lines: that it is being done, now and then that it
// still is, and its end. What takes no time leaves no line. Close it.
type drawer struct {
	w        io.Writer
	file     *os.File
	live     bool
	colour   bool
	interval time.Duration
	now      func() time.Time

	quit chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	steps  []*drawnStep // that are being done, oldest first
	lines  int          // live lines on the screen
	closed bool
}

type drawnStep struct {
	name     string
	detail   string
	fraction float64
	start    time.Time
	said     time.Time // when a plain line was last written; zero: not yet
}

// How often live lines are redrawn, and how often a long step says on a plain
// output that it still goes on.
const (
	redrawEvery = 100 * time.Millisecond
	plainEvery  = 15 * time.Second
	// A step that is over sooner leaves no line.
	worthALine = time.Second
)

func newDrawer(f *os.File) *drawer {
	d := &drawer{w: f, file: f, live: isTerminal(f) && os.Getenv("TERM") != "dumb", colour: colours(f), now: time.Now, quit: make(chan struct{})}
	d.interval = time.Second
	if d.live {
		d.interval = redrawEvery
	}
	d.wg.Add(1)
	go d.tick()
	return d
}

func (d *drawer) tick() {
	defer d.wg.Done()
	t := time.NewTicker(d.interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			d.mu.Lock()
			d.refresh()
			d.mu.Unlock()
		case <-d.quit:
			return
		}
	}
}

// Event shows e.
func (d *drawer) Event(e progress.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || e.Step == "" {
		return
	}
	now := d.now()
	var s *drawnStep
	index := -1
	for i, have := range d.steps {
		if have.name == e.Step {
			s, index = have, i
		}
	}
	if s == nil {
		s = &drawnStep{name: e.Step, start: now}
		index = len(d.steps)
		d.steps = append(d.steps, s)
	}
	if e.Detail != "" {
		s.detail = clean(e.Detail)
	}
	if e.Fraction > 0 {
		s.fraction = e.Fraction
	}
	if e.Done {
		d.erase()
		d.steps = append(d.steps[:index], d.steps[index+1:]...)
		took := now.Sub(s.start)
		switch {
		case took < worthALine:
		case d.live:
			fmt.Fprintf(d.w, "%s %s %s\n", d.paint("32", "✓"), clean(s.name), d.paint("2", elapsed(took)))
		default:
			fmt.Fprintf(d.w, "%s: done in %s\n", clean(s.name), elapsed(took))
		}
	}
	if d.live {
		d.refresh()
	}
}

// refresh redraws the live lines, or says on a plain output what takes long.
func (d *drawer) refresh() {
	now := d.now()
	if !d.live {
		for _, s := range d.steps {
			switch {
			case s.said.IsZero() && now.Sub(s.start) >= worthALine:
				s.said = now
				fmt.Fprintf(d.w, "%s ...\n", clean(s.name))
			case !s.said.IsZero() && now.Sub(s.said) >= plainEvery:
				s.said = now
				fmt.Fprintf(d.w, "%s: still at it after %s%s\n", clean(s.name), elapsed(now.Sub(s.start)), s.note())
			}
		}
		return
	}
	d.erase()
	width, _, err := term.GetSize(int(d.file.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	for _, s := range d.steps {
		frame := frames[int(now.Sub(s.start)/redrawEvery)%len(frames)]
		text := fmt.Sprintf("%c %s %s%s", frame, clean(s.name), elapsed(now.Sub(s.start)), s.note())
		fmt.Fprintln(d.w, truncate(text, width-1))
		d.lines++
	}
}

// note is what a step says about itself while it runs.
func (s *drawnStep) note() string {
	var b strings.Builder
	if s.fraction > 0 {
		fmt.Fprintf(&b, "  %d %%", int(min(s.fraction, 1)*100))
	}
	if s.detail != "" {
		b.WriteString("  " + s.detail)
	}
	return b.String()
}

// erase removes the live lines from the screen.
func (d *drawer) erase() {
	if d.lines > 0 {
		fmt.Fprintf(d.w, "\x1b[%dA\r\x1b[J", d.lines)
		d.lines = 0
	}
}

func (d *drawer) paint(code, s string) string {
	if !d.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Close stops drawing. Steps that did not end are left as they are on a plain
// output and removed from a terminal: the error that follows says why.
func (d *drawer) Close() {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.closed = true
	d.erase()
	d.mu.Unlock()
	close(d.quit)
	d.wg.Wait()
}

func elapsed(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// truncate cuts s to n characters.
func truncate(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
