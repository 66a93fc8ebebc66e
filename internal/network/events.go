package network

import (
	"net/netip"
	"time"
)

// Reasons of denials that do not come from the address.
const (
	reasonEgress      = "egress is off"
	reasonLimit       = "too many connections"
	reasonDenied      = "denied by a rule"
	reasonNotListed   = "not in the allow list"
	reasonResolver    = "another name server"
	reasonQUIC        = "QUIC hides the name"
	reasonOddName     = "unusual name"
	reasonUnreadable  = "cannot be checked"
	reasonUninspected = "began before the rules"
)

// What stands in Denial.Rule when it is none of the user's rules.
const (
	ruleEgress     = "egress: false"
	ruleClosed     = "closed addresses"
	ruleLimit      = "limit of connections"
	ruleNotListed  = "allow list"
	ruleResolver   = "no other name servers with rules by domain"
	ruleOddName    = "no unusual names with rules by domain"
	ruleQUIC       = "no QUIC with rules by domain"
	ruleUnreadable = "connections show their name with rules by domain"
)

// A guest that hammers a closed door must not flood whoever records events.
const (
	eventsPerSecond = 5
	eventsBurst     = 20
)

// Denial is a connection, session or question that the gateway refused.
type Denial struct {
	Time  time.Time
	Proto string         // "tcp", "udp" or "dns"
	Dst   netip.AddrPort // of tcp and udp
	// Name is the question of dns; of tcp and udp, the name that was judged, if
	// there was one. It comes from the guest, at most 255 bytes.
	Name string
	// Reason is a few words: "private", "loopback", "egress is off", …
	Reason string
	// Rule is what denied it: "deny " and the text of a rule, "allow list" when
	// no rule of it matched, one of the rules that come with domains, "egress:
	// false", or what no policy opens: addresses that are closed, a limit.
	Rule string
}

// Events returns the denials, at most a few per second; Stats counts all of
// them. It is closed by Close. Nobody has to read it.
func (g *Gateway) Events() <-chan Denial { return g.events }

// denyFlow reports that a flow was refused, or cut.
func (g *Gateway) denyFlow(f *flow, v verdict) {
	g.deny(Denial{Proto: protoNames[f.proto], Dst: f.dst, Name: v.name, Reason: v.reason, Rule: v.rule})
}

func (g *Gateway) deny(d Denial) {
	g.stats.denied.Add(1)
	d.Time = time.Now()
	d.Name = d.Name[:min(len(d.Name), 255)]
	if !g.limiter.Allow() {
		g.stats.suppressed.Add(1)
		return
	}
	g.log.Debug("denied", "proto", d.Proto, "dst", d.Dst, "name", d.Name, "reason", d.Reason, "rule", d.Rule)
	select {
	case g.events <- d:
	default:
		g.stats.suppressed.Add(1)
	}
}
