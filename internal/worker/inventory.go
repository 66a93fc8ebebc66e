package worker

import (
	"maps"
	"slices"

	"ramet.dev/ramet/internal/sandbox"
)

// Instances lists the machines that sandboxes have, and what is left on the disk of such
// that this worker knows nothing of. Those of the pool and of boots under way are left out.
func (w *Worker) Instances() ([]sandbox.InstanceID, error) {
	left, err := w.Left()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[sandbox.InstanceID]bool, len(left))
	for _, id := range left {
		if !w.booted[id] && w.freeing[id] == nil {
			all[id] = true
		}
	}
	for id := range w.instances {
		all[id] = true
	}
	for id := range w.adoptions {
		all[id] = true
	}
	return slices.Sorted(maps.Keys(all)), nil
}

func (w *Worker) setBooted(id sandbox.InstanceID, booted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if booted {
		w.booted[id] = true
	} else {
		delete(w.booted, id)
	}
}
