package floor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ramet.dev/ramet/internal/bench"
)

// Open implements bench.Floors.
func (f *Floors) Open(ctx context.Context, name string) (bench.Probe, error) {
	switch name {
	case bench.FloorRestore:
		return bench.Probe{Once: f.restore}, nil
	case bench.FloorCreate:
		return bench.Probe{Once: f.create}, nil
	case bench.FloorFirstExec:
		return bench.Probe{Once: f.firstExec}, nil
	case bench.FloorRoundTrip:
		return bench.Probe{Once: f.roundTrip}, nil
	case bench.FloorHandOffRoundTrip:
		return bench.Probe{Once: f.handOffRoundTrip}, nil
	case bench.FloorRefill:
		return bench.Probe{Once: f.refill}, nil
	case bench.FloorDelete:
		return bench.Probe{Once: f.remove}, nil
	case bench.FloorColdBoot:
		return bench.Probe{Once: f.coldBoot}, nil
	case bench.FloorHandOff:
		return f.openHandOff(ctx)
	case bench.FloorSave64M:
		return f.openSave(64 << 20), nil
	case bench.FloorHello:
		return f.inOne(ctx, func(ctx context.Context, m *machine) (bench.Sample, error) {
			begin := time.Now()
			err := m.hello(ctx)
			return bench.Sample{Took: time.Since(begin)}, err
		})
	case bench.FloorExec:
		return f.inOne(ctx, func(ctx context.Context, m *machine) (bench.Sample, error) {
			return m.exec(ctx, "python", "print(1)", "1\n")
		})
	case bench.FloorBash:
		return f.inOne(ctx, func(ctx context.Context, m *machine) (bench.Sample, error) {
			return m.exec(ctx, "bash", "echo ready", "ready\n")
		})
	case bench.FloorUpload256K:
		return f.openUpload(ctx, 256<<10)
	case bench.FloorUpload64M:
		return f.openUpload(ctx, 64<<20)
	case bench.FloorDownload256K:
		return f.openDownload(ctx, 256<<10)
	case bench.FloorDownload64M:
		return f.openDownload(ctx, 64<<20)
	}
	return bench.Probe{}, fmt.Errorf("there is no floor %q", name)
}

// with starts a machine for one sample and frees it afterwards.
func (f *Floors) with(ctx context.Context, cold bool, each func(*machine, bench.Sample) (bench.Sample, error)) (bench.Sample, error) {
	m, started, err := f.start(ctx, cold)
	if err != nil {
		return bench.Sample{}, err
	}
	sample, err := each(m, started)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
	defer cancel()
	return sample, errors.Join(err, m.free(ctx))
}

func (f *Floors) restore(ctx context.Context) (bench.Sample, error) {
	return f.with(ctx, false, func(_ *machine, s bench.Sample) (bench.Sample, error) { return s, nil })
}

func (f *Floors) coldBoot(ctx context.Context) (bench.Sample, error) {
	return f.with(ctx, true, func(_ *machine, s bench.Sample) (bench.Sample, error) { return s, nil })
}

func (f *Floors) create(ctx context.Context) (bench.Sample, error) {
	begin := time.Now()
	if err := f.commit(ctx); err != nil {
		return bench.Sample{}, err
	}
	commit := time.Since(begin)
	return f.with(ctx, false, func(_ *machine, s bench.Sample) (bench.Sample, error) {
		s.Took += commit
		s.Steps["commit"] = millis(commit)
		return s, nil
	})
}

func (f *Floors) firstExec(ctx context.Context) (bench.Sample, error) {
	return f.with(ctx, false, func(m *machine, _ bench.Sample) (bench.Sample, error) {
		if err := m.refresh(ctx); err != nil {
			return bench.Sample{}, err
		}
		return m.exec(ctx, "python", "print(1)", "1\n")
	})
}

func (f *Floors) remove(ctx context.Context) (bench.Sample, error) {
	m, _, err := f.start(ctx, false)
	if err != nil {
		return bench.Sample{}, err
	}
	begin := time.Now()
	err = m.free(ctx)
	return bench.Sample{Took: time.Since(begin)}, err
}

// roundTrip leaves out what giving the machine its identity takes: a bare
// machine has none.
func (f *Floors) roundTrip(ctx context.Context) (bench.Sample, error) {
	m, started, err := f.start(ctx, false)
	if err != nil {
		return bench.Sample{}, err
	}
	if err := m.refresh(ctx); err != nil {
		return bench.Sample{}, err // Close frees it
	}
	exec, err := m.exec(ctx, "python", "print(1)", "1\n")
	if err != nil {
		return bench.Sample{}, err
	}
	begin := time.Now()
	err = m.free(ctx)
	return bench.Sample{Took: started.Took + exec.Took + time.Since(begin)}, err
}

