// Package preview is the reverse proxy to what listens in sandboxes: an HTTP request that is
// for a port of a sandbox goes to the program there, and its answer comes back as it is.
//
// It does not know which requests those are, nor who may make them: whoever routes finds
// the Target and checks the caller first. Nothing is held back: bodies pass through in both
// directions at once, server-sent events and WebSockets too.
//
// Every request has a connection of its own, which costs one call on the machine's open
// stream. So nothing is ever sent again that a program may have acted on, no request meets a
// connection to a machine that is gone or is another sandbox's by now, and no idle connection
// keeps a sandbox awake. Start reading at Proxy.Serve.
package preview

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

const (
	// maxHeader bounds the header of a program's answer, in bytes.
	maxHeader = 256 << 10
	// bufferSize is how much of a body is copied at once, in bytes.
	bufferSize = 32 << 10
	// continueTimeout is how long a program may take to say whether it wants the body of a
	// request that asks first.
	continueTimeout = time.Second
)

// Dialer connects to ports of sandboxes, as *control.Control does. Where nothing listens the
// error is a *sandbox.Error with the code port_closed.
type Dialer interface {
	Dial(ctx context.Context, project string, id sandbox.ID, port int) (net.Conn, error)
}

// Config is what a Proxy needs.
type Config struct {
	Control Dialer
	Log     *slog.Logger
	// Fail answers a request that no program has answered. err is a *sandbox.Error: port_closed,
	// what is wrong with the sandbox, or bad_answer for a program that did not answer with HTTP.
	// Nil: a sentence as plain text.
	Fail func(w http.ResponseWriter, r *http.Request, t Target, err error)
	// Outgoing, when set, has the last word on what the program gets to see. It takes out what is
	// for the server only, such as tokens.
	Outgoing func(out *http.Request, t Target)
}

// Target is where a request goes.
type Target struct {
	Project string
	ID      sandbox.ID
	Port    int
	// Host is what the program gets as Host. Empty: what the caller sent.
	Host string
}

// Proxy passes requests on. It is safe for concurrent use.
type Proxy struct {
	cfg     Config
	reverse *httputil.ReverseProxy

	draining context.Context // ends when Drain is called
	drain    context.CancelFunc
}

// New makes a Proxy.
func New(cfg Config) *Proxy {
	if cfg.Fail == nil {
		cfg.Fail = plain
	}
	p := &Proxy{cfg: cfg}
	p.draining, p.drain = context.WithCancel(context.Background())
	p.reverse = &httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     p.transport(),
		FlushInterval: -1, // at once
		ErrorLog:      debugLog(cfg.Log),
		BufferPool:    &buffers{},
		ErrorHandler:  p.failed,
	}
	return p
}

// Drain ends what is open, so that a server can end. Later requests fail.
func (p *Proxy) Drain() { p.drain() }

type targetKey struct{}

// Serve passes a request on to a target.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request, t Target) {
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), targetKey{}, t))
	defer cancel()
	defer context.AfterFunc(p.draining, cancel)()
	// A program may answer before it has read all. HTTP/2 does this anyway.
	_ = http.NewResponseController(w).EnableFullDuplex()
	p.reverse.ServeHTTP(w, r.WithContext(ctx))
}

// rewrite makes the program's request of the caller's. The proxy has removed what is for one hop
// only, and what the caller claims in X-Forwarded-*.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	t, _ := r.In.Context().Value(targetKey{}).(Target)
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = net.JoinHostPort(t.ID.String(), strconv.Itoa(t.Port))
	r.Out.URL.RawQuery = r.In.URL.RawQuery // as it came, whatever it is
	r.Out.Host = r.In.Host
	r.SetXForwarded()
	if t.Host != "" {
		r.Out.Host = t.Host
	}
	if p.cfg.Outgoing != nil {
		p.cfg.Outgoing(r.Out, t)
	}
}

func (p *Proxy) transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			t, ok := ctx.Value(targetKey{}).(Target)
			if !ok {
				return nil, errors.New("a request without a target")
			}
			return p.cfg.Control.Dial(ctx, t.Project, t.ID, t.Port)
		},
		DisableKeepAlives:      true, // see above
		DisableCompression:     true, // bodies are the program's
		MaxResponseHeaderBytes: maxHeader,
		ExpectContinueTimeout:  continueTimeout,
		ReadBufferSize:         bufferSize,
		WriteBufferSize:        bufferSize,
		Protocols:              onlyHTTP1(),
	}
}

func onlyHTTP1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// failed answers a request that no program has answered.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	t, _ := r.Context().Value(targetKey{}).(Target)
	var known *sandbox.Error
	switch {
	case p.draining.Err() != nil:
		err = sandbox.Errorf(sandbox.Unavailable, "shutting_down", "the server is shutting down; try again in a moment")
	case r.Context().Err() != nil:
		return // the caller has left, or its key has been revoked
	case !errors.As(err, &known):
		err = &sandbox.Error{
			Kind: sandbox.Unavailable, Code: "bad_answer", Err: err,
			Message: fmt.Sprintf("what listens on port %d of the sandbox did not answer with HTTP", t.Port),
		}
	}
	p.cfg.Log.Debug("preview failed", "sandbox", t.ID, "port", t.Port, "err", err)
	p.cfg.Fail(w, r, t, err)
}

// plain answers with a sentence.
func plain(w http.ResponseWriter, _ *http.Request, _ Target, err error) {
	status, text := http.StatusBadGateway, "internal error; the server's log has more"
	var e *sandbox.Error
	if errors.As(err, &e) && e.Kind != sandbox.Internal {
		text = e.Message
		switch {
		case e.Kind == sandbox.NotFound:
			status = http.StatusNotFound
		case e.Kind == sandbox.Unavailable && e.Code != "bad_answer":
			status = http.StatusServiceUnavailable
		}
	}
	http.Error(w, text, status)
}

// buffers lends copying its buffers.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// debugLog is for what net/http has to say of connections that break: that is the program's and
// the caller's business.
func debugLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
