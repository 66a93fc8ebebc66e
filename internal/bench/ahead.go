package bench

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/progress"
)

// aheadStall is how long a server may take to start another process ahead. After
// that it is not waited for again in this run.
const aheadStall = 10 * time.Second

// startedAhead waits until the server has as many processes of machines as it
// starts ahead of forks and wakes: what they take then is not what makes up for
// the sample before.
func (s *session) startedAhead(ctx context.Context) error {
	tick := time.NewTicker(poolPoll)
	defer tick.Stop()
	best, since := -1, time.Now()
	for !s.noneAhead {
		c, err := s.c.Capacity(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("ask for what was started ahead: %w", err)
		case c.Waiting >= c.WaitingSize:
			return nil
		case c.Waiting > best:
			best, since = c.Waiting, time.Now()
		case time.Since(since) > s.aheadStall:
			s.noneAhead = true
		}
		progress.Report(ctx, progress.Event{Step: s.doing, Detail: fmt.Sprintf("machines are started ahead: %d of %d", c.Waiting, c.WaitingSize)})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