// refill leaves out what giving the machine its identity and its memory takes.
func (f *Floors) refill(ctx context.Context) (bench.Sample, error) {
	return f.with(ctx, false, func(m *machine, started bench.Sample) (bench.Sample, error) {
		if err := m.refresh(ctx); err != nil {
			return bench.Sample{}, err
		}
		exec, err := m.exec(ctx, "python", "print(1)", "1\n")
		started.Took += exec.Took
		started.Steps["first_exec"] = millis(exec.Took)
		return started, err
	})
}

// handOffRoundTrip is the round trip of a machine that waits: it has answered a
// call and has all its memory, like one of a pool.
func (f *Floors) handOffRoundTrip(ctx context.Context) (bench.Sample, error) {
	m, _, err := f.start(ctx, false)
	if err != nil {
		return bench.Sample{}, err
	}
	// An error leaves the machine to Close.
	if err := m.refresh(ctx); err != nil {
		return bench.Sample{}, err
	}
	if err := m.m.ResizeMemory(ctx, f.cfg.MemoryMB); err != nil {
		return bench.Sample{}, err
	}
	if _, err := m.exec(ctx, "python", "print(1)", "1\n"); err != nil {
		return bench.Sample{}, err
	}
	if err := m.m.Pause(ctx); err != nil {
		return bench.Sample{}, err
	}
	begin := time.Now()
	if err := f.commit(ctx); err != nil {
		return bench.Sample{}, err
	}
	if err := m.m.Resume(ctx); err != nil {
		return bench.Sample{}, err
	}
	if _, err := m.exec(ctx, "python", "print(1)", "1\n"); err != nil {
		return bench.Sample{}, err
	}
	err = m.free(ctx)
	return bench.Sample{Took: time.Since(begin)}, err
}

// inOne measures each in one machine that has its identity and its memory.
func (f *Floors) inOne(ctx context.Context, each func(context.Context, *machine) (bench.Sample, error)) (bench.Probe, error) {
	m, _, err := f.start(ctx, false)
	if err != nil {
		return bench.Probe{}, err
	}
	if err = m.refresh(ctx); err == nil {
		err = m.m.ResizeMemory(ctx, f.cfg.MemoryMB)
	}
	if err != nil {
		return bench.Probe{}, errors.Join(err, m.free(ctx))
	}
	return bench.Probe{
		Once:  func(ctx context.Context) (bench.Sample, error) { return each(ctx, m) },
		Close: m.free,
	}, nil
}

func (f *Floors) openUpload(ctx context.Context, size int) (bench.Probe, error) {
	content := bench.Content(size)
	return f.inOne(ctx, func(ctx context.Context, m *machine) (bench.Sample, error) { return m.upload(ctx, content) })
}

func (f *Floors) openDownload(ctx context.Context, size int) (bench.Probe, error) {
	content, there := bench.Content(size), false
	return f.inOne(ctx, func(ctx context.Context, m *machine) (bench.Sample, error) {
		if !there {
			if _, err := m.upload(ctx, content); err != nil {
				return bench.Sample{}, err
			}
			there = true
		}
		return m.download(ctx, content)
	})
}

// openSave measures a new file that is on the disk when it is done.
func (f *Floors) openSave(size int) bench.Probe {
	content := bench.Content(size)
	path := filepath.Join(f.dbDir, "save")
	return bench.Probe{Once: func(context.Context) (bench.Sample, error) {
		begin := time.Now()
		err := writeSynced(path, content)
		took := time.Since(begin)
		return bench.Sample{Took: took}, errors.Join(err, os.Remove(path))
	}}
}

func writeSynced(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// openHandOff measures what handing out a waiting machine takes at least.
func (f *Floors) openHandOff(ctx context.Context) (bench.Probe, error) {
	paused := false
	return f.inOne(ctx, func(ctx context.Context, m *machine) (bench.Sample, error) {
		if !paused {
			if err := m.m.Pause(ctx); err != nil {
				return bench.Sample{}, err
			}
		}
		sample, err := f.handOff(ctx, m)
		perr := m.m.Pause(ctx)
		paused = perr == nil
		return sample, errors.Join(err, perr)
	})
}

func (f *Floors) handOff(ctx context.Context, m *machine) (bench.Sample, error) {
	begin := time.Now()
	if err := f.commit(ctx); err != nil {
		return bench.Sample{}, err
	}
	committed := time.Now()
	if err := m.m.Resume(ctx); err != nil {
		return bench.Sample{}, err
	}
	resumed := time.Now()
	if err := m.hello(ctx); err != nil {
		return bench.Sample{}, err
	}
	end := time.Now()
	return bench.Sample{Took: end.Sub(begin), Steps: map[string]float64{
		"commit": millis(committed.Sub(begin)), "cont": millis(resumed.Sub(committed)), "hello": millis(end.Sub(resumed)),
	}}, nil
}
