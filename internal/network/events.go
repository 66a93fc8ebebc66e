package network

import (
	"net/netip"
	"time"
)

// Reasons of denials that do not come from the address.
const (
	reasonEgress = "egress is off"
	reasonLimit  = "too many connections"
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
	Name  string         // of dns
	// Reason is a short word or two: "private", "loopback", "egress is off", …
	Reason string
}

// Events returns the denials, at most a few per second; Stats counts all of
// them. It is closed by Close. Nobody has to read it.
func (g *Gateway) Events() <-chan Denial { return g.events }

func (g *Gateway) deny(d Denial) {
	g.stats.denied.Add(1)
	d.Time = time.Now()
	if !g.limiter.Allow() {
		g.stats.suppressed.Add(1)
		return
	}
	g.log.Debug("denied", "proto", d.Proto, "dst", d.Dst, "name", d.Name, "reason", d.Reason)
	select {
	case g.events <- d:
	default:
		g.stats.suppressed.Add(1)
	}
}
