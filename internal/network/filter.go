package network

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"ramet.dev/ramet/internal/network/layout"
)

var (
	gatewayAddr   = netip.MustParseAddr(layout.GatewayIP)
	guestAddr     = netip.MustParseAddr(layout.GuestIP)
	broadcastAddr = netip.MustParseAddr(layout.BroadcastIP)
	metadataAddr  = netip.MustParseAddr(layout.MetadataIP)
	guestSubnet   = netip.MustParsePrefix(layout.Subnet)
	limitedCast   = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

const dhcpServerPort = 67

// admit looks at a frame from the guest before the stack does, and says which
// protocol it carries. It keeps out everything that the stack would answer
// although nobody should, because it takes every address for its own: pings to
// the outside, and ARP questions for others, such as a client's own to find out
// whether its address is free. IPv6, forged sources and multicast stay out too.
func admit(frame []byte) (tcpip.NetworkProtocolNumber, bool) {
	if len(frame) < header.EthernetMinimumSize {
		return 0, false
	}
	proto := header.Ethernet(frame).Type()
	payload := frame[header.EthernetMinimumSize:]
	switch proto {
	case header.ARPProtocolNumber:
		return proto, admitARP(payload)
	case header.IPv4ProtocolNumber:
		return proto, admitIPv4(payload)
	}
	return 0, false
}

// admitARP admits questions for the gateway's addresses.
func admitARP(b []byte) bool {
	if len(b) < header.ARPSize {
		return false
	}
	arp := header.ARP(b)
	if !arp.IsValid() || arp.Op() != header.ARPRequest {
		return false
	}
	target := netip.AddrFrom4([4]byte(arp.ProtocolAddressTarget()))
	return target == gatewayAddr || target == metadataAddr
}

func admitIPv4(b []byte) bool {
	if len(b) < header.IPv4MinimumSize {
		return false
	}
	ip := header.IPv4(b)
	// Netstack trusts these lengths in places, so check them here first.
	if !ip.IsValid(len(b)) {
		return false
	}
	src := netip.AddrFrom4([4]byte(b[12:16]))
	dst := netip.AddrFrom4([4]byte(b[16:20]))
	switch {
	case dst == limitedCast || dst == broadcastAddr:
		return isDHCP(ip)
	case dst.IsMulticast() || dst.IsUnspecified():
		return false
	case src != guestAddr:
		return false
	}
	switch ip.TransportProtocol() {
	case header.TCPProtocolNumber, header.UDPProtocolNumber:
		return true
	case header.ICMPv4ProtocolNumber:
		return dst == gatewayAddr
	}
	return false
}

// isDHCP says whether the packet is for the DHCP server. Its source is not
// checked: a guest that has no address yet sends from 0.0.0.0.
func isDHCP(ip header.IPv4) bool {
	if ip.TransportProtocol() != header.UDPProtocolNumber || ip.FragmentOffset() != 0 || ip.More() {
		return false
	}
	payload := ip[ip.HeaderLength():]
	return len(payload) >= header.UDPMinimumSize && header.UDP(payload).DestinationPort() == dhcpServerPort
}
