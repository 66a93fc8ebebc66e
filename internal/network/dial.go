package network

import (
	"context"
	"fmt"
	"net"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Dial connects to a TCP port of the guest, whatever its policy. The
// connection also has CloseRead and CloseWrite, and ends with the gateway.
// When nothing listens the error wraps syscall.ECONNREFUSED; when the gateway
// has ended, ErrClosed; when ctx ends first, its cause.
func (g *Gateway) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	conn, err := g.dialGuest(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("dial guest port %d: %w", port, err)
	}
	return conn, nil
}

func (g *Gateway) dialGuest(ctx context.Context, port uint16) (net.Conn, error) {
	if !g.begin() {
		return nil, ErrClosed
	}
	defer g.work.Done()
	wq := new(waiter.Queue)
	ep, err := g.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, wq)
	if err != nil {
		return nil, stackError(err)
	}
	entry, ch := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	// Without it the stack could take the metadata address as the source.
	if err := ep.Bind(tcpip.FullAddress{NIC: nicID, Addr: toAddress(gatewayAddr)}); err != nil {
		ep.Close()
		return nil, stackError(err)
	}
	err = ep.Connect(tcpip.FullAddress{NIC: nicID, Addr: toAddress(guestAddr), Port: port})
	if _, started := err.(*tcpip.ErrConnectStarted); started {
		select {
		case <-ctx.Done():
			ep.Abort()
			ep.Close()
			return nil, context.Cause(ctx)
		case <-g.ctx.Done():
			ep.Abort()
			ep.Close()
			return nil, ErrClosed
		case <-ch:
			err = ep.LastError()
		}
	}
	if err != nil {
		ep.Close()
		return nil, dialError(err)
	}
	ep.SocketOptions().SetDelayOption(false)
	return gonet.NewTCPConn(wq, ep), nil
}

func dialError(err tcpip.Error) error {
	switch err.(type) {
	case *tcpip.ErrConnectionRefused:
		return syscall.ECONNREFUSED
	case *tcpip.ErrConnectionReset:
		return syscall.ECONNRESET
	case *tcpip.ErrTimeout:
		return syscall.ETIMEDOUT
	case *tcpip.ErrAborted:
		return ErrClosed
	}
	return stackError(err)
}
