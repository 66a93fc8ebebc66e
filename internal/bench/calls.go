package bench

import (
	"context"
	"errors"
)

// inOne measures f in one sandbox, in which each of prepare was done.
func (s *session) inOne(ctx context.Context, f func(ctx context.Context, id string) (Sample, error), prepare ...func(ctx context.Context, id string) error) (Probe, error) {
	id, _, err := s.create(ctx)
	if err != nil {
		return Probe{}, err
	}
	for _, p := range prepare {
		if err := p(ctx, id); err != nil {
			_, rerr := s.remove(ctx, id)
			return Probe{}, errors.Join(err, rerr)
		}
	}
	return Probe{
		Once: func(ctx context.Context) (Sample, error) { return f(ctx, id) },
		Close: func(ctx context.Context) error {
			_, err := s.remove(ctx, id)
			return err
		},
	}, nil
}

func openExec(c code) func(context.Context, *session) (Probe, error) {
	return func(ctx context.Context, s *session) (Probe, error) {
		return s.inOne(ctx, func(ctx context.Context, id string) (Sample, error) { return s.exec(ctx, id, c) })
	}
}

func openUpload(size int) func(context.Context, *session) (Probe, error) {
	return func(ctx context.Context, s *session) (Probe, error) {
		content := Content(size)
		return s.inOne(ctx, func(ctx context.Context, id string) (Sample, error) { return s.upload(ctx, id, content) })
	}
}

func openDownload(size int) func(context.Context, *session) (Probe, error) {
	return func(ctx context.Context, s *session) (Probe, error) {
		content, there := Content(size), false
		return s.inOne(ctx, func(ctx context.Context, id string) (Sample, error) {
			if !there {
				if _, err := s.upload(ctx, id, content); err != nil {
					return Sample{}, err
				}
				there = true
			}
			return s.download(ctx, id, content)
		})
	}
}
