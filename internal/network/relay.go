package network

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// relayBuffer is how much is moved at once, in bytes. It also fits the
	// largest UDP datagram.
	relayBuffer = 64 << 10
	// closeGrace is how long a finished connection may take to deliver its
	// last bytes to the guest.
	closeGrace = 30 * time.Second
)

// buffers holds byte slices of relayBuffer bytes. A relay takes one only when
// there is something to move, so idle connections hold none.
var buffers = sync.Pool{New: func() any { return new([relayBuffer]byte) }}

var errAborted = errors.New("connection aborted")

// relay moves the bytes of one TCP connection between the guest's end and the
// socket to the outside. Each direction ends on its own (half-close); an error
// on either side resets both.
type relay struct {
	flow  *flow
	guest *guestEnd
	host  *net.TCPConn
	// names is nil unless the name of the connection matters.
	names *inspection
}

func newRelay(f *flow, ep tcpip.Endpoint, wq *waiter.Queue, host *net.TCPConn, names *inspection) *relay {
	return &relay{flow: f, guest: &guestEnd{ep: ep, wq: wq, done: f.ctx.Done()}, host: host, names: names}
}

// run returns when the connection is over and nothing of it is left.
func (r *relay) run() {
	stop := context.AfterFunc(r.flow.ctx, r.reset)
	var wg sync.WaitGroup
	wg.Go(func() { r.finish(r.toHost()) })
	wg.Go(func() { r.finish(r.toGuest()) })
	wg.Wait()
	r.names.stop()
	if !stop() {
		// Reset, or about to be; both ends may be closed more than once.
		r.reset()
		r.guest.ep.Close()
		return
	}
	r.host.Close()
	r.guest.closeAndWait()
}

// finish cuts the connection when one direction ended with an error.
func (r *relay) finish(err error) {
	if err != nil {
		r.flow.cancel()
	}
}

func (r *relay) reset() {
	r.guest.ep.Abort()
	resetConn(r.host)
}

func (r *relay) toHost() error {
	for {
		buf := buffers.Get().(*[relayBuffer]byte)
		n, err := r.guest.readNow(buf[:])
		if err == nil {
			r.flow.touch()
			err = r.names.pass(buf[:n], r.host)
		}
		buffers.Put(buf)
		switch {
		case err == nil:
		case errors.Is(err, errWouldBlock):
			if err := r.guest.waitReadable(); err != nil {
				return err
			}
		case errors.Is(err, io.EOF):
			if err := r.names.ended(); err != nil {
				return err
			}
			return r.host.CloseWrite()
		default:
			return err
		}
	}
}

func (r *relay) toGuest() error {
	raw, err := r.host.SyscallConn()
	if err != nil {
		return err
	}
	for {
		buf, n, err := readReady(raw)
		if err != nil {
			return err
		}
		r.names.received(buf[:n])
		if n > 0 {
			r.flow.touch()
			err = r.guest.write(buf[:n])
		}
		buffers.Put(buf)
		if err != nil {
			return err
		}
		if n == 0 {
			r.guest.ep.Shutdown(tcpip.ShutdownWrite)
			return nil
		}
	}
}

// readReady waits until a socket is readable, and only then takes a buffer and
// reads. The caller puts the buffer back, also after n is 0 (the end, or an
// empty datagram).
func readReady(raw syscall.RawConn) (buf *[relayBuffer]byte, n int, err error) {
	waitErr := raw.Read(func(fd uintptr) bool {
		buf = buffers.Get().(*[relayBuffer]byte)
		for {
			n, err = syscall.Read(int(fd), buf[:])
			if err != syscall.EINTR {
				break
			}
		}
		if err == nil {
			return true
		}
		buffers.Put(buf)
		buf, n = nil, 0
		return err != syscall.EAGAIN
	})
	if waitErr != nil {
		err = waitErr
	}
	if err != nil && buf != nil {
		buffers.Put(buf)
		buf = nil
	}
	return buf, n, err
}

// guestEnd is the guest's side of a connection or session: an endpoint of the
// stack with blocking operations that end with done.
type guestEnd struct {
	ep   tcpip.Endpoint
	wq   *waiter.Queue
	done <-chan struct{}
}

var errWouldBlock = errors.New("would block")

// readNow reads what is there, else returns errWouldBlock, or io.EOF at the end.
func (e *guestEnd) readNow(b []byte) (int, error) {
	w := tcpip.SliceWriter(b)
	res, err := e.ep.Read(&w, tcpip.ReadOptions{})
	switch err.(type) {
	case nil:
		return res.Count, nil
	case *tcpip.ErrWouldBlock:
		return 0, errWouldBlock
	case *tcpip.ErrClosedForReceive:
		return 0, io.EOF
	}
	return 0, stackError(err)
}

func (e *guestEnd) waitReadable() error {
	return e.wait(waiter.ReadableEvents|waiter.EventErr|waiter.EventHUp, nil)
}

// wait blocks until one of the events is there, but not at all when there
// already was one.
func (e *guestEnd) wait(mask waiter.EventMask, timeout <-chan time.Time) error {
	entry, ch := waiter.NewChannelEntry(mask)
	e.wq.EventRegister(&entry)
	defer e.wq.EventUnregister(&entry)
	if e.ep.Readiness(mask) != 0 {
		return nil
	}
	select {
	case <-ch:
		return nil
	case <-timeout:
		return errAborted
	case <-e.done:
		return errAborted
	}
}

// write writes all of b to a TCP endpoint.
func (e *guestEnd) write(b []byte) error {
	var r bytes.Reader
	for len(b) > 0 {
		r.Reset(b)
		n, err := e.ep.Write(&r, tcpip.WriteOptions{})
		b = b[n:]
		switch err.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			if err := e.wait(waiter.WritableEvents|waiter.EventErr|waiter.EventHUp, nil); err != nil {
				return err
			}
		default:
			return stackError(err)
		}
	}
	return nil
}

// closeAndWait closes a TCP endpoint whose two directions have ended, and waits
// until the guest has acknowledged the last bytes, so that a guest that does
// not cannot collect closed connections without end.
func (e *guestEnd) closeAndWait() {
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	e.ep.Close()
	if err := e.wait(waiter.EventHUp, grace.C); err != nil {
		e.ep.Abort()
	}
}
