// Package e2b serves the surface of E2B, so that its official clients work unmodified: the
// control API (sandboxes, snapshots, forks), and the router that stands before all surfaces
// of the listener and finds out for which of them, or for which sandbox, a request is.
//
// It owns no rules: every call ends in package control. What the clients believe to run in a
// guest is in the subpackages envd and interpreter, and what really listens there is reached
// by package preview; this package finds the sandbox, checks what entitles the caller to
// reach it at all, and answers for those that are gone.
//
// Start reading at route.go, then sandboxes.go and traffic.go. What the clients send and
// expect is in docs/compat/e2b.md as far as it differs.
package e2b

import (
	"log/slog"
	"net/http"

	"ramet.dev/ramet/internal/compat/e2b/traffic"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// Service answers calls to a port of a sandbox at which the clients expect a service of E2B's own.
type Service interface {
	Serve(w http.ResponseWriter, r *http.Request, t traffic.Target)
}

// Port is a port of a guest.
type Port struct {
	Project string
	ID      sandbox.ID
	Port    int
}

// Config is what a Server needs.
type Config struct {
	Control *control.Control
	// Front is the native surface, whose keys, log and limits hold for this one too.
	Front *httpapi.Server
	Log   *slog.Logger
	// Seed makes the tokens of sandboxes. Who has it has all of them.
	Seed []byte
	// Domain is told to clients as the one below which the ports of sandboxes are; "" tells none.
	Domain string
	// Template is the one that the clients' default, "base", means.
	Template string
	// Envd and Interpreter serve their ports; nil answers that they are not there.
	Envd, Interpreter Service
	// Preview passes a request on to a port of a guest; nil answers that it is not there. What
	// fails it gives to PreviewFailed.
	Preview func(w http.ResponseWriter, r *http.Request, p Port)
}

// Server is E2B's surface.
type Server struct {
	cfg     Config
	control *control.Control
	front   *httpapi.Server
	log     *slog.Logger
	api     *http.ServeMux
}

// New makes a Server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, control: cfg.Control, front: cfg.Front, log: cfg.Log, api: http.NewServeMux()}
	s.routes()
	return s
}

// routes enters the control API. Older and newer clients call different generations of it.
func (s *Server) routes() {
	s.api.HandleFunc("GET /health", s.health)
	for pattern, h := range map[string]http.HandlerFunc{
		"POST /sandboxes":                 s.createV1,
		"POST /v2/sandboxes":              s.createV2,
		"GET /sandboxes":                  s.listV1,
		"GET /v2/sandboxes":               s.listV2,
		"GET /sandboxes/metrics":          s.allMetrics,
		"GET /sandboxes/{id}":             s.get,
		"DELETE /sandboxes/{id}":          s.kill,
		"POST /sandboxes/{id}/connect":    s.connect,
		"POST /v2/sandboxes/{id}/connect": s.connect,
		"POST /sandboxes/{id}/resume":     s.resume,
		"POST /sandboxes/{id}/pause":      s.pause,
		"POST /sandboxes/{id}/timeout":    s.setTimeout,
		"POST /sandboxes/{id}/refreshes":  s.refresh,
		"POST /sandboxes/{id}/fork":       s.fork,
		"PUT /sandboxes/{id}/network":     s.setNetwork,
		"GET /sandboxes/{id}/metrics":     s.metrics,
		"GET /sandboxes/{id}/logs":        s.logsV1,
		"GET /v2/sandboxes/{id}/logs":     s.logsV2,
		"POST /sandboxes/{id}/snapshots":  s.createSnapshot,
		"GET /snapshots":                  s.listSnapshots,
		"DELETE /templates/{id}":          s.deleteSnapshot,
		"GET /templates/aliases/{alias}":  s.templateExists,
		"GET /teams":                      s.teams,
	} {
		s.api.HandleFunc(pattern, s.keyed(pattern, h))
	}
	s.api.HandleFunc("/", s.keyed("/", s.unsupported))
}

// keyed finds whose a call is. The clients send their key in a header of its own, their
// command line as a bearer.
func (s *Server) keyed(pattern string, h http.HandlerFunc) http.HandlerFunc {
	route := patternPath(pattern)
	return func(w http.ResponseWriter, r *http.Request) {
		if route != "/" {
			httpapi.NoteRoute(r, route)
		}
		secret := r.Header.Get("X-Api-Key")
		if secret == "" {
			secret = httpapi.Bearer(r)
		}
		r, end, ok := s.front.Authorize(w, r, sandbox.PlainKey(secret))
		if !ok {
			return
		}
		defer end()
		if id, err := parseID(r.PathValue("id")); err == nil {
			httpapi.NoteSandbox(r, id)
		}
		h(w, r)
	}
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	httpapi.NoteRoute(r, "/health")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("Health check successful")) // a client that is gone is its own business
}

// teams says the one thing that there is to say of a project.
func (s *Server) teams(w http.ResponseWriter, r *http.Request) {
	project := httpapi.Project(r)
	s.write(w, http.StatusOK, []map[string]any{{"teamID": project, "name": project, "apiKey": "", "isDefault": true}})
}

// unsupported answers for what E2B has and this server has not.
func (s *Server) unsupported(w http.ResponseWriter, r *http.Request) {
	s.front.Fail(w, r, sandbox.Errorf(sandbox.Unsupported, "not_supported", "%s %s is not supported yet by this server", r.Method, short(r.URL.Path)))
}
