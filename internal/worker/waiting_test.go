package worker

import (
	"testing"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/fake"
)

func waitingBench(t *testing.T, size int) *bench {
	t.Helper()
	return newBench(t, func(c *Config) {
		c.Waiting = WaitingConfig{Size: size, Kind: PoolKind{Template: "default", Shape: sandbox.DefaultShape()}}
	})
}

func (b *bench) awaitWaiting(n int) {
	b.t.Helper()
	for end := time.Now().Add(patience); b.waiting.count() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%d processes wait, want %d: %s", b.waiting.count(), n, b.log)
		}
		b.waiting.nudge()
	}
}

func TestBootsTakeWaitingProcesses(t *testing.T) {
	b := waitingBench(t, 2)
	p := b.mustStart() // makes the golden snapshot
	b.StartWaiting()
	b.awaitWaiting(2)
	requests := b.requests(3)
	children, _, err := b.Fork(b.ctx(), p.ID, requests)
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for i, c := range children {
		if c.ID != requests[i].Instance {
			taken++
		}
		if got, err := b.Instance(c.ID); err != nil || got != c {
			t.Errorf("child %d: %v", i, err)
		}
	}
	if taken < 2 {
		t.Errorf("%d children run in waiting processes", taken)
	}
	b.awaitWaiting(2)
	// One that does not fit is thrown away, and the boot goes on without.
	r := b.request()
	r.Shape.VCPUs = 4
	other, err := b.Start(b.ctx(), r)
	if err != nil || other.ID != r.Instance {
		t.Errorf("another shape: %v", err)
	}
	b.awaitWaiting(2)
	b.host.Fail(fake.StepStart, errBoom)
	if _, err := b.Start(b.ctx(), b.request()); err == nil {
		t.Error("a start that fails in a waiting process")
	}
	b.host.Fail(fake.StepStart, nil)
	b.awaitWaiting(2)
}
