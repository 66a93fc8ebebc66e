package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// egressZone has two names at one address, as a shared server has.
var egressZone = zone{
	"good.test.":     {"A 127.0.0.1", "TXT hello", "HTTPS 1 . alpn=h2 ech=AEX+DQBBAAAg", "AAAA 2001:db8::1"},
	"also.test.":     {"A 127.0.0.1"},
	"evil.test.":     {"A 127.0.0.1", "TXT secret"},
	"rebound.test.":  {"A 10.0.0.1"},
	"a.wild.test.":   {"A 127.0.0.1"},
	"longlife.test.": {"A 127.0.0.1"},
}

// recordingDNS is a server that remembers what it was asked.
type recordingDNS struct {
	zone
	mu    sync.Mutex
	asked []string
	extra int // options and further records in the questions
}

func (r *recordingDNS) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	r.mu.Lock()
	r.asked = append(r.asked, q.Question[0].Name)
	r.extra += len(q.Answer) + len(q.Ns)
	if opt := q.IsEdns0(); opt != nil {
		r.extra += len(opt.Option) + len(q.Extra) - 1
	}
	r.mu.Unlock()
	r.zone.ServeDNS(w, q)
}

func (r *recordingDNS) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// newEgressGuest starts a guest with the policy and a name server.
func newEgressGuest(t testing.TB, p Policy) (*guest, *recordingDNS) {
	t.Helper()
	server := &recordingDNS{zone: egressZone}
	cfg := Config{
		AllowedPrivate: loopbackOpen,
		Upstreams:      only(startDNS(t, server)),
		Limits:         Limits{HeadTimeout: 300 * time.Millisecond},
	}
	return newGuest(t, cfg, p), server
}

// lookup resolves a name in the guest, to one address.
func (g *guest) lookup(name string) (string, error) {
	reply := g.ask("udp", dns.Fqdn(name), dns.TypeA)
	for _, rr := range reply.Answer {
		if a, ok := rr.(*dns.A); ok {
			return a.A.String(), nil
		}
	}
	return "", fmt.Errorf("lookup %s: %s", name, dns.RcodeToString[reply.Rcode])
}

// http is a client in the guest, that resolves names there.
func (g *guest) http() *http.Client {
	tr := &http.Transport{
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			// A C library turns all forms of an address into the one.
			ip, err := netip.ParseAddr(host)
			if err != nil {
				if host, err = g.lookup(host); err != nil {
					return nil, err
				}
			} else {
				host = ip.Unmap().String()
			}
			return g.dialTimeout(net.JoinHostPort(host, port), testTimeout)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	g.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testTimeout}
}

