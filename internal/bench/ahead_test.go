package bench

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

// aheadServer has as many processes started ahead as waiting says at the n-th question, of 2.
func aheadServer(t *testing.T, waiting func(n int) int) (*session, *int) {
	t.Helper()
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(v1.Capacity{Pools: []v1.Pool{}, Waiting: waiting(asked), WaitingSize: 2})
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, "", "bench test")
	if err != nil {
		t.Fatal(err)
	}
	return newSession(c), &asked
}

func TestStartedAheadWaits(t *testing.T) {
	s, asked := aheadServer(t, func(n int) int { return min(n-1, 2) })
	if err := s.startedAhead(t.Context()); err != nil || *asked != 3 || s.noneAhead {
		t.Errorf("error %v, asked %d times", err, *asked)
	}
}

// TestStartedAheadGivesUpOnce does not wait before each sample for what does not come.
func TestStartedAheadGivesUpOnce(t *testing.T) {
	s, asked := aheadServer(t, func(int) int { return 1 })
	s.aheadStall = time.Nanosecond
	if err := s.startedAhead(t.Context()); err != nil || !s.noneAhead {
		t.Fatalf("error %v", err)
	}
	before := *asked
	if err := s.startedAhead(t.Context()); err != nil || *asked != before {
		t.Errorf("error %v, asked %d times again", err, *asked-before)
	}
}

func TestStartedAheadEndsWithItsContext(t *testing.T) {
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s, _ := aheadServer(t, func(n int) int {
		if n == 2 {
			cancel(stop)
		}
		return 1
	})
	if err := s.startedAhead(ctx); !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
