// Package envd answers what E2B's clients ask of envd, the service that they believe to run in
// each sandbox at port 49983: processes and files, over the Connect protocol and plain HTTP. Nothing of it runs
// in the guest: every call is one of package control.
//
// It does not find sandboxes: its caller has found the one that a call is for, has answered
// for one that is gone and for pages of other origins, and bounds how long a body may take to arrive. It checks the token of that sandbox, and
// the signatures of file URLs.
//
// Files are reached with root's rights, as in E2B: the user of a call decides where a relative
// path starts, and to whom belongs what is made.
//
// Start reading at Server.Serve; process.go, filesystem.go and files.go have the three surfaces.
package envd

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"ramet.dev/ramet/api/envd/v1/envdv1connect"
	"ramet.dev/ramet/internal/compat/e2b/traffic"
	"ramet.dev/ramet/internal/control"
)

// Config is what a Server needs.
type Config struct {
	Control *control.Control
	Log     *slog.Logger
	// WatcherLife is how long a watcher is kept that nobody asks. Zero: 1 hour.
	WatcherLife time.Duration
}

// Server serves envd's surface of every sandbox. It is safe for concurrent use.
type Server struct {
	control  *control.Control
	log      *slog.Logger
	rpc      http.Handler
	watchers *watchers

	draining context.Context
	drain    context.CancelFunc
}

// maxRPC bounds one message of a client, in bytes. Input and environments are the largest.
const maxRPC = 8 << 20

// New makes a Server. Close ends what it holds.
func New(cfg Config) *Server {
	if cfg.WatcherLife == 0 {
		cfg.WatcherLife = time.Hour
	}
	s := &Server{control: cfg.Control, log: cfg.Log}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.watchers = newWatchers(cfg.Control, cfg.WatcherLife)
	options := connect.WithHandlerOptions(
		connect.WithReadMaxBytes(maxRPC),
		connect.WithCompression("gzip", nil, nil), // messages are small, and no client asks for it
	)
	mux := http.NewServeMux()
	mux.Handle(envdv1connect.NewProcessHandler(processes{s}, options))
	mux.Handle(envdv1connect.NewFilesystemHandler(filesystem{s}, options))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &httpError{http.StatusNotFound, "there is nothing at " + shorten(r.URL.Path)})
	})
	s.rpc = mux
	return s
}

// Drain ends the streams that are open, so that a server can stop. Processes go on.
func (s *Server) Drain() { s.drain() }

// Close ends streams and watchers, and waits for the watchers.
func (s *Server) Close() {
	s.drain()
	s.watchers.close()
}

// call is what a request is about, in its context.
type call struct {
	traffic.Target
	// user is who it is made as; named says that the request has named them.
	user  string
	named bool
	head  http.Header
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call) // Serve has put it there
	return c
}

// Serve answers a request to port 49983 of a sandbox.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, t traffic.Target) {
	c := &call{Target: t, user: t.User, head: r.Header}
	if name, _, ok := r.BasicAuth(); ok && name != "" {
		c.user, c.named = name, true
	}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	switch r.URL.Path {
	case "/health":
		s.byMethod(w, r, map[string]http.HandlerFunc{http.MethodGet: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNoContent)
		}})
		return
	case "/files":
		s.byMethod(w, r, map[string]http.HandlerFunc{http.MethodGet: s.readFile, http.MethodPost: s.writeFiles})
		return
	}
	if !authorized(r, t.Token) {
		s.fail(w, r, errNoToken)
		return
	}
	switch r.URL.Path {
	case "/metrics":
		s.byMethod(w, r, map[string]http.HandlerFunc{http.MethodGet: s.metrics})
	case "/envs":
		s.byMethod(w, r, map[string]http.HandlerFunc{http.MethodGet: s.envs})
	case "/files/compose":
		s.byMethod(w, r, map[string]http.HandlerFunc{http.MethodPost: s.compose})
	default:
		wholeMillis(r.Header)
		s.rpc.ServeHTTP(w, r)
	}
}

// byMethod answers by method; HEAD is like GET.
func (s *Server) byMethod(w http.ResponseWriter, r *http.Request, handlers map[string]http.HandlerFunc) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if f, ok := handlers[method]; ok {
		f(w, r)
		return
	}
	s.fail(w, r, &httpError{http.StatusMethodNotAllowed, "the method " + shorten(r.Method) + " is not for " + r.URL.Path})
}

// authorized says whether a request has the sandbox's token.
func authorized(r *http.Request, token string) bool {
	return token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Access-Token")), []byte(token)) == 1
}

// wholeMillis rounds a limit that is no whole number, as clients with float seconds make it.
func wholeMillis(h http.Header) {
	const name = "Connect-Timeout-Ms"
	whole, rest, ok := strings.Cut(h.Get(name), ".")
	if !ok {
		return
	}
	n, err := strconv.ParseUint(whole, 10, 40)
	if _, rerr := strconv.ParseUint(rest, 10, 64); err != nil || rerr != nil {
		return // it is refused as it is
	}
	h.Set(name, strconv.FormatUint(max(n, 1), 10))
}

// shorten bounds what of a request is repeated in an answer.
func shorten(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
