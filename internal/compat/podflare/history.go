package podflare

import (
	"bytes"
	"container/list"
	"encoding/json"
	"net/http"
	"sync"

	"ramet.dev/ramet/internal/sandbox"
)

// Bounds of a History, in events and bytes.
const (
	// maxEvents is how many a client can ask for.
	maxEvents = 1000
	// maxOne bounds what is kept of one sandbox, maxAll of all of them.
	maxOne = 1 << 20
	maxAll = 64 << 20
	// eventCost is what an event takes besides its line.
	eventCost = 64
)

// History is the last events of the runs of each sandbox, as clients saw them. It is
// memory only: a restart of the server forgets it. When there is too much, the sandbox that was
// silent for the longest time is forgotten first.
type History struct {
	mu     sync.Mutex
	byID   map[historyKey]*list.Element // guarded by mu
	recent *list.List                   // of *past, the last one used first; guarded by mu
	bytes  int                          // guarded by mu
}

type historyKey struct {
	project string
	id      sandbox.ID
}

// past is what is kept of one sandbox.
type past struct {
	key   historyKey
	lines [][]byte
	bytes int
}

// NewHistory makes an empty History.
func NewHistory() *History {
	return &History{byID: make(map[historyKey]*list.Element), recent: list.New()}
}

// Add enters an event of a run.
func (h *History) Add(project string, id sandbox.ID, event any) {
	b, err := json.Marshal(event)
	if err != nil || len(b) > maxOne/2 {
		return // one that is larger than all that is kept says nothing about the rest
	}
	b = escapeNextLine(b)
	h.mu.Lock()
	defer h.mu.Unlock()
	key := historyKey{project, id}
	e := h.byID[key]
	if e == nil {
		e = h.recent.PushFront(&past{key: key})
		h.byID[key] = e
	} else {
		h.recent.MoveToFront(e)
	}
	p := e.Value.(*past)
	p.lines = append(p.lines, b)
	h.growLocked(p, len(b)+eventCost)
	for len(p.lines) > maxEvents || p.bytes > maxOne {
		h.growLocked(p, -len(p.lines[0])-eventCost)
		p.lines[0] = nil
		p.lines = p.lines[1:]
	}
	for h.bytes > maxAll {
		h.dropLocked(h.recent.Back())
	}
}

func (h *History) growLocked(p *past, n int) {
	p.bytes += n
	h.bytes += n
}

func (h *History) dropLocked(e *list.Element) {
	p := h.recent.Remove(e).(*past)
	delete(h.byID, p.key)
	h.bytes -= p.bytes
}

// of returns the events of a sandbox, oldest first.
func (h *History) of(project string, id sandbox.ID) [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[historyKey{project, id}]
	if e == nil {
		return nil
	}
	return append([][]byte(nil), e.Value.(*past).lines...)
}

// escapeNextLine escapes U+0085, which encoding/json leaves as it is but the client's
// reader takes for the end of a line.
func escapeNextLine(b []byte) []byte {
	return bytes.ReplaceAll(b, []byte("\u0085"), []byte(`\u0085`))
}

// replay tells the last events of a sandbox's runs.
func (s *Server) replay(w http.ResponseWriter, r *http.Request) {
	id, err := sandbox.ParseID(r.PathValue("id"))
	if err == nil {
		_, err = s.cfg.Control.Get(r.Context(), s.cfg.Project(r), id)
	}
	if err != nil {
		s.cfg.Refuse(w, r, err)
		return
	}
	beginLines(w)
	for _, b := range s.cfg.History.of(s.cfg.Project(r), id) {
		if _, err := w.Write(append(b, '\n')); err != nil {
			return
		}
	}
}
