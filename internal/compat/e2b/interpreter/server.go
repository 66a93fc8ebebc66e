// Package interpreter answers what E2B's clients ask of the code interpreter, the service that they
// believe to run in each sandbox at port 49999: code in contexts, its output as JSON lines. Nothing
// of it runs in the guest: every call is one of package control.
//
// It does not find sandboxes: its caller has found the one that a call is for, has answered for
// one that is gone and for pages of other origins, and bounds how long a body may take to arrive.
//
// Start reading at Server.Serve; execute.go has the stream, contexts.go what runs where.
package interpreter

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"ramet.dev/ramet/internal/compat/e2b/traffic"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// Config is what a Server needs.
type Config struct {
	Control *control.Control
	Log     *slog.Logger
}

// Server serves the code interpreter of every sandbox. It is safe for concurrent use.
type Server struct {
	control *control.Control
	log     *slog.Logger
	mux     *http.ServeMux
	known   memory

	draining context.Context
	drain    context.CancelFunc
}

// New makes a Server.
func New(cfg Config) *Server {
	s := &Server{control: cfg.Control, log: cfg.Log, mux: http.NewServeMux()}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "OK") })
	s.mux.HandleFunc("POST /execute", s.execute)
	s.mux.HandleFunc("GET /contexts", s.listContexts)
	s.mux.HandleFunc("POST /contexts", s.createContext)
	s.mux.HandleFunc("POST /contexts/{id}/restart", s.restartContext)
	s.mux.HandleFunc("DELETE /contexts/{id}", s.removeContext)
	return s
}

// Drain ends the streams that are open, so that a server can stop.
func (s *Server) Drain() { s.drain() }

type targetKey struct{}

func targetOf(r *http.Request) traffic.Target {
	t, _ := r.Context().Value(targetKey{}).(traffic.Target) // Serve has put it there
	return t
}

// Serve answers a request to port 49999 of a sandbox.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, t traffic.Target) {
	s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, t)))
}

// authorized says whether a request has the sandbox's token.
func authorized(r *http.Request, token string) bool {
	return token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Access-Token")), []byte(token)) == 1
}

// maxBody bounds a request, in bytes: the code, which JSON may make longer.
const maxBody = 2*control.MaxCode + 1<<20

// decode reads a request. An empty one is as good as an empty object.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	err := dec.Decode(into)
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return &refusal{http.StatusRequestEntityTooLarge, "the request is too large; upload the code as a file"}
	}
	return &refusal{http.StatusUnprocessableEntity, "the request is not the JSON that was expected: " + jsonProblem(err)}
}

// jsonProblem says what is wrong with JSON, without repeating it.
func jsonProblem(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && kind.Field != "" {
		return kind.Field + " has the wrong type"
	}
	return "it is malformed or ends early"
}

// refusal is an answer without a stream.
type refusal struct {
	status  int
	message string
}

func (e *refusal) Error() string { return e.message }

// fail answers with an error. Clients show the text.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var own *refusal
	if !errors.As(err, &own) {
		if r.Context().Err() != nil {
			return // nobody is there to read it
		}
		own = s.judge(r, err)
	}
	if own.status == http.StatusBadGateway {
		b, err := json.Marshal(map[string]any{"sandboxId": targetOf(r).Shown, "message": own.message, "code": own.status})
		if err == nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(own.status)
			_, _ = w.Write(b) // a client that is gone is its own business
			return
		}
	}
	text(w, own.status, own.message)
}

func text(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(message)) // a client that is gone is its own business
}

// gone are the errors of a sandbox that is not there.
var gone = map[string]bool{"sandbox_not_found": true, "sandbox_deleted": true, "sandbox_failed": true, "sandbox_not_running": true}

var statuses = map[sandbox.Kind]int{
	sandbox.Invalid: http.StatusBadRequest, sandbox.NotFound: http.StatusNotFound, sandbox.Conflict: http.StatusBadRequest,
	sandbox.Exhausted: http.StatusTooManyRequests, sandbox.Unavailable: http.StatusServiceUnavailable, sandbox.Unsupported: http.StatusBadRequest,
}

// judge says what an error means here, and logs what nobody expects.
func (s *Server) judge(r *http.Request, err error) *refusal {
	var e *sandbox.Error
	if errors.As(err, &e) {
		if gone[e.Code] {
			return &refusal{http.StatusBadGateway, "The sandbox was not found"}
		}
		if status, ok := statuses[e.Kind]; ok {
			return &refusal{status, e.Message}
		}
	}
	s.log.Error("code interpreter", "sandbox", targetOf(r).ID, "path", r.URL.Path, "err", err)
	return &refusal{http.StatusInternalServerError, "the server failed"}
}
