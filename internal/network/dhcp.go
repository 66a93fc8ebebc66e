package network

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"ramet.dev/ramet/internal/network/layout"
)

const dhcpClientPort = 68

// leaseTime stands for "for ever" in DHCP: a guest never has to renew, however
// long it was frozen.
const leaseTime = math.MaxUint32 * time.Second

// serveDHCP starts the DHCP server. It gives its one address to the one card
// with the guest's MAC.
func (g *Gateway) serveDHCP() error {
	conn, err := listenUDP(g.stack, netip.Addr{}, dhcpServerPort)
	if err != nil {
		return err
	}
	g.work.Go(func() {
		defer conn.Close()
		g.answerDHCP(conn)
	})
	return nil
}

func (g *Gateway) answerDHCP(conn *gonet.UDPConn) {
	stop := closeOnDone(g, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, layout.MTU)
	for g.ctx.Err() == nil {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		reply, err := dhcpReply(buf[:n])
		if err != nil {
			g.log.Debug("dhcp request ignored", "err", err)
			continue
		}
		to := &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpClientPort}
		if _, err := conn.WriteTo(reply, to); err != nil {
			g.log.Debug("dhcp reply failed", "err", err)
		}
	}
}

// dhcpReply answers one request of the guest. The answer is broadcast: a
// client that has no address yet hears it, and there is nobody else.
func dhcpReply(request []byte) ([]byte, error) {
	m, err := dhcpv4.FromBytes(request)
	if err != nil {
		return nil, err
	}
	if m.OpCode != dhcpv4.OpcodeBootRequest {
		return nil, fmt.Errorf("opcode %v", m.OpCode)
	}
	if m.ClientHWAddr.String() != layout.GuestMAC {
		return nil, fmt.Errorf("unknown card %v", m.ClientHWAddr)
	}
	gateway, guest := gatewayAddr.AsSlice(), guestAddr.AsSlice()
	var kind dhcpv4.MessageType
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
	case dhcpv4.MessageTypeInform:
		kind = dhcpv4.MessageTypeAck
	case dhcpv4.MessageTypeRequest:
		wanted := m.RequestedIPAddress()
		if wanted == nil || wanted.IsUnspecified() {
			wanted = m.ClientIPAddr
		}
		kind = dhcpv4.MessageTypeAck
		if !wanted.Equal(guest) {
			kind = dhcpv4.MessageTypeNak
		}
	default:
		return nil, fmt.Errorf("message type %v", m.MessageType())
	}
	mods := []dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind),
		dhcpv4.WithServerIP(gateway),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(gateway)),
	}
	if kind != dhcpv4.MessageTypeNak {
		mods = append(mods,
			dhcpv4.WithYourIP(guest),
			dhcpv4.WithLeaseTime(uint32(leaseTime/time.Second)),
			dhcpv4.WithNetmask(net.CIDRMask(layout.PrefixLen, 32)),
			dhcpv4.WithRouter(gateway),
			dhcpv4.WithDNS(gateway),
			dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, []byte{layout.MTU >> 8, layout.MTU & 0xff})),
		)
	}
	reply, err := dhcpv4.NewReplyFromRequest(m, mods...)
	if err != nil {
		return nil, err
	}
	return reply.ToBytes(), nil
}
