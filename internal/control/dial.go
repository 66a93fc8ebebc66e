package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest/tunnel"
	"ramet.dev/ramet/internal/sandbox"
)

// PortConn is a connection to a port of a guest. What Dial returns is one. The sandbox is in use until it
// is closed, or has ended by itself.
type PortConn interface {
	net.Conn
	// CloseWrite says that nothing more will be written. Reading goes on.
	CloseWrite() error
	// Abort ends the connection at once: the program in the guest sees that it was reset.
	Abort()
}

// Dial connects to a TCP port of a sandbox, on whatever address of the guest something listens there. ctx
// bounds the connecting only. Where nothing listens the error is a Conflict, port_closed. Reads and
// writes fail with errors that a caller may read once the sandbox has ended or sleeps.
func (c *Control) Dial(ctx context.Context, project string, id sandbox.ID, port int) (net.Conn, error) {
	if err := checkPort(port); err != nil {
		return nil, err
	}
	sb, g, done, err := c.reach(ctx, project, id)
	if err != nil {
		return nil, err
	}
	done = sync.OnceFunc(done)
	// The connection outlives ctx, but not the server.
	life, end := context.WithCancelCause(c.life)
	call := &portCall{c: c, sb: sb, ctx: life, end: end}
	if err := call.open(ctx, g, port); err != nil {
		call.abort()
		done()
		return nil, err
	}
	c.answered(ctx, sb)
	conn := &portConn{
		Conn: tunnel.New(tunnel.Link{
			Send: call.send, Receive: call.receive, Finish: call.finish, Abort: call.abort,
			Local: portAddr("host"), Remote: portAddr(net.JoinHostPort(sb.ID.String(), strconv.Itoa(port))),
		}),
		done: done,
	}
	err = c.spawn(func() {
		defer context.AfterFunc(c.life, conn.Conn.Abort)()
		<-conn.Conn.Done()
		done()
		call.close()
	})
	if err != nil {
		conn.Abort()
		<-conn.Conn.Done()
		call.close()
		return nil, err
	}
	return conn, nil
}

func checkPort(port int) error {
	if port < 1 || port > 65535 {
		return sandbox.Errorf(sandbox.Invalid, "invalid_port", "port is %d; it can be 1 to 65535", port)
	}
	return nil
}

// portConn is a connection whose end ends the use of its sandbox.
type portConn struct {
	*tunnel.Conn
	done func()
}

func (p *portConn) Close() error {
	p.done()
	return p.Conn.Close()
}

func (p *portConn) Abort() {
	p.done()
	p.Conn.Abort()
}

var _ PortConn = (*portConn)(nil)

// portAddr is an address of a connection to a port.
type portAddr string

func (a portAddr) Network() string { return "ramet" }
func (a portAddr) String() string  { return string(a) }

// portCall is the call to the agent that carries a connection.
type portCall struct {
	c    *Control
	sb   sandbox.Sandbox
	ctx  context.Context // of the call; ends with the connection
	end  context.CancelCauseFunc
	call *connect.BidiStreamForClientSimple[agentv1.DialRequest, agentv1.DialResponse]
}

// open connects, at most until ctx ends.
func (p *portCall) open(ctx context.Context, g Guest, port int) error {
	left := context.AfterFunc(ctx, func() { p.end(context.Cause(ctx)) })
	defer left()
	dialing, cancel := context.WithTimeoutCause(ctx, p.c.cfg.GuestTimeout, errNoAnswer)
	defer cancel()
	late := context.AfterFunc(dialing, func() { p.end(context.Cause(dialing)) })
	defer late()
	var err error
	p.call, err = g.Ports().Dial(p.ctx)
	if err == nil {
		err = p.call.Send(&agentv1.DialRequest{Port: uint32(port)})
	}
	if err == nil || errors.Is(err, io.EOF) { // then the answer says why
		_, err = p.call.Receive()
	}
	if err == nil && !late() {
		err = context.Cause(dialing)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("connect to port %d of sandbox %s: %w", port, p.sb.ID, context.Cause(ctx))
	}
	if errors.Is(err, io.EOF) {
		err = sandbox.Errorf(sandbox.Unavailable, "stream_ended", "the sandbox ended the call before it was connected; try again")
	}
	return p.explain(tooOld(err, "connect to ports"))
}

func (p *portCall) send(f tunnel.Frame) error {
	return p.call.Send(&agentv1.DialRequest{Data: f.Data, Eof: f.EOF, Taken: f.Taken})
}

func (p *portCall) receive() (tunnel.Frame, error) {
	m, err := p.call.Receive()
	switch {
	case err == nil:
		return tunnel.Frame{Data: m.Data, EOF: m.Eof, Taken: m.Taken}, nil
	case errors.Is(err, io.EOF):
		return tunnel.Frame{}, io.EOF
	case connect.CodeOf(err) == connect.CodeAborted:
		return tunnel.Frame{}, tunnel.ErrReset // by the program in the guest
	}
	return tunnel.Frame{}, p.explain(err)
}

func (p *portCall) explain(err error) error { return p.c.explain(p.ctx, p.sb, err) }

func (p *portCall) finish() { _ = p.call.CloseRequest() }

// abort ends the call. HTTP/2 waits for more of a request that is not closed.
func (p *portCall) abort() {
	p.end(net.ErrClosed)
	if p.call != nil {
		_ = p.call.CloseRequest()
	}
}

// close frees what the call holds when nobody receives from it any more.
func (p *portCall) close() {
	p.abort()
	_ = p.call.CloseResponse()
}

// Listening lists the TCP ports that something listens on in a sandbox.
func (c *Control) Listening(ctx context.Context, project string, id sandbox.ID) ([]int, error) {
	res, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.ListeningResponse, error) {
		res, err := g.Ports().Listening(ctx, &agentv1.ListeningRequest{})
		return res, tooOld(err, "list its ports")
	})
	if err != nil {
		return nil, err
	}
	ports := make([]int, 0, len(res.Ports))
	for _, p := range res.Ports {
		if p >= 1 && p <= 65535 {
			ports = append(ports, int(p))
		}
	}
	return ports, nil
}
