package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Port is the guest's end of the byte stream: a virtio-serial port, or any
// connection in tests. Deadlines interrupt calls that wait.
type Port interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// ErrSuperseded ends a session whose host has opened a new one.
var ErrSuperseded = errors.New("the host opened a new session")

// readBufferSize is how much is taken from the port at once.
const readBufferSize = 128 << 10

// past is a deadline that has been missed.
var past = time.Unix(1, 0)

// Listener turns a Port into sessions, one after the other.
//
// Whoever reads holds readMu and scans what it reads: the session while it
// lives, Accept between sessions. So there is no goroutine of the Listener's
// own, and a request wakes only the one that serves it.
type Listener struct {
	port Port

	readMu  sync.Mutex
	buf     []byte
	unread  []byte // part of buf
	scan    *matcher
	pending bool // the magic has been seen, its nonce begins at unread

	writeMu sync.Mutex // whoever writes to the port

	mu      sync.Mutex
	current *session
}

// NewListener returns a Listener on the port, which it owns.
func NewListener(port Port) *Listener {
	return &Listener{port: port, buf: make([]byte, readBufferSize), scan: newMatcher(preambleMagic[:])}
}

// Close closes the port and ends the session.
func (l *Listener) Close() error {
	l.mu.Lock()
	s := l.current
	l.mu.Unlock()
	if s != nil {
		s.end(net.ErrClosed)
	}
	return l.port.Close()
}

// Accept waits until the last session has ended and the host has opened a new
// one. Ending ctx ends the wait; any other error is the port's and final.
// It must not be called concurrently.
func (l *Listener) Accept(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	last := l.current
	l.mu.Unlock()
	if last != nil {
		select {
		case <-last.dead:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	nonce, err := l.awaitPreamble(ctx)
	if err != nil {
		return nil, fmt.Errorf("wait for the host: %w", err)
	}
	if err := l.reply(ctx, nonce); err != nil {
		return nil, fmt.Errorf("answer the host: %w", err)
	}
	s := &session{l: l, dead: make(chan struct{})}
	l.mu.Lock()
	l.current = s
	l.mu.Unlock()
	return s, nil
}

// interruptible clears a deadline that the end of the last session has set, and
// sets it again when ctx ends. The returned function undoes the latter.
func interruptible(ctx context.Context, set func(time.Time) error) (func() bool, error) {
	if err := set(time.Time{}); err != nil {
		return nil, err
	}
	return context.AfterFunc(ctx, func() { _ = set(past) }), nil
}

func (l *Listener) awaitPreamble(ctx context.Context) ([]byte, error) {
	l.readMu.Lock()
	defer l.readMu.Unlock()
	stop, err := interruptible(ctx, l.port.SetReadDeadline)
	if err != nil {
		return nil, err
	}
	defer stop()
	nonce := make([]byte, 0, nonceSize)
	for {
		if l.pending {
			n := min(nonceSize-len(nonce), len(l.unread))
			nonce = append(nonce, l.unread[:n]...)
			l.unread = l.unread[n:]
			if len(nonce) == nonceSize {
				l.pending = false
				return nonce, nil
			}
		}
		found, err := l.fillLocked()
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
		if found {
			// A host that died within its preamble leaves half a nonce.
			nonce = nonce[:0]
		}
	}
}

// fillLocked replaces unread by the next bytes of the port. When the magic is
// in them, it leaves what follows it and sets pending.
func (l *Listener) fillLocked() (found bool, err error) {
	n, err := l.port.Read(l.buf)
	l.unread = l.buf[:n]
	if end := l.scan.last(l.unread); end >= 0 {
		l.unread, l.pending = l.unread[end:], true
		return true, nil
	}
	if n > 0 {
		return false, nil
	}
	return false, err
}

// reply answers a preamble. Nobody reads the port meanwhile; that is safe,
// because a host that waits for its reply takes all that comes.
func (l *Listener) reply(ctx context.Context, nonce []byte) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	stop, err := interruptible(ctx, l.port.SetWriteDeadline)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := l.port.Write(append(replyMagic[:], nonce...)); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// session is one connection of the host. It implements net.Conn.
type session struct {
	l    *Listener
	once sync.Once
	err  error // why it ended; set before dead is closed
	dead chan struct{}
}

// end ends the session and interrupts its calls. The deadlines come before
// dead is closed, since Accept clears them after it.
func (s *session) end(err error) {
	s.once.Do(func() {
		s.err = err
		_ = s.l.port.SetReadDeadline(past)
		_ = s.l.port.SetWriteDeadline(past)
		close(s.dead)
	})
}

func (s *session) ended() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

func (s *session) Read(p []byte) (int, error) {
	l := s.l
	l.readMu.Lock()
	defer l.readMu.Unlock()
	for {
		if s.ended() {
			return 0, s.err
		}
		if len(l.unread) > 0 {
			n := copy(p, l.unread)
			l.unread = l.unread[n:]
			return n, nil
		}
		if len(p) == 0 {
			return 0, nil
		}
		found, err := l.fillLocked()
		switch {
		case found:
			s.end(ErrSuperseded)
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			s.end(err)
		}
	}
}

func (s *session) Write(p []byte) (int, error) {
	s.l.writeMu.Lock()
	defer s.l.writeMu.Unlock()
	if s.ended() {
		return 0, s.err
	}
	n, err := s.l.port.Write(p)
	if err != nil {
		s.end(err) // what the other side has is no longer known
		return n, s.err
	}
	return n, nil
}

// Close ends the session. The port stays open for the next one.
func (s *session) Close() error {
	s.end(net.ErrClosed)
	return nil
}

func (s *session) LocalAddr() net.Addr  { return addr{} }
func (s *session) RemoteAddr() net.Addr { return addr{} }

// The deadlines belong to the Listener, which interrupts with them.
func (s *session) SetDeadline(time.Time) error      { return nil }
func (s *session) SetReadDeadline(time.Time) error  { return nil }
func (s *session) SetWriteDeadline(time.Time) error { return nil }

type addr struct{}

func (addr) Network() string { return "virtio" }
func (addr) String() string  { return "ramet.agent" }
