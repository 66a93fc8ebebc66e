package network

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// forwardUDP takes the datagrams of the guest that belong to no session yet.
// For those that may not go out the stack sends "port unreachable".
func (g *Gateway) forwardUDP() {
	g.stack.SetTransportProtocolHandler(udp.ProtocolNumber, g.handleUDP)
}

// handleUDP runs on the goroutine that reads the link, so it does not block:
// connecting a UDP socket to a numeric address only sets it up.
func (g *Gateway) handleUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	dst := toAddrPort(id.LocalAddress, id.LocalPort)
	if dst.Port() == 0 || dst.Addr() == gatewayAddr || !g.begin() {
		return false
	}
	f, v := g.open(protoUDP, dst)
	if !v.ok() {
		g.denyFlow(&flow{proto: protoUDP, dst: dst}, v)
		g.work.Done()
		return false
	}
	if first := pkt.Data().AsRange().Capped(quicHeader).ToSlice(); f.inspect && isQUIC(first) {
		g.refuseQUIC(f)
		g.drop(f)
		g.work.Done()
		return false
	}
	s, err := g.newSession(f, id, pkt)
	if err != nil {
		g.drop(f)
		g.work.Done()
		g.log.Debug("udp session failed", "dst", dst, "err", err)
		return false
	}
	g.stats.udpTotal.Add(1)
	go func() {
		defer g.work.Done()
		defer g.drop(f)
		s.run()
	}()
	return true
}

// refuseQUIC reports that a session is refused, or cut, for its datagrams are
// QUIC. "Port unreachable" makes clients try TCP, where the name can be seen.
func (g *Gateway) refuseQUIC(f *flow) {
	v := verdict{reason: reasonQUIC, rule: ruleQUIC}
	if len(f.names) > 0 {
		v.name = f.names[0]
	}
	g.denyFlow(f, v)
}

// session moves the datagrams between one port of the guest and one address
// outside.
type session struct {
	g     *Gateway
	flow  *flow
	guest *guestEnd
	host  *net.UDPConn
}

func (g *Gateway) newSession(f *flow, id stack.TransportEndpointID, pkt *stack.PacketBuffer) (*session, error) {
	var d net.Dialer
	conn, err := d.DialContext(f.ctx, "udp4", f.dst.String())
	if err != nil {
		return nil, err
	}
	host := conn.(*net.UDPConn)
	wq := new(waiter.Queue)
	ep, err := g.createUDP(id, pkt, wq)
	if err != nil {
		host.Close()
		return nil, err
	}
	return &session{g: g, flow: f, guest: &guestEnd{ep: ep, wq: wq, done: f.ctx.Done()}, host: host}, nil
}

// createUDP makes the endpoint of a new session and gives it the packet.
// A udp.Forwarder does it, but its own handler cannot say "not handled".
func (g *Gateway) createUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer, wq *waiter.Queue) (tcpip.Endpoint, error) {
	var ep tcpip.Endpoint
	var terr tcpip.Error
	udp.NewForwarder(g.stack, func(r *udp.ForwarderRequest) {
		ep, terr = r.CreateEndpoint(wq)
	}).HandlePacket(id, pkt)
	// The forwarder took a reference for its request and never gives it back.
	pkt.DecRef()
	if terr != nil {
		return nil, stackError(terr)
	}
	return ep, nil
}

// run returns when the session is over and nothing of it is left.
func (s *session) run() {
	stop := context.AfterFunc(s.flow.ctx, func() { s.host.Close() })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(s.toHost)
	wg.Go(s.toGuest)
	wg.Wait()
	s.host.Close()
	s.guest.ep.Close()
}

func (s *session) toHost() {
	defer s.flow.cancel()
	for {
		buf := buffers.Get().(*[relayBuffer]byte)
		n, err := s.guest.readNow(buf[:])
		if err == nil {
			s.flow.touch()
			if s.flow.inspect && isQUIC(buf[:n]) {
				buffers.Put(buf)
				s.g.refuseQUIC(s.flow)
				return
			}
			_, err = s.host.Write(buf[:n])
		}
		buffers.Put(buf)
		switch {
		case err == nil, errors.Is(err, syscall.EMSGSIZE), errors.Is(err, syscall.ENOBUFS):
		case errors.Is(err, errWouldBlock):
			if s.guest.waitReadable() != nil {
				return
			}
		default:
			// Among them ECONNREFUSED: the next datagram opens a new session.
			return
		}
	}
}

func (s *session) toGuest() {
	defer s.flow.cancel()
	raw, err := s.host.SyscallConn()
	if err != nil {
		return
	}
	for {
		buf, n, err := readReady(raw)
		if err != nil {
			return
		}
		s.flow.touch()
		err = s.guest.send(buf[:n])
		buffers.Put(buf)
		if err != nil {
			return
		}
	}
}

// send sends one datagram to the guest. A full queue loses it, as a network
// would.
func (e *guestEnd) send(b []byte) error {
	_, err := e.ep.Write(bytes.NewReader(b), tcpip.WriteOptions{})
	switch err.(type) {
	case *tcpip.ErrClosedForSend, *tcpip.ErrInvalidEndpointState, *tcpip.ErrAborted:
		return io.ErrClosedPipe
	}
	return nil
}
