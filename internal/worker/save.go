package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
)

const (
	// thawTimeout bounds letting a guest's processes go on after a save.
	thawTimeout = 15 * time.Second
	// syncTimeout bounds writing a guest's file data to its disk before a save.
	syncTimeout = 30 * time.Second
	// unfinished ends the name of a snapshot's directory until it is whole.
	unfinished = ".tmp"
)

// SaveRequest says what to save of an instance.
type SaveRequest struct {
	Snapshot sandbox.SnapshotID
	DiskOnly bool
	// Stay leaves the machine paused and its processes frozen, for Stop or Continue.
	Stay bool
}

// Save writes a snapshot of a running instance and returns when it is whole and on the
// medium. The guest's processes stand still meanwhile only for the capture. After an
// error the instance runs on, and nothing of the snapshot is left.
func (w *Worker) Save(ctx context.Context, id sandbox.InstanceID, r SaveRequest) (info sandbox.SaveInfo, err error) {
	ctx, end, err := w.begin(ctx)
	if err != nil {
		return info, err
	}
	defer end()
	i, unlock, err := w.lockSaving(ctx, id)
	if err != nil {
		return info, err
	}
	defer unlock()
	defer func() {
		if full := diskFull(err); full != nil {
			err = full
		}
	}()
	dir := w.snapshotDir(r.Snapshot)
	tmp := dir + unfinished
	if err := w.cfg.Disk.Mkdir("snapshot.directory", tmp, 0o700); err != nil {
		return info, fmt.Errorf("make a snapshot's directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.cfg.Disk.RemoveAll("snapshot.undo", tmp))
			if r.Stay {
				err = errors.Join(err, i.goOn(ctx))
			}
		}
	}()
	if err := i.syncDisk(ctx); err != nil {
		return info, err
	}
	saving, err := i.capture(ctx, tmp, vmm.SaveOptions{DiskOnly: r.DiskOnly, Stay: r.Stay}, true)
	if err != nil {
		return info, err
	}
	begin := time.Now()
	if err := errors.Join(saving.Finish(ctx), saving.Close()); err != nil {
		return info, err
	}
	if err := w.cfg.Disk.Place("snapshot.place", tmp, dir); err != nil {
		return info, errors.Join(fmt.Errorf("put a snapshot in place: %w", err), w.removeSnapshot(r.Snapshot))
	}
	info = saving.Info()
	info.Steps = append(info.Steps, sandbox.StepTime{Name: "finish", Took: time.Since(begin)})
	if !r.Stay {
		w.flattenLater(i)
	}
	return info, nil
}

// lockSaving returns a running instance that nobody else saves until unlock.
func (w *Worker) lockSaving(ctx context.Context, id sandbox.InstanceID) (i *Instance, unlock func(), err error) {
	if i, err = w.Instance(id); err != nil {
		return nil, nil, err
	}
	select {
	case i.saving <- struct{}{}:
		return i, func() { <-i.saving }, nil
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("wait for another save of instance %s: %w", id, context.Cause(ctx))
	}
}

// capture freezes the guest's processes, captures the machine, and thaws them. With
// SaveOptions.Stay they stay frozen when it succeeds. sync writes file data to
// the disk while they are frozen.
func (i *Instance) capture(ctx context.Context, dir string, o vmm.SaveOptions, sync bool) (vmm.Saving, error) {
	ctx, end := withCause(ctx, i.machine)
	defer end(nil)
	client, err := i.Guest(ctx)
	if err != nil {
		return nil, err
	}
	freeze, cancel := context.WithTimeoutCause(ctx, syncTimeout, errSilent)
	defer cancel()
	if _, err := client.Machine().Freeze(freeze, &agentv1.FreezeRequest{Sync: sync}); err != nil {
		// The agent thaws what it could not freeze; if it is not heard any more, this may help.
		return nil, errors.Join(fmt.Errorf("freeze instance %s: %w", i.ID, guest.Error(err)), i.thaw(ctx))
	}
	saving, err := i.machine.Save(ctx, dir, o)
	if err != nil || !o.Stay {
		err = errors.Join(err, i.thaw(ctx))
	}
	if err != nil && saving != nil {
		err = errors.Join(err, saving.Close())
	}
	return saving, err
}

// syncDisk writes most of a guest's file data to its disk, before its processes
// have to stand still for the rest.
func (i *Instance) syncDisk(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, syncTimeout, errSilent)
	defer cancel()
	client, err := i.Guest(ctx)
	if err != nil {
		return err
	}
	if _, err := client.Machine().Sync(ctx, &agentv1.SyncRequest{}); err != nil {
		return fmt.Errorf("sync the disk of instance %s: %w", i.ID, guest.Error(err))
	}
	return nil
}

