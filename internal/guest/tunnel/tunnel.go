// Package tunnel makes a connection of the messages that the two ends of a Ports.Dial
// call send each other. Both ends use it: the agent between a program's socket and the
// call, the host as a net.Conn.
//
// Each side sends at most Window bytes that the other's reader has not taken yet. So a
// reader that has stopped holds up its own connection and nothing else: what is under
// way always fits into its buffer, and the flow control of the HTTP/2 connection,
// which all calls to a guest share, never comes into play.
//
// It knows neither ports nor the protocol's messages. Start reading at New.
package tunnel

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// Window is how much one side may send that the other has not taken, in bytes. It is part of
	// the protocol: agents in saved memory keep to it. Round trips are fast, so that it is enough.
	Window = 128 << 10
	// chunk is the most that goes into one message, in bytes.
	chunk = 64 << 10
	// tellAfter is how much is taken before the other side is told, in bytes. Each message wakes
	// a guest up, whose processors may be emulated.
	tellAfter = Window / 2
	// linger is how long the other side may take to end a connection that this side has closed.
	linger = 10 * time.Second
)

var (
	// ErrReset says that the connection ended before both sides had said so.
	ErrReset error = syscall.ECONNRESET
	// errProtocol says that the other side sent more than it may.
	errProtocol = errors.New("the other end of the connection broke the rules of its flow control")
)

// Frame is one message of either side.
type Frame struct {
	Data  []byte
	EOF   bool   // nothing more will be sent
	Taken uint64 // bytes that the sender's reader has taken, in all
}

// Link is the call that carries the frames.
type Link struct {
	// Send and Receive may be called at the same time, each by one caller. Receive
	// returns io.EOF when the other side has ended the call well.
	Send    func(Frame) error
	Receive func() (Frame, error)
	// Finish says that no more frames are sent. Abort ends the call, and a Send and Receive
	// that wait. Both may be nil; each is called at most once.
	Finish, Abort func()
	// Local and Remote are the addresses that the connection tells.
	Local, Remote net.Addr
}

// Conn is one side of a connection. Use New.
type Conn struct {
	link Link

	writing sync.Mutex    // one Write at a time
	sent    chan struct{} // closed when nothing will be sent any more
	done    chan struct{} // closed when both loops have ended
	abort   func()        // link.Abort, once

	mu   sync.Mutex
	cond sync.Cond // of mu; anything below has changed

	in     []byte      // guarded by mu; received and not read
	off    int         // guarded by mu; what of in is read
	inEOF  bool        // guarded by mu
	taken  uint64      // guarded by mu
	told   uint64      // guarded by mu; of taken, what the other side knows
	out    []byte      // guarded by mu; written and not sent
	outEOF bool        // guarded by mu; nothing more is written
	outEnd bool        // guarded by mu; the other side knows outEOF
	wrote  uint64      // guarded by mu; bytes written, in all
	theirs uint64      // guarded by mu; of wrote, what the other side has taken
	closed bool        // guarded by mu
	unread bool        // guarded by mu; something came for nobody
	err    error       // guarded by mu; why it has failed
	read   limit       // guarded by mu
	write  limit       // guarded by mu
	ended  bool        // guarded by mu; the link has
	last   *time.Timer // guarded by mu; ends the connection some time after Close
}

// limit is a deadline.
type limit struct {
	at    time.Time
	timer *time.Timer
}

// New returns a connection over link, which is established. It works until both sides
// have ended, the link has, or Close and Abort are called; one of these two must be.
func New(link Link) *Conn {
	c := &Conn{link: link, sent: make(chan struct{}), done: make(chan struct{})}
	c.cond.L = &c.mu
	c.abort = sync.OnceFunc(func() {
		if link.Abort != nil {
			link.Abort()
		}
	})
	go func() {
		defer close(c.sent)
		c.send()
	}()
	go func() {
		defer close(c.done)
		c.receive()
		<-c.sent
	}()
	return c
}

// Done is closed when nothing of the connection is at work any more.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Read reads what the other side has sent. After an end without its word the error is
// ErrReset, or what the link failed with.
func (c *Conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch n := len(c.in) - c.off; {
		case c.closed:
			return 0, net.ErrClosed
		case c.read.over():
			return 0, os.ErrDeadlineExceeded
		case n > 0:
			n = copy(p, c.in[c.off:])
			c.off += n
			if c.off == len(c.in) {
				c.in, c.off = nil, 0 // an idle connection holds no buffer
			}
			c.taken += uint64(n)
			if c.taken-c.told >= tellAfter {
				c.cond.Broadcast() // the sender tells it
			}
			return n, nil
		case c.inEOF:
			return 0, io.EOF
		case c.err != nil:
			return 0, c.err
		case len(p) == 0:
			return 0, nil
		}
		c.cond.Wait()
	}
}

// Write returns when all of p is on its way and within the other side's window. What is
// written before Close is sent all the same.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return n, net.ErrClosed
		case c.err != nil:
			return n, c.err
		case c.outEOF:
			return n, syscall.EPIPE
		case c.write.over():
			return n, os.ErrDeadlineExceeded
		case n == len(p):
			return n, nil
		}
		if m := min(len(p)-n, int(Window-(c.wrote-c.theirs))); m > 0 {
			c.out = append(c.out, p[n:n+m]...)
			c.wrote += uint64(m)
			n += m
			c.cond.Broadcast()
			continue
		}
		c.cond.Wait()
	}
}

