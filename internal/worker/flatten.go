package worker

import (
	"context"
	"errors"
	"time"

	"ramet.dev/ramet/internal/vmm"
)

// flattenTimeout bounds the flattening of one disk.
const flattenTimeout = 10 * time.Minute

// flattenLater shortens the layers of an instance's disk in the background, one instance
// at a time. A save ends it; then the next one comes back to it. The caller is one
// that Close waits for.
func (w *Worker) flattenLater(i *Instance) {
	if !i.flattening.CompareAndSwap(false, true) {
		return
	}
	w.tasks.Go(func() {
		defer i.flattening.Store(false)
		select {
		case w.flattens <- struct{}{}:
			defer func() { <-w.flattens }()
		case <-w.life.Done():
			return
		}
		ctx, cancel := context.WithTimeout(w.life, flattenTimeout)
		defer cancel()
		begin := time.Now()
		err := i.machine.Flatten(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, vmm.ErrGone) {
			w.log.Info("a disk was not flattened", "instance", i.ID, "err", err)
			return
		}
		w.log.Debug("flattened a disk", "instance", i.ID, "took", time.Since(begin), "err", err)
	})
}
