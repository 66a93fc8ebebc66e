package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// request is what is known about the request in hand.
type request struct {
	id      string
	traceID string
	key     sandbox.Key
	secret  string // of key
	route   string // the pattern that matched
	sandbox sandbox.ID
	shape   ErrorWriter // nil for the native one
	// err is what was answered with an error, for the log.
	err error
}

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

// project is the project whose key the request came with.
func project(r *http.Request) string { return requestOf(r.Context()).key.Project }

// caller is the key that the request came with.
func caller(r *http.Request) sandbox.Key { return requestOf(r.Context()).key }

// recorder notes what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher, for those who ask for no more.
func (w *recorder) Flush() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a connection that cannot has nothing to flush
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// identify gives every request its id, and logs it at its end.
func (s *Server) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		req := &request{id: r.Header.Get("X-Request-Id"), traceID: traceID(r.Header.Get("Traceparent"))}
		if !isRequestID(req.id) {
			req.id = newRequestID()
		}
		w.Header().Set("X-Request-Id", req.id)
		rec := &recorder{ResponseWriter: w}
		ctx, span := s.startSpan(r)
		if sc := span.SpanContext(); sc.HasTraceID() {
			req.traceID = sc.TraceID().String()
		}
		r = r.WithContext(context.WithValue(ctx, requestKey{}, req))
		counted := func(string, string, int, time.Duration) {}
		if s.cfg.Metrics != nil {
			counted = s.cfg.Metrics.Begin()
		}
		defer func() {
			counted(countedMethod(r.Method), req.route, rec.status, time.Since(begin))
			endSpan(span, r, req, rec.status)
			// The query is left out: it names files of the guest.
			attrs := []any{
				"method", r.Method, "path", r.URL.Path, "status", rec.status, "bytes", rec.bytes,
				"took", time.Since(begin), "request", req.id, "remote", r.RemoteAddr,
			}
			if req.key.ID != "" {
				attrs = append(attrs, "key", req.key.ID)
			}
			if rest, ok := strings.CutPrefix(r.URL.Path, "/v1/sandboxes/"); ok && req.sandbox == "" {
				id, _, _ := strings.Cut(rest, "/")
				if parsed, err := sandbox.ParseID(id); err == nil {
					req.sandbox = parsed
				}
			}
			if req.sandbox != "" {
				attrs = append(attrs, "sandbox", req.sandbox)
			}
			if req.traceID != "" {
				attrs = append(attrs, "trace", req.traceID)
			}
			// A guest's full disk (507) is not the server's trouble.
			switch {
			case req.err != nil && (rec.status == 0 || rec.status >= 500 && rec.status != http.StatusInsufficientStorage):
				s.log.Error("request", append(attrs, "err", req.err)...)
			case req.err != nil:
				s.log.Info("request", append(attrs, "err", req.err)...)
			default:
				s.log.Info("request", attrs...)
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

func newRequestID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

func isRequestID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, c := range []byte(id) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if !ok {
			return false
		}
	}
	return true
}

// traceID takes the trace's id out of a W3C traceparent, or returns "".
func traceID(parent string) string {
	parts := strings.Split(parent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return ""
	}
	if _, err := hex.DecodeString(parts[1]); err != nil {
		return ""
	}
	return parts[1]
}

// recoverPanics answers a panic with 500 and logs where it was.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.log.Error("panic", "request", requestOf(r.Context()).id, "panic", p, "stack", string(debug.Stack()))
			if rec, ok := w.(*recorder); ok && rec.status != 0 {
				panic(http.ErrAbortHandler) // an answer is under way; break it off
			}
			s.writeError(w, r, fmt.Errorf("panic: %v", p))
		}()
		next.ServeHTTP(w, r)
	})
}

const healthPath = "/v1/healthz"

// authenticate finds the project of a request by its key.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == healthPath {
			next.ServeHTTP(w, r)
			return
		}
		r, end, ok := s.Authorize(w, r, Bearer(r))
		if !ok {
			return
		}
		defer end()
		next.ServeHTTP(w, r)
	})
}
