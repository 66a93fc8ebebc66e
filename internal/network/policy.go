package network

import (
	"net/netip"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/sandbox"
)

// Policy is what one guest may do. It can change while the guest runs, and is
// a value: a fork starts with a copy of its parent's. The zero value allows
// nothing; Policy{Egress: true} allows everything but what is never allowed
// (see rules.go), which no rule opens.
//
// How a destination is judged. A rule by address looks at the address that is
// dialled. A rule by domain looks at names: those for which the gateway's DNS
// gave the guest this address (see pins.go), and the name that the first bytes
// of a TCP connection show (TLS server name, HTTP host; see inspect.go). Both
// must be allowed: the address by its own rules or by one of its names, and
// the name that is shown, if there is one, too. So an address that the guest
// has from elsewhere has no name and is not in an allow list by domain; and a
// shared address is no way to a name that is not allowed.
//
// What a destination must not match, or must match, depends on the order:
//
//   - Deny first, the default: what Deny matches is denied; then, if Allow has
//     rules, what it does not match is denied too.
//   - AllowFirst: what Allow matches is allowed; then, what Deny matches is
//     denied; the rest is allowed. This is the order of E2B, where an allow
//     list is Allow with Deny 0.0.0.0/0.
//
// Names that are not allowed do not resolve: see (*compiled).resolves. Where
// names matter for a destination (see (*compiled).nameMatters), QUIC is closed,
// which hides the name, so clients fall back to TCP; and so are the ports of
// DNS (53, 853), but for an address that a rule allows. Names do not matter
// where a rule allows the address and no rule by domain could deny it.
//
// What cannot be seen: a host that is asked for inside TLS, at a server whose
// name is allowed ("domain fronting"), and what a proxy does that is allowed.
// Who runs the DNS of an allowed name decides which public addresses it opens.
// Names that are only denied can be reached by an address that the guest knows
// from elsewhere, if no bytes show the name. Use an allow list against code
// that wants out.
type Policy struct {
	// Egress allows connections to the outside. Without it every connection
	// is refused and DNS answers REFUSED; ARP, DHCP and the metadata service
	// go on, for they end at the gateway.
	Egress bool
	// Allow and Deny must not be changed after the policy is in use.
	Allow, Deny []Rule
	AllowFirst  bool
}

// Written returns the rules of the policy as users write them, each in the form
// in which a Denial names it.
func (p Policy) Written() sandbox.EgressPolicy {
	w := sandbox.EgressPolicy{Order: sandbox.EgressDenyFirst}
	if p.AllowFirst {
		w.Order = sandbox.EgressAllowFirst
	}
	for _, r := range p.Allow {
		w.Allow = append(w.Allow, r.String())
	}
	for _, r := range p.Deny {
		w.Deny = append(w.Deny, r.String())
	}
	return w
}

// Equal says whether both policies have the same rules in the same order.
func (p Policy) Equal(q Policy) bool {
	return p.Egress == q.Egress && p.AllowFirst == q.AllowFirst && slices.Equal(p.Allow, q.Allow) && slices.Equal(p.Deny, q.Deny)
}

// verdict is the answer to "may the guest?". It is yes when reason is empty.
type verdict struct {
	reason string
	rule   string // that was hit, as Denial.Rule
	name   string // that was judged
}

var allowed verdict

func (v verdict) ok() bool { return v.reason == "" }

// compiled is a Policy in a form that is quick to ask.
type compiled struct {
	Policy
	allow, deny ruleList
	denyAll     Rule // the deny rule for everything, if there is one
}

func compile(p Policy) *compiled {
	p.Allow, p.Deny = slices.Clone(p.Allow), slices.Clone(p.Deny)
	c := &compiled{Policy: p, allow: newRuleList(p.Allow), deny: newRuleList(p.Deny)}
	if i := slices.IndexFunc(p.Deny, Rule.everything); i >= 0 {
		c.denyAll = p.Deny[i]
	}
	return c
}

// nameMatters says whether the name of a destination can change the verdict.
func (c *compiled) nameMatters(dst netip.AddrPort) bool {
	if !c.allow.hasDomains() && !c.deny.hasDomains() {
		return false
	}
	_, allowed := c.allow.matchAddr(dst)
	return !allowed || !c.AllowFirst && c.deny.hasDomains()
}

// judge decides about a destination under one name, which is canonical or
// empty.
func (c *compiled) judge(dst netip.AddrPort, name string) verdict {
	_, isAllowed := c.allow.match(dst, name)
	deny, isDenied := c.deny.match(dst, name)
	switch {
	case c.AllowFirst && isAllowed:
		return allowed
	case isDenied:
		return verdict{reason: reasonDenied, rule: "deny " + deny.String(), name: name}
	case c.AllowFirst || isAllowed || len(c.Allow) == 0:
		return allowed
	}
	return verdict{reason: reasonNotListed, rule: ruleNotListed, name: name}
}