// web starts an HTTP server that says which host it was asked for, and where
// redirects lead; it returns its port and the hosts so far.
func web(t testing.TB, start func(*httptest.Server)) (port string, hosts func() []string) {
	var mu sync.Mutex
	var seen []string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Host)
		mu.Unlock()
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		fmt.Fprintf(w, "%shost %s", body, r.Host)
	}))
	start(s)
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func get(c *http.Client, url, host string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Host = host
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

// mustDeny checks the next event.
func (g *guest) mustDeny(proto, name, rule string) {
	g.t.Helper()
	if d := g.denial(); d.Proto != proto || d.Name != name || d.Rule != rule || d.Reason == "" || d.Time.IsZero() {
		g.t.Errorf("denial %+v, want %s of %q by %q", d, proto, name, rule)
	}
}

func TestEgressDNSIsNoSideDoor(t *testing.T) {
	g, server := newEgressGuest(t, policyOf(t, "allow good.test", "allow *.wild.test"))
	for _, question := range []struct {
		name string
		kind uint16
	}{
		{"evil.test.", dns.TypeA},
		{"EVIL.test.", dns.TypeA},
		{"evil.test.", dns.TypeTXT},
		{"evil.test.", dns.TypeNULL},
		{"evil.test.", dns.TypeANY},
		{"wild.test.", dns.TypeA},
		{strings.Repeat("c2VjcmV0LWRhdGE.", 12) + "evil.test.", dns.TypeA},
		{`a\.b.wild.test.`, dns.TypeA},
		{`x\000y.wild.test.`, dns.TypeTXT},
		{"good.test.evil.test.", dns.TypeA},
		{"1.0.0.127.in-addr.arpa.", dns.TypePTR},
		{".", dns.TypeNS},
	} {
		for _, network := range []string{"udp", "tcp"} {
			r := g.ask(network, question.name, question.kind, func(q *dns.Msg) { q.SetEdns0(4096, false) })
			if r.Rcode != dns.RcodeRefused || len(r.Answer) > 0 {
				t.Errorf("%s %s: %v", network, question.name, r)
			}
			if opt := r.IsEdns0(); opt == nil || len(opt.Option) != 1 || opt.Option[0].Option() != dns.EDNS0EDE {
				t.Errorf("%s %s: no reason: %v", network, question.name, r)
			}
		}
	}
	g.mustDeny("dns", "evil.test.", "allow list")
	if asked := server.names(); len(asked) > 0 {
		t.Errorf("questions left the host: %q", asked)
	}
	// What is allowed resolves, with nothing that the guest added.
	r := g.ask("udp", "gOOd.test.", dns.TypeA, func(q *dns.Msg) {
		q.SetEdns0(4096, false)
		q.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: []byte("secret")}}
		q.Ns = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: "x.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{"secret"}}}
	})
	if r.Rcode != dns.RcodeNameError { // the zone of the test is case-sensitive
		t.Errorf("good.test in capitals: %v", r)
	}
	if r := g.ask("udp", "good.test.", dns.TypeTXT); len(r.Answer) != 1 {
		t.Errorf("TXT of an allowed name: %v", r)
	}
	if r := g.ask("udp", "good.test.", dns.TypeHTTPS); r.Rcode != dns.RcodeSuccess || len(r.Answer) != 0 {
		t.Errorf("HTTPS of an allowed name: %v", r)
	}
	if _, err := g.lookup("a.wild.test"); err != nil {
		t.Error(err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.extra != 0 || len(server.asked) != 4 {
		t.Errorf("asked %q with %d further records and options", server.asked, server.extra)
	}
}

func TestEgressAllowListOverHTTP(t *testing.T) {
	port, hosts := web(t, (*httptest.Server).Start)
	g, _ := newEgressGuest(t, policyOf(t, "allow good.test", "allow also.test", "allow rebound.test"))
	client := g.http()
	client.Transport.(*http.Transport).DisableKeepAlives = true

	// The address alone, in the forms that a C library takes, before and after
	// a name that is not allowed was tried.
	g.mustRefuse("127.0.0.1:" + port)
	g.mustDeny("tcp", "", "allow list")
	if _, err := get(client, "http://evil.test:"+port, ""); err == nil {
		t.Error("evil.test is reached")
	}
	g.mustDeny("dns", "evil.test.", "allow list")
	if _, err := get(client, "http://[::ffff:127.0.0.1]:"+port, "good.test"); err == nil {
		t.Error("an IPv6-mapped address with a spoofed host is reached")
	}
	g.mustDeny("tcp", "", "allow list")

	if body, err := get(client, "http://good.test:"+port, ""); err != nil || body != "host good.test:"+port {
		t.Fatalf("good.test: %q, %v", body, err)
	}
	// The address is known now, as that of good.test; the host is spoofed, also
	// in a later request of one connection.
	conn := g.dial("127.0.0.1:" + port)
	r := bufio.NewReader(conn)
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
	if res, err := http.ReadResponse(r, nil); err != nil {
		t.Fatal(err)
	} else if b, err := io.ReadAll(res.Body); err != nil || string(b) != "host good.test" {
		t.Fatalf("%q, %v", b, err)
	}
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if _, err := r.ReadByte(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after a spoofed host: %v, want a reset", err)
	}
	g.mustDeny("tcp", "evil.test", "allow list")
	if _, err := get(client, "http://good.test:"+port, "evil.test"); err == nil {
		t.Error("a spoofed host is reached")
	}
	g.mustDeny("tcp", "evil.test", "allow list")
	if body, err := get(client, "http://good.test:"+port, "also.test"); err != nil || body != "host also.test" {
		t.Errorf("another allowed name at the same address: %q, %v", body, err)
	}
	// Redirects.
	for to, reason := range map[string]string{
		"http://evil.test:" + port:      reasonNotListed,
		"http://198.51.100.2:" + port:   reasonNotListed,
		"http://10.0.0.1:" + port:       "private",
		"http://169.254.169.254/latest": "metadata",
	} {
		if body, err := get(client, "http://good.test:"+port+"/?to="+to, ""); err == nil {
			t.Errorf("redirect to %s: %q", to, body)
		}
		if d := g.denial(); d.Reason != reason {
			t.Errorf("redirect to %s: %+v, want %q", to, d, reason)
		}
	}
	// Rebinding: an allowed name at an address that nobody may reach.
	if _, err := get(client, "http://rebound.test:"+port, ""); err == nil {
		t.Error("rebound.test is reached")
	}
	if d := g.denial(); d.Reason != "private" || d.Dst.Addr().String() != "10.0.0.1" {
		t.Errorf("denial %+v", d)
	}
	for _, h := range hosts() {
		if strings.Contains(h, "evil") {
			t.Errorf("the server saw %v", hosts())
		}
	}
}

func TestEgressAllowListOverTLS(t *testing.T) {
	port, _ := web(t, (*httptest.Server).StartTLS)
	g, _ := newEgressGuest(t, policyOf(t, "allow good.test"))
	handshake := func(serverName string) error {
		conn, err := g.dialTimeout("127.0.0.1:"+port, testTimeout)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(testTimeout))
		return tls.Client(conn, &tls.Config{ServerName: serverName, InsecureSkipVerify: true}).Handshake()
	}
	if err := handshake("good.test"); err == nil {
		t.Error("an allowed name at an address that has none is reached")
	}
	g.mustDeny("tcp", "", "allow list")
	if body, err := get(g.http(), "https://good.test:"+port, ""); err != nil || body != "host good.test:"+port {
		t.Fatalf("good.test: %q, %v", body, err)
	}
	for name, ok := range map[string]bool{"good.test": true, "": true, "evil.test": false, "good.test.evil.test": false} {
		if err := handshake(name); (err == nil) != ok {
			t.Errorf("server name %q: %v", name, err)
		}
		if !ok {
			g.mustDeny("tcp", name, "allow list")
		}
	}
}

