package bench

import (
	"context"
	"math/rand/v2"
)

// Benchmark is one thing that is measured.
type Benchmark struct {
	Name  string
	About string // one line for people
	// Default is how many samples are taken; Max is the most that --n gives.
	Default, Max int

	warm  int    // calls between the cold sample and the others that are not kept
	bytes int64  // what a sample moves, for MB/s
	floor string // what it is compared with; without open: what is measured
	// open makes the probe. whole takes all samples by itself instead.
	open  func(context.Context, *session) (Probe, error)
	whole func(ctx context.Context, s *session, n int, r *Result)
}

// samples is how many to take when n are asked for.
func (b Benchmark) samples(n int) int {
	if n <= 0 {
		return b.Default
	}
	return min(n, b.Max)
}

const (
	many = 10000 // the most samples of what takes milliseconds
	// hotWarm is how many calls it takes until the guest's code is translated
	// under emulation.
	hotWarm = 20

	small = 256 << 10
	large = 64 << 20
)

// Benchmarks is the table of all, in the order in which they run.
func Benchmarks() []Benchmark {
	return []Benchmark{
		{Name: "create", About: "create a sandbox, until it takes calls", Default: 50, Max: many, floor: FloorCreate, open: openCreate},
		{Name: "first_exec", About: "the first print(1) of a fresh sandbox", Default: 30, Max: many, floor: FloorFirstExec, open: openFirstExec},
		{Name: "hot_exec", About: "print(1) in a sandbox that is warm", Default: 200, Max: many, warm: hotWarm, floor: FloorExec, open: openExec(printOne)},
		{Name: "bash", About: "echo ready, in a fresh bash", Default: 50, Max: many, warm: 5, floor: FloorBash, open: openExec(echoReady)},
		{Name: "roundtrip", About: "create, print(1), delete", Default: 50, Max: many, floor: FloorRoundTrip, open: openRoundTrip},
		{Name: "delete", About: "delete a sandbox, until all of it is free", Default: 30, Max: many, floor: FloorDelete, open: openDelete},
		{Name: "upload_256k", About: "256 KB into a file", Default: 50, Max: many, warm: 5, bytes: small, floor: FloorUpload256K, open: openUpload(small)},
		{Name: "download_256k", About: "256 KB from a file", Default: 50, Max: many, warm: 5, bytes: small, floor: FloorDownload256K, open: openDownload(small)},
		{Name: "upload_64m", About: "64 MB into a file", Default: 5, Max: 50, bytes: large, floor: FloorUpload64M, open: openUpload(large)},
		{Name: "download_64m", About: "64 MB from a file", Default: 5, Max: 50, bytes: large, floor: FloorDownload64M, open: openDownload(large)},
		{Name: "density", About: "memory of idle sandboxes, each", Default: 16, Max: 64, whole: density},
		{Name: "restore", About: "without the server: start QEMU, load the golden snapshot, first answer", Default: 30, Max: 1000, floor: FloorRestore},
		{Name: "handoff", About: "without the server: synced transaction, continue a waiting machine, one answer", Default: 100, Max: many, warm: 5, floor: FloorHandOff},
		{Name: "agent_hello", About: "without the server: the shortest call to the agent", Default: 200, Max: many, warm: hotWarm, floor: FloorHello},
		{Name: "cold_boot", About: "without the server: boot the template's kernel, first answer", Default: 3, Max: 20, floor: FloorColdBoot},
	}
}

// Content is n bytes that do not compress, the same ones at each call.
func Content(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{'r', 'a', 'm', 'e', 't'}).Read(b) // never fails
	return b
}

func openCreate(_ context.Context, s *session) (Probe, error) {
	return Probe{Once: func(ctx context.Context) (Sample, error) {
		id, sample, err := s.create(ctx)
		if err != nil {
			return sample, err
		}
		_, err = s.remove(ctx, id)
		return sample, err
	}}, nil
}

func openFirstExec(_ context.Context, s *session) (Probe, error) {
	return Probe{Once: func(ctx context.Context) (Sample, error) {
		return s.with(ctx, func(id string) (Sample, error) { return s.exec(ctx, id, printOne) })
	}}, nil
}

func openDelete(_ context.Context, s *session) (Probe, error) {
	return Probe{Once: func(ctx context.Context) (Sample, error) {
		id, _, err := s.create(ctx)
		if err != nil {
			return Sample{}, err
		}
		return s.remove(ctx, id)
	}}, nil
}

func openRoundTrip(_ context.Context, s *session) (Probe, error) {
	return Probe{Once: func(ctx context.Context) (Sample, error) {
		id, create, err := s.create(ctx)
		if err != nil {
			return Sample{}, err
		}
		exec, err := s.exec(ctx, id, printOne)
		if err != nil {
			return Sample{}, err
		}
		remove, err := s.remove(ctx, id)
		return Sample{
			Took:  create.Took + exec.Took + remove.Took,
			Steps: map[string]float64{"create": ms(create.Took), "exec": ms(exec.Took), "delete": ms(remove.Took)},
		}, err
	}}, nil
}

// inOne measures f in one sandbox.
func (s *session) inOne(ctx context.Context, f func(ctx context.Context, id string) (Sample, error)) (Probe, error) {
	id, _, err := s.create(ctx)
	if err != nil {
		return Probe{}, err
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
