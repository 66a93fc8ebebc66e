package network

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

func TestDeniedAddressesAreRefusedAtOnce(t *testing.T) {
	g := newGuest(t, Config{}, egress)
	for addr, reason := range map[string]string{
		"10.0.0.1:80":         "private",
		"127.0.0.1:22":        "loopback",
		"192.168.127.1:22":    "guest network",
		"169.254.169.254:80":  "metadata", // no handler is configured
		"169.254.169.254:443": "metadata",
		"100.64.0.1:80":       "carrier NAT",
	} {
		g.mustRefuse(addr)
		if d := g.denial(); d.Reason != reason || d.Dst.String() != addr {
			t.Errorf("%s: denial %+v, want reason %q", addr, d, reason)
		}
	}
	if s := g.gw.Stats(); s.Denied != 6 || s.TCPTotal != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestHostAddressIsRefused(t *testing.T) {
	addr := serveTCP(t, echo)
	// 127.0.0.0/8 is open, but as a stand-in for a public address of the host
	// use one that the rules know only from HostAddrs.
	host := func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("198.51.100.9")}, nil
	}
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen, HostAddrs: host}, egress)
	g.mustRefuse("198.51.100.9:7070")
	if d := g.denial(); d.Reason != "host" {
		t.Errorf("denial %+v", d)
	}
	if err := g.roundTrip(addr, 1); err != nil {
		t.Error(err)
	}
}

func TestNoEgress(t *testing.T) {
	accepted := make(chan struct{}, 1)
	addr := serveTCP(t, func(*net.TCPConn) { accepted <- struct{}{} })
	dnsAddr := startDNS(t, zone{})
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen, Upstreams: only(dnsAddr)}, Policy{})
	g.mustRefuse(addr)
	if d := g.denial(); d.Reason != reasonEgress {
		t.Errorf("denial %+v", d)
	}
	if reply := g.ask("udp", "web.test.", 1); reply.Rcode != 5 {
		t.Errorf("dns answered %v, want REFUSED", reply)
	}
	if d := g.denial(); d.Proto != "dns" || d.Name != "web.test." || d.Reason != reasonEgress {
		t.Errorf("denial %+v", d)
	}
	select {
	case <-accepted:
		t.Error("the server got a connection")
	default:
	}
}

func TestSetPolicyCutsConnections(t *testing.T) {
	addr := serveTCP(t, echo)
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	c := g.dial(addr)
	io.WriteString(c, "x")
	io.ReadFull(c, make([]byte, 1))
	g.gw.SetPolicy(Policy{})
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("read: %v, want connection reset", err)
	}
	g.mustRefuse(addr)
	g.gw.SetPolicy(egress)
	if err := g.roundTrip(addr, 1); err != nil {
		t.Errorf("after egress is on again: %v", err)
	}
}

func TestDenialEventsAreBounded(t *testing.T) {
	g := newGuest(t, Config{}, Policy{})
	const tries = 200
	for range tries {
		g.mustRefuse("10.0.0.1:80")
	}
	s := g.gw.Stats()
	if s.Denied != tries {
		t.Errorf("Denied = %d, want %d", s.Denied, tries)
	}
	g.gw.Close()
	events := 0
	for range g.gw.Events() {
		events++
	}
	if uint64(events)+s.EventsSuppressed != tries || events > 64 || events == 0 {
		t.Errorf("%d events, %d suppressed", events, s.EventsSuppressed)
	}
}

func TestMetadataIsForItsOwnGuestOnly(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, NameFrom(r.Context())+" "+r.URL.Path)
	})
	// Without egress too: it ends at the gateway.
	g := newGuest(t, Config{Metadata: h}, Policy{})
	client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{
		DialContext:       func(_ context.Context, _, addr string) (net.Conn, error) { return g.dialTimeout(addr, testTimeout) },
		DisableKeepAlives: true,
	}}
	res, err := client.Get("http://169.254.169.254/latest")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != "test /latest" {
		t.Errorf("metadata answered %q, %v", b, err)
	}
	g.mustRefuse("169.254.169.254:443")
	g.mustRefuse("192.168.127.1:80")
}