func TestEgressDenyList(t *testing.T) {
	port, _ := web(t, (*httptest.Server).Start)
	g, server := newEgressGuest(t, policyOf(t, "deny evil.test", "deny 198.51.100.3"))
	client := g.http()
	// A client repeats a request that fails on a connection from before.
	client.Transport.(*http.Transport).DisableKeepAlives = true
	for host, ok := range map[string]bool{"": true, "good.test": true, "evil.test": false, "Evil.Test.": false, "evil.test:80": false} {
		if body, err := get(client, "http://127.0.0.1:"+port, host); (err == nil) != ok {
			t.Errorf("host %q: %q, %v", host, body, err)
		}
		if !ok {
			if d := g.denial(); !strings.HasPrefix(strings.ToLower(d.Name), "evil.test") || d.Rule != "deny evil.test" {
				t.Errorf("host %q: %+v", host, d)
			}
		}
	}
	if _, err := g.lookup("evil.test"); err == nil {
		t.Error("evil.test resolves")
	}
	g.mustDeny("dns", "evil.test.", "deny evil.test")
	if _, err := g.lookup("good.test"); err != nil {
		t.Error(err)
	}
	if asked := server.names(); !slices.Equal(asked, []string{"good.test."}) {
		t.Errorf("asked %q", asked)
	}
	g.mustRefuse("198.51.100.3:" + port)
	g.mustDeny("tcp", "", "deny 198.51.100.3")
	// Other name servers would tell.
	for _, addr := range []string{"203.0.113.53:53", "203.0.113.53:853"} {
		g.mustRefuse(addr)
		g.mustDeny("tcp", "", ruleResolver)
	}
}

func TestEgressDenyListSeesAliases(t *testing.T) {
	aliases := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		for _, s := range []string{q.Question[0].Name + " 90000 IN CNAME evil.test.", "evil.test. 90000 IN A 203.0.113.5"} {
			rr, err := dns.NewRR(s)
			if err != nil {
				panic(err)
			}
			reply.Answer = append(reply.Answer, rr)
		}
		w.WriteMsg(reply)
	})
	upstreams := only(startDNS(t, aliases))
	g := newGuest(t, Config{Upstreams: upstreams}, policyOf(t, "deny evil.test"))
	if r := g.ask("udp", "alias.test.", dns.TypeA); r.Rcode != dns.RcodeRefused {
		t.Errorf("an alias of evil.test: %v", r)
	}
	g.mustDeny("dns", "evil.test.", "deny evil.test")
	// An allow list is for the name that is asked for. The name is remembered
	// for the address, and no longer than the guest may.
	g = newGuest(t, Config{Upstreams: upstreams}, policyOf(t, "allow alias.test"))
	r := g.ask("udp", "alias.test.", dns.TypeA)
	if len(r.Answer) != 2 || r.Answer[1].Header().Ttl != uint32(pinMax/time.Second) {
		t.Errorf("alias.test: %v", r)
	}
	if names := g.gw.pins.names(netip.MustParseAddr("203.0.113.5"), time.Now()); !slices.Equal(names, []string{"alias.test"}) {
		t.Errorf("pinned %q", names)
	}
}

