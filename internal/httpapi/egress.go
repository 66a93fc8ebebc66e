package httpapi

import (
	"net/http"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// SetEgress replaces what a sandbox may reach.
func (s *Server) SetEgress(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	// Not the generated type: it cannot tell false and no rules from nothing, and what
	// somebody left out must not open a network.
	var b struct {
		Egress       *bool                 `json:"egress"`
		EgressPolicy *rametv1.EgressPolicy `json:"egress_policy"`
	}
	err := decode(w, r, maxBody, false, &b)
	if err == nil && (b.Egress == nil || b.EgressPolicy == nil) {
		err = badRequest("missing_field", "egress and egress_policy both have to be there, since all that was set before is replaced; {} is a policy without rules")
	}
	var parsed sandbox.ID
	if err == nil {
		parsed, err = sandbox.ParseID(id)
	}
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.control.SetEgress(r.Context(), project(r), parsed, control.Egress{On: *b.Egress, Policy: egressPolicy(*b.EgressPolicy)})
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeSandbox(w, r, sb)
}

func egressPolicy(p rametv1.EgressPolicy) sandbox.EgressPolicy {
	return sandbox.EgressPolicy{Allow: value(p.Allow), Deny: value(p.Deny), Order: value(p.Order)}
}

// toEgressPolicy shows every field, also of a record that is older than policies.
func toEgressPolicy(p sandbox.EgressPolicy) rametv1.EgressPolicy {
	allow, deny, order := p.Allow, p.Deny, p.Order
	if allow == nil {
		allow = []string{}
	}
	if deny == nil {
		deny = []string{}
	}
	if order == "" {
		order = sandbox.EgressDenyFirst
	}
	return rametv1.EgressPolicy{Allow: &allow, Deny: &deny, Order: &order}
}
