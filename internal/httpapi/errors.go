package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// httpError is a mistake in the use of HTTP itself, for which there is no kind of error.
type httpError struct {
	status  int
	code    string
	message string
	err     error
}

func (e *httpError) Error() string { return e.message }
func (e *httpError) Unwrap() error { return e.err }

func badRequest(code, format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, code, format, args...)
}

// statusGone is logged, never sent: the client left before its answer.
const statusGone = 499

// statusOf is the one map from errors to statuses.
func statusOf(err error) int {
	var h *httpError
	if errors.As(err, &h) {
		return h.status
	}
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return http.StatusInternalServerError
	}
	// A few have a status of their own, whatever their kind.
	switch e.Code {
	case "code_too_large":
		return http.StatusRequestEntityTooLarge
	case "permission_denied", "admin_only":
		return http.StatusForbidden
	case "key_revoked":
		return http.StatusUnauthorized
	case "no_space":
		return http.StatusInsufficientStorage
	}
	switch e.Kind {
	case sandbox.Invalid:
		return http.StatusBadRequest
	case sandbox.NotFound:
		return http.StatusNotFound
	case sandbox.Conflict:
		return http.StatusConflict
	case sandbox.Exhausted:
		return http.StatusTooManyRequests
	case sandbox.Unavailable:
		return http.StatusServiceUnavailable
	case sandbox.Unsupported:
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}

// describe is what a user may read about an error.
func describe(err error, requestID string) rametv1.Error {
	out := rametv1.Error{
		Error:     fmt.Sprintf("internal error; the server's log has more under request %s", requestID),
		Code:      sandbox.Internal.String(),
		RequestId: requestID,
	}
	var h *httpError
	var e *sandbox.Error
	switch {
	case errors.As(err, &h):
		out.Error, out.Code = h.message, h.code
	case errors.As(err, &e) && e.Kind != sandbox.Internal:
		out.Error, out.Code = e.Message, e.Code
	}
	return out
}

// writeError answers with an error, unless the client has gone.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	req := requestOf(r.Context())
	req.err = err
	if bodyLate(r) {
		err = errBodyLate
	} else if r.Context().Err() != nil {
		if err = revoked(r); err == nil {
			w.WriteHeader(statusGone)
			return
		}
		req.err = err
	}
	status := statusOf(err)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter(err))
	}
	e := describe(err, req.id)
	if req.shape != nil {
		req.shape(w, r, status, e)
		return
	}
	s.writeStatus(w, r, status, e)
}

// revoked returns the error of a call that ended because its key was revoked: its
// client is still there. A client that has gone is no *sandbox.Error.
func revoked(r *http.Request) error {
	var e *sandbox.Error
	if errors.As(context.Cause(r.Context()), &e) {
		return e
	}
	return nil
}

// retryAfter is in whole seconds, at least one.
func retryAfter(err error) string {
	wait := time.Second
	var e *sandbox.Error
	if errors.As(err, &e) && e.RetryAfter > wait {
		wait = e.RetryAfter
	}
	return strconv.Itoa(int(math.Ceil(wait.Seconds())))
}

func (s *Server) writeUnauthorized(w http.ResponseWriter, r *http.Request, code, message string) {
	hurryBody(r)
	w.Header().Set("WWW-Authenticate", `Bearer realm="ramet"`)
	s.writeError(w, r, &httpError{status: http.StatusUnauthorized, code: code, message: message})
}

func (s *Server) writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	s.writeStatus(w, r, http.StatusOK, v)
}

func (s *Server) writeStatus(w http.ResponseWriter, r *http.Request, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.log.Error("encode an answer", "request", requestOf(r.Context()).id, "err", err)
		http.Error(w, `{"error":"internal error","code":"internal","request_id":""}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that is gone is its own business
}

// badParameter answers for the generated code, which parses paths and queries.
func (s *Server) badParameter(w http.ResponseWriter, r *http.Request, err error) {
	var missing *rametv1.RequiredParamError
	var invalid *rametv1.InvalidParamFormatError
	switch {
	case errors.As(err, &missing):
		err = badRequest("missing_parameter", "the query parameter %s is missing", missing.ParamName)
	case errors.As(err, &invalid):
		err = badRequest("invalid_parameter", "the parameter %s has a value that it cannot have", invalid.ParamName)
	default:
		err = &sandbox.Error{Kind: sandbox.Invalid, Code: "invalid_parameter", Message: "a parameter has a value that it cannot have", Err: err}
	}
	s.writeError(w, r, err)
}

// methods are those that any route has.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// noRoute answers for paths that do not exist, and for methods that a path does not have.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range methods {
		probe := r.Clone(context.Background())
		probe.Method = m
		if _, pattern := s.routes.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		s.writeError(w, r, &httpError{
			status: http.StatusNotFound, code: "no_such_path",
			message: "this path does not exist; the API is described in api/openapi.yaml",
		})
		return
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	s.writeError(w, r, &httpError{
		status: http.StatusMethodNotAllowed, code: "method_not_allowed",
		message: "this path does not have this method; it has " + strings.Join(allowed, ", "),
	})
}
