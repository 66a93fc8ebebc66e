package network

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// hostAddrsAge is how long the host's own addresses are remembered.
const hostAddrsAge = 5 * time.Second

// never lists what no setting opens: it has no meaning outside the guest's own
// network, or is answered there.
var never = []struct {
	prefix netip.Prefix
	reason string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("169.254.169.254/32"), "metadata"},
	{guestSubnet, "guest network"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// private lists what is closed unless Config.AllowedPrivate opens it. The
// documentation ranges (192.0.2.0/24 and its like) are not in it: they belong
// to nobody.
var private = []struct {
	prefix netip.Prefix
	reason string
}{
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("168.63.129.16/32"), "cloud platform"}, // Azure's host agent
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.88.99.0/24"), "reserved"}, // 6to4 relays
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::/96"), "reserved"},           // IPv4-compatible, obsolete
	{netip.MustParsePrefix("64:ff9b:1::/48"), "private"},   // a site's own NAT64
	{netip.MustParsePrefix("100::/64"), "reserved"},        // discard
	{netip.MustParsePrefix("2001::/32"), "Teredo tunnel"},  // see embedded
	{netip.MustParsePrefix("5f00::/16"), "reserved"},       // segment routing
	{netip.MustParsePrefix("fc00::/7"), "private"},         // unique local
	{netip.MustParsePrefix("fe80::/10"), "link-local"},     //
	{netip.MustParsePrefix("fec0::/10"), "site-local"},     //
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "reserved"}, // IPv4-translated
}

// rules decide whether an address may be dialled for a guest.
type rules struct {
	allowed   []netip.Prefix
	hostAddrs func() ([]netip.Addr, error)

	mu      sync.Mutex
	host    map[netip.Addr]bool // nil until read once; replaced, never changed
	expires time.Time
}

func newRules(allowed []netip.Prefix, hostAddrs func() ([]netip.Addr, error)) *rules {
	r := &rules{hostAddrs: hostAddrs}
	for _, p := range allowed {
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		r.allowed = append(r.allowed, p.Masked())
	}
	return r
}

// check returns "" when a may be dialled, else the reason why not.
func (r *rules) check(a netip.Addr) string {
	a = a.WithZone("").Unmap()
	if !a.IsValid() {
		return "invalid"
	}
	for _, n := range never {
		if n.prefix.Contains(a) {
			return n.reason
		}
	}
	for _, inner := range embedded(a) {
		if reason := r.check(inner); reason != "" {
			return reason
		}
	}
	if reason := r.checkHost(a); reason != "" {
		return reason
	}
	for _, p := range private {
		if p.prefix.Contains(a) && !r.isAllowed(a, false) {
			return p.reason
		}
	}
	return ""
}

// checkHost refuses the host's own addresses but loopback, which is in private,
// and everything as long as they are not known.
func (r *rules) checkHost(a netip.Addr) string {
	own, known := r.isHost(a)
	switch {
	case !known:
		return "host addresses unknown"
	case own && !a.IsLoopback() && !r.isAllowed(a, true):
		return "host"
	}
	return ""
}

// isAllowed says whether a setting opens a; exact means by a prefix of that
// one address.
func (r *rules) isAllowed(a netip.Addr, exact bool) bool {
	for _, p := range r.allowed {
		if p.Contains(a) && (!exact || p.IsSingleIP()) {
			return true
		}
	}
	return false
}

func (r *rules) isHost(a netip.Addr) (own, known bool) {
	now := time.Now()
	r.mu.Lock()
	host, expired := r.host, now.After(r.expires)
	r.mu.Unlock()
	if expired {
		// When they cannot be read now, those of before stay in force.
		if addrs, err := r.hostAddrs(); err == nil {
			host = make(map[netip.Addr]bool, len(addrs))
			for _, h := range addrs {
				host[h.WithZone("").Unmap()] = true
			}
			r.mu.Lock()
			r.host, r.expires = host, now.Add(hostAddrsAge)
			r.mu.Unlock()
		}
	}
	return host[a], host != nil
}

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4 = netip.MustParsePrefix("2002::/16")
	teredo = netip.MustParsePrefix("2001::/32")
)

// embedded returns the IPv4 addresses that the IPv6 address a leads to, by
// NAT64, 6to4, Teredo (server and client) or ISATAP.
func embedded(a netip.Addr) []netip.Addr {
	if !a.Is6() {
		return nil
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[12:]))}
	case sixTo4.Contains(a):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case teredo.Contains(a):
		client := [4]byte{^b[12], ^b[13], ^b[14], ^b[15]}
		return []netip.Addr{netip.AddrFrom4([4]byte(b[4:8])), netip.AddrFrom4(client)}
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return []netip.Addr{netip.AddrFrom4([4]byte(b[12:]))}
	}
	return nil
}

// interfaceAddrs returns the addresses of this host's interfaces.
func interfaceAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, ip)
			}
		}
	}
	if len(addrs) == 0 {
		return nil, errors.New("no interface addresses")
	}
	return addrs, nil
}
