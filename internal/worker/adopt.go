package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// Adoptable is an instance that a record says is running.
type Adoptable struct {
	Instance sandbox.InstanceID
	Template Template
	Shape    sandbox.Shape
	Policy   network.Policy
}

const (
	// adoptTimeout bounds one attempt to take a machine over.
	adoptTimeout = 8 * time.Second
	// greetTimeout is how much of it the agent may take; one that is slower is
	// connected to when somebody calls it.
	greetTimeout = 3 * time.Second
	// adoptParallel is how many machines are taken over, or swept, at a time.
	adoptParallel = 16
	// adoptRetry is the pause before the next attempt, which doubles up to adoptRetryMax.
	adoptRetry    = time.Second
	adoptRetryMax = 30 * time.Second
)

// Left lists the instances that an earlier worker left in Dir, running or not.
// What is not named like an instance is not ours, and is ignored.
func (w *Worker) Left() ([]sandbox.InstanceID, error) {
	entries, err := os.ReadDir(w.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("look for instances of an earlier run: %w", err)
	}
	var left []sandbox.InstanceID
	for _, e := range entries {
		id, ok := sandbox.ParseInstanceID(e.Name())
		if !ok {
			w.log.Warn("something in the instance directory is no instance; it is left alone", "path", filepath.Join(w.cfg.Dir, e.Name()))
			continue
		}
		left = append(left, id)
	}
	return left, nil
}

// Adopt settles what an earlier worker left, once, before the first Start.
// Machines of the given instances that still run are taken over, and run on as
// they were, with a new gateway: TCP connections of their guests through the
// old one are cut. All other instances, those of a dead machine among them, are
// removed with all that they have on the host. After it Alive tells which are here.
//
// A machine that runs but does not answer counts as alive; it is tried again
// until it does, or ends, or is stopped.
func (w *Worker) Adopt(ctx context.Context, owned []Adoptable) error {
	ctx, end, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	left, err := w.Left()
	if err != nil {
		return err
	}
	byID := make(map[sandbox.InstanceID]Adoptable, len(owned))
	for _, a := range owned {
		byID[a.Instance] = a
	}
	var all errgroup.Group
	all.SetLimit(adoptParallel)
	for _, id := range left {
		all.Go(func() error {
			a, ok := byID[id]
			if !ok {
				w.sweep(ctx, id, "no sandbox has it")
				return nil
			}
			w.adoptOrSweep(ctx, a)
			return nil
		})
	}
	return errors.Join(all.Wait(), context.Cause(ctx))
}

// adoptOrSweep is Adopt for one instance that has a record.
func (w *Worker) adoptOrSweep(ctx context.Context, a Adoptable) {
	begin := time.Now()
	i, err := w.takeOver(ctx, a)
	switch {
	case err == nil:
		w.enter(i)
		w.log.Info("adopted a machine", "instance", a.Instance, "pid", i.PID(), "took", time.Since(begin))
	case errors.Is(err, vmm.ErrGone):
		w.sweep(ctx, a.Instance, "its machine is gone: "+err.Error())
	default:
		w.log.Error("a machine runs but cannot be taken over; it is tried again", "instance", a.Instance, "err", err)
		w.adoptLater(a)
	}
}

// sweep removes an instance that nobody owns. What cannot be removed is left
// for the next start: it must not keep the server from serving.
func (w *Worker) sweep(ctx context.Context, id sandbox.InstanceID, why string) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	if err := w.cfg.Driver.Remove(ctx, w.dir(id)); err != nil {
		w.log.Error("remove an instance of an earlier run", "instance", id, "err", err)
		return
	}
	w.log.Info("removed an instance of an earlier run", "instance", id, "why", why)
}

// takeOver makes one attempt to adopt a machine.
func (w *Worker) takeOver(ctx context.Context, a Adoptable) (*Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	m, err := w.cfg.Driver.Adopt(ctx, vmm.Config{
		Instance: a.Instance, Dir: w.dir(a.Instance), Source: vmm.Source{Image: a.Template.Image}, Shape: a.Shape,
	})
	if err != nil {
		return nil, err
	}
	i := w.newInstance(a.Instance, a.Template)
	i.machine = m
	if err := w.reconnect(ctx, i, a.Policy); err != nil {
		return nil, errors.Join(err, i.release())
	}
	return i, nil
}

// reconnect gives an adopted machine what lives in the server's process.
func (w *Worker) reconnect(ctx context.Context, i *Instance, policy network.Policy) error {
	if err := w.attach(ctx, i, policy); err != nil {
		return fmt.Errorf("attach the network of instance %s: %w", i.ID, err)
	}
	// A server that died in the middle of an operation may have left it paused.
	if err := i.machine.Resume(ctx); err != nil {
		return fmt.Errorf("resume instance %s: %w", i.ID, err)
	}
	greet, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	client, err := i.Guest(greet)
	if err == nil { // and its processes frozen
		err = thaw(greet, client)
	}
	if err != nil {
		w.log.Warn("an adopted machine's agent does not answer yet", "instance", i.ID, "err", err)
		i.thawLater()
	}
	return nil
}

// adoption is a machine that is tried again and again.
type adoption struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// adoptLater goes on trying until the machine is here, or has ended, or Stop.
func (w *Worker) adoptLater(a Adoptable) {
	ctx, cancel := context.WithCancel(w.life)
	p := &adoption{cancel: cancel, done: make(chan struct{})}
	w.mu.Lock()
	w.adoptions[a.Instance] = p
	w.mu.Unlock()
	w.tasks.Go(func() {
		defer close(p.done)
		defer cancel()
		for pause := adoptRetry; ; pause = min(2*pause, adoptRetryMax) {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			i, err := w.takeOver(ctx, a)
			if errors.Is(err, vmm.ErrGone) {
				w.lose(a.Instance, p)
				return
			}
			if err == nil {
				w.settleAdoption(p, i)
				return
			}
			w.log.Warn("a machine still cannot be taken over", "instance", a.Instance, "err", err)
		}
	})
}

// settleAdoption enters a machine that was taken over late, unless it was stopped meanwhile.
func (w *Worker) settleAdoption(p *adoption, i *Instance) {
	if !w.endAdoption(i.ID, p) {
		if err := i.release(); err != nil {
			w.log.Error("let go of a machine", "instance", i.ID, "err", err)
		}
		return
	}
	w.enter(i)
	w.log.Info("adopted a machine that did not answer at first", "instance", i.ID, "pid", i.PID())
}

// lose reports a machine that ended before it could be taken over.
func (w *Worker) lose(id sandbox.InstanceID, p *adoption) {
	if !w.endAdoption(id, p) {
		return
	}
	w.sweep(context.WithoutCancel(w.life), id, "its machine ended")
	w.report(sandbox.MachineExit{Instance: id, Reason: "the sandbox's machine ended while the server could not reach it"})
}

// endAdoption says whether p was still wanted.
func (w *Worker) endAdoption(id sandbox.InstanceID, p *adoption) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.adoptions[id] != p {
		return false
	}
	delete(w.adoptions, id)
	return true
}

// cancelAdoption ends the attempts to take a machine over, if there are any.
func (w *Worker) cancelAdoption(id sandbox.InstanceID) {
	w.mu.Lock()
	p := w.adoptions[id]
	delete(w.adoptions, id)
	w.mu.Unlock()
	if p != nil {
		p.cancel()
		<-p.done
	}
}
