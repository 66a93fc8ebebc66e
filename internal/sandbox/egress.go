package sandbox

// The values of EgressPolicy.Order.
const (
	EgressDenyFirst  = "deny_first"
	EgressAllowFirst = "allow_first"
)

// EgressPolicy says which destinations a sandbox may reach, as users write it.
// The zero value allows all. Package network reads the rules and documents
// their form and meaning.
type EgressPolicy struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	// Order is EgressDenyFirst (also when empty): what deny names is denied, and
	// with an allow list everything that it does not name is too. With
	// EgressAllowFirst allow holds the exceptions to deny, and what neither
	// names is allowed.
	Order string `json:"order,omitempty"`
}
