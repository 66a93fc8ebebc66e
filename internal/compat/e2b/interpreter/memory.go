package interpreter

import (
	"container/list"
	"sync"

	"ramet.dev/ramet/internal/sandbox"
)

// maxRemembered and maxEach bound what is remembered: sandboxes, and contexts of each.
const (
	maxRemembered = 4096
	maxEach       = 128
)

// memory is what a server remembers of the sandboxes that it was asked for last. What it has
// forgotten is found out again; only the numbers of executions begin anew.
type memory struct {
	mu    sync.Mutex
	byID  map[sandbox.ID]*list.Element // guarded by mu
	order *list.List                   // guarded by mu; of *notes, the last used first
}

// notes are on one sandbox.
type notes struct {
	id     sandbox.ID
	placed map[string]sandbox.InstanceID // contexts that have been made, and in which machine: another one may not have them
	counts map[string]int                // executions in each context
}

func (m *memory) ofLocked(id sandbox.ID) *notes {
	if m.byID == nil {
		m.byID, m.order = make(map[sandbox.ID]*list.Element), list.New()
	}
	if e, ok := m.byID[id]; ok {
		m.order.MoveToFront(e)
		return e.Value.(*notes)
	}
	n := &notes{id: id, placed: make(map[string]sandbox.InstanceID), counts: make(map[string]int)}
	m.byID[id] = m.order.PushFront(n)
	if m.order.Len() > maxRemembered {
		last := m.order.Back()
		m.order.Remove(last)
		delete(m.byID, last.Value.(*notes).id)
	}
	return n
}

// count numbers an execution.
func (m *memory) count(id sandbox.ID, context string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.ofLocked(id)
	if _, ok := n.counts[context]; !ok && len(n.counts) >= maxEach {
		clear(n.counts)
	}
	n.counts[context]++
	return n.counts[context]
}

// isPlaced says whether a context was made in a machine of a sandbox.
func (m *memory) isPlaced(id sandbox.ID, in sandbox.InstanceID, context string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, ok := m.ofLocked(id).placed[context]
	return ok && was == in
}

func (m *memory) setPlaced(id sandbox.ID, in sandbox.InstanceID, context string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.ofLocked(id)
	if len(n.placed) >= maxEach {
		clear(n.placed)
	}
	n.placed[context] = in
}

// forget is for a context that begins anew, or is gone.
func (m *memory) forget(id sandbox.ID, context string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.ofLocked(id)
	delete(n.placed, context)
	delete(n.counts, context)
}
