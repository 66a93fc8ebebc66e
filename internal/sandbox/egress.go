package sandbox

import (
	"net/netip"
	"slices"
	"time"
)

// The values of EgressPolicy.Order.
const (
	EgressDenyFirst  = "deny_first"
	EgressAllowFirst = "allow_first"
)

// EgressPolicy says which destinations a sandbox may reach, as users write it.
// The zero value allows all. Package network reads the rules and documents
// their form and meaning. It is a value: nobody changes the lists of one that
// is in a record, so that records can share them.
type EgressPolicy struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	// Order is EgressDenyFirst (also when empty): what deny names is denied, and
	// with an allow list everything that it does not name is too. With
	// EgressAllowFirst allow holds the exceptions to deny, and what neither
	// names is allowed.
	Order string `json:"order,omitempty"`
}

// Equal says whether both policies have the same rules, written in the same way.
func (p EgressPolicy) Equal(q EgressPolicy) bool {
	return p.Order == q.Order && slices.Equal(p.Allow, q.Allow) && slices.Equal(p.Deny, q.Deny)
}

// EgressDenial is a connection, session or question to the DNS that the network
// of a machine refused.
type EgressDenial struct {
	Instance InstanceID
	Time     time.Time
	Protocol string         // "tcp", "udp" or "dns"
	Addr     netip.AddrPort // of tcp and udp
	// Host is the name that was asked for or that decided, "" for none. It comes
	// from the guest, at most 255 bytes of any kind.
	Host string
	// Reason is a few words, Rule the text of what denied it. Neither is empty.
	Reason, Rule string
}
