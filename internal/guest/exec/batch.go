package exec

import (
	"context"
	"net/http"
	"time"
)

const (
	// batchWindow is how long after the beginning of a stream its events wait
	// for one another. Most calls of the interpreter are over by then, and are
	// sent at their end as a whole; what takes longer is sent as it comes.
	batchWindow = 5 * time.Millisecond
)

type batchKey struct{}

// Batch wraps the handler of a Service so that the first events of a stream
// travel together: a short call is then one write to the transport, not four.
// Without it everything works, with more writes.
func Batch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		flusher, ok := w.(http.Flusher)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		b := &batchWriter{ResponseWriter: w, flusher: flusher}
		next.ServeHTTP(b, r.WithContext(context.WithValue(r.Context(), batchKey{}, b)))
	})
}

// batchWriter postpones flushes. Only the goroutine of the handler uses it. A
// nil one postpones nothing.
type batchWriter struct {
	http.ResponseWriter
	flusher http.Flusher
	held    bool
	dirty   bool // a flush was postponed
}

func batchOf(ctx context.Context) *batchWriter {
	b, _ := ctx.Value(batchKey{}).(*batchWriter)
	return b
}

// Flush implements http.Flusher.
func (b *batchWriter) Flush() {
	if b.held {
		b.dirty = true
		return
	}
	b.flusher.Flush()
}

// Unwrap lets http.ResponseController find the writer below.
func (b *batchWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *batchWriter) hold() {
	if b != nil {
		b.held = true
	}
}

// release sends what was postponed.
func (b *batchWriter) release() {
	if b == nil {
		return
	}
	b.held = false
	if b.dirty {
		b.dirty = false
		b.flusher.Flush()
	}
}
