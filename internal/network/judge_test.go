package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// policyOf makes a policy from rules, each "allow …" or "deny …", and the word
// "allow_first".
func policyOf(t testing.TB, words ...string) Policy {
	t.Helper()
	p := Policy{Egress: true}
	for _, w := range words {
		verb, rule, _ := strings.Cut(w, " ")
		switch verb {
		case "allow":
			p.Allow = append(p.Allow, mustRules(t, rule)...)
		case "deny":
			p.Deny = append(p.Deny, mustRules(t, rule)...)
		case "allow_first":
			p.AllowFirst = true
		default:
			t.Fatalf("policy has %q", w)
		}
	}
	return p
}

func TestWildcards(t *testing.T) {
	exact, under := policyOf(t, "allow example.com"), policyOf(t, "allow *.example.com")
	for name, want := range map[string][2]bool{
		"example.com":                            {true, false},
		"EXAMPLE.com.":                           {true, false},
		"a.example.com":                          {false, true},
		"a.b.Example.Com.":                       {false, true},
		"aexample.com":                           {false, false},
		"-.example.com":                          {false, true},
		"example.com.evil.test":                  {false, false},
		"com":                                    {false, false},
		".":                                      {false, false},
		"":                                       {false, false},
		".example.com":                           {false, false},
		"a..example.com":                         {false, false},
		`a\.example.com`:                         {false, false}, // one label with a dot in it
		`x.a\.example.com.`:                      {false, false},
		`\000.example.com`:                       {false, false},
		"exa mple.com":                           {false, false},
		"xn--bcher-kva.test":                     {false, false},
		strings.Repeat("a", 64) + ".example.com": {false, false},
	} {
		for i, p := range []Policy{exact, under} {
			if v := compile(p).resolves(name); v.ok() != want[i] {
				t.Errorf("%v resolves %q: %+v, want %v", p.Allow, name, v, want[i])
			}
		}
	}
}