func TestGatewayAnswersARPAndPing(t *testing.T) {
	r := newRawGuest(t, Config{}, Policy{})
	arpRequest := func(target [4]byte) []byte {
		b := make([]byte, header.EthernetMinimumSize+header.ARPSize)
		header.Ethernet(b).Encode(&header.EthernetFields{
			SrcAddr: mustMAC("5a:94:ef:e4:0c:ee"), DstAddr: header.EthernetBroadcastAddress, Type: header.ARPProtocolNumber,
		})
		a := header.ARP(b[header.EthernetMinimumSize:])
		a.SetIPv4OverEthernet()
		a.SetOp(header.ARPRequest)
		copy(a.HardwareAddressSender(), mustMAC("5a:94:ef:e4:0c:ee"))
		copy(a.ProtocolAddressSender(), guestAddr.AsSlice())
		copy(a.ProtocolAddressTarget(), target[:])
		return b
	}
	// Nobody else is on the network: only the second question has an answer.
	r.send(arpRequest([4]byte{192, 168, 127, 77}))
	r.send(arpRequest([4]byte{192, 168, 127, 1}))
	a := header.ARP(r.receive()[header.EthernetMinimumSize:])
	if a.Op() != header.ARPReply || string(a.ProtocolAddressSender()) != string(gatewayAddr.AsSlice()) ||
		string(a.HardwareAddressSender()) != string(mustMAC("5a:94:ef:e4:0c:dd")) {
		t.Errorf("ARP answer %v", a)
	}
	ping := func(to netip.Addr) []byte {
		b := make([]byte, header.ICMPv4MinimumSize)
		h := header.ICMPv4(b)
		h.SetType(header.ICMPv4Echo)
		h.SetIdent(3)
		h.SetChecksum(^header.ICMPv4Checksum(h, 0) ^ 0xffff)
		h.SetChecksum(header.ICMPv4Checksum(h, 0))
		return ipFrame(header.ICMPv4ProtocolNumber, guestAddr, to, b)
	}
	// The outside does not answer pings; the gateway does.
	r.send(ping(netip.MustParseAddr("8.8.8.8")))
	r.send(ping(gatewayAddr))
	ip := header.IPv4(r.receive()[header.EthernetMinimumSize:])
	if src := ip.SourceAddress().String(); src != "192.168.127.1" || header.ICMPv4(ip.Payload()).Type() != header.ICMPv4EchoReply {
		t.Errorf("ping answer %v from %s", ip.Payload(), src)
	}
}

func TestUDPSessions(t *testing.T) {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo(append([]byte("re: "), buf[:n]...), from)
		}
	}()
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen, Limits: Limits{UDPSessions: 2, UDPIdle: 200 * time.Millisecond}}, egress)
	buf := make([]byte, 65536)
	big := strings.Repeat("b", 9000) // needs fragments both ways
	for _, msg := range []string{"hello", "", big} {
		c := g.dialUDP(pc.LocalAddr().String())
		for range 2 {
			if _, err := c.Write([]byte(msg)); err != nil {
				t.Fatal(err)
			}
			n, err := c.Read(buf)
			if err != nil || string(buf[:n]) != "re: "+msg {
				t.Fatalf("read %d bytes, %v", n, err)
			}
		}
		c.Close()
		waitFor(t, "the idle session to end", func() bool { return g.gw.Stats().UDPActive == 0 })
	}
	if s := g.gw.Stats(); s.UDPTotal != 3 {
		t.Errorf("UDPTotal = %d, want 3", s.UDPTotal)
	}
}

// mustBeUnreachable checks that a datagram is answered by "port unreachable".
func (r *rawGuest) mustBeUnreachable(port uint16, dst string) {
	r.t.Helper()
	to := mustAddrPort(dst)
	r.send(udpFrame(guestAddr, port, to, []byte("x")))
	ip := header.IPv4(r.receive()[header.EthernetMinimumSize:])
	icmp := header.ICMPv4(ip[ip.HeaderLength():])
	if ip.TransportProtocol() != header.ICMPv4ProtocolNumber || icmp.Type() != header.ICMPv4DstUnreachable || icmp.Code() != header.ICMPv4PortUnreachable {
		r.t.Errorf("datagram to %s was answered %x, want port unreachable", dst, []byte(ip))
	}
	if from := ip.SourceAddress().String(); from != to.Addr().String() {
		r.t.Errorf("unreachable comes from %s, want %s", from, to.Addr())
	}
}

func TestUDPDeniedIsUnreachable(t *testing.T) {
	r := newRawGuest(t, Config{}, egress)
	for _, dst := range []string{"10.0.0.1:5000", "192.168.127.1:5000", "169.254.169.254:53"} {
		r.mustBeUnreachable(6000, dst)
	}
	r.gw.SetPolicy(Policy{})
	r.mustBeUnreachable(6000, "203.0.113.1:443")
}

func TestUDPSessionLimit(t *testing.T) {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	r := newRawGuest(t, Config{AllowedPrivate: loopbackOpen, Limits: Limits{UDPSessions: 2}}, egress)
	dst := pc.LocalAddr().String()
	for port := range uint16(2) {
		r.send(udpFrame(guestAddr, 6000+port, mustAddrPort(dst), []byte("x")))
	}
	r.mustBeUnreachable(6002, dst)
	if d := <-r.gw.Events(); d.Reason != reasonLimit || d.Proto != "udp" || d.Dst.String() != dst {
		t.Errorf("denial %+v", d)
	}
}
