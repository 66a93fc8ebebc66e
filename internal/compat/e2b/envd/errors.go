package envd

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"ramet.dev/ramet/internal/sandbox"
)

// httpError is what is wrong with a request outside the Connect protocol.
type httpError struct {
	status  int
	message string
}

func (e *httpError) Error() string { return e.message }

var errNoToken = &httpError{http.StatusUnauthorized, "unauthorized access, please provide a valid access token or method signing if supported"}

// gone is what the edge says of a sandbox that is not there; clients look for these words.
const gone = "The sandbox was not found"

// verdict is what an error means on this surface.
type verdict struct {
	code   connect.Code
	status int
}

// verdicts are for errors whose code says more than their kind.
var verdicts = map[string]verdict{
	"permission_denied": {connect.CodePermissionDenied, http.StatusForbidden},
	"file_exists":       {connect.CodeAlreadyExists, http.StatusBadRequest},
	"already_exists":    {connect.CodeAlreadyExists, http.StatusBadRequest},
	"is_a_directory":    {connect.CodeInvalidArgument, http.StatusBadRequest},
	"not_a_directory":   {connect.CodeInvalidArgument, http.StatusBadRequest},
	// Not resource_exhausted, which clients tell as a limit on their calls.
	"no_space":            {connect.CodeFailedPrecondition, http.StatusInsufficientStorage},
	"file_too_large":      {connect.CodeFailedPrecondition, http.StatusRequestEntityTooLarge},
	"sandbox_not_found":   {connect.CodeUnavailable, http.StatusBadGateway},
	"sandbox_deleted":     {connect.CodeUnavailable, http.StatusBadGateway},
	"sandbox_failed":      {connect.CodeUnavailable, http.StatusBadGateway},
	"sandbox_not_running": {connect.CodeUnavailable, http.StatusBadGateway},
	"guest_timeout":       {connect.CodeUnavailable, http.StatusServiceUnavailable},
}

var byKind = map[sandbox.Kind]verdict{
	sandbox.Invalid:     {connect.CodeInvalidArgument, http.StatusBadRequest},
	sandbox.NotFound:    {connect.CodeNotFound, http.StatusNotFound},
	sandbox.Conflict:    {connect.CodeFailedPrecondition, http.StatusBadRequest},
	sandbox.Exhausted:   {connect.CodeResourceExhausted, http.StatusTooManyRequests},
	sandbox.Unavailable: {connect.CodeUnavailable, http.StatusServiceUnavailable},
	sandbox.Unsupported: {connect.CodeUnimplemented, http.StatusNotImplemented},
}

// judge says what an error means, and in which words.
func judge(err error) (verdict, string) {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return verdict{connect.CodeInternal, http.StatusInternalServerError}, "the server failed"
	}
	v, ok := verdicts[e.Code]
	if !ok {
		if v, ok = byKind[e.Kind]; !ok {
			return verdict{connect.CodeInternal, http.StatusInternalServerError}, "the server failed"
		}
	}
	if v.status == http.StatusBadGateway {
		return v, gone
	}
	return v, e.Message
}

// rpcError is an error as the Connect protocol tells it. What nobody expects is logged.
func (s *Server) rpcError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	// Only one of ours: an error of the guest has one as its cause, too.
	if done, ok := err.(*connect.Error); ok {
		return done
	}
	var own *httpError
	switch {
	case errors.As(err, &own):
		code, ok := rpcCodes[own.status]
		if !ok {
			code = connect.CodeInternal
		}
		return connect.NewError(code, own)
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the call's time is over"))
	case ctx.Err() != nil:
		return connect.NewError(connect.CodeCanceled, errors.New("the call was canceled"))
	}
	v, message := judge(err)
	if v.code == connect.CodeInternal {
		s.log.Error("envd", "sandbox", callOf(ctx).ID, "err", err)
	}
	return connect.NewError(v.code, errors.New(message))
}

// rpcCodes are for errors that both surfaces tell.
var rpcCodes = map[int]connect.Code{
	http.StatusUnauthorized: connect.CodeUnauthenticated,
	http.StatusBadRequest:   connect.CodeInvalidArgument,
	http.StatusNotFound:     connect.CodeNotFound,
}

// fail answers a request with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	status, message := 0, ""
	var own *httpError
	if errors.As(err, &own) {
		status, message = own.status, own.message
	} else if r.Context().Err() != nil {
		return // nobody is there to read it
	} else {
		var v verdict
		v, message = judge(err)
		status = v.status
		if status == http.StatusInternalServerError {
			s.log.Error("envd", "sandbox", c.ID, "path", r.URL.Path, "err", err)
		}
	}
	body := map[string]any{"code": status, "message": message}
	if status == http.StatusBadGateway {
		body["sandboxId"] = c.Shown
	}
	writeJSON(w, status, body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // it is made of strings and numbers
		b, status = []byte("{}"), http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that is gone is its own business
}