func TestEgressOrderOfE2B(t *testing.T) {
	port, _ := web(t, (*httptest.Server).Start)
	g, _ := newEgressGuest(t, policyOf(t, "allow_first", "allow good.test", "deny 0.0.0.0/0"))
	if body, err := get(g.http(), "http://good.test:"+port, ""); err != nil || body != "host good.test:"+port {
		t.Errorf("good.test: %q, %v", body, err)
	}
	if _, err := get(g.http(), "http://good.test:"+port, "evil.test"); err == nil {
		t.Error("a spoofed host is reached")
	}
	g.mustDeny("tcp", "evil.test", "deny 0.0.0.0/0")
	if _, err := g.lookup("evil.test"); err == nil {
		t.Error("evil.test resolves")
	}
}

func TestEgressServerThatSpeaksFirst(t *testing.T) {
	addr := serveTCP(t, func(c *net.TCPConn) {
		io.WriteString(c, "220 ready\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		io.WriteString(c, "250 "+line)
	})
	g, _ := newEgressGuest(t, policyOf(t, "allow good.test"))
	if _, err := g.lookup("good.test"); err != nil {
		t.Fatal(err)
	}
	c := g.dial(addr)
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || line != "220 ready\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	io.WriteString(c, "EHLO me\r\n")
	if line, err := r.ReadString('\n'); err != nil || line != "250 EHLO me\r\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestEgressUnfinishedHeadIsCut(t *testing.T) {
	got := make(chan string, 2)
	addr := serveTCP(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	g, _ := newEgressGuest(t, policyOf(t, "allow good.test"))
	if _, err := g.lookup("good.test"); err != nil {
		t.Fatal(err)
	}
	for _, end := range []bool{false, true} { // by the deadline, and by the end of the stream
		c := g.dial(addr)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: go")
		if end {
			c.CloseWrite()
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read: %v, want a reset", err)
		}
		g.mustDeny("tcp", "good.test", ruleUnreadable)
		if b := <-got; b != "" {
			t.Errorf("the server got %q", b)
		}
	}
}

func TestEgressUpgradeToWebSocket(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: good.test\r\nUpgrade: websocket\r\n\r\n"
	got := make(chan string, 1)
	start := func(answer string) string {
		return serveTCP(t, func(c *net.TCPConn) {
			io.ReadFull(c, make([]byte, len(request)))
			n, b := 0, make([]byte, 5)
			if answer != "" {
				io.WriteString(c, answer)
				n, _ = io.ReadFull(c, b)
			}
			got <- string(b[:n])
		})
	}
	g, _ := newEgressGuest(t, policyOf(t, "allow good.test"))
	if _, err := g.lookup("good.test"); err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]string{
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":         "\x81\x03abc",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\r\n": "",
		"": "", // closes without an answer
	} {
		c := g.dial(start(answer))
		io.WriteString(c, request+"\x81\x03abc")
		if b := <-got; b != want {
			t.Errorf("after %q the server got %q, want %q", answer, b, want)
		}
	}
}

func TestEgressUDP(t *testing.T) {
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		pc.Close()
		wg.Wait()
	})
	wg.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo(buf[:n], from)
		}
	})
	dst := pc.LocalAddr().String()
	g, _ := newEgressGuest(t, policyOf(t, "allow good.test"))
	echoes := func(c net.Conn, msg string) error {
		c.SetDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := io.WriteString(c, msg); err != nil {
			return err
		}
		b := make([]byte, 2048)
		n, err := c.Read(b)
		if err == nil && string(b[:n]) != msg {
			err = fmt.Errorf("read %q", b[:n])
		}
		return err
	}
	if err := echoes(g.dialUDP(dst), "x"); err == nil {
		t.Error("an address without a name is reached")
	}
	g.mustDeny("udp", "", "allow list")
	if _, err := g.lookup("good.test"); err != nil {
		t.Fatal(err)
	}
	c := g.dialUDP(dst)
	if err := echoes(c, "plain"); err != nil {
		t.Error(err)
	}
	quic := "\xc0\x00\x00\x00\x01" + strings.Repeat("q", 1195)
	// In a new session the guest hears at once that it has to use TCP.
	if err := echoes(g.dialUDP(dst), quic); err == nil {
		t.Error("QUIC is reached")
	}
	g.mustDeny("udp", "good.test", ruleQUIC)
	// In one that began otherwise too.
	if err := echoes(c, quic); err == nil {
		t.Error("QUIC is reached in an old session")
	}
	g.mustDeny("udp", "good.test", ruleQUIC)
	// By a rule for the address it is.
	g.gw.SetPolicy(policyOf(t, "allow good.test", "allow 127.0.0.1"))
	if err := echoes(g.dialUDP(dst), quic); err != nil {
		t.Error(err)
	}
}

