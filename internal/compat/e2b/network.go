package e2b

import (
	"encoding/json"
	"net/http"
	"slices"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// networkConfig is what a sandbox may reach and who reaches it. Fields that this server
// cannot honour are refused, so that nobody relies on them.
type networkConfig struct {
	AllowPublicTraffic *bool                   `json:"allowPublicTraffic"`
	AllowOut           []string                `json:"allowOut"`
	DenyOut            []string                `json:"denyOut"`
	Rules              map[string][]egressRule `json:"rules"`
	EgressProxy        json.RawMessage         `json:"egressProxy"`
	DNSServers         []string                `json:"dnsServers"`
	MaskRequestHost    *string                 `json:"maskRequestHost"`
	HTTPSPorts         []int                   `json:"httpsPorts"`
}

type egressRule struct {
	Transform *struct {
		Headers map[string]string `json:"headers"`
	} `json:"transform"`
}

// supported says what of the configuration cannot be done.
func (n networkConfig) supported() error {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"network.egressProxy is", given(n.EgressProxy)},
		{"network.dnsServers are", n.DNSServers != nil},
		{"network.maskRequestHost is", n.MaskRequestHost != nil},
		{"network.httpsPorts are", len(n.HTTPSPorts) > 0},
	} {
		if f.given {
			return notYet("%s", f.name)
		}
	}
	for host, rules := range n.Rules {
		for _, rule := range rules {
			if rule.Transform != nil && len(rule.Transform.Headers) > 0 {
				return notYet("network.rules that change headers, such as those for %s, are", short(host))
			}
		}
	}
	return nil
}

// allTraffic is the clients' word for all addresses. Guests speak IPv4 only.
const allTraffic = "0.0.0.0/0"

// egress is the configuration as the gateway takes it. What allow names is an exception to
// what deny names, and what neither names is allowed.
func (n networkConfig) egress(internet *bool) control.Egress {
	e := control.Egress{On: true, Policy: sandbox.EgressPolicy{
		Allow: n.AllowOut, Deny: n.DenyOut, Order: sandbox.EgressAllowFirst,
	}}
	switch {
	case internet == nil || *internet:
	case len(n.AllowOut) == 0:
		e.On = false
	case !slices.Contains(n.DenyOut, allTraffic):
		e.Policy.Deny = append(slices.Clone(n.DenyOut), allTraffic)
	}
	if len(e.Policy.Allow)+len(e.Policy.Deny) == 0 {
		e.Policy.Order = ""
	}
	return e
}

// network enters what a create says of the network.
func (b newSandbox) network(req *control.CreateRequest) error {
	if b.Network == nil && b.AllowInternet == nil {
		return nil
	}
	var n networkConfig
	if b.Network != nil {
		n = *b.Network
	}
	if err := n.supported(); err != nil {
		return err
	}
	e := n.egress(b.AllowInternet)
	req.NoEgress, req.EgressPolicy = !e.On, &e.Policy
	return nil
}

// setNetwork replaces what a sandbox may reach: what is left out is as if it had never been.
func (s *Server) setNetwork(w http.ResponseWriter, r *http.Request) {
	var body struct {
		networkConfig
		AllowInternet *bool `json:"allow_internet_access"`
	}
	err := read(w, r, &body)
	if err == nil && body.AllowPublicTraffic != nil {
		err = notYet("changing allowPublicTraffic of a sandbox is")
	}
	if err == nil {
		err = body.supported()
	}
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.find(r)
	}
	if err == nil {
		_, err = s.control.SetEgress(r.Context(), sb.Project, sb.ID, body.egress(body.AllowInternet))
		err = gone(r.PathValue("id"), err)
	}
	s.done(w, r, err)
}

type shownNetwork struct {
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
	AllowPublicTraffic bool     `json:"allowPublicTraffic"`
}

// networkOf shows what the record says. A policy of the native API whose deny list comes first
// cannot be told in these words, but for what it denies.
func networkOf(sb sandbox.Sandbox) shownNetwork {
	out := shownNetwork{AllowOut: sb.EgressPolicy.Allow, DenyOut: sb.EgressPolicy.Deny, AllowPublicTraffic: !sb.PrivatePorts}
	closed := !sb.Egress || sb.EgressPolicy.Order != sandbox.EgressAllowFirst && len(sb.EgressPolicy.Allow) > 0
	if closed && !slices.Contains(out.DenyOut, allTraffic) {
		out.DenyOut = append(slices.Clone(out.DenyOut), allTraffic)
	}
	return out
}
