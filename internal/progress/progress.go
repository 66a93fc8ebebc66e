// Package progress carries the progress of long work (a template build, a
// golden snapshot, host set-up) from where it happens to where a person sees
// it. It knows nothing of terminals; the CLI draws.
package progress

import "context"

// Event is one report. A step starts with an event that has only Step (and
// perhaps Detail), may report Detail and Fraction while it runs, and ends with
// Done.
type Event struct {
	Step     string  `json:"step"`               // "build root filesystem"
	Detail   string  `json:"detail,omitempty"`   // the last line of what it is doing
	Fraction float64 `json:"fraction,omitempty"` // 0..1 where it is known, else 0
	Done     bool    `json:"done,omitempty"`
}

// Func receives events. It must not block for long and may be called from
// several goroutines.
type Func func(Event)

type key struct{}

// With returns a context whose work reports to f.
func With(ctx context.Context, f Func) context.Context { return context.WithValue(ctx, key{}, f) }

// Report sends e to the context's Func, if it has one.
func Report(ctx context.Context, e Event) {
	if f, ok := ctx.Value(key{}).(Func); ok && f != nil {
		f(e)
	}
}

// Step reports the start of a step and returns the function that ends it.
func Step(ctx context.Context, name string) (done func()) {
	Report(ctx, Event{Step: name})
	return func() { Report(ctx, Event{Step: name, Done: true}) }
}

type backgroundKey struct{}

// InBackground returns a context for work that nobody waits for: it leaves the processors to others.
func InBackground(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// IsBackground says whether nobody waits for the work.
func IsBackground(ctx context.Context) bool { return ctx.Value(backgroundKey{}) != nil }
