package bench

import (
	"context"
	"errors"
	"time"
)

var errNotRefilled = errors.New("the server made no machine in the place of one that was taken")

// openRefill measures what the server says it took to make a machine for its
// pool: one is taken out of a full pool, and the figure is read when the pool is
// full again. How long the server waits before it begins is not part of it.
func openRefill(_ context.Context, s *session) (Probe, error) {
	return Probe{
		Before: s.settle,
		Once: func(ctx context.Context) (Sample, error) {
			before, err := s.poolNow(ctx)
			if err != nil {
				return Sample{}, err
			}
			id, _, err := s.createReady(ctx)
			if err != nil {
				return Sample{}, err
			}
			if _, err := s.remove(ctx, id); err != nil {
				return Sample{}, err
			}
			if err := s.settle(ctx); err != nil {
				return Sample{}, err
			}
			after, err := s.poolNow(ctx)
			switch {
			case err != nil:
				return Sample{}, err
			case before == nil || after == nil:
				return Sample{}, errNoPool
			case after.RefillMsLast == before.RefillMsLast:
				return Sample{}, errNotRefilled
			}
			return Sample{Took: time.Duration(after.RefillMsLast * float64(time.Millisecond))}, nil
		},
	}, nil
}
