package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// sse writes server-sent events. Its headers go out with the first write.
type sse struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	buf     bytes.Buffer
	begun   bool
}

func (e *sse) begin() {
	if e.begun {
		return
	}
	e.begun = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies should pass events on as they come
	e.w.WriteHeader(http.StatusOK)
}

// event writes one. JSON has no raw newline, so that one data line is enough.
func (e *sse) event(id int64, typ string, v any) error {
	e.begin()
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	e.buf.Reset()
	if id != 0 {
		fmt.Fprintf(&e.buf, "id: %d\n", id)
	}
	fmt.Fprintf(&e.buf, "event: %s\ndata: %s\n\n", typ, data)
	_, err = e.w.Write(e.buf.Bytes())
	return err
}

// comment sends a line that clients skip: it keeps the connection alive.
func (e *sse) comment() error {
	e.begin()
	if _, err := e.w.Write([]byte(":\n\n")); err != nil {
		return err
	}
	return e.flusher.Flush()
}

// StreamEvents streams what happens to sandboxes.
func (s *Server) StreamEvents(w http.ResponseWriter, r *http.Request, params rametv1.StreamEventsParams) {
	since := value(params.Since)
	if params.LastEventID != nil {
		since = *params.LastEventID
	}
	var id sandbox.ID
	var err error
	if params.Sandbox != nil {
		if id, err = sandbox.ParseID(*params.Sandbox); err != nil {
			s.writeError(w, r, err)
			return
		}
	}
	position, err := parseSince(since)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	follow := params.Follow == nil || *params.Follow
	feed, err := s.control.Feed(r.Context(), project(r), id, position)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.copyFeed(w, r, feed, follow)
}

func parseSince(since string) (control.FeedStart, error) {
	if since == "" {
		return control.FeedStart{}, nil
	}
	if n, err := strconv.ParseInt(since, 10, 64); err == nil && n >= 0 {
		return control.FeedStart{After: n}, nil
	}
	if t, err := time.Parse(time.RFC3339, since); err == nil {
		return control.FeedStart{Time: t}, nil
	}
	return control.FeedStart{}, badRequest("invalid_since", "since has to be the id of an event or a time such as 2026-01-02T03:04:05Z")
}

func (s *Server) copyFeed(w http.ResponseWriter, r *http.Request, feed *control.Feed, follow bool) {
	out := &sse{w: w, flusher: http.NewResponseController(w)}
	if feed.Gap && out.event(0, "gap", map[string]string{"reason": "events behind the one asked for are not kept any more"}) != nil {
		return
	}
	for {
		batch, changed, err := feed.Next(r.Context())
		if err != nil {
			s.endFeed(w, r, out, err)
			return
		}
		for _, e := range batch {
			if out.event(e.ID, e.Type, toEvent(e)) != nil {
				return
			}
		}
		if len(batch) > 0 {
			continue // there may be more
		}
		if !follow {
			out.begin()
			_ = out.flusher.Flush() // a client that is gone is its own business
			return
		}
		// Headers, and what was written, go out before the wait.
		out.begin()
		if out.flusher.Flush() != nil || !s.awaitChange(w, r, out, changed) {
			return
		}
	}
}

// awaitChange waits for something new, and says whether to go on.
func (s *Server) awaitChange(w http.ResponseWriter, r *http.Request, out *sse, changed <-chan struct{}) bool {
	quiet := time.NewTicker(s.cfg.KeepAlive)
	defer quiet.Stop()
	for {
		select {
		case <-changed:
			return true
		case <-quiet.C:
			if out.comment() != nil {
				return false
			}
		case <-s.draining.Done():
			s.endFeed(w, r, out, errDrainingEvents)
			return false
		case <-r.Context().Done():
			if err := revoked(r); err != nil {
				s.endFeed(w, r, out, err)
			}
			return false
		}
	}
}

var errDrainingEvents = sandbox.Errorf(sandbox.Unavailable, "shutting_down", "the server is shutting down; connect again in a moment")

// endFeed ends a stream with an error: with a status when nothing was sent yet, else with an event.
func (s *Server) endFeed(w http.ResponseWriter, r *http.Request, out *sse, err error) {
	if !out.begun {
		s.writeError(w, r, err)
		return
	}
	req := requestOf(r.Context())
	req.err = err
	if r.Context().Err() != nil && revoked(r) == nil {
		return
	}
	if out.event(0, "error", describe(err, req.id)) == nil {
		_ = out.flusher.Flush() // a client that is gone is its own business
	}
}

func toEvent(e control.Event) rametv1.SandboxEvent {
	out := rametv1.SandboxEvent{
		Id: e.ID, Time: e.Time, Sandbox: e.Sandbox.String(), Type: e.Type, Reason: e.Reason, Cause: e.Cause,
		State: e.Data["state"], Data: map[string]string{},
	}
	for k, v := range e.Data {
		if k != "state" {
			out.Data[k] = v
		}
	}
	return out
}
