package network

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// zone maps a name to its records in zone file form.
type zone map[string][]string

// ServeDNS answers from the zone as an authoritative server does.
func (z zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	reply := new(dns.Msg).SetReply(q)
	name := q.Question[0].Name
	records, ok := z[name]
	if !ok {
		reply.Rcode = dns.RcodeNameError
	}
	for _, s := range records {
		if rr, err := dns.NewRR(name + " 60 IN " + s); err == nil && rr.Header().Rrtype == q.Question[0].Qtype {
			reply.Answer = append(reply.Answer, rr)
		}
	}
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		size := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
		reply.Truncate(size)
	}
	w.WriteMsg(reply)
}

// startDNS starts a name server on loopback, on UDP and TCP.
func startDNS(t testing.TB, h dns.Handler) netip.AddrPort {
	t.Helper()
	pc, l := listenBoth(t)
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: h}, {Listener: l, Handler: h}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.ActivateAndServe()
		}()
		<-started
		t.Cleanup(func() {
			s.Shutdown()
			<-done
		})
	}
	return netip.MustParseAddrPort(pc.LocalAddr().String())
}

// listenBoth returns a UDP and a TCP socket on the same free port.
func listenBoth(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 {
		pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp4", pc.LocalAddr().String())
		if err == nil {
			return pc, l
		}
		pc.Close() // somebody has that port on TCP
	}
	t.Fatal("no port is free on both UDP and TCP")
	return nil, nil
}

func only(servers ...netip.AddrPort) func() ([]netip.AddrPort, error) {
	return func() ([]netip.AddrPort, error) { return servers, nil }
}

// ask puts a question to the gateway, in the guest.
func (g *guest) ask(network, name string, qtype uint16, mods ...func(*dns.Msg)) *dns.Msg {
	g.t.Helper()
	q := new(dns.Msg).SetQuestion(name, qtype)
	for _, m := range mods {
		m(q)
	}
	var conn net.Conn
	if network == "tcp" {
		conn = g.dial("192.168.127.1:53")
	} else {
		conn = g.dialUDP("192.168.127.1:53")
	}
	c := &dns.Conn{Conn: conn, UDPSize: dns.MaxMsgSize}
	if network == "udp" {
		c.Conn = packetConn{conn}
	}
	if err := c.WriteMsg(q); err != nil {
		g.t.Fatal(err)
	}
	reply, err := c.ReadMsg()
	if err != nil {
		g.t.Fatal(err)
	}
	if reply.Id != q.Id {
		g.t.Errorf("id %d, want %d", reply.Id, q.Id)
	}
	reply.Compress = true // so that Len is the length that it had
	return reply
}

// packetConn tells package dns that the connection keeps message boundaries.
type packetConn struct{ net.Conn }

func (packetConn) ReadFrom([]byte) (int, net.Addr, error) { panic("not used") }
func (packetConn) WriteTo([]byte, net.Addr) (int, error)  { panic("not used") }

