package httpapi

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

func TestCapacity(t *testing.T) {
	get := func(capacity func() sandbox.Capacity) (c rametv1.Capacity) {
		t.Helper()
		s := New(Config{Log: slog.New(slog.DiscardHandler), NoAuth: true, Capacity: capacity})
		w := httptest.NewRecorder()
		s.GetCapacity(w, httptest.NewRequest("GET", "/v1/capacity", nil))
		if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || w.Code != 200 {
			t.Fatalf("%d %s (%v)", w.Code, w.Body, err)
		}
		return c
	}
	c := get(func() sandbox.Capacity {
		return sandbox.Capacity{Machines: 5, Unpooled: 1, Pools: []sandbox.Pool{
			{
				Template: "default", Shape: sandbox.DefaultShape(), Size: 8, Ready: 6, Warming: 1, Hits: 9, Misses: 1,
				Discarded: 2, OnDemand: sandbox.Timing{Count: 2, TotalMS: 600, LastMS: 200}, Refill: sandbox.Timing{Count: 1, TotalMS: 400, LastMS: 400},
			},
			{Template: "default", Shape: sandbox.Shape{VCPUs: 4, MemoryMB: 2048, DiskMB: 4096}, Size: 8, Misses: 10},
		}}
	})
	if c.Machines != 5 || c.Unpooled != 1 || len(c.Pools) != 2 {
		t.Errorf("%+v", c)
	}
	want := rametv1.PoolCounters{
		Size: 16, Ready: 6, Warming: 1, Hits: 9, Misses: 11, HitRate: 0.45, Discarded: 2,
		OnDemandBootMsMean: 300, RefillMsMean: 400, RefillMsLast: 400,
	}
	if c.Pool != want {
		t.Errorf("the sum is %+v, want %+v", c.Pool, want)
	}
	if p := c.Pools[0]; p.HitRate != 0.9 || p.Vcpus != 2 || p.MemoryMb != 1024 {
		t.Errorf("the first is %+v", p)
	}
	if c := get(nil); c.Pool != (rametv1.PoolCounters{}) || c.Pools == nil {
		t.Errorf("without a pool: %+v", c)
	}
}
