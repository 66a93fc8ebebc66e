package exec

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// TestShortRunsAreOneWrite checks that the events of a short run leave without
// a flush of their own, and that those of a longer one do not wait for its end.
func TestShortRunsAreOneWrite(t *testing.T) {
	for name, c := range map[string]struct {
		takes   time.Duration
		flushed bool
	}{
		"short": {takes: batchWindow / 2},
		"long":  {takes: 20 * batchWindow, flushed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := httptest.NewRecorder()
				b := &batchWriter{ResponseWriter: w, flusher: w}
				j := newJournal(&journalConfig{memory: 1 << 20, ram: budget{limit: 1 << 20}})
				sub, ok := j.subscribe(0)
				if !ok {
					t.Fatal("no subscription")
				}
				defer sub.close()
				sent := make(chan time.Duration, 10)
				done := make(chan error, 1)
				begun := time.Now()
				go func() {
					done <- sub.follow(t.Context(), time.Hour, b, func(*agentv1.Event) error {
						b.Flush() // as the transport does after each message
						sent <- time.Since(begun)
						return nil
					})
				}()
				j.append(out("a"))
				time.Sleep(c.takes)
				j.append(out("b"))
				j.append(end())
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				close(sent)
				if first, want := <-sent, min(c.takes, batchWindow); first != want {
					t.Errorf("the first event was sent after %v, want %v", first, want)
				}
				if n := len(sent); n != 2 {
					t.Errorf("%d more events were sent, want 2", n)
				}
				if w.Flushed != c.flushed {
					t.Errorf("flushed on the way: %v, want %v", w.Flushed, c.flushed)
				}
			})
		})
	}
}
