package worker

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/fake"
)

// instances is what the inventory lists.
func instances(t *testing.T, w *Worker) []sandbox.InstanceID {
	t.Helper()
	list, err := w.Instances()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestInventoryLeavesOutWhatTheWorkerKnows(t *testing.T) {
	b := newPoolBench(t, 1)
	w := b.filled(t)
	if got := instances(t, w); len(got) != 0 {
		t.Errorf("%v are listed besides the pool's", got)
	}
	i := start(t, w, poolRequest(sandbox.DefaultShape()))
	b.awaitReady(t, w, 1)
	left := sandbox.NewInstanceID()
	if err := os.Mkdir(w.dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	want := []sandbox.InstanceID{i.ID, left}
	slices.Sort(want)
	if got := instances(t, w); !slices.Equal(got, want) {
		t.Errorf("%v are listed, want %v", got, want)
	}
	for _, id := range want {
		if err := w.Stop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if got := instances(t, w); len(got) != 0 {
		t.Errorf("%v are listed when all are gone", got)
	}
}

// A boot under way is no remains, and one that has failed is not remembered.
func TestInventoryLeavesOutBoots(t *testing.T) {
	b := newPoolBench(t, 0)
	var w *Worker
	during := make(chan []sandbox.InstanceID, 8)
	b.host = fake.NewHost(fake.Config{Serve: func(g *fake.Guest, conn net.Conn) {
		list, err := w.Instances() // its agent answers later
		if err != nil {
			t.Error(err)
		}
		during <- list
		serveAgent(g, conn)
	}})
	w = b.worker(t)
	first := start(t, w, poolRequest(sandbox.DefaultShape())) // with the golden snapshot
	for range len(during) {
		if list := <-during; len(list) != 0 {
			t.Errorf("%v were listed during the first boots", list)
		}
	}
	second := start(t, w, poolRequest(sandbox.DefaultShape()))
	if list := <-during; !slices.Equal(list, []sandbox.InstanceID{first.ID}) {
		t.Errorf("%v were listed during a boot, want %s alone", list, first.ID)
	}
	b.host.Fail(fake.StepStart, errBoom)
	if _, err := w.Start(t.Context(), poolRequest(sandbox.DefaultShape())); !errors.Is(err, errBoom) {
		t.Fatalf("a start that fails: %v", err)
	}
	b.host.Fail(fake.StepStart, nil)
	w.mu.Lock()
	booted := len(w.booted)
	w.mu.Unlock()
	if booted != 2 {
		t.Errorf("%d boots are remembered, want those of %s and %s", booted, first.ID, second.ID)
	}
}
