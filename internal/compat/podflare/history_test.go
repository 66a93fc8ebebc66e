package podflare

import (
	"strings"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

func TestHistoryKeepsTheLastEventsOfEachSandbox(t *testing.T) {
	h := NewHistory()
	a, b := sandbox.NewID(), sandbox.NewID()
	for i := range maxEvents + 5 {
		h.Add("p", a, i)
	}
	h.Add("p", b, "x\u0085y")
	got := h.of("p", a)
	if len(got) != maxEvents || string(got[0]) != "5" || string(got[maxEvents-1]) != "1004" {
		t.Errorf("%d events, from %s to %s", len(got), got[0], got[len(got)-1])
	}
	if got := h.of("p", b); len(got) != 1 || string(got[0]) != `"x\u0085y"` {
		t.Errorf("%q", got)
	}
	if got := h.of("other", a); got != nil {
		t.Errorf("another project's: %q", got)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := NewHistory()
	big := strings.Repeat("a", maxOne/3)
	first := sandbox.NewID()
	h.Add("p", first, big)
	h.Add("p", first, strings.Repeat("a", maxOne)) // too large to be kept
	if got := h.of("p", first); len(got) != 1 {
		t.Errorf("%d events", len(got))
	}
	for range 4 {
		h.Add("p", first, big)
	}
	if got := h.of("p", first); len(got) != 2 {
		t.Errorf("%d events of a third of what is kept", len(got))
	}
	for range 3 * maxAll / maxOne {
		id := sandbox.NewID()
		h.Add("p", id, big)
		h.Add("p", id, big)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bytes > maxAll || h.recent.Len() != len(h.byID) {
		t.Errorf("%d bytes, %d sandboxes, %d in the list", h.bytes, len(h.byID), h.recent.Len())
	}
	if h.byID[historyKey{"p", first}] != nil {
		t.Error("the one that was silent for the longest time is still there")
	}
	sum := 0
	for e := h.recent.Front(); e != nil; e = e.Next() {
		sum += e.Value.(*past).bytes
	}
	if sum != h.bytes {
		t.Errorf("%d bytes in the books, %d in the list", h.bytes, sum)
	}
}
