package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/internal/network/layout"
)

// ErrClosed is returned by Dial on a gateway that has ended.
var ErrClosed = net.ErrClosed

// Gateway is the network of one machine. Its methods are safe for concurrent
// use. It ends when its stream does, or by Close; only Close waits for it.
type Gateway struct {
	name   string
	log    *slog.Logger
	limits Limits
	rules  *rules
	pins   *pins

	link  *link
	stack *stack.Stack
	dns   *dnsServer

	// ctx ends when the gateway does.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// work counts what runs on behalf of the guest; begin and Close use it.
	work sync.WaitGroup

	mu      sync.Mutex
	closing bool
	policy  *compiled
	flows   map[*flow]struct{}
	count   [2]int // of flows, by protocol

	events  chan Denial
	limiter *rate.Limiter
	stats   counters

	closeOnce sync.Once
	closed    chan struct{} // when Close has done everything
}

type counters struct {
	tcpTotal, udpTotal, denied, suppressed atomic.Uint64
}

// Stats is what a gateway has done so far and holds now.
type Stats struct {
	// Bytes and frames as seen from the guest's network card: Sent by the guest.
	BytesSent, BytesReceived uint64
	FramesDropped            uint64 // sent by the guest, not admitted
	TCPActive, UDPActive     int
	TCPTotal, UDPTotal       uint64
	Denied                   uint64 // connections, sessions and questions
	EventsSuppressed         uint64 // denials that made no event
}

func newGateway(n *Network, conn net.Conn, p Policy, opts []Option) (*Gateway, error) {
	g := &Gateway{
		limits:  n.cfg.Limits,
		rules:   n.rules,
		pins:    newPins(),
		policy:  compile(p),
		flows:   map[*flow]struct{}{},
		events:  make(chan Denial, 64),
		limiter: rate.NewLimiter(eventsPerSecond, eventsBurst),
		closed:  make(chan struct{}),
	}
	for _, o := range opts {
		o(g)
	}
	g.log = n.cfg.Logger.With("gateway", g.name)
	g.ctx, g.cancel = context.WithCancelCause(context.WithValue(context.Background(), nameKey{}, g.name))
	g.link = &link{
		conn:     conn,
		mac:      mustMAC(layout.GatewayMAC),
		mtu:      layout.ReceiveMTU,
		maxFrame: layout.MTU + frameExtra,
		admit:    admit,
		failed:   func(err error) { g.cancel(err) },
	}
	var err error
	if g.stack, err = newStack(g.link); err != nil {
		g.cancel(err)
		return nil, err
	}
	if err := g.startServices(n); err != nil {
		g.Close()
		return nil, err
	}
	g.work.Go(g.read)
	g.work.Go(g.sweep)
	// The stream is closed as soon as the gateway ends, whoever ended it.
	context.AfterFunc(g.ctx, func() { conn.Close() })
	return g, nil
}

func (g *Gateway) startServices(n *Network) error {
	if err := g.serveDHCP(); err != nil {
		return fmt.Errorf("dhcp: %w", err)
	}
	if err := g.serveDNS(n.cfg.Upstreams); err != nil {
		return fmt.Errorf("dns: %w", err)
	}
	if n.cfg.Metadata != nil {
		if err := g.serveMetadata(n.cfg.Metadata); err != nil {
			return fmt.Errorf("metadata: %w", err)
		}
	}
	g.forwardTCP()
	g.forwardUDP()
	return nil
}

func (g *Gateway) read() {
	err := g.link.run()
	if g.ctx.Err() == nil && !errors.Is(err, io.EOF) {
		g.log.Warn("network stream broke", "err", err)
	}
	g.cancel(err)
}

// Done is closed when the gateway no longer serves its guest.
func (g *Gateway) Done() <-chan struct{} { return g.ctx.Done() }

// Err says why the gateway ended: io.EOF when the machine closed the stream,
// ErrClosed after Close. It is nil while the gateway runs.
func (g *Gateway) Err() error { return context.Cause(g.ctx) }