func TestResolves(t *testing.T) {
	for _, tt := range []struct {
		policy []string
		name   string
		rule   string // "" when it resolves
	}{
		{nil, "any.test.", ""},
		{nil, `odd\032name.`, ""},
		{[]string{"deny 203.0.113.0/24"}, "any.test.", ""},
		{[]string{"deny evil.test"}, "any.test.", ""},
		{[]string{"deny evil.test"}, "EVIL.test.", "deny evil.test"},
		{[]string{"deny evil.test"}, `odd\032name.`, "odd"},
		{[]string{"deny evil.test:80"}, "evil.test.", ""},
		{[]string{"allow *.good.test", "deny bad.good.test"}, "a.good.test.", ""},
		{[]string{"allow *.good.test", "deny bad.good.test"}, "bad.good.test.", "deny bad.good.test"},
		{[]string{"allow *.good.test", "deny bad.good.test"}, "any.test.", "allow list"},
		{[]string{"allow good.test:443"}, "good.test.", ""},
		{[]string{"allow 203.0.113.0/24"}, "any.test.", "allow list"},
		{[]string{"deny 0.0.0.0/0"}, "any.test.", "deny 0.0.0.0/0"},
		{[]string{"deny 0.0.0.0/0:80"}, "any.test.", ""},
		{[]string{"allow_first", "allow good.test", "deny 0.0.0.0/0"}, "good.test.", ""},
		{[]string{"allow_first", "allow good.test", "deny 0.0.0.0/0"}, "any.test.", "deny 0.0.0.0/0"},
		{[]string{"allow_first", "allow a.evil.test", "deny *.evil.test"}, "a.evil.test.", ""},
		{[]string{"allow_first", "allow a.evil.test", "deny *.evil.test"}, "b.evil.test.", "deny *.evil.test"},
		{[]string{"allow_first", "allow a.evil.test", "deny *.evil.test"}, "any.test.", ""},
	} {
		v := compile(policyOf(t, tt.policy...)).resolves(tt.name)
		if got := v.rule; v.ok() != (tt.rule == "") || tt.rule != got && tt.rule != "odd" {
			t.Errorf("%v: %s: %+v, want %q", tt.policy, tt.name, v, tt.rule)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		policy []string
		dst    string
		names  []string // of the address
		shown  string
		want   string // "", the rule, or "shown: " and the rule
	}{
		{nil, "203.0.113.1:80", nil, "any.test", ""},
		{[]string{"deny 203.0.113.0/24"}, "203.0.113.1:80", nil, "", "deny 203.0.113.0/24"},
		{[]string{"deny 203.0.113.0/24"}, "[::ffff:203.0.113.1]:80", nil, "", "deny 203.0.113.0/24"},
		{[]string{"deny 203.0.113.0/24:443"}, "203.0.113.1:80", nil, "", ""},
		{[]string{"deny 203.0.113.0/24"}, "203.0.114.1:80", nil, "", ""},
		{[]string{"allow 203.0.113.0/24:80-90"}, "203.0.113.1:80", nil, "", ""},
		{[]string{"allow 203.0.113.0/24:80-90"}, "203.0.113.1:91", nil, "", "allow list"},
		{[]string{"allow 203.0.113.0/24"}, "203.0.113.1:80", nil, "any.test", ""},

		// An allow list by domain: the address and the name shown, both.
		{[]string{"allow good.test"}, "203.0.113.1:443", nil, "good.test", "allow list"},
		{[]string{"allow good.test"}, "203.0.113.1:443", []string{"evil.test"}, "good.test", "allow list"},
		{[]string{"allow good.test"}, "203.0.113.1:443", []string{"good.test"}, "", ""},
		{[]string{"allow good.test"}, "203.0.113.1:443", []string{"good.test"}, "GOOD.test.", ""},
		{[]string{"allow good.test"}, "203.0.113.1:443", []string{"good.test"}, "203.0.113.1", ""},
		{[]string{"allow good.test"}, "203.0.113.1:443", []string{"good.test"}, "203.0.113.2", "shown: " + ruleOddName},
		{[]string{"allow good.test"}, "203.0.113.1:443", []string{"good.test"}, "evil.test", "shown: allow list"},
		{[]string{"allow good.test"}, "203.0.113.1:443", []string{"evil.test", "good.test"}, "evil.test", "shown: allow list"},
		{[]string{"allow good.test:443"}, "203.0.113.1:80", []string{"good.test"}, "", "allow list"},
		{[]string{"allow a.test:443", "allow b.test:80"}, "203.0.113.1:80", []string{"b.test"}, "a.test", "shown: allow list"},
		{[]string{"allow *.good.test", "deny bad.good.test"}, "203.0.113.1:80", []string{"bad.good.test"}, "", "deny bad.good.test"},
		{[]string{"allow *.good.test", "deny bad.good.test"}, "203.0.113.1:80", []string{"a.good.test"}, "bad.good.test", "shown: deny bad.good.test"},
		{[]string{"allow good.test", "deny 203.0.113.0/24"}, "203.0.113.1:80", []string{"good.test"}, "good.test", "deny 203.0.113.0/24"},
		{[]string{"allow 203.0.113.0/24", "deny evil.test"}, "203.0.113.1:80", nil, "evil.test", "shown: deny evil.test"},

		// A deny list by domain.
		{[]string{"deny evil.test"}, "203.0.113.1:80", nil, "", ""},
		{[]string{"deny evil.test"}, "203.0.113.1:80", nil, "evil.test", "shown: deny evil.test"},
		{[]string{"deny evil.test"}, "203.0.113.1:80", []string{"evil.test"}, "", "deny evil.test"},
		{[]string{"deny evil.test"}, "203.0.113.1:80", []string{"evil.test", "good.test"}, "good.test", ""},

		// Other name servers.
		{[]string{"allow good.test"}, "203.0.113.1:53", []string{"good.test"}, "", ruleResolver},
		{[]string{"deny evil.test"}, "203.0.113.1:853", nil, "", ruleResolver},
		{[]string{"deny evil.test", "allow 203.0.113.1:53"}, "203.0.113.1:53", nil, "", ""},
		{[]string{"allow 203.0.113.1", "allow good.test"}, "203.0.113.1:53", nil, "", ""},
		{[]string{"deny 203.0.113.2"}, "203.0.113.1:53", nil, "", ""},

		// The order of E2B.
		{[]string{"allow_first", "allow 203.0.113.1", "deny 0.0.0.0/0"}, "203.0.113.1:80", nil, "", ""},
		{[]string{"allow_first", "allow 203.0.113.1", "deny 0.0.0.0/0"}, "203.0.113.2:80", nil, "", "deny 0.0.0.0/0"},
		{[]string{"allow_first", "allow 203.0.113.1", "deny 203.0.113.0/24"}, "198.51.100.1:80", nil, "", ""},
		{[]string{"allow_first", "allow 203.0.113.0/24", "deny 203.0.113.1"}, "203.0.113.1:80", nil, "", ""},
		{[]string{"allow_first", "allow good.test", "deny 0.0.0.0/0"}, "203.0.113.2:80", []string{"good.test"}, "good.test", ""},
		{[]string{"allow_first", "allow good.test", "deny 0.0.0.0/0"}, "203.0.113.2:80", []string{"good.test"}, "evil.test", "shown: deny 0.0.0.0/0"},
		{[]string{"allow_first", "allow good.test", "deny 0.0.0.0/0"}, "203.0.113.2:80", nil, "good.test", "deny 0.0.0.0/0"},
	} {
		c := compile(policyOf(t, tt.policy...))
		dst := netip.MustParseAddrPort(tt.dst)
		got := ""
		if v := c.judgeAny(dst, tt.names); !v.ok() {
			got = v.rule
		} else if v := c.judgeShown(dst, tt.shown); !v.ok() {
			got = "shown: " + v.rule
		}
		if got != tt.want {
			t.Errorf("%v: %s %v shows %q: %q, want %q", tt.policy, tt.dst, tt.names, tt.shown, got, tt.want)
		}
	}
}

func TestPins(t *testing.T) {
	p := newPins()
	now := time.Now()
	a := netip.MustParseAddr("203.0.113.1")
	p.add("b.test", a, time.Second, now)
	p.add("a.test", a, 24*time.Hour, now)
	for after, want := range map[time.Duration]string{
		0:                     "[a.test b.test]",
		pinMin:                "[a.test b.test]", // programs keep addresses for longer than they should
		pinMin + 2*pinGrace:   "[a.test]",
		pinMax + pinGrace + 1: "[]",
	} {
		if got := fmt.Sprint(p.names(a, now.Add(after))); got != want {
			t.Errorf("after %v: %s, want %s", after, got, want)
		}
	}
	// A later answer does not shorten an earlier one.
	p.add("a.test", a, time.Second, now)
	if got := p.names(a, now.Add(pinMax)); len(got) != 1 {
		t.Errorf("after a second answer: %v", got)
	}
}

func TestPinsAreBounded(t *testing.T) {
	p := newPins()
	now := time.Now()
	for i := range 3 * maxPins {
		addr := netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
		p.add("x.test", addr, pinMin, now.Add(time.Duration(i)*time.Millisecond))
		if p.count > maxPins {
			t.Fatalf("%d pins", p.count)
		}
		if len(p.names(addr, now)) != 1 {
			t.Fatalf("pin %d is not there", i)
		}
	}
	one := netip.MustParseAddr("198.51.100.1")
	for i := range 3 * maxPinNames {
		p.add(fmt.Sprintf("n%d.test", i), one, pinMin, now.Add(time.Duration(i)*time.Millisecond))
	}
	if got := p.names(one, now); len(got) != maxPinNames {
		t.Errorf("%d names of one address", len(got))
	}
	sum := 0
	for _, names := range p.byAddr {
		sum += len(names)
	}
	if sum != p.count {
		t.Errorf("count is %d, there are %d", p.count, sum)
	}
}
