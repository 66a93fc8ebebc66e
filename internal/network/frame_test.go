package network

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"ramet.dev/ramet/internal/network/layout"
)

const (
	flagSyn = uint8(header.TCPFlagSyn)
	flagAck = uint8(header.TCPFlagAck)
	flagRst = uint8(header.TCPFlagRst)
)

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// ipFrame is an Ethernet frame with one IPv4 packet from the guest's card.
func ipFrame(proto tcpip.TransportProtocolNumber, src, dst netip.Addr, payload []byte) []byte {
	b := make([]byte, header.EthernetMinimumSize+header.IPv4MinimumSize)
	header.Ethernet(b).Encode(&header.EthernetFields{
		SrcAddr: mustMAC(layout.GuestMAC), DstAddr: mustMAC(layout.GatewayMAC), Type: header.IPv4ProtocolNumber,
	})
	ip := header.IPv4(b[header.EthernetMinimumSize:])
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(header.IPv4MinimumSize + len(payload)),
		TTL:         64,
		Protocol:    uint8(proto),
		SrcAddr:     toAddress(src),
		DstAddr:     toAddress(dst),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	return append(b, payload...)
}

func tcpFrame(src netip.Addr, dst netip.AddrPort, flags uint8, data []byte) []byte {
	b := make([]byte, header.TCPMinimumSize, header.TCPMinimumSize+len(data))
	h := header.TCP(b)
	h.Encode(&header.TCPFields{
		SrcPort: 40000, DstPort: dst.Port(), SeqNum: 7, AckNum: 9,
		DataOffset: header.TCPMinimumSize, Flags: header.TCPFlags(flags), WindowSize: 1000,
	})
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, toAddress(src), toAddress(dst.Addr()), uint16(len(b)+len(data)))
	h.SetChecksum(^h.CalculateChecksum(checksum.Checksum(data, sum)))
	return ipFrame(header.TCPProtocolNumber, src, dst.Addr(), append(b, data...))
}

func udpFrame(src netip.Addr, srcPort uint16, dst netip.AddrPort, data []byte) []byte {
	b := make([]byte, header.UDPMinimumSize)
	header.UDP(b).Encode(&header.UDPFields{
		SrcPort: srcPort, DstPort: dst.Port(), Length: uint16(len(b) + len(data)),
	})
	return ipFrame(header.UDPProtocolNumber, src, dst.Addr(), append(b, data...))
}
