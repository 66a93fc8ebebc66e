package bench

import (
	"testing"
	"time"
)

func TestPartsOfABurst(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	create := func(hit bool, begin, end int) made {
		m := made{begin: start.Add(time.Duration(begin) * time.Millisecond), end: start.Add(time.Duration(end) * time.Millisecond)}
		if hit {
			m.Steps = map[string]float64{claimStep: 1}
		}
		return m
	}
	all := []made{
		create(true, 0, 10), create(true, 0, 12),
		create(true, 10, 25),                           // began before the pool was empty
		create(true, 30, 45),                           // took one that had just been made
		create(false, 20, 220),                         // the second miss to begin is the first to end
		create(false, 12, 240), create(false, 50, 312), // the pool was empty at 12
	}
	hits, after, emptyAt := parts(all)
	if len(hits) != 3 || len(after) != 4 || !emptyAt.Equal(start.Add(12*time.Millisecond)) {
		t.Fatalf("%d hits, %d after %s", len(hits), len(after), emptyAt)
	}
	if got := perSecond(len(hits), until(start, hits)); got != 120 {
		t.Errorf("%g creates a second until the pool was empty", got)
	}
	var r Rate
	r.sustain(after, emptyAt)
	if r.SustainedN != 4 || r.SustainedHits != 1 || r.SustainedPerS != round3(4/0.3) {
		t.Errorf("%+v", r)
	}
	if hits, after, emptyAt = parts(all[:2]); len(hits) != 2 || len(after) != 0 || !emptyAt.IsZero() {
		t.Errorf("a pool that never was empty: %d hits, %d after %s", len(hits), len(after), emptyAt)
	}
	if perSecond(0, until(start, nil)) != 0 {
		t.Error("a rate of nothing")
	}
}