// CloseWrite says that nothing more will be written. Reading goes on.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.outEOF = true
	c.cond.Broadcast()
	return c.err
}

// Close ends both directions and does not wait. As with TCP, what was written goes out,
// and data that comes after it ends the connection at once.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed, c.outEOF = true, true
	c.unread = len(c.in) > 0
	c.in, c.off = nil, 0
	c.read.set(c, time.Time{})
	c.write.set(c, time.Time{})
	if !c.ended {
		c.last = time.AfterFunc(linger, c.Abort)
	}
	c.cond.Broadcast()
	return nil
}

// Abort ends the connection at once: the other side sees that it was reset.
func (c *Conn) Abort() {
	c.fail(net.ErrClosed)
	c.abort()
}

// Stop is Abort for the handler of a call, which may return afterwards: nothing is sent
// any more.
func (c *Conn) Stop() {
	c.Abort()
	<-c.sent
}

// Flush waits until the other side has been sent all that was written, or the connection
// has ended.
func (c *Conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && (len(c.out) > 0 || c.outEOF && !c.outEnd) {
		c.cond.Wait()
	}
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.out = nil
	c.cond.Broadcast()
}

// send passes on what is written, its end, and what is taken.
func (c *Conn) send() {
	for {
		f, more := c.next()
		if !more {
			return
		}
		for rest := f.Data; ; {
			part := Frame{Data: rest[:min(len(rest), chunk)], Taken: f.Taken}
			rest = rest[len(part.Data):]
			part.EOF = f.EOF && len(rest) == 0
			if err := c.link.Send(part); err != nil {
				// The call has ended, in this direction at least. Why is for the receiver to say,
				// which first hears all that the other side had sent before.
				return
			}
			if len(rest) == 0 {
				break
			}
		}
		if !f.EOF {
			continue
		}
		c.mu.Lock()
		c.outEnd = true
		c.cond.Broadcast()
		c.mu.Unlock()
	}
}

// next waits for what is to be sent. It says no more when there never will be.
func (c *Conn) next() (f Frame, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.err != nil:
			return f, false
		case len(c.out) > 0 || c.outEOF && !c.outEnd:
			f = Frame{Data: c.out, EOF: c.outEOF, Taken: c.taken}
			c.out, c.told = nil, c.taken
			return f, true
		case c.unread && c.closed:
			defer c.abort()
			return f, false
		case c.outEnd && c.inEOF:
			if c.link.Finish != nil {
				c.link.Finish()
			}
			return f, false
		case !c.closed && !c.inEOF && c.taken-c.told >= tellAfter:
			c.told = c.taken
			return Frame{Taken: c.taken}, true
		}
		c.cond.Wait()
	}
}

// receive takes what comes, which always fits: the other side sends no more than the
// window. It goes on after both ends, to see how the call ends.
func (c *Conn) receive() {
	for {
		f, err := c.link.Receive()
		if err == nil {
			err = c.accept(f)
		} else if errors.Is(err, io.EOF) {
			err = ErrReset // unless both sides had ended
		}
		if err == nil {
			continue
		}
		c.mu.Lock()
		over := c.inEOF && c.outEnd
		c.ended = true
		if c.last != nil {
			c.last.Stop()
		}
		c.mu.Unlock()
		if !over {
			c.fail(err)
		}
		c.abort() // frees what the call holds
		return
	}
}

func (c *Conn) accept(f Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Taken > c.wrote || len(f.Data) > 0 && c.inEOF || len(c.in)-c.off+len(f.Data) > Window {
		return errProtocol
	}
	c.theirs = max(c.theirs, f.Taken)
	switch {
	case len(f.Data) == 0:
	case c.closed:
		c.unread = true
	default:
		if c.off > 0 && len(c.in)+len(f.Data) > cap(c.in) {
			c.in = append(c.in[:0], c.in[c.off:]...)
			c.off = 0
		}
		c.in = append(c.in, f.Data...)
	}
	c.inEOF = c.inEOF || f.EOF
	c.cond.Broadcast()
	return nil
}

// LocalAddr returns the address of this side.
func (c *Conn) LocalAddr() net.Addr { return c.link.Local }

// RemoteAddr returns the address of the other side.
func (c *Conn) RemoteAddr() net.Addr { return c.link.Remote }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline bounds Reads, also one that waits.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setLimit(&c.read, t) }

// SetWriteDeadline bounds Writes, also one that waits.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setLimit(&c.write, t) }

func (c *Conn) setLimit(l *limit, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	l.set(c, t)
	return nil
}

// set is called with c.mu held.
func (l *limit) set(c *Conn, t time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.at, l.timer = t, nil
	if !t.IsZero() {
		l.timer = time.AfterFunc(time.Until(t), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.cond.Broadcast()
		})
	}
	c.cond.Broadcast()
}

func (l *limit) over() bool { return !l.at.IsZero() && !time.Now().Before(l.at) }
