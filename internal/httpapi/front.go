package httpapi

import (
	"net/http"
	"strings"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// What other surfaces of the same listener use of this one, so that their requests have the
// same ids, log, metrics, limits and keys. They only give errors another shape, and find the
// key of a request elsewhere.

// Around is what every request of the listener goes through, of whatever surface: it gives
// it an id, logs and counts it, answers panics and limits its body.
func (s *Server) Around(next http.Handler) http.Handler {
	return s.identify(s.recoverPanics(s.limitBodies(next)))
}

// Native is the native API, for a router that Around is around.
func (s *Server) Native() http.Handler {
	return s.cors(s.regions.Handler(s.authenticate(s.wakePolicy(http.HandlerFunc(s.noteRoute)))))
}

// ErrorWriter writes an error in the shape of a surface. Headers that all have are set already.
type ErrorWriter func(w http.ResponseWriter, r *http.Request, status int, e rametv1.Error)

// ShapeErrors lets f write the errors of a request, also those that are found outside of the
// surface's own code, such as a panic.
func ShapeErrors(r *http.Request, f ErrorWriter) { requestOf(r.Context()).shape = f }

// NoteRoute and NoteSandbox say what the log and the metrics call a request. A route is a
// pattern, never what a client sent.
func NoteRoute(r *http.Request, route string) { requestOf(r.Context()).route = route }

// NoteSandbox says which sandbox a request is about, for the log.
func NoteSandbox(r *http.Request, id sandbox.ID) { requestOf(r.Context()).sandbox = id }

// NoteError says with what error a request ends whose answer is written by somebody else.
func NoteError(r *http.Request, err error) { requestOf(r.Context()).err = err }

// Project is the project whose key a request came with.
func Project(r *http.Request) string { return project(r) }

// Fail answers with an error, in the shape of the request's surface.
func (s *Server) Fail(w http.ResponseWriter, r *http.Request, err error) { s.writeError(w, r, err) }

// Describe says what a user may read about an error, and with which status.
func Describe(r *http.Request, err error) (status int, e rametv1.Error) {
	return statusOf(err), describe(err, requestOf(r.Context()).id)
}

// Once serves a call that makes something; with the header Idempotency-Key it is made once.
func (s *Server) Once(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	s.once(w, r, serve)
}

// IdempotencyTag is the tag of the idempotent call in hand, or "".
func IdempotencyTag(r *http.Request) string { return idempotencyTag(r) }

// RollBody makes the deadline of a body one for each read: it may take as long as it moves.
func RollBody(r *http.Request) { rollBody(r) }

// WaitForBody takes the deadline of a body away.
func WaitForBody(r *http.Request) { waitForBody(r) }

// HurryBody shortens the deadline of the body of a request that is refused.
func HurryBody(r *http.Request) { hurryBody(r) }

// Authorize finds whose a request is by the secret of its API key, "" for none, and answers
// when it is nobody's. The request that it returns is for the whole call and ends when the
// key is revoked; end says that the call has ended.
func (s *Server) Authorize(w http.ResponseWriter, r *http.Request, secret string) (_ *http.Request, end func(), ok bool) {
	req := requestOf(r.Context())
	if s.cfg.NoAuth {
		if err := s.checkLocal(r); err != nil {
			hurryBody(r)
			s.writeError(w, r, err)
			return nil, nil, false
		}
		// Whoever reaches the address may do everything.
		req.key.Project, req.key.Admin = sandbox.DefaultProject, true
		return r, func() {}, true
	}
	if secret == "" {
		s.writeUnauthorized(w, r, "missing_api_key", "missing Authorization: Bearer <key>")
		return nil, nil, false
	}
	ctx, key, end, err := s.control.Authenticate(r.Context(), secret)
	if sandbox.KindOf(err) == sandbox.NotFound {
		s.writeUnauthorized(w, r, "invalid_api_key", "invalid api key")
		return nil, nil, false
	}
	if err != nil {
		s.writeError(w, r, err)
		return nil, nil, false
	}
	req.key, req.secret = key, secret
	return r.WithContext(ctx), end, true
}

// Bearer returns the bearer key of a request, or "".
func Bearer(r *http.Request) string {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}
