package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// goldenDir is where the golden snapshot for a vCPU count is kept.
func (w *Worker) goldenDir(t Template, vcpus int) string {
	return filepath.Join(t.Dir, "golden", w.cfg.Driver.Name(), strconv.Itoa(vcpus))
}

// Golden returns the golden snapshot of a template for a vCPU count, making it
// at the first use. Callers at the same time share one making, which goes on
// when they leave.
func (w *Worker) Golden(ctx context.Context, t Template, vcpus int) (string, error) {
	dir := w.goldenDir(t, vcpus)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	ch := w.golden.DoChan(dir, func() (any, error) {
		if err := w.begin(); err != nil {
			return nil, err
		}
		defer w.tasks.Done()
		// The making belongs to all that wait, so it does not end with one of them.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*w.cfg.ColdTimeout)
		defer cancel()
		stop := context.AfterFunc(w.life, cancel)
		defer stop()
		return dir, w.makeGolden(ctx, t, vcpus, dir)
	})
	select {
	case r := <-ch:
		if r.Err != nil {
			return "", fmt.Errorf("make the golden snapshot of template %s for %d vCPUs: %w", t.Name, vcpus, r.Err)
		}
		return dir, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (w *Worker) dropGolden(t Template, vcpus int) error {
	dir := w.goldenDir(t, vcpus)
	old := dir + ".old"
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("remove an old golden snapshot: %w", err)
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put the old golden snapshot aside: %w", err)
	}
	return os.RemoveAll(old)
}

// makeGolden boots the template cold, warms it up, and saves it.
func (w *Worker) makeGolden(ctx context.Context, t Template, vcpus int, dir string) (err error) {
	if _, err := os.Stat(dir); err == nil {
		return nil // made while we waited for our turn
	}
	begin := time.Now()
	done := progress.Step(ctx, "boot the template cold")
	i, err := w.boot(ctx, plan{
		Request: Request{
			Instance: sandbox.NewInstanceID(),
			Template: t.Name,
			Shape:    sandbox.Shape{VCPUs: vcpus, MemoryMB: sandbox.MinMemoryMB, DiskMB: sandbox.DefaultDiskMB},
			Identity: Identity{Hostname: "golden", MachineID: string(sandbox.NewInstanceID())},
		},
		template: t,
		golden:   true,
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		err = errors.Join(err, i.free(ctx))
	}()
	done()

	done = progress.Step(ctx, "warm it up")
	if err := warmUp(ctx, i); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	done()

	done = progress.Step(ctx, "save the golden snapshot")
	defer done()
	if err := i.freeze(ctx, true); err != nil {
		return err
	}
	if err := i.machine.Pause(ctx); err != nil {
		return err
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("remove an unfinished golden snapshot: %w", err)
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return fmt.Errorf("make the snapshot directory: %w", err)
	}
	defer os.RemoveAll(tmp) // of no use after the rename, or of none at all
	if err := i.machine.Save(ctx, tmp); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("put the golden snapshot in place: %w", err)
	}
	w.log.Info("golden snapshot made", "template", t.Name, "vcpus", vcpus, "took", time.Since(begin).Round(time.Millisecond))
	return nil
}

// freeze stops the guest's user processes and hangs up, so that a snapshot
// holds no half-done work and no open connection.
func (i *Instance) freeze(ctx context.Context, sync bool) error {
	client, err := i.Guest(ctx)
	if err != nil {
		return err
	}
	if _, err := client.Machine().Freeze(ctx, &agentv1.FreezeRequest{Sync: sync}); err != nil {
		return fmt.Errorf("freeze instance %s: %w", i.ID, guest.Error(err))
	}
	i.hangUp()
	return nil
}

// warmUp makes the calls that a first user would make, so that their code is
// in memory (and, where there is one, in the REPL) when the snapshot is taken.
func warmUp(ctx context.Context, i *Instance) error {
	client, err := i.Guest(ctx)
	if err != nil {
		return err
	}
	for n, r := range []*agentv1.RunRequest{
		{Language: "python", Code: "print(1)"},
		{Language: "python", Code: "1 + 1"},
		{Language: "bash", Code: "echo ready"},
	} {
		// A golden snapshot remembers the runs of its own warm-up.
		r.RunId = fmt.Sprintf("warm-up-%s-%d", i.ID, n)
		stream, err := client.Exec().Run(ctx, r)
		if err != nil {
			return guest.Error(err)
		}
		var exit *agentv1.Exit
		for stream.Receive() {
			if e := stream.Msg().GetExit(); e != nil {
				exit = e
			}
		}
		if err := errors.Join(stream.Err(), stream.Close()); err != nil {
			return guest.Error(err)
		}
		if exit == nil || exit.Code != 0 {
			return fmt.Errorf("%s warm-up run did not succeed: %v", r.Language, exit)
		}
	}
	return nil
}