// thaw lets the guest's processes go on, with the right time: its clock stood still
// while it was paused. It has a deadline of its own, because processes that stay frozen
// are worse than a caller who waits.
func (i *Instance) thaw(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), thawTimeout, errSilent)
	defer cancel()
	client, err := i.Guest(ctx)
	if err != nil {
		return err
	}
	if err := thaw(ctx, client); err != nil {
		return fmt.Errorf("thaw instance %s: %w", i.ID, err)
	}
	return nil
}

// thaw is Instance.thaw on a connection.
func thaw(ctx context.Context, client *guest.Client) error {
	now, err := askTime(ctx, client)
	if err != nil {
		return err
	}
	_, err = client.Machine().Thaw(ctx, &agentv1.ThawRequest{UnixNanos: now.unix, AtMonotonicNanos: now.monotonic})
	return guest.Error(err)
}

// goOn resumes a paused machine and thaws its processes. Idempotent.
func (i *Instance) goOn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), thawTimeout)
	defer cancel()
	if err := i.machine.Resume(ctx); err != nil {
		return fmt.Errorf("resume instance %s: %w", i.ID, err)
	}
	return i.thaw(ctx)
}

// Continue lets an instance run on that Save left paused, or that a server which
// ended in the middle of a save left so. Idempotent.
func (w *Worker) Continue(ctx context.Context, id sandbox.InstanceID) error {
	i, err := w.Instance(id)
	if err != nil {
		return err
	}
	return i.goOn(ctx)
}

// Rename gives a running instance another identity and policy. Its processes go on.
func (w *Worker) Rename(ctx context.Context, id sandbox.InstanceID, identity Identity, policy network.Policy) error {
	i, err := w.Instance(id)
	if err != nil {
		return err
	}
	client, err := i.Guest(ctx)
	if err != nil {
		return err
	}
	i.SetPolicy(policy)
	return w.refresh(ctx, client, i.Template, identity, refreshOptions{keepSeed: true})
}

func (w *Worker) snapshotDir(id sandbox.SnapshotID) string {
	return filepath.Join(w.cfg.SnapshotDir, string(id))
}

// HasSnapshot says whether a snapshot is on the disk as a whole.
func (w *Worker) HasSnapshot(id sandbox.SnapshotID) bool {
	st, err := os.Stat(w.snapshotDir(id))
	return err == nil && st.IsDir()
}

// VerifySnapshot reads a whole snapshot and compares its checksums.
func (w *Worker) VerifySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	err := w.cfg.Driver.Verify(ctx, w.snapshotDir(id))
	if damaged := (*snapshot.CorruptError)(nil); errors.As(err, &damaged) {
		return &sandbox.Error{
			Kind: sandbox.Unavailable, Code: "snapshot_damaged", Message: "the snapshot is damaged on the server's disk and cannot be used", Err: err,
		}
	}
	return err
}

// Snapshots lists what is on the disk, also unfinished ones and those of forks.
// What is not named like a snapshot is not ours, and is left out.
func (w *Worker) Snapshots() ([]sandbox.SnapshotID, error) {
	entries, err := os.ReadDir(w.cfg.SnapshotDir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var ids []sandbox.SnapshotID
	for _, e := range entries {
		if id, ok := sandbox.ParseSnapshotID(strings.TrimSuffix(e.Name(), unfinished)); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// RemoveSnapshot frees a snapshot. Machines that were started from it go on. Idempotent.
func (w *Worker) RemoveSnapshot(_ context.Context, id sandbox.SnapshotID) error {
	return w.removeSnapshot(id)
}

func (w *Worker) removeSnapshot(id sandbox.SnapshotID) error {
	dir := w.snapshotDir(id)
	if err := w.cfg.Disk.Discard("snapshot.remove", dir, dir+unfinished); err != nil {
		return fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	return nil
}

// diskUse is what the files of a directory take on the disk, in bytes.
func diskUse(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return 0, err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			total += st.Blocks * 512
		}
	}
	return total, nil
}

// SnapshotBytes is what a snapshot takes on the disk, also an unfinished one.
func (w *Worker) SnapshotBytes(id sandbox.SnapshotID) int64 {
	var total int64
	for _, dir := range []string{w.snapshotDir(id), w.snapshotDir(id) + unfinished} {
		n, err := diskUse(dir)
		if err == nil {
			total += n
		}
	}
	return total
}