// Policy returns what the guest may do now.
func (g *Gateway) Policy() Policy { return g.current().Policy }

func (g *Gateway) current() *compiled {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policy
}

// SetPolicy changes what the guest may do. Connections and sessions that the
// new policy does not allow are cut, and so are those whose name matters now
// and did not when they began, because nobody has looked.
func (g *Gateway) SetPolicy(p Policy) {
	c := compile(p)
	g.mu.Lock()
	g.policy = c
	flows := make([]*flow, 0, len(g.flows))
	for f := range g.flows {
		flows = append(flows, f)
	}
	g.mu.Unlock()
	if !g.begin() {
		return // Close cuts them
	}
	defer g.work.Done()
	for _, f := range flows {
		if f.ctx.Err() != nil {
			continue // cut already, by the policy before
		}
		if v := g.verdict(f); !v.ok() {
			g.denyFlow(f, v)
			f.cancel()
		}
	}
}

// verdict says whether the guest may have the flow now, by what is known of it.
func (g *Gateway) verdict(f *flow) verdict {
	c := g.current()
	if !c.Egress {
		return verdict{reason: reasonEgress, rule: ruleEgress}
	}
	if reason := g.rules.check(f.dst.Addr()); reason != "" {
		return verdict{reason: reason, rule: ruleClosed}
	}
	if v := c.judgeAny(f.dst, f.names); !v.ok() {
		return v
	}
	if !f.inspect && c.nameMatters(f.dst) {
		return verdict{reason: reasonUninspected, rule: ruleUnreadable}
	}
	if shown := f.shown.Load(); shown != nil {
		return c.judgeShown(f.dst, *shown)
	}
	return allowed
}

// Stats returns a snapshot of the counters.
func (g *Gateway) Stats() Stats {
	g.mu.Lock()
	tcpActive, udpActive := g.count[protoTCP], g.count[protoUDP]
	g.mu.Unlock()
	return Stats{
		BytesSent:        g.link.bytesIn.Load(),
		BytesReceived:    g.link.bytesOut.Load(),
		FramesDropped:    g.link.dropped.Load(),
		TCPActive:        tcpActive,
		UDPActive:        udpActive,
		TCPTotal:         g.stats.tcpTotal.Load(),
		UDPTotal:         g.stats.udpTotal.Load(),
		Denied:           g.stats.denied.Load(),
		EventsSuppressed: g.stats.suppressed.Load(),
	}
}

// begin registers a piece of work that Close waits for. When it returns false
// the gateway is closing and the work must not start.
func (g *Gateway) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return false
	}
	g.work.Add(1)
	return true
}

// abortEvery is how often Close repeats the abort of endpoints: a handshake
// that was under way may register one after the first round.
const abortEvery = 10 * time.Millisecond

// Close ends everything that the gateway owns and waits for it: connections
// are reset, the stream is closed, Events is closed. It is idempotent.
func (g *Gateway) Close() error {
	g.closeOnce.Do(func() {
		defer close(g.closed)
		g.mu.Lock()
		g.closing = true
		g.mu.Unlock()
		g.cancel(ErrClosed)
		g.link.conn.Close()
		if g.dns != nil {
			g.work.Go(g.dns.shutdown)
		}
		g.stack.Close()
		idle := make(chan struct{})
		go func() {
			defer close(idle)
			g.work.Wait()
		}()
		tick := time.NewTicker(abortEvery)
		defer tick.Stop()
		for done := false; !done; {
			select {
			case <-idle:
				done = true
			case <-tick.C:
				for _, e := range g.stack.RegisteredEndpoints() {
					e.Abort()
				}
			}
		}
		g.stack.Wait()
		close(g.events)
	})
	<-g.closed
	return nil
}

type nameKey struct{}

// NameFrom returns the name of the gateway (see WithName) that a request to
// Config.Metadata came through.
func NameFrom(ctx context.Context) string {
	name, _ := ctx.Value(nameKey{}).(string)
	return name
}

// toAddrPort converts from netstack's form.
func toAddrPort(a tcpip.Address, port uint16) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(ip.Unmap(), port)
}
