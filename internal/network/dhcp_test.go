package network

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"ramet.dev/ramet/internal/network/layout"
)

func guestMAC() net.HardwareAddr { return net.HardwareAddr(mustMAC(layout.GuestMAC)) }

// dhcpAsk sends a DHCP message as a client without an address does, by
// broadcast from 0.0.0.0, and returns the answer.
func (r *rawGuest) dhcpAsk(m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	r.t.Helper()
	frame := udpFrame(netip.IPv4Unspecified(), dhcpClientPort, netip.AddrPortFrom(limitedCast, dhcpServerPort), m.ToBytes())
	copy(frame, header.EthernetBroadcastAddress)
	r.send(frame)
	ip := header.IPv4(r.receive()[header.EthernetMinimumSize:])
	if dst := header.UDP(ip.Payload()).DestinationPort(); dst != dhcpClientPort {
		r.t.Fatalf("answer to port %d", dst)
	}
	reply, err := dhcpv4.FromBytes(header.UDP(ip.Payload()).Payload())
	if err != nil {
		r.t.Fatal(err)
	}
	return reply
}

func TestDHCPLease(t *testing.T) {
	r := newRawGuest(t, Config{}, Policy{})
	discover, err := dhcpv4.NewDiscovery(guestMAC())
	if err != nil {
		t.Fatal(err)
	}
	offer := r.dhcpAsk(discover)
	if offer.MessageType() != dhcpv4.MessageTypeOffer || offer.YourIPAddr.String() != layout.GuestIP {
		t.Fatalf("offer %v", offer.Summary())
	}
	request, err := dhcpv4.NewRequestFromOffer(offer)
	if err != nil {
		t.Fatal(err)
	}
	ack := r.dhcpAsk(request)
	mtu := ack.Options.Get(dhcpv4.OptionInterfaceMTU)
	switch {
	case ack.MessageType() != dhcpv4.MessageTypeAck,
		ack.YourIPAddr.String() != layout.GuestIP,
		len(ack.Router()) != 1 || ack.Router()[0].String() != layout.GatewayIP,
		len(ack.DNS()) != 1 || ack.DNS()[0].String() != layout.GatewayIP,
		ack.SubnetMask().String() != "ffffff00",
		len(mtu) != 2 || int(mtu[0])<<8|int(mtu[1]) != layout.MTU,
		ack.IPAddressLeaseTime(0) < 100*365*24*time.Hour,
		ack.DomainName() != "" || ack.DomainSearch() != nil:
		t.Errorf("ack %v", ack.Summary())
	}
	request.UpdateOption(dhcpv4.OptRequestedIPAddress(net.IPv4(192, 168, 127, 99)))
	if nak := r.dhcpAsk(request); nak.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("another address: %v", nak.Summary())
	}
}

func TestDHCPIgnoresStrangers(t *testing.T) {
	other, err := dhcpv4.NewDiscovery(net.HardwareAddr{2, 0, 0, 0, 0, 1})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := dhcpv4.NewDiscovery(guestMAC())
	if err != nil {
		t.Fatal(err)
	}
	answer.OpCode = dhcpv4.OpcodeBootReply
	for _, m := range []*dhcpv4.DHCPv4{other, answer} {
		if reply, err := dhcpReply(m.ToBytes()); err == nil {
			t.Errorf("%v was answered: %x", m.Summary(), reply)
		}
	}
}

func FuzzDHCPReply(f *testing.F) {
	m, err := dhcpv4.NewDiscovery(guestMAC())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.ToBytes())
	m.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeRequest))
	f.Add(m.ToBytes())
	f.Add([]byte{1, 1, 6})
	f.Fuzz(func(t *testing.T, b []byte) {
		reply, err := dhcpReply(b)
		if err != nil {
			return
		}
		if _, err := dhcpv4.FromBytes(reply); err != nil {
			t.Errorf("malformed answer: %v", err)
		}
	})
}
