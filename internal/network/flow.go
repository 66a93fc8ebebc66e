package network

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	protoTCP = iota
	protoUDP
)

var protoNames = [...]string{protoTCP: "tcp", protoUDP: "udp"}

// flow is one TCP connection or UDP session between the guest and the outside.
// Its context ends it: when it is cancelled, both sides are cut.
type flow struct {
	proto  int
	dst    netip.AddrPort
	ctx    context.Context
	cancel context.CancelFunc
	last   atomic.Int64 // time of the last byte, Unix nanoseconds

	// names are those of the address when the flow began.
	names []string
	// inspect says that its bytes are looked at, because its name matters.
	inspect bool
	// shown is the last name that they showed.
	shown atomic.Pointer[string]
}

func (f *flow) touch() { f.last.Store(time.Now().UnixNano()) }

// open registers a flow, or returns a reason why not. It registers first and
// asks the policy then, so that a change of policy in between misses nothing.
func (g *Gateway) open(proto int, dst netip.AddrPort) (*flow, verdict) {
	limit := g.limits.TCPConns
	if proto == protoUDP {
		limit = g.limits.UDPSessions
	}
	f := &flow{proto: proto, dst: dst, names: g.pins.names(dst.Addr(), time.Now())}
	f.touch()
	g.mu.Lock()
	if g.count[proto] >= limit {
		g.mu.Unlock()
		return nil, verdict{reason: reasonLimit, rule: ruleLimit}
	}
	f.ctx, f.cancel = context.WithCancel(g.ctx)
	f.inspect = g.policy.nameMatters(dst)
	g.count[proto]++
	g.flows[f] = struct{}{}
	g.mu.Unlock()
	if v := g.verdict(f); !v.ok() {
		g.drop(f)
		return nil, v
	}
	return f, allowed
}

// drop ends and forgets a flow.
func (g *Gateway) drop(f *flow) {
	f.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.flows, f)
	g.count[f.proto]--
}

// crowded says whether so many connections are open that new ones get small
// buffers.
func (g *Gateway) crowded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count[protoTCP] > crowdedConns
}

// sweep cuts flows that have been silent for too long, until the gateway ends.
func (g *Gateway) sweep() {
	every := min(g.limits.TCPIdle, g.limits.UDPIdle) / 4
	tick := time.NewTicker(max(min(every, 15*time.Second), 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-g.ctx.Done():
			return
		case now := <-tick.C:
			g.sweepAt(now)
		}
	}
}

func (g *Gateway) sweepAt(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for f := range g.flows {
		idle := g.limits.TCPIdle
		if f.proto == protoUDP {
			idle = g.limits.UDPIdle
		}
		if now.UnixNano()-f.last.Load() > int64(idle) {
			f.cancel()
		}
	}
}
