package worker

import (
	"context"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest"
)

const (
	// goodTrip is a round trip that tells the guest's time well enough: it is wrong by
	// half of that at most.
	goodTrip = 10 * time.Millisecond
	// maxTrips bounds the attempts to have one.
	maxTrips = 8
)

// moment is one instant as host and guest have it.
type moment struct {
	unix      int64 // nanoseconds, by the host's wall clock
	monotonic int64 // nanoseconds, by the guest's monotonic clock; 0 for an agent that does not tell
}

// askTime finds out what the guest's monotonic clock says now, so that a wall clock which
// is set by it is right however long the call that sets it takes. Both clocks go on equally
// until the machine is paused.
func askTime(ctx context.Context, client *guest.Client) (moment, error) {
	var best moment
	shortest := time.Duration(-1)
	for range maxTrips {
		sent := time.Now()
		r, err := client.Machine().Hello(ctx, &agentv1.HelloRequest{})
		if err != nil {
			return moment{}, guest.Error(err)
		}
		trip := time.Since(sent)
		if shortest < 0 || trip < shortest {
			shortest, best = trip, moment{sent.Add(trip / 2).UnixNano(), r.MonotonicNanos}
		}
		if trip < goodTrip || r.MonotonicNanos == 0 {
			break
		}
	}
	if best.monotonic == 0 {
		best.unix = time.Now().UnixNano()
	}
	return best, nil
}
