package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// forkPrefix begins the names of the snapshots that forks are made from. They are kept
// only while the children boot.
const forkPrefix = "fork-"

// removeHalves removes what a server left that ended in the middle of a fork, a save or
// a removal, or that a power cut brought back: none of it is of use to anybody.
func removeHalves(disk *durable.Disk, dir string) error {
	for _, pattern := range []string{forkPrefix + "*", "*" + unfinished} {
		left, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return fmt.Errorf("look for unfinished snapshots: %w", err)
		}
		for _, l := range left {
			if err := disk.RemoveAll("snapshot.leftover", l); err != nil {
				return fmt.Errorf("remove an unfinished snapshot: %w", err)
			}
		}
	}
	return nil
}

// Fork makes a machine for each of the requests that has the memory, processes and disk
// that the parent's has at one instant, and an identity of its own. All are ready when it
// returns, or none is left. The parent stands still for the capture only; it goes
// on whatever becomes of the children.
func (w *Worker) Fork(ctx context.Context, parent sandbox.InstanceID, children []Request) (_ []*Instance, info sandbox.SaveInfo, err error) {
	ctx, end, err := w.begin(ctx)
	if err != nil {
		return nil, info, err
	}
	defer end()
	defer w.pool.foreground()()
	w.pool.more() // what the children were promised may be in the pool
	defer func() {
		if full := diskFull(err); full != nil {
			err = full
		}
	}()
	i, unlock, err := w.lockSaving(ctx, parent)
	if err != nil {
		return nil, info, err
	}
	defer unlock()
	begin := time.Now()
	dir := filepath.Join(w.cfg.SnapshotDir, forkPrefix+string(sandbox.NewSnapshotID()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, info, fmt.Errorf("make a fork's directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	saving, err := i.capture(ctx, dir, vmm.SaveOptions{Ephemeral: true}, false)
	if err != nil {
		return nil, info, err
	}
	defer func() { err = errors.Join(err, saving.Close()) }()
	if err := saving.Finish(ctx); err != nil {
		return nil, info, err
	}
	info = saving.Info()
	captured := time.Now()
	info.Steps = append(info.Steps, sandbox.StepTime{Name: "capture", Took: captured.Sub(begin)})
	started, err := w.bootAll(ctx, i.Template, dir, saving, children)
	if err != nil {
		return nil, info, err
	}
	info.Steps = append(info.Steps, sandbox.StepTime{Name: "children", Took: time.Since(captured)})
	for _, c := range started {
		w.enter(c)
		w.flattenLater(c)
	}
	w.flattenLater(i)
	return started, info, nil
}

// bootAll boots all of the requests from one snapshot, or none.
func (w *Worker) bootAll(ctx context.Context, t Template, dir string, saving vmm.Saving, requests []Request) ([]*Instance, error) {
	started := make([]*Instance, len(requests))
	g, gctx := errgroup.WithContext(ctx)
	// Each takes a processor for most of its boot.
	g.SetLimit(2 * runtime.NumCPU())
	for n, r := range requests {
		g.Go(func() (err error) {
			if err := context.Cause(gctx); err != nil {
				return err // one has failed: no more are begun
			}
			started[n], err = w.boot(gctx, plan{Request: r, template: t, snapshot: dir, saving: saving})
			return err
		})
	}
	err := g.Wait()
	if err == nil {
		return started, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	for _, i := range started {
		if i != nil {
			err = errors.Join(err, i.free(ctx))
		}
	}
	return nil, err
}
