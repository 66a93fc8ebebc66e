package httpapi

import (
	"context"
	"testing"
	"testing/synctest"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// TestPumpHoldsFewBytes lets a guest send large events to a client that takes none.
func TestPumpHoldsFewBytes(t *testing.T) {
	for size, want := range map[int]int{
		100:                17, // as many as the channel holds, and the one in hand
		pumpBudget/2 - 100: 3,
		16 << 20:           2,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			received := 0
			p := pumpEvents(ctx, func() (*agentv1.Event, error) {
				received++
				return &agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: make([]byte, size)}}, nil
			})
			synctest.Wait()
			if received != want {
				t.Errorf("%d events of %d bytes were received, want %d", received, size, want)
			}
			// What is taken makes room.
			got := <-p.out
			p.budget.Release(got.size)
			synctest.Wait()
			if received != want+1 {
				t.Errorf("after one was taken %d events of %d bytes were received, want %d", received, size, want+1)
			}
			cancel()
			for range p.out {
			}
		})
	}
}
