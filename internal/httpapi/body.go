package httpapi

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// hurry is how long the body of a refused request may still take: net/http reads
// what is left of it before the connection takes the next request.
const hurry = time.Second

// limitBodies gives every request's body a deadline, before anybody knows who sends
// it: a client that announces a body and sends none must not hold its connection for ever.
func (s *Server) limitBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &body{ReadCloser: r.Body, conn: http.NewResponseController(w), timeout: s.cfg.BodyTimeout}
		b.within(s.cfg.BodyTimeout)
		r.Body = b
		next.ServeHTTP(w, r)
	})
}

// body is a request's body with a deadline, which ends with the body: a connection
// whose deadline passes while an answer is under way would take that for the
// client's leaving.
type body struct {
	io.ReadCloser
	conn    *http.ResponseController
	timeout time.Duration

	mu      sync.Mutex
	rolling bool // guarded by mu; the deadline is for each read
	free    bool // guarded by mu; there is no deadline any more
	late    bool // guarded by mu; it has passed
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.rolling {
		b.setLocked(time.Now().Add(b.timeout))
	}
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.release()
		return n, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late = b.late || errors.Is(err, os.ErrDeadlineExceeded)
	if b.rolling && err == nil {
		b.setLocked(time.Time{}) // a guest that is slow to take what came is not the client's fault
	}
	return n, err
}

// errBodyLate is what is wrong with a request whose body's deadline has passed.
var errBodyLate = &httpError{
	status: http.StatusRequestTimeout, code: "body_timeout",
	message: "the request's body took too long to arrive; send it again",
}

// bodyLate says whether that is so. net/http then also ends the request's context, as
// if the client had left.
func bodyLate(r *http.Request) bool {
	b, ok := r.Body.(*body)
	if !ok {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.late
}

// within sets the deadline of all that is left.
func (b *body) within(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setLocked(time.Now().Add(d))
}

func (b *body) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setLocked(time.Time{})
	b.free = true
}

func (b *body) setLocked(t time.Time) {
	if !b.free {
		_ = b.conn.SetReadDeadline(t) // fails only for connections that have none
	}
}

// rollBody makes the deadline of an upload one for each read: it may take as long
// as it moves.
func rollBody(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.rolling = true
		b.setLocked(time.Time{})
	}
}

// waitForBody takes the deadline away: a program's input may be a person who thinks.
func waitForBody(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.release()
	}
}

// hurryBody shortens the deadline for a request that is refused.
func hurryBody(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.within(min(hurry, b.timeout))
	}
}
