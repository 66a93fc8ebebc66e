package bench

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

// poolServer answers every call with the pool that now says, call by call.
func poolServer(t *testing.T, now func(call int) *v1.Pool) *session {
	t.Helper()
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := v1.Capacity{Pools: []v1.Pool{}}
		if p := now(int(calls.Add(1))); p != nil {
			p.Template, p.Vcpus, p.MemoryMb, p.DiskMb = "default", 2, 1024, 4096
			c.Pools = append(c.Pools, *p)
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(c)
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, "rmt_test_key", "bench test")
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(c)
	if err := s.findPool(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		now   func(call int) *v1.Pool
		stall time.Duration
		err   error
		left  int
		size  int
	}{
		"it is full": {
			now: func(int) *v1.Pool { return &v1.Pool{Size: 4, Ready: 4} }, stall: time.Hour, left: 4, size: 4,
		},
		"it becomes full": {
			now: func(call int) *v1.Pool { return &v1.Pool{Size: 4, Ready: min(4, call)} }, stall: time.Hour, left: 4, size: 4,
		},
		"one is being made": {
			now:   func(call int) *v1.Pool { return &v1.Pool{Size: 4, Ready: 5, Warming: max(0, 4-call)} },
			stall: time.Hour, left: 5, size: 4,
		},
		"the host is too small for it": {
			now: func(int) *v1.Pool { return &v1.Pool{Size: 4, Ready: 3} }, left: 3, size: 3,
		},
		"it stays empty": {
			now: func(int) *v1.Pool { return &v1.Pool{Size: 4} }, err: errPoolEmpty, size: 4,
		},
		"it is gone": {
			now: func(call int) *v1.Pool {
				if call > 2 {
					return nil
				}
				return &v1.Pool{Size: 4}
			},
			stall: time.Hour, err: errNoPool, size: 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := poolServer(t, c.now)
			s.pool.stall = c.stall
			if err := s.settle(t.Context()); !errors.Is(err, c.err) {
				t.Errorf("error %v, not %v", err, c.err)
			}
			if s.pool.left != c.left || s.pool.size != c.size {
				t.Errorf("%d left of %d, not %d of %d", s.pool.left, s.pool.size, c.left, c.size)
			}
		})
	}
}

func TestSettleEndsWithItsContext(t *testing.T) {
	stop := errors.New("ctrl-c")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := poolServer(t, func(call int) *v1.Pool {
		if call > 3 {
			cancel(stop)
		}
		return &v1.Pool{Size: 4}
	})
	if err := s.settle(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("error %v", err)
	}
}

func TestNoPool(t *testing.T) {
	s := poolServer(t, func(int) *v1.Pool { return nil })
	if s.pool != nil || s.settle(t.Context()) != nil || s.batch(t.Context()) != nil || s.split() != nil {
		t.Errorf("%+v", s.pool)
	}
}
