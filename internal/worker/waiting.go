package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

const (
	// prepareTimeout bounds starting one process that waits.
	prepareTimeout = time.Minute
	// waitingLook is how often the processes are looked after when nothing else happens.
	waitingLook = 30 * time.Second
)

// WaitingConfig says how many processes of machines are started ahead, and for which
// machines. A boot from a snapshot takes one: a fork, a wake, a create that finds no warm
// machine. Each costs the host some 30 MB until then.
type WaitingConfig struct {
	Size int
	Kind PoolKind
}

// waiting keeps them.
type waiting struct {
	w    *Worker
	cfg  WaitingConfig
	wake chan struct{} // looks after them

	mu    sync.Mutex
	ready []*waiter // guarded by mu
}

// waiter is one process. It has the directory of an instance, and its id.
type waiter struct {
	id      sandbox.InstanceID
	origin  origin
	process vmm.Waiting
}

func newWaiting(w *Worker, cfg WaitingConfig) *waiting {
	return &waiting{w: w, cfg: cfg, wake: make(chan struct{}, 1)}
}

// StartWaiting begins to start processes ahead, until Close. Call it once, after Adopt. There
// are none when the driver cannot do it.
func (w *Worker) StartWaiting() {
	q := w.waiting
	driver, ok := w.cfg.Driver.(vmm.Preparer)
	if !ok || q.cfg.Size <= 0 {
		return
	}
	_, end, err := w.begin(context.Background())
	if err != nil {
		return // it closes
	}
	defer end()
	w.tasks.Go(func() {
		tick := time.NewTicker(waitingLook)
		defer tick.Stop()
		for {
			if err := q.fill(driver); err != nil && q.w.life.Err() == nil {
				q.w.log.Warn("no process of a machine could be started ahead", "err", err)
			}
			select {
			case <-q.wake:
			case <-tick.C:
			case <-q.w.life.Done():
				return
			}
		}
	})
}

// count returns how many wait.
func (q *waiting) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ready)
}

func (q *waiting) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// fill starts what is missing, one after the other, and drops what has died or is stale.
func (q *waiting) fill(driver vmm.Preparer) error {
	t, err := q.w.cfg.Templates(q.cfg.Kind.Template)
	if err != nil {
		if sandbox.KindOf(err) == sandbox.NotFound {
			return nil // not built yet
		}
		return err
	}
	now, err := q.w.originOf(t, q.cfg.Kind.Shape)
	if err != nil || now.golden == (goldenID{}) { // nobody has needed it yet
		return err
	}
	q.sweep(now)
	for q.w.life.Err() == nil && q.count() < q.cfg.Size {
		m, err := q.prepare(driver, t, now)
		if err != nil {
			return err
		}
		q.mu.Lock()
		q.ready = append(q.ready, m)
		q.mu.Unlock()
	}
	return nil
}

func (q *waiting) prepare(driver vmm.Preparer, t Template, o origin) (*waiter, error) {
	ctx, cancel := context.WithTimeout(q.w.life, prepareTimeout)
	defer cancel()
	id := sandbox.NewInstanceID()
	q.w.setBooted(id, true)
	if err := os.Mkdir(q.w.dir(id), 0o700); err != nil {
		q.w.setBooted(id, false)
		return nil, fmt.Errorf("make the directory of a waiting process: %w", err)
	}
	p, err := driver.Prepare(ctx, vmm.Config{
		Instance: id, Dir: q.w.dir(id), Shape: q.cfg.Kind.Shape,
		Source: vmm.Source{Image: t.Image, Snapshot: q.w.goldenDir(t, q.cfg.Kind.Shape)},
	})
	if err != nil {
		return nil, errors.Join(err, q.free(&waiter{id: id}))
	}
	return &waiter{id, o, p}, nil
}

// sweep drops the processes that have died, or whose golden snapshot is not the one any more.
func (q *waiting) sweep(now origin) {
	q.mu.Lock()
	var bad []*waiter
	kept := q.ready[:0]
	for _, m := range q.ready {
		if m.alive() && m.origin == now {
			kept = append(kept, m)
		} else {
			bad = append(bad, m)
		}
	}
	q.ready = kept
	q.mu.Unlock()
	for _, m := range bad {
		if err := q.free(m); err != nil {
			q.w.log.Error("free a waiting process", "instance", m.id, "err", err)
		}
	}
}

func (m *waiter) alive() bool {
	select {
	case <-m.process.Done():
		return false
	default:
		return true
	}
}

// take returns a process for a boot, or nil. Whether it really fits says its Start.
func (q *waiting) take(p plan) *waiter {
	if p.snapshot == "" || p.DiskOnly || p.golden || p.background ||
		p.template.Name != q.cfg.Kind.Template || kindFor(p.Shape) != kindFor(q.cfg.Kind.Shape) {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) > 0 {
		m := q.ready[0]
		q.ready = q.ready[1:]
		defer q.nudge()
		if m.alive() {
			return m
		}
		q.w.tasks.Go(func() { // its turn comes in a call that Close waits for
			if err := q.free(m); err != nil {
				q.w.log.Error("free a waiting process", "instance", m.id, "err", err)
			}
		})
	}
	return nil
}

// free ends a process and removes what it had.
func (q *waiting) free(m *waiter) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.w.life), removeTimeout)
	defer cancel()
	var errs []error
	if m.process != nil {
		errs = append(errs, m.process.Kill(ctx))
	}
	defer q.w.setBooted(m.id, false)
	return errors.Join(append(errs, q.w.cfg.Driver.Remove(ctx, q.w.dir(m.id)))...)
}

// drain frees all. Nothing is taken or added any more.
func (q *waiting) drain() error {
	q.mu.Lock()
	left := q.ready
	q.ready = nil
	q.mu.Unlock()
	var errs []error
	for _, m := range left {
		errs = append(errs, q.free(m))
	}
	return errors.Join(errs...)
}
