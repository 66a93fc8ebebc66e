package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// hibernateMB is how much memory is dirty at each hibernate.
const hibernateMB = 64

// dirty fills memory of the guest with random bytes.
func dirty(mb int) code {
	return code{"python", fmt.Sprintf(`import os
ramet_bench = bytearray(%d << 20)
for i in range(0, len(ramet_bench), 1 << 20):
    ramet_bench[i:i + (1 << 20)] = os.urandom(1 << 20)
print(1)`, mb), "1\n"}
}

// touch writes a byte into each page of what dirty has filled, so that all of it
// is dirty again, and fails when that is not there any more.
var touch = code{"python", `ramet_bench[::4096] = os.urandom(len(ramet_bench) >> 12)
print(1)`, "1\n"}

// openHibernate measures hibernates of one sandbox; openWake its wakes.
func openHibernate(ctx context.Context, s *session) (Probe, error) {
	return s.inUsed(ctx, dirty(hibernateMB), func(ctx context.Context, id string) (Sample, error) {
		sample, err := s.hibernate(ctx, id)
		if err != nil {
			return Sample{}, err
		}
		_, err = s.wake(ctx, id)
		return sample, err
	})
}

func openWake(ctx context.Context, s *session) (Probe, error) {
	return s.inUsed(ctx, dirty(hibernateMB), func(ctx context.Context, id string) (Sample, error) {
		if _, err := s.hibernate(ctx, id); err != nil {
			return Sample{}, err
		}
		if err := s.startedAhead(ctx); err != nil {
			return Sample{}, err
		}
		begin := time.Now()
		sample, err := s.wake(ctx, id)
		if err != nil {
			return Sample{}, err
		}
		return sample, s.answers(ctx, begin, []string{id}, &sample)
	})
}

// hibernate dirties the sandbox's memory first.
func (s *session) hibernate(ctx context.Context, id string) (Sample, error) {
	if _, err := s.exec(ctx, id, touch); err != nil {
		return Sample{}, err
	}
	begin := time.Now()
	sb, err := s.c.Hibernate(ctx, id)
	sample := Sample{Took: time.Since(begin)}
	if err != nil {
		return Sample{}, fmt.Errorf("hibernate a sandbox: %w", err)
	}
	sample.Steps = steps(sb.TimingsMs)
	return sample, inStatus(sb, "hibernated")
}

func (s *session) wake(ctx context.Context, id string) (Sample, error) {
	begin := time.Now()
	sb, err := s.c.Wake(ctx, id)
	sample := Sample{Took: time.Since(begin)}
	if err != nil {
		return Sample{}, fmt.Errorf("wake a sandbox: %w", err)
	}
	sample.Steps = steps(sb.TimingsMs)
	if sb.BootNote != nil {
		return Sample{}, fmt.Errorf("wake a sandbox: %s", *sb.BootNote)
	}
	return sample, inStatus(sb, "running")
}

func inStatus(sb *v1.Sandbox, want string) error {
	if sb.Status != want {
		return fmt.Errorf("the sandbox is %s, not %s", sb.Status, want)
	}
	return nil
}

// openCheckpoint measures full checkpoints of one sandbox.
func openCheckpoint(ctx context.Context, s *session) (Probe, error) {
	return s.inUsed(ctx, printOne, func(ctx context.Context, id string) (Sample, error) {
		ckp, sample, err := s.checkpoint(ctx, id)
		if err != nil {
			return Sample{}, err
		}
		return sample, s.removeCheckpoint(ctx, ckp)
	})
}

func (s *session) checkpoint(ctx context.Context, id string) (string, Sample, error) {
	full := "full"
	begin := time.Now()
	ckp, err := s.c.CreateCheckpoint(ctx, id, v1.CheckpointCreate{Kind: &full})
	sample := Sample{Took: time.Since(begin)}
	if err != nil {
		return "", Sample{}, fmt.Errorf("make a checkpoint: %w", err)
	}
	sample.Steps = steps(ckp.TimingsMs)
	if ckp.PausedMs != nil && ckp.DirtyBytes != nil {
		sample.Pause = &Pause{MS: *ckp.PausedMs, DirtyBytes: *ckp.DirtyBytes}
	}
	return ckp.Id, sample, nil
}

func (s *session) removeCheckpoint(ctx context.Context, id string) error {
	if err := s.c.DeleteCheckpoint(ctx, id); err != nil {
		return fmt.Errorf("delete a checkpoint: %w", err)
	}
	return nil
}

// openRestore measures how one sandbox goes back to one checkpoint of it.
func openRestore(ctx context.Context, s *session) (Probe, error) {
	var ckp string
	probe, err := s.inOne(ctx, func(ctx context.Context, id string) (Sample, error) {
		begin := time.Now()
		sb, err := s.c.Restore(ctx, id, ckp)
		sample := Sample{Took: time.Since(begin)}
		if err != nil {
			return Sample{}, fmt.Errorf("restore a sandbox: %w", err)
		}
		sample.Steps = steps(sb.TimingsMs)
		return sample, s.answers(ctx, begin, []string{id}, &sample)
	}, func(ctx context.Context, id string) error {
		_, err := s.exec(ctx, id, printOne)
		if err == nil {
			ckp, _, err = s.checkpoint(ctx, id)
		}
		return err
	})
	if err != nil {
		return probe, err
	}
	probe.Before = s.startedAhead
	end := probe.Close
	probe.Close = func(ctx context.Context) error { return errors.Join(s.removeCheckpoint(ctx, ckp), end(ctx)) }
	return probe, nil
}