func TestDNS(t *testing.T) {
	long := make([]string, 40)
	for i := range long {
		long[i] = fmt.Sprintf("TXT %q", strings.Repeat("x", 50)+fmt.Sprint(i))
	}
	server := startDNS(t, zone{
		"web.test.":  {"A 203.0.113.5", "AAAA 2001:db8::5", "MX 10 mail.test."},
		"six.test.":  {"AAAA 2001:db8::6"},
		"long.test.": long,
	})
	g := newGuest(t, Config{Upstreams: only(server)}, egress)
	for _, network := range []string{"udp", "tcp"} {
		if r := g.ask(network, "web.test.", dns.TypeA); len(r.Answer) != 1 || r.Answer[0].(*dns.A).A.String() != "203.0.113.5" {
			t.Errorf("%s A: %v", network, r)
		}
		if r := g.ask(network, "web.test.", dns.TypeMX); len(r.Answer) != 1 {
			t.Errorf("%s MX: %v", network, r)
		}
		// No IPv6 in the guest: the name exists, but has no such address.
		for _, name := range []string{"web.test.", "six.test."} {
			if r := g.ask(network, name, dns.TypeAAAA); len(r.Answer) != 0 || r.Rcode != dns.RcodeSuccess {
				t.Errorf("%s AAAA %s: %v", network, name, r)
			}
		}
		if r := g.ask(network, "absent.test.", dns.TypeA); r.Rcode != dns.RcodeNameError {
			t.Errorf("%s absent: %v", network, r)
		}
		if r := g.ask(network, "web.test.", dns.TypeAXFR); r.Rcode != dns.RcodeRefused {
			t.Errorf("%s AXFR: %v", network, r)
		}
	}
	// Truncated on UDP, complete with EDNS or on TCP.
	if r := g.ask("udp", "long.test.", dns.TypeTXT); !r.Truncated || r.Len() > dns.MinMsgSize {
		t.Errorf("long answer on UDP: %d bytes, truncated %v", r.Len(), r.Truncated)
	}
	if r := g.ask("udp", "long.test.", dns.TypeTXT, func(q *dns.Msg) { q.SetEdns0(4096, false) }); r.Truncated || len(r.Answer) != len(long) {
		t.Errorf("long answer with EDNS: %d records, truncated %v", len(r.Answer), r.Truncated)
	}
	if r := g.ask("tcp", "long.test.", dns.TypeTXT); r.Truncated || len(r.Answer) != len(long) {
		t.Errorf("long answer on TCP: %d records, truncated %v", len(r.Answer), r.Truncated)
	}
}

func TestDNSRebindingIsRefusedAtDial(t *testing.T) {
	server := startDNS(t, zone{"evil.test.": {"A 10.0.0.1", "A 127.0.0.1"}})
	g := newGuest(t, Config{Upstreams: only(server)}, egress)
	r := g.ask("udp", "evil.test.", dns.TypeA)
	if len(r.Answer) != 2 {
		t.Fatalf("answer %v", r)
	}
	for _, rr := range r.Answer {
		g.mustRefuse(net.JoinHostPort(rr.(*dns.A).A.String(), "80"))
	}
}

func TestDNSUsesNextServer(t *testing.T) {
	good := startDNS(t, zone{"web.test.": {"A 203.0.113.5"}})
	failing := startDNS(t, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
	}))
	silent := startDNS(t, dns.HandlerFunc(func(dns.ResponseWriter, *dns.Msg) {}))
	forging := startDNS(t, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		other := q.Copy()
		other.Id++
		w.WriteMsg(new(dns.Msg).SetReply(other))
		w.Write([]byte("garbage"))
	}))
	limits := Limits{DNSTimeout: 300 * time.Millisecond}
	for name, first := range map[string]netip.AddrPort{"failing": failing, "silent": silent, "forging": forging} {
		g := newGuest(t, Config{Upstreams: only(first, good), Limits: limits}, egress)
		if r := g.ask("udp", "web.test.", dns.TypeA); len(r.Answer) != 1 {
			t.Errorf("%s: %v", name, r)
		}
	}
	g := newGuest(t, Config{Upstreams: only(silent), Limits: limits}, egress)
	if r := g.ask("udp", "web.test.", dns.TypeA); r.Rcode != dns.RcodeServerFailure {
		t.Errorf("no server answers: %v", r)
	}
}

func TestResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	conf := "# comment\nsearch corp.example\nnameserver 10.1.1.1\nnameserver nonsense\nnameserver fe80::1%eth0\noptions ndots:5\n"
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newResolvConf(path)
	got, err := c.upstreams()
	want := []netip.AddrPort{netip.MustParseAddrPort("10.1.1.1:53"), netip.MustParseAddrPort("[fe80::1%eth0]:53")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("upstreams %v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte("search corp.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := newResolvConf(path).upstreams(); err == nil {
		t.Errorf("no servers: got %v", got)
	}
}
