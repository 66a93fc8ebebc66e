// Package ports reaches what listens in the guest: it connects the host to a TCP port,
// whatever address of the guest the service is bound to, and lists the ports that are open.
//
// How a connection travels is package tunnel's. Start reading at Service.Dial; listening.go
// reads the kernel's tables.
package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest/tunnel"
)

const (
	// MaxOpen bounds the connections that are open at a time. Each holds up to about 400 KB
	// where both sides have stopped reading, and the agent's memory is scarce.
	MaxOpen = 128
	// dialTimeout is how long a service may take to accept a connection.
	dialTimeout = 5 * time.Second
	// errnoKey is guest.ErrnoKey, which a package of the agent does not import.
	errnoKey = "Ramet-Errno"
)

// Service implements agentv1connect.PortsHandler. Use New.
type Service struct {
	addresses []string // that a service may be bound to, in the order in which they are tried
	tables    string   // the directory of the kernel's tables of sockets
	open      chan struct{}
	tasks     sync.WaitGroup // outlive their call for a moment
}

// New returns the service of this machine. Its own addresses are tried after those of loopback.
func New(own ...string) *Service {
	return &Service{
		addresses: append([]string{"127.0.0.1", "::1"}, own...),
		tables:    "/proc/net", open: make(chan struct{}, MaxOpen),
	}
}

// Close waits for what outlived its call. No call may be open.
func (s *Service) Close() { s.tasks.Wait() }

// Dial connects the call to a port of the guest.
func (s *Service) Dial(ctx context.Context, call *connect.BidiStream[agentv1.DialRequest, agentv1.DialResponse]) error {
	first, err := call.Receive()
	if err != nil {
		return fmt.Errorf("receive the port: %w", err)
	}
	port := first.Port
	if port < 1 || port > 65535 {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("port %d does not exist", port))
	}
	select {
	case s.open <- struct{}{}:
		defer func() { <-s.open }()
	default:
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d connections to ports of the sandbox are open; close some first", MaxOpen))
	}
	conn, err := s.connect(ctx, int(port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := call.Send(&agentv1.DialResponse{}); err != nil {
		return err
	}
	far := tunnel.New(tunnel.Link{
		Send: func(f tunnel.Frame) error {
			return call.Send(&agentv1.DialResponse{Data: f.Data, Eof: f.EOF, Taken: f.Taken})
		},
		Receive: func() (tunnel.Frame, error) {
			m, err := call.Receive()
			return tunnel.Frame{Data: m.GetData(), EOF: m.GetEof(), Taken: m.GetTaken()}, err
		},
	})
	// It reads until this call has ended: the server then closes what it reads.
	s.tasks.Go(func() { <-far.Done() })
	defer far.Stop()
	if err := splice(far, conn); err != nil {
		return connect.NewError(connect.CodeAborted, err)
	}
	far.Flush()
	return nil
}

// connect tries the guest's own addresses: a service that is bound to loopback alone is
// reached as one that is bound to all of them.
func (s *Service) connect(ctx context.Context, port int) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: -1} // nothing on the way forgets a connection
	for _, address := range s.addresses {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		var timeout net.Error
		switch {
		case err == nil:
			return conn.(*net.TCPConn), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(err, &timeout) && timeout.Timeout():
			return nil, connect.NewError(connect.CodeDeadlineExceeded,
				fmt.Errorf("what listens on port %d of the sandbox accepted no connection for %s", port, dialTimeout))
		case errors.Is(err, syscall.ECONNRESET):
			return nil, connect.NewError(connect.CodeAborted, fmt.Errorf("what listens on port %d of the sandbox reset the connection at once", port))
		}
		// Refused, or the guest has no such address.
	}
	refused := connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("nothing listens on port %d of the sandbox; start the service first", port))
	refused.Meta().Set(errnoKey, unix.ErrnoName(unix.ECONNREFUSED))
	return nil, refused
}

// splice copies both ways until both have ended, and passes on when either side says that
// it sends no more. After a failure of one side the other is reset.
func splice(far *tunnel.Conn, near *net.TCPConn) error {
	inward := make(chan error, 1)
	go func() {
		_, err := io.Copy(struct{ io.Writer }{near}, far)
		if err == nil {
			err = near.CloseWrite()
		}
		if err != nil && !errors.Is(err, syscall.ENOTCONN) {
			reset(near) // also ends the other direction
			inward <- err
			return
		}
		inward <- nil
	}()
	_, err := io.CopyBuffer(far, struct{ io.Reader }{near}, make([]byte, 64<<10))
	if err == nil {
		err = far.CloseWrite()
	}
	if err != nil {
		far.Abort() // also ends the other direction
		reset(near)
	}
	return errors.Join(err, <-inward)
}

// reset makes the program in the guest see that its connection broke.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // fails only when it is closed already
	_ = conn.Close()
}
