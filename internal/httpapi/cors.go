package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Web pages of other origins (https://fetch.spec.whatwg.org/#http-cors-protocol). A browser
// asks before a call that is not simple, without the key, and shows the page no answer whose
// headers do not name its origin. None of it keeps anybody else out: keys do that.

// anyOrigin is every origin, in the setting and in the header.
const anyOrigin = "*"

var (
	corsMethods = strings.Join(methods, ", ")
	// corsHeaders are those of requests that the API reads and a page may not send unasked.
	corsHeaders = strings.Join([]string{
		"Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "Range", "Traceparent", "Tracestate",
		"X-Podflare-Region", wakeHeader, "X-Request-Id",
	}, ", ")
	// corsExposed are those of answers that a page may not read unasked.
	corsExposed = strings.Join([]string{
		"Accept-Ranges", "Content-Disposition", "Content-Range", "Idempotent-Replayed", "Retry-After", "Server-Timing",
		"X-File-Size", "X-Request-Id", "X-Run-Id",
	}, ", ")
)

// corsMaxAge is how long a browser remembers what it may send, in seconds. It is what
// Chromium takes at most.
const corsMaxAge = "7200"

// cors lets the pages of the origins in the settings call, and answers what their browsers
// ask before. For everybody else nothing changes.
func (s *Server) cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin, h := r.Header.Get("Origin"), w.Header()
		// Caches must not give one page the answer of another.
		if len(s.cfg.CORSOrigins) > 0 {
			h.Add("Vary", "Origin")
		}
		allowed := s.allows(origin)
		if allowed {
			h.Set("Access-Control-Allow-Origin", origin)
			if s.anyOrigin() {
				h.Set("Access-Control-Allow-Origin", anyOrigin)
			}
		}
		if isPreflight(r) {
			NoteRoute(r, "preflight")
			s.preflight(w, r, allowed)
			return
		}
		if allowed {
			h.Set("Access-Control-Expose-Headers", corsExposed)
		}
		next.ServeHTTP(w, r)
	})
}

// isPreflight says whether a browser asks what a page may do. Nobody else sends that.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

func (s *Server) preflight(w http.ResponseWriter, r *http.Request, allowed bool) {
	if !allowed {
		hurryBody(r)
		s.writeError(w, r, refusedOrigin(r))
		return
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
}

// checkSocket refuses WebSockets of pages that may not call. A browser opens them to anywhere
// without asking before, and lets the page read them.
func (s *Server) checkSocket(r *http.Request) error {
	if sameOrigin(r) || s.allows(r.Header.Get("Origin")) {
		return nil
	}
	return refusedOrigin(r)
}

func (s *Server) anyOrigin() bool { return slices.Contains(s.cfg.CORSOrigins, anyOrigin) }

// allows says whether pages of an origin may call. "*" is no answer where no key is asked for.
func (s *Server) allows(origin string) bool {
	return s.named(origin) || origin != "" && s.anyOrigin() && !s.cfg.NoAuth
}

// named says whether the settings name an origin.
func (s *Server) named(origin string) bool {
	return origin != "" && origin != anyOrigin && slices.Contains(s.cfg.CORSOrigins, origin)
}

// sameOrigin says whether a request is of no page, or of one that is shown under the very
// host that it calls.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

func refusedOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if len(origin) > 200 {
		origin = origin[:200] + "…"
	}
	return &httpError{
		status: http.StatusForbidden, code: "foreign_origin",
		message: fmt.Sprintf("web pages of %q may not call this server: its setting cors_origins does not name their origin", strings.ToValidUTF8(origin, "")),
	}
}
