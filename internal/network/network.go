// Package network is the user-space network of the guests: one Gateway per
// machine, which speaks Ethernet on the stream from the machine's virtual
// network card and reaches the outside by ordinary sockets of this process.
// It needs no privileges and leaves nothing on the host.
//
// It owns the addresses that a guest sees (package layout), ARP, DHCP, DNS,
// the rules of what a guest may reach, and the address 169.254.169.254. It
// does not own the machine, the meaning of the metadata, or preview proxies,
// which reach into the guest by Gateway.Dial.
//
// The rules are enforced where a connection is dialled, on the numeric address
// that is dialled, so names, redirects and rebinding cannot get around them. A
// policy with rules by domain is also enforced in the DNS, and on the names
// that connections show: Policy says how.
//
// What a guest does not get: IPv6 (AAAA records are taken out of DNS answers,
// so that nobody waits for addresses that lead nowhere), ICMP beyond the
// gateway (ping to the outside has no answer), incoming connections other than
// Gateway.Dial, multicast and broadcast.
//
// Start reading at gateway.go; the way of a packet is link.go, filter.go, then
// tcp.go or udp.go, which ask rules.go and policy.go.
package network

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Config is what all gateways of a server share. The zero value works.
type Config struct {
	// Logger gets one line per gateway and otherwise only debug lines.
	Logger *slog.Logger
	// Upstreams returns the DNS servers to ask, in order. Default: the name
	// servers of the host's /etc/resolv.conf. They may be in ranges that a
	// guest cannot reach itself.
	Upstreams func() ([]netip.AddrPort, error)
	// AllowedPrivate opens ranges that are closed by default. An address of
	// the host itself is opened only by a prefix of that one address, except
	// for loopback, where any loopback prefix does.
	AllowedPrivate []netip.Prefix
	// HostAddrs returns the host's own addresses, which guests must not
	// reach. Default: those of its network interfaces.
	HostAddrs func() ([]netip.Addr, error)
	// Metadata answers HTTP at 169.254.169.254:80. NameFrom tells it whose
	// request it is. Without it the address refuses connections.
	Metadata http.Handler
	Limits   Limits
}

// Limits bound what one guest can make its gateway hold. Zero fields get the
// defaults.
type Limits struct {
	TCPConns    int           // TCP connections to the outside, 4096
	UDPSessions int           // UDP sessions to the outside, 1024
	DialTimeout time.Duration // of a TCP connection to the outside, 15 s
	TCPIdle     time.Duration // after which a silent connection is reset, 2 h
	UDPIdle     time.Duration // after which a silent session is forgotten, 90 s
	HeadTimeout time.Duration // for the bytes of a connection that show its name, 10 s
	DNSTimeout  time.Duration // for one question to one upstream, 3 s
	DNSInFlight int           // questions at once, 128
}

func (l *Limits) setDefaults() {
	setDefault(&l.TCPConns, 4096)
	setDefault(&l.UDPSessions, 1024)
	setDefault(&l.DialTimeout, 15*time.Second)
	setDefault(&l.TCPIdle, 2*time.Hour)
	setDefault(&l.UDPIdle, 90*time.Second)
	setDefault(&l.HeadTimeout, 10*time.Second)
	setDefault(&l.DNSTimeout, 3*time.Second)
	setDefault(&l.DNSInFlight, 128)
}

func setDefault[T int | time.Duration](p *T, v T) {
	if *p <= 0 {
		*p = v
	}
}

// Network makes gateways. It is safe for concurrent use and holds nothing that
// needs closing.
type Network struct {
	cfg   Config
	rules *rules
}

// New returns a Network.
func New(cfg Config) *Network {
	cfg.Limits.setDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.HostAddrs == nil {
		cfg.HostAddrs = interfaceAddrs
	}
	if cfg.Upstreams == nil {
		cfg.Upstreams = newResolvConf("/etc/resolv.conf").upstreams
	}
	return &Network{cfg: cfg, rules: newRules(cfg.AllowedPrivate, cfg.HostAddrs)}
}

// An Option changes one gateway.
type Option func(*Gateway)

// WithName names the gateway in logs and for the metadata handler; usually the
// instance id.
func WithName(name string) Option { return func(g *Gateway) { g.name = name } }

// Attach starts a gateway on conn, a stream of Ethernet frames, each after its
// length as 4 bytes, big endian. The gateway owns conn from now on, also when
// Attach fails.
func (n *Network) Attach(conn net.Conn, p Policy, opts ...Option) (*Gateway, error) {
	g, err := newGateway(n, conn, p, opts)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("attach network: %w", err)
	}
	return g, nil
}
