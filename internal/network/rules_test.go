package network

import (
	"errors"
	"net/netip"
	"testing"
)

func noHost() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.7")}, nil }

func TestRulesDefault(t *testing.T) {
	r := newRules(nil, func() ([]netip.Addr, error) {
		return []netip.Addr{
			netip.MustParseAddr("93.184.216.34"),
			netip.MustParseAddr("2a00:1450::1"),
			netip.MustParseAddr("::ffff:93.184.216.35"),
		}, nil
	})
	tests := []struct{ addr, want string }{
		{"8.8.8.8", ""},
		{"1.1.1.1", ""},
		{"203.0.113.80", ""},
		{"172.15.255.255", ""},
		{"172.32.0.0", ""},
		{"100.63.255.255", ""},
		{"100.128.0.0", ""},
		{"2606:4700::1111", ""},

		{"0.0.0.0", "unspecified"},
		{"0.1.2.3", "unspecified"},
		{"127.0.0.1", "loopback"},
		{"127.255.255.254", "loopback"},
		{"10.0.0.1", "private"},
		{"172.16.0.1", "private"},
		{"172.31.255.255", "private"},
		{"192.168.0.1", "private"},
		{"192.168.127.1", "guest network"},
		{"192.168.127.9", "guest network"},
		{"169.254.1.1", "link-local"},
		{"169.254.169.254", "metadata"},
		{"100.64.0.1", "carrier NAT"},
		{"100.100.100.200", "carrier NAT"},
		{"168.63.129.16", "cloud platform"},
		{"192.0.0.192", "reserved"},
		{"198.18.0.1", "benchmarking"},
		{"224.0.0.251", "multicast"},
		{"239.255.255.250", "multicast"},
		{"240.0.0.1", "reserved"},
		{"255.255.255.255", "broadcast"},

		// The host's own addresses, in every spelling.
		{"93.184.216.34", "host"},
		{"93.184.216.35", "host"},
		{"::ffff:93.184.216.34", "host"},
		{"2a00:1450::1", "host"},
		{"64:ff9b::5db8:d822", "host"},

		{"::", "unspecified"},
		{"::1", "loopback"},
		{"::ffff:127.0.0.1", "loopback"},
		{"::ffff:10.1.2.3", "private"},
		{"::ffff:8.8.8.8", ""},
		{"::127.0.0.1", "reserved"},
		{"::ffff:0:10.0.0.1", "reserved"},
		{"fc00::1", "private"},
		{"fd00:ec2::254", "private"},
		{"fe80::1", "link-local"},
		{"fe80::1%eth0", "link-local"},
		{"fec0::1", "site-local"},
		{"ff02::1", "multicast"},
		{"100::1", "reserved"},
		{"64:ff9b::8.8.8.8", ""},
		{"64:ff9b::10.0.0.1", "private"},
		{"64:ff9b::169.254.169.254", "metadata"},
		{"64:ff9b:1::1", "private"},
		{"2002:7f00:1::1", "loopback"},
		{"2002:a00:1::1", "private"},
		{"2002:808:808::1", ""},
		{"2001:0:808:808::f5ff:fffe", "private"}, // Teredo, client 10.0.0.1
		{"2001:0:808:808::f7f7:f7f7", "Teredo tunnel"},
		{"2001:4860:4860:0:0:5efe:10.0.0.1", "private"}, // ISATAP
	}
	for _, tt := range tests {
		if got := r.check(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("check(%s) = %q, want %q", tt.addr, got, tt.want)
		}
	}
	if got := r.check(netip.Addr{}); got != "invalid" {
		t.Errorf("check of no address = %q", got)
	}
}

func TestRulesAllowedPrivate(t *testing.T) {
	host := func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6"), netip.MustParseAddr("127.0.0.1")}, nil
	}
	r := newRules([]netip.Prefix{
		netip.MustParsePrefix("10.9.9.9/8"), // not masked
		netip.MustParsePrefix("10.0.0.6/32"),
		netip.MustParsePrefix("::ffff:172.20.0.0/112"),
		netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/4"),
	}, host)
	tests := []struct{ addr, want string }{
		{"10.1.2.3", ""},
		{"64:ff9b::10.1.2.3", ""},
		{"10.0.0.5", "host"}, // a range does not open the host itself
		{"10.0.0.6", ""},     // its own address does
		{"127.0.0.1", ""},
		{"172.20.3.4", ""},
		{"172.21.0.0", "private"},
		{"192.168.1.1", ""},
		{"192.168.127.1", "guest network"},
		{"169.254.1.1", ""},
		{"169.254.169.254", "metadata"},
		{"224.0.0.1", "multicast"},
	}
	for _, tt := range tests {
		if got := r.check(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("check(%s) = %q, want %q", tt.addr, got, tt.want)
		}
	}
}

func TestRulesUnknownHostAddressesFailClosed(t *testing.T) {
	fail := true
	r := newRules(nil, func() ([]netip.Addr, error) {
		if fail {
			return nil, errors.New("no netlink")
		}
		return noHost()
	})
	if got := r.check(netip.MustParseAddr("8.8.8.8")); got != "host addresses unknown" {
		t.Errorf("check = %q", got)
	}
	fail = false
	if got := r.check(netip.MustParseAddr("8.8.8.8")); got != "" {
		t.Errorf("check = %q after the addresses are known", got)
	}
}

func TestInterfaceAddrs(t *testing.T) {
	addrs, err := interfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if a.Unmap().IsLoopback() {
			return
		}
	}
	t.Errorf("no loopback address in %v", addrs)
}
