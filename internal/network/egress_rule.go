package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"ramet.dev/ramet/internal/sandbox"
)

const (
	// MaxRules is how many rules one list may have.
	MaxRules = 1000
	// maxRuleText bounds the text of a rule, in bytes: a name and two ports.
	maxRuleText = 300
	// maxPolicyText bounds the text of all rules of a policy, in bytes and in the
	// form of Written: it is part of a sandbox's record, and of every list of sandboxes.
	maxPolicyText = 64 << 10
)

// Rule names destinations, by domain or by address, on all ports or on some.
// Make it with ParseRule. Rules can be compared with ==.
type Rule struct {
	domain      string       // canonical; empty in a rule by address
	under       bool         // the names below domain, but not domain itself
	prefix      netip.Prefix // of a rule by address
	first, last uint16       // ports; 0, 0 is all of them
}

// ParseRule reads one rule:
//
//	example.com          that name
//	*.example.com        every name below it, at any depth, but not example.com
//	203.0.113.7          an address
//	203.0.113.0/24       a range of addresses
//	example.com:443      on one port
//	[2001:db8::]/32:80-90  on some ports; IPv6 takes brackets when there is a port
//
// Names are compared without case and final dot, and in their ASCII form. The
// error is one sentence.
func ParseRule(s string) (Rule, error) {
	text := strings.TrimSpace(s)
	switch {
	case text == "":
		return Rule{}, errors.New("an egress rule is empty")
	case len(text) > maxRuleText:
		return Rule{}, fmt.Errorf("an egress rule is longer than %d characters", maxRuleText)
	case strings.Contains(text, "://"):
		return Rule{}, fmt.Errorf("egress rule %q is a URL; write only its host, such as example.com or example.com:443", text)
	}
	dest, ports, hasPorts := splitPorts(text)
	var r Rule
	if hasPorts {
		var ok bool
		if r.first, r.last, ok = parsePorts(ports); !ok {
			return Rule{}, fmt.Errorf("egress rule %q has a wrong port; write one from 1 to 65535, or a range such as 8000-8010", text)
		}
	}
	if p, ok, err := parsePrefix(dest); ok {
		r.prefix = p
		if err != nil {
			return Rule{}, fmt.Errorf("egress rule %q %w", text, err)
		}
		return r, nil
	}
	name, under := strings.CutPrefix(dest, "*.")
	domain, ok := canonicalDomain(name)
	if !ok {
		return Rule{}, fmt.Errorf("egress rule %q is neither a domain (example.com, *.example.com) nor an address or range (203.0.113.7, 203.0.113.0/24)", text)
	}
	r.domain, r.under = domain, under
	return r, nil
}

// ParseRules reads a list of rules. The error names the first that is wrong.
func ParseRules(list []string) ([]Rule, error) {
	if len(list) > MaxRules {
		return nil, fmt.Errorf("an egress list has %d rules; at most %d are possible", len(list), MaxRules)
	}
	var rules []Rule
	for _, s := range list {
		r, err := ParseRule(s)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// ParsePolicy makes the policy of a sandbox. Its error is a *sandbox.Error that
// a user may read.
func ParsePolicy(egress bool, p sandbox.EgressPolicy) (Policy, error) {
	invalid := func(err error) (Policy, error) {
		return Policy{}, sandbox.Errorf(sandbox.Invalid, "invalid_egress_policy", "%w", err)
	}
	policy := Policy{Egress: egress}
	switch p.Order {
	case "", sandbox.EgressDenyFirst:
	case sandbox.EgressAllowFirst:
		policy.AllowFirst = true
	default:
		return invalid(fmt.Errorf("order is %q; it can be %s or %s", p.Order, sandbox.EgressDenyFirst, sandbox.EgressAllowFirst))
	}
	var err error
	if policy.Allow, err = ParseRules(p.Allow); err != nil {
		return invalid(err)
	}
	if policy.Deny, err = ParseRules(p.Deny); err != nil {
		return invalid(err)
	}
	size := 0
	for _, r := range slices.Concat(policy.Allow, policy.Deny) {
		size += len(r.String())
	}
	if size > maxPolicyText {
		return invalid(fmt.Errorf("the egress rules have %d bytes; all together can have %d", size, maxPolicyText))
	}
	if !policy.AllowFirst && len(policy.Allow) > 0 {
		for _, r := range policy.Deny {
			if r.everything() {
				return invalid(fmt.Errorf("deny has %v, which leaves nothing of allow; leave it out, an allow list already denies everything else", r))
			}
		}
	}
	return policy, nil
}

// String returns the rule in the form that ParseRule reads.
func (r Rule) String() string {
	s := r.domain
	switch {
	case r.domain != "" && r.under:
		s = "*." + s
	case r.domain != "":
	case r.prefix.IsSingleIP():
		s = r.prefix.Addr().String()
		if r.first != 0 && r.prefix.Addr().Is6() {
			s = "[" + s + "]"
		}
	default:
		s = r.prefix.String()
		if r.first != 0 && r.prefix.Addr().Is6() {
			s = fmt.Sprintf("[%v]/%d", r.prefix.Addr(), r.prefix.Bits())
		}
	}
	switch {
	case r.first == 0:
		return s
	case r.first == r.last:
		return fmt.Sprintf("%s:%d", s, r.first)
	}
	return fmt.Sprintf("%s:%d-%d", s, r.first, r.last)
}

// everything says whether the rule is for all of IPv4, which is all that a
// guest has.
func (r Rule) everything() bool {
	return r.domain == "" && r.prefix.Bits() == 0 && r.prefix.Addr().Is4() && r.first == 0
}

func (r Rule) matchPort(port uint16) bool {
	return r.first == 0 || r.first <= port && port <= r.last
}

// splitPorts cuts the ports off a rule. An IPv6 address without brackets has
// no ports.
func splitPorts(s string) (dest, ports string, ok bool) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		addr, rest, closed := strings.Cut(inner, "]")
		bits, ports, ok := strings.Cut(rest, ":")
		if !closed || !strings.Contains(addr, ":") || bits != "" && bits[0] != '/' {
			return s, "", false // wrong as a whole
		}
		return addr + bits, ports, ok
	}
	if strings.Count(s, ":") != 1 {
		return s, "", false
	}
	return strings.Cut(s, ":")
}

