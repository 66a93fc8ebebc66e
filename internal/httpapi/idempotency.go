package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// captured is an answer held back, in the form in which it is kept.
type captured struct {
	Status int
	Head   http.Header
	Body   []byte
}

func (c *captured) Header() http.Header { return c.Head }

func (c *captured) WriteHeader(status int) {
	if c.Status == 0 {
		c.Status = status
	}
}

func (c *captured) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	c.Body = append(c.Body, b...)
	return len(b), nil
}

func (c *captured) send(w http.ResponseWriter) {
	for k, v := range c.Head {
		w.Header()[k] = v
	}
	w.WriteHeader(c.Status)
	_, _ = w.Write(c.Body) // a client that is gone is its own business
}

type tagKey struct{}

// idempotencyTag is the tag of the idempotent call in hand, or "".
func idempotencyTag(r *http.Request) string {
	tag, _ := r.Context().Value(tagKey{}).(string)
	return tag
}

// once serves a call that makes something, with JSON in and out. With the header
// Idempotency-Key it is made once, however often it comes.
func (s *Server) once(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		serve(w, r)
		return
	}
	// One byte more than may be, so that the handler sees a body that is too large.
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		s.writeError(w, r, &httpError{status: http.StatusBadRequest, code: "body_broken_off", message: "the request's body ended early; send it again as a whole", err: err})
		return
	}
	call := idempotentCall(r, body)
	ran := &captured{Head: http.Header{}}
	answer, replayed, err := s.control.Once(r.Context(), call, func(ctx context.Context) ([]byte, bool) {
		again := r.WithContext(context.WithValue(ctx, tagKey{}, call.Tag()))
		again.Body = io.NopCloser(bytes.NewReader(body))
		serve(ran, again)
		b, err := json.Marshal(ran)
		return b, err == nil && ran.Status >= 200 && ran.Status < 300
	})
	switch {
	case err != nil:
		s.writeError(w, r, err)
	case !replayed:
		ran.send(w)
	default:
		var kept captured
		if err := json.Unmarshal(answer, &kept); err != nil {
			s.writeError(w, r, fmt.Errorf("read a kept answer: %w", err))
			return
		}
		w.Header().Set("Idempotent-Replayed", "true")
		kept.send(w)
	}
}

// idempotentCall names the call in hand, with what it asks for.
func idempotentCall(r *http.Request, body []byte) control.IdempotentCall {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", r.Method, r.URL.RequestURI())
	h.Write(body)
	req := requestOf(r.Context())
	return control.IdempotentCall{
		Scope: req.key.ID, Secret: req.secret, Key: r.Header.Get("Idempotency-Key"), Request: [32]byte(h.Sum(nil)),
	}
}

// opener opens the stream of a run.
type opener func(context.Context, sandbox.ID) (*control.Stream, error)

// startOnce starts a detached program once: what is kept is its id, and a repetition
// follows it from its first event.
func (s *Server) startOnce(w http.ResponseWriter, r *http.Request, body any, start opener) opener {
	return func(ctx context.Context, sb sandbox.ID) (*control.Stream, error) {
		asked, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode a request: %w", err)
		}
		var stream *control.Stream
		var startErr error
		run, replayed, err := s.control.Once(ctx, idempotentCall(r, asked), func(context.Context) ([]byte, bool) {
			if stream, startErr = start(ctx, sb); startErr != nil {
				return nil, false
			}
			return []byte(stream.Run), true
		})
		switch {
		case err != nil:
			return nil, err
		case !replayed:
			return stream, startErr
		}
		w.Header().Set("Idempotent-Replayed", "true")
		return s.control.Attach(ctx, project(r), sb, string(run), 0)
	}
}
