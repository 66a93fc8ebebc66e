package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/progress"
)

// flight is one build in progress and those who wait for it.
type flight struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when art and err are set
	art    Artifact
	err    error

	waiters int // guarded by Builder.mu
	watch   watchers
}

// share runs do once for all concurrent calls with the same key. do runs on a
// context of its own, which ends when the last caller's has.
func (b *Builder) share(ctx context.Context, key string, do func(context.Context) (Artifact, error)) (Artifact, error) {
	b.mu.Lock()
	f := b.flights[key]
	if f == nil {
		fctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{cancel: cancel, done: make(chan struct{}), watch: watchers{subs: map[int]context.Context{}}}
		b.flights[key] = f
		go func() {
			f.art, f.err = do(progress.With(fctx, f.watch.report))
			b.mu.Lock()
			if b.flights[key] == f {
				delete(b.flights, key)
			}
			b.mu.Unlock()
			close(f.done)
			cancel()
		}()
	}
	f.waiters++
	b.mu.Unlock()
	leave := f.watch.join(ctx)
	defer leave()

	select {
	case <-f.done:
		return f.art, f.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last && b.flights[key] == f {
		delete(b.flights, key) // who comes now starts anew, behind the lock
	}
	b.mu.Unlock()
	if last {
		f.cancel()
		<-f.done // nothing of the build is left when the last caller is told
	}
	return Artifact{}, ended(ctx)
}

// ended says why ctx ended. The error is also context.Canceled or
// context.DeadlineExceeded, whatever the cause given by who ended it.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// watchers passes the progress of a build on to everybody who waits for it.
type watchers struct {
	mu   sync.Mutex
	next int
	subs map[int]context.Context
	last progress.Event
}

func (w *watchers) join(ctx context.Context) (leave func()) {
	w.mu.Lock()
	id := w.next
	w.next++
	w.subs[id] = ctx
	last := w.last
	w.mu.Unlock()
	if last.Step != "" && !last.Done {
		progress.Report(ctx, last)
	}
	return func() {
		w.mu.Lock()
		delete(w.subs, id)
		w.mu.Unlock()
	}
}

func (w *watchers) report(e progress.Event) {
	w.mu.Lock()
	w.last = e
	subs := make([]context.Context, 0, len(w.subs))
	for _, ctx := range w.subs {
		subs = append(subs, ctx)
	}
	w.mu.Unlock()
	for _, ctx := range subs {
		progress.Report(ctx, e)
	}
}

// lockRetry is how often a lock that another process holds is tried again.
const lockRetry = 200 * time.Millisecond

// lock takes the lock of a name, which holds between processes and ends with
// the one that has it. The file stays: deleting it would let two hold it.
func (b *Builder) lock(ctx context.Context, name string) (unlock func(), err error) {
	path := b.lockFile(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(lockRetry)
	defer tick.Stop()
	for waiting := false; ; waiting = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, err
		}
		if !waiting {
			defer progress.Step(ctx, "wait for another build of "+name)()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = f.Close()
			return nil, ended(ctx)
		}
	}
}
