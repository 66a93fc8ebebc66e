package cli

import (
	"fmt"
	"sync"
	"time"

	"ramet.dev/ramet/internal/progress"
)

// waitingAfter is when a call that takes long is worth a line on a terminal.
const waitingAfter = time.Second

// showWaiting shows on a terminal that what takes long still goes on. The
// function that it returns ends that and leaves no trace on the screen.
func (p *program) showWaiting(what string) func() {
	if !isTerminal(p.Err) {
		return func() {}
	}
	var mu sync.Mutex
	var d *drawer
	over := false
	timer := time.AfterFunc(waitingAfter, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			d = newDrawer(p.Err)
			d.Event(progress.Event{Step: what})
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
		if d != nil {
			d.Close()
		}
	}
}

// transfer counts the bytes of a copy and shows them on a terminal.
type transfer struct {
	mu    sync.Mutex
	bytes int64
	total int64 // -1: unknown
	start time.Time
	drawn time.Time // last
	draw  func(detail string, fraction float64)
}

// newTransfer starts to count. done ends the drawing.
func (p *program) newTransfer(what string, total int64) (t *transfer, done func()) {
	t = &transfer{total: total, start: time.Now(), draw: func(string, float64) {}}
	if !isTerminal(p.Err) {
		return t, func() {}
	}
	d := newDrawer(p.Err)
	t.draw = func(detail string, fraction float64) {
		d.Event(progress.Event{Step: what, Detail: detail, Fraction: fraction})
	}
	return t, d.Close
}

// add counts n bytes.
func (t *transfer) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += int64(n)
	took := time.Since(t.start)
	if took < waitingAfter || time.Since(t.drawn) < redrawEvery {
		return
	}
	t.drawn = time.Now()
	rate := float64(t.bytes) / took.Seconds()
	detail := fmt.Sprintf("%s, %s/s", byteSize(t.bytes), byteSize(int64(rate)))
	fraction := 0.0
	if t.total > 0 {
		detail = fmt.Sprintf("%s of %s, %s/s", byteSize(t.bytes), byteSize(t.total), byteSize(int64(rate)))
		fraction = float64(t.bytes) / float64(t.total)
	}
	t.draw(detail, fraction)
}
