// Package wstream carries a TCP connection in a WebSocket: binary messages are its bytes,
// cut anywhere, and an empty one says that its sender sends no more. The server and the
// command line use the two ends of it.
//
// Start reading at Relay.
package wstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// bufferSize is how much goes into one message at most, in bytes.
	bufferSize = 64 << 10
	// ReasonReset is the reason of a close when the connection broke.
	ReasonReset = "connection_reset"
)

// Stream is the connection at this end.
type Stream interface {
	// Close ends it well: what was written still goes out. It ends a Read that waits.
	io.ReadWriteCloser
	// CloseWrite says that nothing more will be written.
	CloseWrite() error
	// Abort ends it at once, and Reads and Writes that wait: the other side sees a reset.
	Abort()
}

// ClosedError says that the other end has closed the WebSocket because its connection
// broke, or another error.
type ClosedError struct{ Reason string }

func (e *ClosedError) Error() string {
	if e.Reason == "" || e.Reason == ReasonReset {
		return "the connection was reset"
	}
	return "the other end closed the connection: " + e.Reason
}

// Options of a Relay.
type Options struct {
	// Reason turns an error of the stream into what the other end is told. Nil: ReasonReset.
	Reason func(error) string
	// Server makes this end the one that closes the WebSocket when both directions have ended. The
	// other waits for that: then it knows that all it has sent was passed on.
	Server bool
	// Ping is how often the other end is asked whether it is there, so that nothing in between
	// takes a silent connection for a dead one. Zero: never. It is for the server: a ping that meets a
	// WebSocket which was just closed would break what is still on its way.
	Ping time.Duration
}

// Relay passes bytes between the two until both directions have ended, or one end leaves or
// fails, and closes both. It returns nil when the connection ended well.
func Relay(ctx context.Context, ws *websocket.Conn, s Stream, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ws.SetReadLimit(-1) // messages are passed on as they come, never held
	r := &relay{ws: ws, stream: s, ended: make(chan error, 3)}
	var loops sync.WaitGroup
	loops.Go(func() { r.ended <- r.outward(ctx) })
	loops.Go(func() { r.inward(ctx) })
	loops.Go(func() { r.keepAlive(ctx, o.Ping) })
	stop := context.AfterFunc(ctx, s.Abort)
	err := r.wait(o.Server)
	stop()
	if err == nil || errors.Is(err, errLeft) {
		err = nil
		_ = s.Close()                                   // it may have ended by itself
		_ = ws.Close(websocket.StatusNormalClosure, "") // whether it gets there or not
	} else {
		s.Abort()
		_ = ws.Close(websocket.StatusInternalError, reason(err, o))
	}
	cancel()
	loops.Wait()
	return err
}

type relay struct {
	ws     *websocket.Conn
	stream Stream
	ended  chan error // of each direction, and that the other end has left
}

// errLeft says that the other end has closed the WebSocket well, in the middle or not.
var errLeft = errors.New("the other end has left")

// wait returns when both directions have ended or one has failed.
func (r *relay) wait(server bool) error {
	for range 2 {
		if err := <-r.ended; err != nil {
			return err
		}
	}
	if server {
		return nil
	}
	return <-r.ended // the server has closed the WebSocket
}

func reason(err error, o Options) string {
	var closed *ClosedError
	if o.Reason == nil || errors.As(err, &closed) {
		return ReasonReset
	}
	return o.Reason(err)
}

// outward passes on what the stream has.
func (r *relay) outward(ctx context.Context) error {
	buf := make([]byte, bufferSize)
	for {
		n, err := r.stream.Read(buf)
		if n > 0 {
			if werr := r.ws.Write(ctx, websocket.MessageBinary, buf[:n]); werr != nil {
				return fmt.Errorf("write to the WebSocket: %w", werr)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if err := r.ws.Write(ctx, websocket.MessageBinary, nil); err != nil {
				return fmt.Errorf("write to the WebSocket: %w", err)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

// inward passes on what comes to the stream. After its end it goes on, for the messages that
// keep a WebSocket alive and close it.
func (r *relay) inward(ctx context.Context) {
	if err := r.copyIn(ctx); err != nil {
		r.ended <- err
		return
	}
	r.ended <- nil
	<-r.ws.CloseRead(ctx).Done()
	r.ended <- errLeft // a server does not wait for it when all has ended
}

func (r *relay) copyIn(ctx context.Context) error {
	buf := make([]byte, bufferSize)
	for {
		kind, message, err := r.ws.Reader(ctx)
		if err != nil {
			return r.left(err)
		}
		if kind != websocket.MessageBinary {
			return &ClosedError{Reason: "a text message came where only binary ones can"}
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{r.stream}, message, buf)
		if err != nil {
			return err
		}
		if n == 0 {
			return r.stream.CloseWrite()
		}
	}
}

// left says what it means that the other end has closed the WebSocket.
func (r *relay) left(err error) error {
	var closed websocket.CloseError
	switch {
	case !errors.As(err, &closed):
		return fmt.Errorf("read from the WebSocket: %w", err)
	case closed.Code == websocket.StatusNormalClosure || closed.Code == websocket.StatusGoingAway:
		return errLeft
	}
	return &ClosedError{Reason: closed.Reason}
}

func (r *relay) keepAlive(ctx context.Context, every time.Duration) {
	if every == 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// It waits for the answer, for as long as the connection lives: an end that is
			// slow to read is not dead.
			if r.ws.Ping(ctx) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
