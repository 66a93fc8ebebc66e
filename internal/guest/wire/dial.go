package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// maxStale bounds what a guest can make the host discard. A guest holds
	// at most a few megabytes in its queue; this leaves a wide margin.
	maxStale = 64 << 20
	// dialTimeout applies when the context has no deadline of its own.
	dialTimeout = 60 * time.Second
)

// ErrNoReply says that the other end sent maxStale bytes without an answer to
// the preamble among them.
var ErrNoReply = errors.New("no answer to the preamble")

// Dial opens a session on the host's end of the stream and returns it. It owns
// conn: on error it is closed. Without a deadline in ctx it gives up after a
// minute. The guest may be booting still; then Dial waits for it.
func Dial(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialTimeout)
		defer cancel()
	}
	// Only this one watches ctx: a deadline set on conn directly could not be
	// told from it.
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(past)
		close(interrupted)
	})
	rest, err := handshake(conn)
	if !stop() {
		<-interrupted
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open the agent's stream: %w", err)
	}
	return &stream{Conn: conn, rest: rest}, nil
}

// handshake sends a preamble and discards what comes before its answer. It
// returns what came after.
func handshake(conn net.Conn) ([]byte, error) {
	var nonce [nonceSize]byte
	rand.Read(nonce[:]) // never fails, see crypto/rand
	if _, err := conn.Write(append(preambleMagic[:], nonce[:]...)); err != nil {
		return nil, err
	}
	scan := newMatcher(append(replyMagic[:], nonce[:]...))
	buf := make([]byte, 64<<10)
	for discarded := 0; discarded < maxStale; {
		n, err := conn.Read(buf)
		if end := scan.next(buf[:n]); end >= 0 {
			return buf[end:n], nil
		}
		if err != nil {
			return nil, err
		}
		discarded += n
	}
	return nil, ErrNoReply
}

// stream is a connection of which some bytes have been read already.
type stream struct {
	net.Conn
	rest []byte
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) > 0 {
		n := copy(p, s.rest)
		if s.rest = s.rest[n:]; len(s.rest) == 0 {
			s.rest = nil // frees the buffer
		}
		return n, nil
	}
	return s.Conn.Read(p)
}
