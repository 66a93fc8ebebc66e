package network

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxPins bounds the pairs of address and name that one gateway remembers,
	// maxPinNames the names of one address.
	maxPins     = 4096
	maxPinNames = 64
	// pinMin and pinMax bound how long a pair is remembered. Longer lifetimes
	// are cut in the answers too, so that the guest asks again in time.
	pinMin = 5 * time.Minute
	pinMax = time.Hour
	// pinGrace is for a connection that starts as its answer ends.
	pinGrace = time.Minute
)

// pins remembers for which names the guest was given an address, so that a
// connection to the address is judged by these names. It belongs to one
// gateway: a fork's own starts empty, and its guest asks again.
type pins struct {
	mu     sync.Mutex
	byAddr map[netip.Addr]map[string]time.Time // when each name ends
	count  int
}

func newPins() *pins { return &pins{byAddr: map[netip.Addr]map[string]time.Time{}} }

// add remembers that name, which is canonical, has the address.
func (p *pins) add(name string, addr netip.Addr, ttl time.Duration, now time.Time) {
	ends := now.Add(min(max(ttl, pinMin), pinMax) + pinGrace)
	p.mu.Lock()
	defer p.mu.Unlock()
	names := p.byAddr[addr]
	if old, ok := names[name]; ok {
		if ends.After(old) {
			names[name] = ends
		}
		return
	}
	if len(names) >= maxPinNames {
		p.removeLocked(addr, earliest(names))
	}
	if p.count >= maxPins {
		p.makeRoomLocked(now)
	}
	if p.byAddr[addr] == nil {
		p.byAddr[addr] = map[string]time.Time{}
	}
	p.byAddr[addr][name] = ends
	p.count++
}

// names returns the names of an address, in order.
func (p *pins) names(addr netip.Addr, now time.Time) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	for name, ends := range p.byAddr[addr] {
		if now.Before(ends) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

func (p *pins) removeLocked(addr netip.Addr, name string) {
	delete(p.byAddr[addr], name)
	if len(p.byAddr[addr]) == 0 {
		delete(p.byAddr, addr)
	}
	p.count--
}

// makeRoomLocked forgets what has ended, and else the eighth that ends first,
// so that it is not called for each new pair.
func (p *pins) makeRoomLocked(now time.Time) {
	type pair struct {
		addr netip.Addr
		name string
		ends time.Time
	}
	all := make([]pair, 0, p.count)
	for addr, names := range p.byAddr {
		for name, ends := range names {
			all = append(all, pair{addr, name, ends})
		}
	}
	slices.SortFunc(all, func(a, b pair) int { return a.ends.Compare(b.ends) })
	for i, e := range all {
		if now.Before(e.ends) && i >= maxPins/8 {
			return
		}
		p.removeLocked(e.addr, e.name)
	}
}

func earliest(names map[string]time.Time) string {
	var name string
	var first time.Time
	for n, ends := range names {
		if name == "" || ends.Before(first) {
			name, first = n, ends
		}
	}
	return name
}
