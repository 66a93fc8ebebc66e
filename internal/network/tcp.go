package network

import (
	"context"
	"net"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// handshakeSlack is how many connection attempts may wait to be refused, over
// the limit of connections; the guest repeats those beyond it.
const handshakeSlack = 128

// forwardTCP takes the connections of the guest that no listener of the
// gateway takes. Segments of unknown connections, such as those from before a
// restore, are left to the stack, which resets them.
func (g *Gateway) forwardTCP() {
	f := tcp.NewForwarder(g.stack, tcpBuffer, g.limits.TCPConns+handshakeSlack, g.handleTCP)
	g.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		// A connection attempt from port 0 or to port 0 cannot be dialled.
		if id.LocalPort == 0 || id.RemotePort == 0 || len(pkt.TransportHeader().Slice()) < header.TCPMinimumSize {
			return false
		}
		return f.HandlePacket(id, pkt)
	})
}

// handleTCP runs in a goroutine of its own for each connection attempt. It
// answers the guest only after the outside has answered, so that the guest
// sees a refusal as what it is.
func (g *Gateway) handleTCP(r *tcp.ForwarderRequest) {
	if !g.begin() {
		r.Complete(false)
		return
	}
	defer g.work.Done()
	id := r.ID()
	dst := toAddrPort(id.LocalAddress, id.LocalPort)
	f, v := g.open(protoTCP, dst)
	if !v.ok() {
		g.denyFlow(&flow{proto: protoTCP, dst: dst}, v)
		r.Complete(true)
		return
	}
	defer g.drop(f)
	host, err := g.dialOut(f)
	if err != nil {
		g.log.Debug("dial failed", "dst", dst, "err", err)
		r.Complete(true)
		return
	}
	wq := new(waiter.Queue)
	ep, terr := r.CreateEndpoint(wq)
	if terr != nil {
		r.Complete(true)
		resetConn(host)
		return
	}
	r.Complete(false)
	if g.crowded() {
		ep.SocketOptions().SetSendBufferSize(crowdedBuffer, false)
		ep.SocketOptions().SetReceiveBufferSize(crowdedBuffer, false)
	}
	ep.SocketOptions().SetDelayOption(false)
	g.stats.tcpTotal.Add(1)
	newRelay(f, ep, wq, host, g.newInspection(f)).run()
}

func (g *Gateway) dialOut(f *flow) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(f.ctx, g.limits.DialTimeout)
	defer cancel()
	d := net.Dialer{KeepAlive: 30 * time.Second}
	conn, err := d.DialContext(ctx, "tcp4", f.dst.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// resetConn closes c with a reset.
func resetConn(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
