package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

// The steps that are measured here, beside the server's own. Both begin where the sample does.
const (
	// StepFirstAnswer ends when the first sandbox has answered a print(1).
	StepFirstAnswer = "first_answer"
	// StepAllAnswers ends when all children have. They are called at once.
	StepAllAnswers = "all_answers"
)

// refusedError says that the server has no room for what a benchmark needs.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// refusal marks the errors of a server that lets no more sandboxes in. One that could not start
// a machine answers with the same status, but has failed.
func refusal(err error) error {
	var answer *client.Error
	if errors.As(err, &answer) && (answer.Status == http.StatusTooManyRequests || slices.Contains(noRoom(), answer.Code)) {
		return &refusedError{err}
	}
	return err
}

// noRoom are the codes of a server whose host is full.
func noRoom() []string { return []string{"host_memory_full", "host_disk_full", "server_disk_full"} }

// openForkFirst measures the first fork of a sandbox that nobody has called yet.
func openForkFirst(_ context.Context, s *session) (Probe, error) {
	probe := s.fresh(func(ctx context.Context, id string, _ Sample) (Sample, error) {
		sample, err := s.forkOnce(ctx, id, 1)
		_, rerr := s.remove(ctx, id)
		return sample, errors.Join(err, rerr)
	})
	batch := probe.Before
	probe.Before = func(ctx context.Context) error {
		if err := batch(ctx); err != nil {
			return err
		}
		return s.startedAhead(ctx)
	}
	return probe, nil
}

// openFork measures forks of one sandbox that runs, n children at a time. The
// cold sample is the first fork of it.
func openFork(n int) func(context.Context, *session) (Probe, error) {
	return func(ctx context.Context, s *session) (Probe, error) {
		return s.inUsed(ctx, printOne, func(ctx context.Context, id string) (Sample, error) { return s.forkOnce(ctx, id, n) })
	}
}

// inUsed is inOne for a sandbox that has run code, with processes of machines
// that were started ahead before each sample.
func (s *session) inUsed(ctx context.Context, first code, f func(ctx context.Context, id string) (Sample, error)) (Probe, error) {
	probe, err := s.inOne(ctx, f, func(ctx context.Context, id string) error {
		_, err := s.exec(ctx, id, first)
		return err
	})
	probe.Before = s.startedAhead
	return probe, err
}

// forkOnce is one sample of a fork. The children are removed again.
func (s *session) forkOnce(ctx context.Context, parent string, n int) (Sample, error) {
	begin := time.Now()
	children, sample, err := s.fork(ctx, parent, n)
	if err != nil {
		return Sample{}, err
	}
	err = s.answers(ctx, begin, children, &sample)
	return sample, errors.Join(err, s.removeAll(ctx, children))
}

// fork makes n children, which are ready, and says what the server says of it.
func (s *session) fork(ctx context.Context, parent string, n int) ([]string, Sample, error) {
	begin := time.Now()
	forked, err := s.c.Fork(ctx, parent, v1.ForkRequest{N: &n})
	took := time.Since(begin)
	if err != nil {
		return nil, Sample{}, refusal(fmt.Errorf("fork a sandbox: %w", err))
	}
	sample := Sample{Took: took, Steps: steps(&forked.TimingsMs), Pause: &Pause{MS: forked.PausedMs, DirtyBytes: forked.DirtyBytes}}
	if len(forked.Children) != n {
		err = fmt.Errorf("a fork of %d made %d children", n, len(forked.Children))
		return nil, Sample{}, errors.Join(err, s.removeAll(ctx, forked.Children))
	}
	return forked.Children, sample, nil
}

// steps copies the server's steps, so that others can be put beside them.
func steps(timings *map[string]float64) map[string]float64 {
	out := map[string]float64{}
	if timings != nil {
		maps.Copy(out, *timings)
	}
	return out
}

// answers calls all sandboxes at once and enters when the first and the last has answered.
func (s *session) answers(ctx context.Context, begin time.Time, ids []string, sample *Sample) error {
	var mu sync.Mutex
	var first, last time.Duration
	var errs []error
	var calls sync.WaitGroup
	for _, id := range ids {
		calls.Go(func() {
			_, err := s.exec(ctx, id, printOne)
			took := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			if first == 0 {
				first = took
			}
			last = took
		})
	}
	calls.Wait()
	sample.Steps[StepFirstAnswer] = ms(first)
	if len(ids) > 1 {
		sample.Steps[StepAllAnswers] = ms(last)
	}
	return errors.Join(errs...)
}

func (s *session) removeAll(ctx context.Context, ids []string) error {
	var errs []error
	for _, id := range ids {
		_, err := s.remove(ctx, id)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// openMerge measures merges of a child that has answered a call into its parent,
// which is what the child was before the next sample.
func openMerge(ctx context.Context, s *session) (Probe, error) {
	return s.inUsed(ctx, printOne, func(ctx context.Context, id string) (Sample, error) {
		children, _, err := s.fork(ctx, id, 1)
		if err != nil {
			return Sample{}, err
		}
		sample, err := s.merge(ctx, id, children[0])
		if err != nil {
			return Sample{}, errors.Join(err, s.removeAll(ctx, children))
		}
		return sample, nil
	})
}

func (s *session) merge(ctx context.Context, parent, winner string) (Sample, error) {
	if _, err := s.exec(ctx, winner, printOne); err != nil {
		return Sample{}, err
	}
	begin := time.Now()
	sb, err := s.c.Merge(ctx, parent, winner)
	sample := Sample{Took: time.Since(begin)}
	if err != nil {
		return Sample{}, fmt.Errorf("merge a sandbox: %w", err)
	}
	sample.Steps = steps(sb.TimingsMs)
	return sample, s.answers(ctx, begin, []string{parent}, &sample)
}