func parsePorts(s string) (first, last uint16, ok bool) {
	a, b, ranged := strings.Cut(s, "-")
	if !ranged {
		b = a
	}
	if first, ok = parsePort(a); !ok {
		return 0, 0, false
	}
	if last, ok = parsePort(b); !ok || last < first {
		return 0, 0, false
	}
	return first, last, true
}

func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && s[0] != '+'
}

// parsePrefix reads an address or a range. ok says whether s is meant as one;
// then err says what is wrong with it. IPv4 inside IPv6 (::ffff:1.2.3.4) is
// taken as the IPv4 that it is.
func parsePrefix(s string) (p netip.Prefix, ok bool, err error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		switch {
		case err == nil && a.Zone() != "":
			return p, true, errors.New("has a zone, which means nothing outside a host")
		case err == nil:
			a = a.Unmap()
			return netip.PrefixFrom(a, a.BitLen()), true, nil
		case strings.Contains(s, ":") || isNumeric(s):
			return p, true, errors.New("is not a correct address; write it as 203.0.113.7")
		}
		return p, false, nil
	}
	p, err = netip.ParsePrefix(s)
	if err != nil {
		return p, true, errors.New("is not a correct range; write it as 203.0.113.0/24")
	}
	if a := p.Addr(); a.Is4In6() {
		if p.Bits() < 96 {
			return p, true, errors.New("is not a correct range; write IPv4 as 203.0.113.0/24")
		}
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	if p.Masked() != p {
		return p, true, fmt.Errorf("has bits beyond its length; write %v", p.Masked())
	}
	return p, true, nil
}

// isNumeric says whether a C library would take s for an IPv4 address: its
// last label is a number, also in hexadecimal (2130706433, 0x7f.1). As a rule
// it would not mean what it says, for guests have turned it into an ordinary
// address before they connect.
func isNumeric(s string) bool {
	last := s[strings.LastIndexByte(s, '.')+1:]
	if hex, ok := strings.CutPrefix(strings.ToLower(last), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// toASCII maps a name as people write it to the form that is in DNS.
var toASCII = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false))

// canonicalDomain is canonicalName for names that people write.
func canonicalDomain(s string) (string, bool) {
	ascii, err := toASCII.ToASCII(s)
	if err != nil || !utf8.ValidString(s) {
		return "", false
	}
	return canonicalName(ascii)
}

// canonicalName returns an ASCII name without case and final dot. It is false
// for what is no ordinary host name: empty labels, other characters than
// letters, digits, '-' and '_', numbers for addresses. Such names match no rule.
func canonicalName(s string) (string, bool) {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 || isNumeric(s) {
		return "", false
	}
	label := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			if label == 0 {
				return "", false
			}
			label = 0
			continue
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	if label == 0 {
		return "", false
	}
	return strings.ToLower(s), true
}
