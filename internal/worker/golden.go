package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// goldenKind is what a golden snapshot is for: machines with as many vCPUs, and
// at least so much memory. The memory that a golden has, all its machines
// share; what a machine has beyond it is plugged in, which takes a guest time, and
// pages of its own to describe it.
type goldenKind struct{ vcpus, memoryMB int }

// kindFor returns the kind of golden for a shape: one of the default size, or the
// smallest.
func kindFor(s sandbox.Shape) goldenKind {
	if s.MemoryMB >= sandbox.DefaultMemoryMB {
		return goldenKind{s.VCPUs, sandbox.DefaultMemoryMB}
	}
	return goldenKind{s.VCPUs, sandbox.MinMemoryMB}
}

// String is how shapes are written, such as 2x1024.
func (k goldenKind) String() string { return fmt.Sprintf("%dx%d", k.vcpus, k.memoryMB) }

// GoldenDir is where the golden snapshot for machines of a shape is kept below
// the directory of their template.
func GoldenDir(driver string, s sandbox.Shape) string {
	return filepath.Join("golden", driver, kindFor(s).String())
}

func (w *Worker) goldenDir(t Template, s sandbox.Shape) string {
	return filepath.Join(t.Dir, GoldenDir(w.cfg.Driver.Name(), s))
}

// making is a golden snapshot being made for all who wait for it.
type making struct {
	done chan struct{}
	err  error // set before done is closed
}

// Golden returns the golden snapshot of a template for a shape, making it at the
// first use. Callers at the same time share one making, which goes on
// when they leave; Close ends it and waits for it.
func (w *Worker) Golden(ctx context.Context, t Template, s sandbox.Shape) (string, error) {
	return w.goldenBut(ctx, t, s, nil)
}

