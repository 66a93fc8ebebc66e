package httpapi

import (
	"context"
	"net/http"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// WatchFiles streams what changes in a directory.
func (s *Server) WatchFiles(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, params rametv1.WatchFilesParams) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	watch, err := s.control.Watch(ctx, project(r), parsed, params.Path, control.WatchOptions{
		User: value(params.User), Recursive: value(params.Recursive), Info: value(params.Info),
	})
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	changes := make(chan watched)
	go func() {
		defer close(changes)
		for {
			e, err := watch.Next()
			select {
			case changes <- watched{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { // first end its reader, then close: a watch has one
		cancel()
		for range changes {
		}
		watch.Close()
	}()
	s.copyChanges(w, r, changes)
}

// watched is one outcome of a watch.
type watched struct {
	event *agentv1.WatchEvent
	err   error
}

func (s *Server) copyChanges(w http.ResponseWriter, r *http.Request, in <-chan watched) {
	out := newNDJSON(w)
	quiet := time.NewTimer(s.cfg.KeepAlive)
	defer quiet.Stop()
	if out.write(rametv1.FileChange{Type: "started"}) != nil || out.flush() != nil {
		return
	}
	for {
		select {
		case got := <-in:
			if got.err != nil {
				s.endWatch(r, out, got.err)
				return
			}
			// Each is sent at once. A client that is slow holds up the guest, which then tells of
			// changes that it could not keep.
			if out.write(toChange(got.event)) != nil || out.flush() != nil {
				return
			}
		case <-quiet.C:
			if out.keepAlive() != nil {
				return
			}
		case <-s.draining.Done():
			s.endWatch(r, out, errDrainingWatch)
			return
		case <-r.Context().Done():
			if err := revoked(r); err != nil {
				s.endWatch(r, out, err)
			}
			return
		}
		quiet.Reset(s.cfg.KeepAlive)
	}
}

var errDrainingWatch = sandbox.Errorf(sandbox.Unavailable, "shutting_down", "the server is shutting down; watch again in a moment")

func toChange(e *agentv1.WatchEvent) rametv1.FileChange {
	c := e.GetChange()
	if c == nil {
		return rametv1.FileChange{Type: "overflow"}
	}
	out := rametv1.FileChange{Type: "change", Path: &c.Path, Change: &c.Type}
	if c.Info != nil {
		info := toFileInfo(c.Info)
		out.Info = &info
	}
	return out
}

// endWatch ends the stream with a last line that says why.
func (s *Server) endWatch(r *http.Request, out *ndjson, err error) {
	req := requestOf(r.Context())
	req.err = err
	if r.Context().Err() != nil && revoked(r) == nil {
		return
	}
	d := describe(err, req.id)
	if out.write(rametv1.FileChange{Type: "stream_error", Error: &d.Error, Code: &d.Code}) == nil {
		_ = out.flush() // a client that is gone is its own business
	}
}