func TestEgressPolicyChangesAtRunTime(t *testing.T) {
	addr := serveTCP(t, echo)
	g, _ := newEgressGuest(t, egress)
	if _, err := g.lookup("good.test"); err != nil {
		t.Fatal(err)
	}
	alive := func(c net.Conn) bool {
		if _, err := io.WriteString(c, "a line\r\n"); err != nil {
			return false
		}
		_, err := io.ReadFull(c, make([]byte, 8))
		return err == nil
	}
	before := g.dial(addr)
	if !alive(before) {
		t.Fatal("no connection")
	}
	// Rules by address that allow it leave it alone; rules by domain cut what
	// nobody has looked at.
	g.gw.SetPolicy(policyOf(t, "deny 203.0.113.0/24"))
	if !alive(before) {
		t.Error("a rule for other addresses cut a connection")
	}
	g.gw.SetPolicy(policyOf(t, "allow good.test"))
	if alive(before) {
		t.Error("a connection that was not looked at is alive")
	}
	g.mustDeny("tcp", "", ruleUnreadable)
	// The name from before the rules counts.
	after := g.dial(addr)
	if !alive(after) {
		t.Fatal("good.test is not reached")
	}
	g.gw.SetPolicy(policyOf(t, "allow good.test", "allow also.test"))
	if !alive(after) {
		t.Error("a wider policy cut a connection")
	}
	g.gw.SetPolicy(policyOf(t, "allow also.test"))
	if alive(after) {
		t.Error("a connection that is no longer allowed is alive")
	}
	g.mustDeny("tcp", "good.test", "allow list")
	g.mustRefuse(addr)
	g.gw.SetPolicy(Policy{})
	g.mustRefuse(addr)
	g.gw.SetPolicy(egress)
	if !alive(g.dial(addr)) {
		t.Error("not reached without rules")
	}
	if p := g.gw.Policy(); !p.Equal(egress) {
		t.Errorf("policy %+v", p)
	}
}

func TestEgressChangeCutsByTheNameShown(t *testing.T) {
	port, _ := web(t, (*httptest.Server).Start)
	g, _ := newEgressGuest(t, policyOf(t, "allow good.test", "allow also.test"))
	if _, err := g.lookup("good.test"); err != nil {
		t.Fatal(err)
	}
	c := g.dial("127.0.0.1:" + port)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: also.test\r\n\r\n")
	r := bufio.NewReader(c)
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != 200 {
		t.Fatal(err)
	} else if _, err := io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	// The address has a name that is allowed, but the connection showed another.
	g.gw.SetPolicy(policyOf(t, "allow good.test"))
	if _, err := r.ReadByte(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read: %v, want a reset", err)
	}
	g.mustDeny("tcp", "also.test", "allow list")
}

func TestEgressUploadIsNotChanged(t *testing.T) {
	port, _ := web(t, (*httptest.Server).Start)
	g, _ := newEgressGuest(t, policyOf(t, "allow good.test"))
	client := g.http()
	body := strings.Repeat("0123456789abcdef", 1<<16)
	for _, chunked := range []bool{false, true} {
		var r io.Reader = strings.NewReader(body)
		if chunked {
			r = io.MultiReader(r)
		}
		res, err := client.Post("http://good.test:"+port, "text/plain", r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(b) != body+"host good.test:"+port {
			t.Errorf("chunked %v: %d bytes, %v", chunked, len(b), err)
		}
	}
}
