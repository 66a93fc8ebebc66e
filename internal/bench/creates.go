package bench

import (
	"context"
	"errors"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// fresh measures f in a sandbox of its own for each sample. With a pool it is
// one that was ready, as nobody would compare the one with the other.
func (s *session) fresh(f func(ctx context.Context, id string, create Sample) (Sample, error)) Probe {
	return Probe{
		Before: s.batch,
		Once: func(ctx context.Context) (Sample, error) {
			id, create, err := s.createReady(ctx)
			if err != nil {
				return Sample{}, err
			}
			return f(ctx, id, create)
		},
	}
}

func openCreate(_ context.Context, s *session) (Probe, error) {
	return s.fresh(func(ctx context.Context, id string, create Sample) (Sample, error) {
		_, err := s.remove(ctx, id)
		return create, err
	}), nil
}

func openFirstExec(_ context.Context, s *session) (Probe, error) {
	return s.fresh(func(ctx context.Context, id string, _ Sample) (Sample, error) {
		exec, err := s.exec(ctx, id, printOne)
		_, rerr := s.remove(ctx, id)
		return exec, errors.Join(err, rerr)
	}), nil
}

func openDelete(_ context.Context, s *session) (Probe, error) {
	return s.fresh(func(ctx context.Context, id string, _ Sample) (Sample, error) { return s.remove(ctx, id) }), nil
}

func openRoundTrip(_ context.Context, s *session) (Probe, error) {
	return s.fresh(func(ctx context.Context, id string, create Sample) (Sample, error) {
		exec, err := s.exec(ctx, id, printOne)
		if err != nil {
			return Sample{}, err
		}
		remove, err := s.remove(ctx, id)
		return Sample{
			Took:  create.Took + exec.Took + remove.Took,
			Steps: map[string]float64{"create": ms(create.Took), "exec": ms(exec.Took), "delete": ms(remove.Took)},
		}, err
	}), nil
}

// openCreateMiss measures creates that no pool serves, beside one that stays
// full: their memory is a step above the default, which is a little more work.
func openCreateMiss(_ context.Context, s *session) (Probe, error) {
	memory := sandbox.DefaultMemoryMB + sandbox.MemoryStepMB
	return Probe{Once: func(ctx context.Context) (Sample, error) {
		id, sample, err := s.createLike(ctx, v1.SandboxCreate{MemoryMb: &memory})
		if err != nil {
			return Sample{}, err
		}
		if sample.hit() {
			return Sample{}, s.apart(ctx, id)
		}
		_, err = s.remove(ctx, id)
		return sample, err
	}}, nil
}
