package network

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// refuse answers a question that the policy does not allow.
func (s *dnsServer) refuse(q *dns.Msg, v verdict) *dns.Msg {
	s.g.deny(Denial{Proto: "dns", Name: v.name, Reason: v.reason, Rule: v.rule})
	reply := new(dns.Msg).SetRcode(q, dns.RcodeRefused)
	if opt := q.IsEdns0(); opt != nil {
		reply.SetEdns0(dnsDatagram, opt.Do())
		text := v.reason
		if v.rule != "" {
			text += " (" + v.rule + ")"
		}
		reply.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeProhibited, ExtraText: text}}
	}
	return reply
}

// plainQuestion returns the question of q in a message of its own, so that a
// guest cannot send other data along, such as further records and options.
func plainQuestion(q *dns.Msg) *dns.Msg {
	plain := &dns.Msg{Question: q.Question}
	plain.RecursionDesired = q.RecursionDesired
	plain.CheckingDisabled = q.CheckingDisabled
	plain.AuthenticatedData = q.AuthenticatedData
	if opt := q.IsEdns0(); opt != nil {
		plain.SetEdns0(opt.UDPSize(), opt.Do())
	}
	return plain
}

// withoutTypes takes out what a guest must not see: IPv6 addresses, which it
// cannot reach; and, hidden, the records with keys for Encrypted Client Hello,
// by which clients would hide the name that a policy asks for. Clients do
// without them.
func withoutTypes(rrs []dns.RR, hidden bool) []dns.RR {
	return slices.DeleteFunc(rrs, func(rr dns.RR) bool {
		kind := rr.Header().Rrtype
		if sig, ok := rr.(*dns.RRSIG); ok {
			kind = sig.TypeCovered
		}
		return kind == dns.TypeAAAA || hidden && (kind == dns.TypeHTTPS || kind == dns.TypeSVCB)
	})
}

// deniesChain says whether an answer leads over a name that is denied. Names
// that it leads over need not be in an allow list.
func (c *compiled) deniesChain(answer []dns.RR) verdict {
	for _, rr := range answer {
		if cname, ok := rr.(*dns.CNAME); ok {
			if v := c.deniesName(cname.Target); !v.ok() {
				return v
			}
		}
	}
	return allowed
}

// pinAnswer remembers the addresses of an answer, and cuts lifetimes to what
// is remembered.
func (g *Gateway) pinAnswer(question string, reply *dns.Msg) {
	name, ok := canonicalName(question)
	now := time.Now()
	for _, rr := range reply.Answer {
		h := rr.Header()
		h.Ttl = min(h.Ttl, uint32(pinMax/time.Second))
		if a, isA := rr.(*dns.A); isA && ok {
			if ip, valid := netip.AddrFromSlice(a.A); valid {
				g.pins.add(name, ip.Unmap(), time.Duration(h.Ttl)*time.Second, now)
			}
		}
	}
}