// judgeAny decides about a destination by all names of its address: one that
// is allowed suffices. An address without a name is judged without one.
func (c *compiled) judgeAny(dst netip.AddrPort, names []string) verdict {
	if c.nameMatters(dst) && (dst.Port() == dnsPort || dst.Port() == dnsTLSPort) {
		if _, ok := c.allow.matchAddr(dst); !ok {
			return verdict{reason: reasonResolver, rule: ruleResolver}
		}
	}
	if len(names) == 0 {
		return c.judge(dst, "")
	}
	var first verdict
	for _, name := range names {
		v := c.judge(dst, name)
		if v.ok() {
			return v
		}
		if first.ok() {
			first = v
		}
	}
	return first
}

// resolves decides about a question to the DNS. A name resolves when a rule
// allows it, or when no rule denies it and what is not named is allowed. Rules
// by address do not make names resolve: with an allow list of addresses alone
// there is no DNS, or it would be a way out. A rule that denies only some
// ports of a name leaves it to resolve.
func (c *compiled) resolves(question string) verdict {
	name, usual := canonicalName(question)
	_, isAllowed := c.allow.matchName(name, func(Rule) bool { return true })
	deny, isDenied := c.deny.matchName(name, func(r Rule) bool { return r.first == 0 })
	if !isDenied && c.denyAll != (Rule{}) {
		deny, isDenied = c.denyAll, true
	}
	switch {
	case !c.Egress:
		return verdict{reason: reasonEgress, rule: ruleEgress, name: question}
	case c.AllowFirst && isAllowed:
		return allowed
	case isDenied:
		return verdict{reason: reasonDenied, rule: "deny " + deny.String(), name: question}
	case !usual && (c.allow.hasDomains() || c.deny.hasDomains()):
		return verdict{reason: reasonOddName, rule: ruleOddName, name: question}
	case c.AllowFirst || isAllowed || len(c.Allow) == 0:
		return allowed
	}
	return verdict{reason: reasonNotListed, rule: ruleNotListed, name: question}
}

// deniesName says whether a name that stands behind another one (CNAME) is
// denied as a whole.
func (c *compiled) deniesName(question string) verdict {
	name, _ := canonicalName(question)
	if c.AllowFirst {
		if _, ok := c.allow.matchName(name, func(Rule) bool { return true }); ok {
			return allowed
		}
	}
	if r, ok := c.deny.matchName(name, func(r Rule) bool { return r.first == 0 }); ok {
		return verdict{reason: reasonDenied, rule: "deny " + r.String(), name: question}
	}
	return allowed
}

// ruleList finds the rule that matches a destination.
type ruleList struct {
	exact    map[string][]Rule // by name
	under    map[string][]Rule // by the name above
	prefixes []Rule
}

func newRuleList(rules []Rule) ruleList {
	l := ruleList{exact: map[string][]Rule{}, under: map[string][]Rule{}}
	for _, r := range rules {
		switch {
		case r.domain == "":
			l.prefixes = append(l.prefixes, r)
		case r.under:
			l.under[r.domain] = append(l.under[r.domain], r)
		default:
			l.exact[r.domain] = append(l.exact[r.domain], r)
		}
	}
	return l
}

func (l *ruleList) hasDomains() bool { return len(l.exact)+len(l.under) > 0 }

func (l *ruleList) match(dst netip.AddrPort, name string) (Rule, bool) {
	if r, ok := l.matchAddr(dst); ok {
		return r, true
	}
	return l.matchName(name, func(r Rule) bool { return r.matchPort(dst.Port()) })
}

func (l *ruleList) matchAddr(dst netip.AddrPort) (Rule, bool) {
	addr := dst.Addr().Unmap()
	for _, r := range l.prefixes {
		if r.prefix.Contains(addr) && r.matchPort(dst.Port()) {
			return r, true
		}
	}
	return Rule{}, false
}

// matchName finds a rule for a canonical name; there is none for an empty one.
func (l *ruleList) matchName(name string, ports func(Rule) bool) (Rule, bool) {
	if name == "" {
		return Rule{}, false
	}
	if i := slices.IndexFunc(l.exact[name], ports); i >= 0 {
		return l.exact[name][i], true
	}
	for above := name; ; {
		var more bool
		if _, above, more = strings.Cut(above, "."); !more {
			return Rule{}, false
		}
		if i := slices.IndexFunc(l.under[above], ports); i >= 0 {
			return l.under[above][i], true
		}
	}
}
