package network

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// resolvConfAge is how long the host's list of name servers is remembered. The
// list changes when a laptop changes its network.
const resolvConfAge = 5 * time.Second

// maxUpstreams is how many name servers one question is put to.
const maxUpstreams = 3

// resolvConf reads the host's name servers. Search domains are left alone: they
// are the host's, and guests see names as they write them.
type resolvConf struct {
	path string

	mu      sync.Mutex
	servers []netip.AddrPort // replaced, never changed
	expires time.Time
}

func newResolvConf(path string) *resolvConf { return &resolvConf{path: path} }

func (c *resolvConf) upstreams() ([]netip.AddrPort, error) {
	now := time.Now()
	c.mu.Lock()
	servers, fresh := c.servers, now.Before(c.expires)
	c.mu.Unlock()
	if fresh {
		return servers, nil
	}
	conf, err := dns.ClientConfigFromFile(c.path)
	if err != nil {
		return nil, err
	}
	servers = nil
	for _, s := range conf.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			servers = append(servers, netip.AddrPortFrom(a, 53))
		}
	}
	if len(servers) == 0 {
		return nil, errors.New("no name servers in " + c.path)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers, c.expires = servers, now.Add(resolvConfAge)
	return servers, nil
}
