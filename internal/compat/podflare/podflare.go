// Package podflare serves what the clients of Podflare call and the native API does not
// have: terminals, the replay of past output, and the choice of a region.
//
// All other calls of those clients are the native ones: httpapi accepts their bodies. This
// package has no rules of its own about sandboxes; those are in control. Who a request is
// from, how a body is read and how an error is told comes from the native API, in Config.
//
// Start reading at Mount, which has the routes, and Regions.Handler.
package podflare

import (
	"net/http"
	"time"

	"ramet.dev/ramet/internal/control"
)

// Config is what a Server needs. All of it has to be set.
type Config struct {
	Control *control.Control
	// History has what Replay tells.
	History *History
	// Project says whose request it is, Decode reads its JSON body into a pointer to a
	// struct, Refuse answers it with an error.
	Project func(*http.Request) string
	Decode  func(http.ResponseWriter, *http.Request, any) error
	Refuse  func(http.ResponseWriter, *http.Request, error)
	// Ended returns the error with which an open stream ends whose request's context has ended, or
	// nil when its client has gone.
	Ended func(*http.Request) error
	// Draining is closed when the server shuts down.
	Draining <-chan struct{}
	// KeepAlive is the pause after which a silent stream gets an empty line. The client gives up
	// after 30 seconds without a byte, and skips empty lines.
	KeepAlive time.Duration
}

// Server serves Podflare's own routes.
type Server struct{ cfg Config }

// New makes a Server.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// Mount adds the routes.
func (s *Server) Mount(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/sandboxes/{id}/pty", s.createPty)
	mux.HandleFunc("GET /v1/sandboxes/{id}/pty", s.listPty)
	mux.HandleFunc("GET /v1/sandboxes/{id}/pty/{pty}/attach", s.attachPty)
	mux.HandleFunc("POST /v1/sandboxes/{id}/pty/{pty}/input", s.inputPty)
	mux.HandleFunc("POST /v1/sandboxes/{id}/pty/{pty}/resize", s.resizePty)
	mux.HandleFunc("POST /v1/sandboxes/{id}/pty/{pty}/kill", s.killPty)
	mux.HandleFunc("POST /v1/sandboxes/{id}/pty/{pty}/read", s.readPty)
	mux.HandleFunc("GET /v1/sandboxes/{id}/replay", s.replay)
}

func beginLines(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies should pass lines on as they come
	w.WriteHeader(http.StatusOK)
}
