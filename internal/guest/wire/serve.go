package wire

//lint:file-ignore SA1019 x/net/http2 serves one given connection; net/http wants a listener.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Flow-control windows of the guest: what it holds at most for handlers that
// do not read. Round trips are fast, so a few milliseconds' worth is enough.
const (
	connWindow   = 8 << 20
	streamWindow = 2 << 20
	// frameSize is the largest frame that either end takes. Large frames make
	// fewer system calls and wake-ups for each megabyte.
	frameSize = 512 << 10
	// maxStreams bounds the calls in flight; runs that are followed count.
	maxStreams = 1000
)

// Serve answers the host on the port with handler, session after session, until
// ctx ends or the port fails. It returns when all calls have ended.
func Serve(ctx context.Context, port Port, handler http.Handler, logger *slog.Logger) error {
	l := NewListener(port)
	defer l.Close()
	calls := &inFlight{next: handler}
	server := &http2.Server{
		MaxConcurrentStreams:         maxStreams,
		MaxReadFrameSize:             frameSize,
		MaxUploadBufferPerConnection: connWindow,
		MaxUploadBufferPerStream:     streamWindow,
	}
	base := &http.Server{
		// HTTP/2 reports a superseded session as an error of the connection.
		ErrorLog:       log.New(io.Discard, "", 0),
		MaxHeaderBytes: 64 << 10,
	}
	// Gives the server its own pool of channels. Those of the package's shared
	// pool would come into a synctest bubble from outside, and time in the
	// bubble would stand still.
	if err := http2.ConfigureServer(base, server); err != nil {
		return fmt.Errorf("configure HTTP/2: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var sessions sync.WaitGroup
	defer func() {
		cancel()
		_ = l.Close()
		sessions.Wait()
		calls.end()
	}()
	for {
		conn, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
				return nil
			}
			return err
		}
		logger.Debug("session opened")
		sessions.Go(func() {
			start := time.Now()
			server.ServeConn(Joined(conn, false), &http2.ServeConnOpts{Context: ctx, BaseConfig: base, Handler: calls})
			_ = conn.Close()
			logger.Debug("session ended", "after", time.Since(start))
		})
	}
}

// inFlight lets Serve wait for handlers, which outlive their session while they
// notice that it has ended. One may even begin after it: a WaitGroup must not grow
// from zero while somebody waits.
type inFlight struct {
	next http.Handler

	mu    sync.Mutex
	calls int           // guarded by mu
	over  chan struct{} // guarded by mu; nil until end; closed with the last call
}

func (f *inFlight) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if f.over != nil {
		f.mu.Unlock()
		return // its session is gone
	}
	f.calls++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls--
		if f.calls == 0 && f.over != nil {
			close(f.over)
		}
	}()
	f.next.ServeHTTP(w, r)
}

// end lets no more calls begin and waits for those in flight. It is called once.
func (f *inFlight) end() {
	f.mu.Lock()
	over := make(chan struct{})
	f.over = over
	if f.calls == 0 {
		close(over)
	}
	f.mu.Unlock()
	<-over
}
