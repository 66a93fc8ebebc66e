package httpapi_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

const rulesOfGood = `"egress_policy":{"allow":["good.test","*.good.test:443"],"deny":["203.0.113.0/24"],"order":"deny_first"}`

func TestEgressPolicy(t *testing.T) {
	e := start(t, options{})
	res, body := e.do("POST", "/v1/sandboxes", `{"egress_policy":{"allow":["GOOD.test.","*.good.test:443"],"deny":["203.0.113.0/24"]}}`)
	if res.StatusCode != 200 || !strings.Contains(string(body), rulesOfGood) {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	var sb rametv1.Sandbox
	if err := json.Unmarshal(body, &sb); err != nil {
		t.Fatal(err)
	}
	path := "/v1/sandboxes/" + sb.Id + "/egress"
	for _, where := range []string{"/v1/sandboxes/" + sb.Id, "/v1/sandboxes"} {
		if _, body := e.do("GET", where, ""); !strings.Contains(string(body), rulesOfGood) {
			t.Errorf("%s: %s", where, body)
		}
	}
	for range 2 {
		res, body = e.do("PUT", path, `{"egress":true,"egress_policy":{"deny":["evil.test"],"order":"allow_first"}}`)
		if res.StatusCode != 200 || !strings.Contains(string(body), `"egress_policy":{"allow":[],"deny":["evil.test"],"order":"allow_first"}`) {
			t.Fatalf("%d %s", res.StatusCode, body)
		}
	}
	if on, p := e.machines.Egress(e.instance(sb.Id)); !on || len(p.Deny) != 1 || p.Order != sandbox.EgressAllowFirst {
		t.Errorf("the machine has %v %+v", on, p)
	}
	if res, body = e.do("PUT", path, `{"egress":false,"egress_policy":{}}`); res.StatusCode != 200 || !strings.Contains(string(body), `"egress":false,"egress_policy":{"allow":[],"deny":[],"order":"deny_first"}`) {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	// A sandbox of a caller that knows nothing of policies.
	if res, body := e.do("GET", "/v1/sandboxes/"+e.create(), ""); !strings.Contains(string(body), `"egress":true,"egress_policy":{"allow":[],"deny":[],"order":"deny_first"}`) {
		t.Errorf("%d %s", res.StatusCode, body)
	}

	mine := e.key
	e.adminKey()
	e.key = e.keyOf("other").Key
	for _, id := range []string{sb.Id, "sbx_00000000000000000000000000000000", "nonsense"} {
		if res, body := e.do("PUT", "/v1/sandboxes/"+id+"/egress", `{"egress":true,"egress_policy":{}}`); res.StatusCode != 404 || !strings.Contains(string(body), "sandbox_not_found") {
			t.Errorf("%s: %d %s", id, res.StatusCode, body)
		}
	}
	e.key = mine
	if on, _ := e.machines.Egress(e.instance(sb.Id)); on {
		t.Error("another project opened the network")
	}
	e.do("DELETE", "/v1/sandboxes/"+sb.Id, "")
	if res, _ := e.do("PUT", path, `{"egress":true,"egress_policy":{}}`); res.StatusCode != 404 {
		t.Errorf("a stopped one: %d", res.StatusCode)
	}
}

func TestWrongEgressPoliciesAreExplained(t *testing.T) {
	e := start(t, options{})
	path := "/v1/sandboxes/" + e.create() + "/egress"
	for _, c := range []struct{ policy, code, part string }{
		{`{"allow":["good.test","https://evil.test/"]}`, "invalid_egress_policy", "https://evil.test/"},
		{`{"deny":["300.0.0.1"]}`, "invalid_egress_policy", "300.0.0.1"},
		{`{"deny":["10.0.0.1/8"]}`, "invalid_egress_policy", "10.0.0.0/8"},
		{`{"allow":["a.test:0"]}`, "invalid_egress_policy", "wrong port"},
		{`{"allow":["foo*.test"]}`, "invalid_egress_policy", "foo*.test"},
		{`{"allow":["*"]}`, "invalid_egress_policy", "neither a domain"},
		{`{"allow":[""]}`, "invalid_egress_policy", "empty"},
		{`{"allow":["` + strings.Repeat("a", 400) + `"]}`, "invalid_egress_policy", "longer"},
		{`{"allow":["a.test"` + strings.Repeat(`,"a.test"`, 1000) + `]}`, "invalid_egress_policy", "at most 1000"},
		{`{"order":"random"}`, "invalid_egress_policy", "deny_first or allow_first"},
		{`{"allow":"good.test"}`, "invalid_type", "egress_policy.allow"},
		{`[]`, "invalid_type", "egress_policy"},
		// What is misspelt must not leave the network open.
		{`{"alow":["good.test"]}`, "unknown_field", "allow, deny, order"},
		{`{"Allow":["good.test"]}`, "unknown_field", "allow, deny, order"},
	} {
		for _, call := range []struct{ method, path, body string }{
			{"POST", "/v1/sandboxes", `{"egress_policy":` + c.policy + `}`},
			{"PUT", path, `{"egress":true,"egress_policy":` + c.policy + `}`},
		} {
			res, body := e.do(call.method, call.path, call.body)
			var got rametv1.Error
			if err := json.Unmarshal(body, &got); err != nil || res.StatusCode != 400 || got.Code != c.code || !strings.Contains(got.Error, c.part) {
				t.Errorf("%s %.60s: %d %.300s", call.method, c.policy, res.StatusCode, body)
			}
		}
	}
	for _, body := range []string{`{}`, `{"egress":true}`, `{"egress_policy":{}}`, `{"egress":null,"egress_policy":{}}`, `{"egress":true,"egress_policy":null}`} {
		if res, got := e.do("PUT", path, body); res.StatusCode != 400 || !strings.Contains(string(got), "missing_field") {
			t.Errorf("%s: %d %s", body, res.StatusCode, got)
		}
	}
}

func TestDenialsAreInTheStream(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	e.machines.Refused <- sandbox.EgressDenial{
		Instance: e.instance(id), Protocol: "tcp", Addr: netip.MustParseAddrPort("203.0.113.7:443"), Host: "evil.test", Reason: "denied by a rule", Rule: "deny evil.test",
	}
	var body []byte
	waitFor(t, 10*time.Second, "the event", func() bool {
		_, body = e.do("GET", "/v1/events?follow=false&sandbox="+id, "")
		return strings.Contains(string(body), "event: egress_denied\n")
	})
	if !strings.Contains(string(body), `"data":{"count":"1","host":"evil.test","ip":"203.0.113.7","port":"443","protocol":"tcp","rule":"deny evil.test","why":"denied by a rule"}`) {
		t.Errorf("%s", body)
	}
}
