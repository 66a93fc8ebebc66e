package network

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/qdisc/fifo"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/network/layout"
)

const (
	nicID = 1
	// queueFrames bounds the frames that wait for the guest; more are dropped.
	queueFrames = 2048
	// tcpBuffer is the send and the receive buffer of a connection towards
	// the guest, in bytes. From crowdedConns connections on new ones get
	// crowdedBuffer, so that all of them together stay bounded.
	tcpBuffer     = 256 << 10
	crowdedBuffer = 64 << 10
	crowdedConns  = 256
	// timeWait can be short: both ends are on one host and nothing between
	// them delays a segment.
	timeWait = time.Second
	// finWait is how long a connection that both sides have closed, and whose
	// last byte the guest has acknowledged, waits for the guest's own end. The
	// stack comes to this state also when it repeats its own end.
	finWait = time.Second
	// listenBacklog bounds the connections that wait for an Accept.
	listenBacklog = 16
)

// newStack makes the network stack of one gateway, with one card on l, that
// takes every IPv4 destination for its own.
func newStack(l *link) (*stack.Stack, error) {
	// What may be reached is for the rules to say, not for the stack, which
	// would drop loopback addresses without an answer.
	ip := ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true})
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ip, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	if err := configureStack(s, l); err != nil {
		s.Destroy()
		return nil, err
	}
	return s, nil
}

func configureStack(s *stack.Stack, l *link) error {
	sack := tcpip.TCPSACKEnabled(true)
	send := tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: tcpBuffer, Max: tcpBuffer}
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: tcpBuffer, Max: tcpBuffer}
	wait := tcpip.TCPTimeWaitTimeoutOption(timeWait)
	linger := tcpip.TCPLingerTimeoutOption(finWait)
	for _, opt := range []tcpip.SettableTransportProtocolOption{&sack, &send, &receive, &wait, &linger} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, opt); err != nil {
			return stackError(err)
		}
	}
	if err := s.CreateNICWithOptions(nicID, l, stack.NICOptions{QDisc: fifo.New(l, 1, queueFrames)}); err != nil {
		return stackError(err)
	}
	for _, a := range []netip.Prefix{
		netip.PrefixFrom(gatewayAddr, layout.PrefixLen),
		netip.PrefixFrom(metadataAddr, 32),
	} {
		addr := tcpip.ProtocolAddress{
			Protocol:          ipv4.ProtocolNumber,
			AddressWithPrefix: tcpip.AddressWithPrefix{Address: toAddress(a.Addr()), PrefixLen: a.Bits()},
		}
		if err := s.AddProtocolAddress(nicID, addr, stack.AddressProperties{}); err != nil {
			return stackError(err)
		}
	}
	// The guest's address and MAC never change, so nobody needs to ask, and a
	// guest that comes back from a snapshot is reachable at once.
	if err := s.AddStaticNeighbor(nicID, ipv4.ProtocolNumber, toAddress(guestAddr), mustMAC(layout.GuestMAC)); err != nil {
		return stackError(err)
	}
	if err := s.SetPromiscuousMode(nicID, true); err != nil {
		return stackError(err)
	}
	if err := s.SetSpoofing(nicID, true); err != nil {
		return stackError(err)
	}
	// Everything goes out on the one link, whose far end is the guest.
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nicID}})
	return nil
}

// listenTCP listens at the gateway itself.
func listenTCP(s *stack.Stack, addr netip.Addr, port uint16) (*gonet.TCPListener, error) {
	wq := new(waiter.Queue)
	ep, err := s.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, wq)
	if err != nil {
		return nil, stackError(err)
	}
	if err := ep.Bind(tcpip.FullAddress{NIC: nicID, Addr: toAddress(addr), Port: port}); err != nil {
		ep.Close()
		return nil, stackError(err)
	}
	if err := ep.Listen(listenBacklog); err != nil {
		ep.Close()
		return nil, stackError(err)
	}
	return gonet.NewTCPListener(s, wq, ep), nil
}

// listenUDP receives datagrams at the gateway itself. An invalid addr also
// takes broadcasts.
func listenUDP(s *stack.Stack, addr netip.Addr, port uint16) (*gonet.UDPConn, error) {
	wq := new(waiter.Queue)
	ep, err := s.NewEndpoint(udp.ProtocolNumber, ipv4.ProtocolNumber, wq)
	if err != nil {
		return nil, stackError(err)
	}
	bind := tcpip.FullAddress{NIC: nicID, Port: port}
	if addr.IsValid() {
		bind.Addr = toAddress(addr)
	} else {
		ep.SocketOptions().SetBroadcast(true)
	}
	if err := ep.Bind(bind); err != nil {
		ep.Close()
		return nil, stackError(err)
	}
	return gonet.NewUDPConn(wq, ep), nil
}

func stackError(err tcpip.Error) error { return errors.New(err.String()) }

func toAddress(a netip.Addr) tcpip.Address { return tcpip.AddrFrom4(a.As4()) }

// mustMAC parses a constant of package layout.
func mustMAC(s string) tcpip.LinkAddress {
	mac, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return tcpip.LinkAddress(mac)
}
