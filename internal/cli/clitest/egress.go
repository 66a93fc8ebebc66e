package clitest

import (
	"fmt"
	"net/http"
	"strings"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// policyOf fills in what a policy leaves out, as the server does.
func policyOf(p v1.EgressPolicy) v1.EgressPolicy {
	allow, deny, order := valueOr(p.Allow, []string{}), valueOr(p.Deny, []string{}), valueOr(p.Order, sandbox.EgressDenyFirst)
	return v1.EgressPolicy{Allow: &allow, Deny: &deny, Order: &order}
}

// SetEgress implements the API.
func (s *Server) SetEgress(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	req, ok := read[v1.EgressSet](w, r)
	if !ok {
		return
	}
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	for _, rule := range valueOr(req.EgressPolicy.Allow, nil) {
		if strings.Contains(rule, " ") {
			fail(w, 400, "invalid_egress_policy", fmt.Sprintf("egress rule %q is neither a domain nor an address or range", rule))
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.Egress, b.EgressPolicy = req.Egress, policyOf(req.EgressPolicy)
	answer(w, b.Sandbox)
}
