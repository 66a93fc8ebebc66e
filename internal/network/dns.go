package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
)

const (
	dnsPort    = 53
	dnsTLSPort = 853
	// dnsDatagram is the largest DNS datagram of the guest, in bytes.
	dnsDatagram = 4096
)

var errMismatch = errors.New("answer to another question")

// dnsServer answers the guest's questions at the gateway's address by putting
// them to the host's name servers: the question alone, with nothing else that
// the guest wrote. It keeps no cache, but remembers which addresses it gave out
// for a name. AAAA records are taken out of the answers: the guest has no IPv6,
// and programs that try it first would hang.
//
// Names that the policy does not allow are answered REFUSED, without asking
// anybody, with the reason for clients that can show one. It is not NXDOMAIN:
// the name may exist, and a policy can change, so nobody should remember it.
type dnsServer struct {
	g         *Gateway
	upstreams func() ([]netip.AddrPort, error)
	inFlight  chan struct{}
	udp, tcp  *dns.Server
}

// serveDNS starts the server, on UDP and TCP.
func (g *Gateway) serveDNS(upstreams func() ([]netip.AddrPort, error)) error {
	pc, err := listenUDP(g.stack, gatewayAddr, dnsPort)
	if err != nil {
		return err
	}
	l, err := listenTCP(g.stack, gatewayAddr, dnsPort)
	if err != nil {
		pc.Close()
		return err
	}
	s := &dnsServer{g: g, upstreams: upstreams, inFlight: make(chan struct{}, g.limits.DNSInFlight)}
	s.udp = &dns.Server{PacketConn: pc, Handler: s, UDPSize: dnsDatagram}
	s.tcp = &dns.Server{Listener: netutil.LimitListener(l, serviceConns), Handler: s}
	g.dns = s
	stop := closeOnDone(g, l.Shutdown)
	for _, srv := range []*dns.Server{s.udp, s.tcp} {
		// Shutdown refuses a server that is still starting, so wait for it.
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		failed := make(chan error, 1)
		g.work.Go(func() {
			defer stop()
			err := srv.ActivateAndServe()
			failed <- err
			if g.ctx.Err() == nil {
				g.log.Warn("dns service ended", "err", err)
			}
		})
		select {
		case <-started:
		case err := <-failed:
			return err
		}
	}
	return nil
}

// ServeDNS answers one question.
func (s *dnsServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	if !s.g.begin() {
		return
	}
	defer s.g.work.Done()
	select {
	case s.inFlight <- struct{}{}:
		defer func() { <-s.inFlight }()
	default:
		return // the guest asks again
	}
	_, udp := w.RemoteAddr().(*net.UDPAddr)
	reply := s.answer(q, udp)
	if err := w.WriteMsg(reply); err != nil {
		s.g.log.Debug("dns reply failed", "err", err)
	}
}

func (s *dnsServer) answer(q *dns.Msg, udp bool) *dns.Msg {
	refuse := func(code int) *dns.Msg { return new(dns.Msg).SetRcode(q, code) }
	switch {
	case q.Response || len(q.Question) != 1:
		return refuse(dns.RcodeFormatError)
	case q.Opcode != dns.OpcodeQuery:
		return refuse(dns.RcodeNotImplemented)
	case q.Question[0].Qtype == dns.TypeAXFR || q.Question[0].Qtype == dns.TypeIXFR:
		return refuse(dns.RcodeRefused)
	}
	if v := s.g.current().resolves(q.Question[0].Name); !v.ok() {
		return s.refuse(q, v)
	}
	reply, err := s.resolve(plainQuestion(q), udp)
	if err != nil {
		s.g.log.Debug("dns question failed", "name", q.Question[0].Name, "err", err)
		return refuse(dns.RcodeServerFailure)
	}
	// The policy may have changed meanwhile.
	c := s.g.current()
	if v := c.resolves(q.Question[0].Name); !v.ok() {
		return s.refuse(q, v)
	}
	if v := c.deniesChain(reply.Answer); !v.ok() {
		return s.refuse(q, v)
	}
	reply.Id = q.Id
	hidden := c.allow.hasDomains() || c.deny.hasDomains()
	for _, section := range []*[]dns.RR{&reply.Answer, &reply.Ns, &reply.Extra} {
		*section = withoutTypes(*section, hidden)
	}
	s.g.pinAnswer(q.Question[0].Name, reply)
	reply.Compress = true
	if udp {
		size := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = max(size, min(int(opt.UDPSize()), dnsDatagram))
		}
		reply.Truncate(size)
	}
	return reply
}

// resolve puts the question to one upstream after the other, until one has an
// answer that is not its own failure.
func (s *dnsServer) resolve(q *dns.Msg, udp bool) (*dns.Msg, error) {
	servers, err := s.upstreams()
	if err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		return nil, errors.New("no name servers")
	}
	network := "tcp"
	if udp {
		network = "udp"
	}
	var last *dns.Msg
	for _, server := range servers[:min(len(servers), maxUpstreams)] {
		reply, failure := s.exchange(network, server, q)
		if failure != nil {
			err = failure
			continue
		}
		if reply.Rcode != dns.RcodeServerFailure && reply.Rcode != dns.RcodeRefused {
			return reply, nil
		}
		last = reply
	}
	if last != nil {
		return last, nil
	}
	return nil, err
}

// exchange asks one server by udp or tcp. Each question has a socket, and so a
// source port, and an id of its own.
func (s *dnsServer) exchange(network string, server netip.AddrPort, q *dns.Msg) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(s.g.ctx, s.g.limits.DNSTimeout)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })()
	conn := &dns.Conn{Conn: raw, UDPSize: dns.MaxMsgSize}
	question := q.Copy()
	question.Id = dns.Id()
	if err := conn.WriteMsg(question); err != nil {
		return nil, err
	}
	for {
		reply, err := conn.ReadMsg()
		if err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("ask %v: %w", server, ctx.Err())
		}
		if err == nil && !matches(question, reply) {
			err = errMismatch
		}
		switch {
		case err == nil:
			return reply, nil
		case network == "udp" && !isNetError(err):
			// Perhaps forged, perhaps late: wait on for the real one.
		default:
			return nil, fmt.Errorf("ask %v: %w", server, err)
		}
	}
}

func isNetError(err error) bool {
	var n net.Error
	return errors.As(err, &n)
}

func matches(question, reply *dns.Msg) bool {
	if !reply.Response || reply.Id != question.Id {
		return false
	}
	if len(reply.Question) == 0 {
		return reply.Rcode != dns.RcodeSuccess // some servers leave it out of errors
	}
	a, b := question.Question[0], reply.Question[0]
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

// shutdown ends both servers. It returns when no answer is being written, or
// after a second: Close cuts what is left then.
func (s *dnsServer) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// An error means that a server has already ended, or did not end in time.
	_ = s.udp.ShutdownContext(ctx)
	_ = s.tcp.ShutdownContext(ctx)
}
