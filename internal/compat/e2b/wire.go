package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// maxBody bounds a JSON body, in bytes.
const maxBody = 1 << 20

// read reads the JSON object of a request into v. Fields that nobody knows are passed over:
// newer clients have more of them. An empty body is an object without fields.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return sandbox.Errorf(sandbox.Invalid, "body_too_large", "the body is too large; it can have %d bytes", maxBody)
	case err != nil:
		return &sandbox.Error{Kind: sandbox.Invalid, Code: "body_broken_off", Message: "the request's body ended early; send it again as a whole", Err: err}
	case len(bytes.TrimSpace(body)) == 0:
		return nil
	case !utf8.Valid(body):
		return sandbox.Errorf(sandbox.Invalid, "invalid_json", "the body is not valid UTF-8")
	}
	err = json.Unmarshal(body, v)
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ):
		return sandbox.Errorf(sandbox.Invalid, "invalid_type", "%s cannot be %s", fieldName(typ.Field), typ.Value)
	case err != nil:
		return sandbox.Errorf(sandbox.Invalid, "invalid_json", "the body is not valid JSON")
	}
	return nil
}

func fieldName(f string) string {
	if f == "" {
		return "the body"
	}
	return f
}

// write answers with JSON.
func (s *Server) write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.log.Error("encode an answer", "err", err)
		http.Error(w, `{"code":500,"message":"internal error"}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that is gone is its own business
}

// writeError is the shape of E2B's errors: the clients decide by the number in the body.
func (s *Server) writeError(w http.ResponseWriter, _ *http.Request, status int, e rametv1.Error) {
	if status == http.StatusTooManyRequests {
		// Else the clients try again by themselves, and what is used up does not come back so soon.
		w.Header().Set("Should-Retry", "false")
	}
	s.write(w, status, apiError{Code: status, Message: e.Error, ErrorCode: e.Code})
}

type apiError struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code,omitempty"`
}

// done answers a call that has nothing to say but that it worked.
func (s *Server) done(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// parseID reads the id of a sandbox as a client has it. Old ones put another id behind it.
func parseID(s string) (sandbox.ID, error) {
	s, _, _ = strings.Cut(s, "-")
	return sandbox.ParseID(s)
}

// short bounds a caller's text in a message.
func short(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// patternPath leaves the method of a pattern out.
func patternPath(pattern string) string {
	if _, path, ok := strings.Cut(pattern, " "); ok {
		return path
	}
	return pattern
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