// goldenBut is Golden for a caller that could not use the snapshot whose
// directory is bad. It is thrown away, unless somebody has done that already.
func (w *Worker) goldenBut(ctx context.Context, t Template, s sandbox.Shape, bad os.FileInfo) (string, error) {
	dir := w.goldenDir(t, s)
	if goldenUsable(dir, bad) {
		return dir, nil
	}
	m, err := w.joinMaking(ctx, t, kindFor(s), dir, bad)
	if err != nil {
		return "", err
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if m.err != nil {
		return "", fmt.Errorf("make the golden snapshot of template %s for %s: %w", t.Name, kindFor(s), m.err)
	}
	return dir, nil
}

// goldenUsable says that there is a snapshot in dir, and not the bad one.
func goldenUsable(dir string, bad os.FileInfo) bool {
	st, err := os.Stat(dir)
	return err == nil && !sameGolden(st, bad)
}

// sameGolden compares directories. Inodes are reused, so the times count too; they
// are those of the writing, as a snapshot never changes.
func sameGolden(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// joinMaking returns the making of a golden snapshot under way, or begins one.
func (w *Worker) joinMaking(ctx context.Context, t Template, k goldenKind, dir string, bad os.FileInfo) (*making, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.makings[dir]; m != nil {
		return m, nil
	}
	if w.closing {
		return nil, errClosing
	}
	m := &making{done: make(chan struct{})}
	w.makings[dir] = m
	w.tasks.Go(func() {
		// It belongs to all that wait, so it does not end with one of them.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*w.cfg.ColdTimeout)
		defer cancel()
		defer context.AfterFunc(w.life, cancel)()
		m.err = w.makeGolden(ctx, t, k, dir, bad)
		w.mu.Lock()
		delete(w.makings, dir)
		w.mu.Unlock()
		close(m.done)
	})
	return m, nil
}

func (w *Worker) dropGolden(dir string) error {
	if err := w.cfg.Disk.Discard("golden.remove", dir, dir+".old"); err != nil {
		return fmt.Errorf("remove an old golden snapshot: %w", err)
	}
	return nil
}

// makeGolden boots the template cold, warms it up, and saves it.
func (w *Worker) makeGolden(ctx context.Context, t Template, k goldenKind, dir string, bad os.FileInfo) (err error) {
	defer func() {
		if full := diskFull(err); full != nil {
			err = full
		}
	}()
	if goldenUsable(dir, bad) {
		return nil // made between our look and our turn
	}
	if err := w.dropGolden(dir); err != nil {
		return err
	}
	begin := time.Now()
	done := progress.Step(ctx, "boot the template cold")
	i, err := w.boot(ctx, plan{
		Request: Request{
			Instance: sandbox.NewInstanceID(),
			Template: t.Name,
			Shape:    sandbox.Shape{VCPUs: k.vcpus, MemoryMB: k.memoryMB, DiskMB: sandbox.DefaultDiskMB},
			Identity: Identity{Hostname: anyHostname, MachineID: string(sandbox.NewInstanceID())},
		},
		template: t,
		golden:   true,
		unused:   true,
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
	if err := warmUp(ctx, i, t.WarmUp); err != nil {
		return bootError(stepWarmUp, fmt.Errorf("warm up: %w", err), i.machine.Console())
	}
	done()

	done = progress.Step(ctx, "save the golden snapshot")
	defer done()
	if err := i.freeze(ctx, true); err != nil {
		return bootError(stepFreeze, err, i.machine.Console())
	}
	if err := i.machine.Pause(ctx); err != nil {
		return bootError("pause", err, i.machine.Console())
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("remove an unfinished golden snapshot: %w", err)
	}
	if err := makeBelow(t.Dir, tmp); err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // of no use after the rename, or of none at all
	saving, err := i.machine.Save(ctx, tmp, vmm.SaveOptions{})
	if err != nil {
		return bootError("save", err, i.machine.Console())
	}
	if err := errors.Join(saving.Finish(ctx), saving.Close()); err != nil {
		return bootError("save", err, i.machine.Console())
	}
	if err := w.cfg.Disk.Place("golden.place", tmp, dir); err != nil {
		return fmt.Errorf("put the golden snapshot in place: %w", err)
	}
	w.log.Info("golden snapshot made", "template", t.Name, "shape", k.String(), "took", time.Since(begin).Round(time.Millisecond))
	return nil
}

// makeBelow makes dir and what is missing between it and root. Unlike
// MkdirAll it never makes root: that would bring back a template that was
// removed meanwhile, without its image.
func makeBelow(root, dir string) error {
	r, err := os.OpenRoot(root)
	if errors.Is(err, fs.ErrNotExist) {
		return &sandbox.Error{Kind: sandbox.Conflict, Code: "template_removed", Message: "the template was removed meanwhile", Err: err}
	}
	if err != nil {
		return fmt.Errorf("make the snapshot directory: %w", err)
	}
	defer r.Close()
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return fmt.Errorf("make the snapshot directory: %w", err)
	}
	if err := r.MkdirAll(rel, 0o755); err != nil {
		return fmt.Errorf("make the snapshot directory: %w", err)
	}
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

// userHome is where the code of some surfaces begins. A guest that has never been there reads the
// directory from its disk, which takes an emulated one longer than the call.
const userHome = "/home/user"

// warmUp makes the calls that a first user would make, so that their code is
// in memory (and, where there is one, in the REPL) when the snapshot is taken.
func warmUp(ctx context.Context, i *Instance, more []Code) error {
	client, err := i.Guest(ctx)
	if err != nil {
		return err
	}
	tag := sandbox.NewInstanceID() // a guest remembers the runs of earlier warm-ups
	calls := []*agentv1.RunRequest{
		{Language: "python", Code: "print(1)"}, {Language: "python", Code: "1 + 1", Cwd: userHome}, {Language: "bash", Code: "echo ready"},
	}
	for _, code := range more {
		calls = append(calls, &agentv1.RunRequest{Language: code.Language, Code: code.Code})
	}
	for n, r := range calls {
		r.RunId = fmt.Sprintf("warm-up-%s-%d", tag, n)
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
		if exit.GetReason() == agentv1.Reason_START_FAILED && r.Cwd != "" {
			continue // the template has no such directory
		}
		if exit == nil || exit.Code != 0 {
			return fmt.Errorf("%s warm-up run did not succeed: %v", r.Language, exit)
		}
	}
	return nil
}
