// Package httpapi serves the API that api/openapi.yaml describes: it turns
// requests into calls of package control and their outcomes into answers.
//
// It owns what is HTTP: authentication, request ids, limits of bodies, the form
// of streams and errors, the access log. It has no rules of its own; whatever
// another surface would have to repeat belongs to control.
//
// Start reading at New, then middleware.go for what every request goes
// through, errors.go for the map from errors to statuses, and exec.go for streams.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/compat/podflare"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/telemetry"
)

// Config is what a Server needs.
type Config struct {
	Control *control.Control
	Log     *slog.Logger
	// NoAuth serves everybody as the default project. Whoever sets it sees to it that
	// only this host can connect; pages that a browser of this host shows are refused.
	NoAuth bool
	// Info is what GET /v1/info says of the server, but for the times.
	Info Info
	// Isolation, when set, says at each GET /v1/info what Info.Isolation would.
	Isolation func() sandbox.Isolation
	// Capacity is what GET /v1/capacity says; nil says nothing is kept ready.
	Capacity func() sandbox.Capacity
	// Regions are servers of other regions, by name: requests that name one are passed on to it.
	Regions map[string]*url.URL
	// CORSOrigins are the origins whose web pages may call, as browsers write them in the
	// header Origin; "*" is all of them, but for a server without keys.
	CORSOrigins []string
	// PublicURL is where this server can be reached directly; empty: not told.
	PublicURL string
	// Metrics, when set, counts requests and is served.
	Metrics *telemetry.Metrics
	// Tracing, when set, makes a span of every request.
	Tracing *telemetry.Tracing
	// KeepAlive is the pause after which a silent stream gets an empty line. Zero: 10 seconds.
	KeepAlive time.Duration
	// BodyTimeout is how long a request's body may take to arrive, and how long an
	// upload may stand still. Zero: 30 seconds.
	BodyTimeout time.Duration
}

// Info describes the server.
type Info struct {
	Version   string
	Driver    string
	Isolation sandbox.Isolation
	Region    string
	Node      string
	PID       int
	// PreviewDomain is where guest ports are reached, below <port>-<id>.
	PreviewDomain string
}

// Server is the HTTP surface. Serve its Handler, and call Drain when the
// http.Server shuts down.
type Server struct {
	cfg     Config
	control *control.Control
	log     *slog.Logger
	started time.Time
	routes  *http.ServeMux
	regions *podflare.Regions
	history *podflare.History

	draining context.Context // ends when Drain is called
	drain    context.CancelFunc
}

var _ rametv1.ServerInterface = (*Server)(nil)

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = 10 * time.Second
	}
	if cfg.BodyTimeout == 0 {
		cfg.BodyTimeout = 30 * time.Second
	}
	if cfg.Tracing == nil {
		cfg.Tracing = telemetry.Off()
	}
	s := &Server{cfg: cfg, control: cfg.Control, log: cfg.Log, started: time.Now(), routes: http.NewServeMux(), history: podflare.NewHistory()}
	s.draining, s.drain = context.WithCancel(context.Background())
	rametv1.HandlerWithOptions(s, rametv1.StdHTTPServerOptions{
		BaseRouter:       s.routes,
		ErrorHandlerFunc: s.badParameter,
	})
	s.regions = &podflare.Regions{Local: cfg.Info.Region, Others: cfg.Regions, Log: cfg.Log, Refuse: s.writeError, Passing: rollBody}
	podflare.New(podflare.Config{
		Control: cfg.Control, History: s.history, Project: project, Refuse: s.writeError, Ended: revoked,
		Decode: func(w http.ResponseWriter, r *http.Request, v any) error {
			return decode(w, r, maxCodeBody, false, v)
		},
		Draining: s.draining.Done(), KeepAlive: cfg.KeepAlive,
	}).Mount(s.routes)
	s.routes.HandleFunc("/", s.noRoute)
	return s
}

// Handler returns the handler of the whole API.
func (s *Server) Handler() http.Handler {
	return s.Around(s.Native())
}

// Drain ends the streams that are open, each with a last event that says why, so that
// http.Server.Shutdown need not wait for runs that never end.
func (s *Server) Drain() { s.drain() }

// GetHealth answers that the server is alive.
func (s *Server) GetHealth(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok")) // a client that is gone is its own business
}

// GetInfo says what the server is.
func (s *Server) GetInfo(w http.ResponseWriter, r *http.Request) {
	isolation := s.cfg.Info.Isolation
	if s.cfg.Isolation != nil {
		isolation = s.cfg.Isolation()
	}
	out := rametv1.Info{
		Version: s.cfg.Info.Version, Driver: s.cfg.Info.Driver, Isolation: string(isolation),
		Region: s.cfg.Info.Region, Node: s.cfg.Info.Node, Pid: s.cfg.Info.PID,
		StartedAt: s.started.UTC(), UptimeS: time.Since(s.started).Seconds(), Auth: !s.cfg.NoAuth,
	}
	if s.cfg.Info.PreviewDomain != "" {
		out.PreviewDomain = &s.cfg.Info.PreviewDomain
	}
	s.writeJSON(w, r, out)
}
