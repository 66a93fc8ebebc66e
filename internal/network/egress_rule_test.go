package network

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

func mustRules(t testing.TB, list ...string) []Rule {
	t.Helper()
	rules, err := ParseRules(list)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestParseRule(t *testing.T) {
	for text, want := range map[string]string{
		"example.com":                "example.com",
		" Example.COM. ":             "example.com",
		"*.example.com":              "*.example.com",
		"*.Example.com.:443":         "*.example.com:443",
		"_dmarc.example.com":         "_dmarc.example.com",
		"bücher.example":             "xn--bcher-kva.example",
		"*.BÜCHER.example":           "*.xn--bcher-kva.example",
		"faß.de":                     "xn--fa-hia.de",
		"例え。テスト":                     "xn--r8jz45g.xn--zckzah",
		"localhost":                  "localhost",
		"example.com:8000-8010":      "example.com:8000-8010",
		"example.com:80-80":          "example.com:80",
		"203.0.113.7":                "203.0.113.7",
		"203.0.113.7/32":             "203.0.113.7",
		"203.0.113.7:443":            "203.0.113.7:443",
		"203.0.113.0/24":             "203.0.113.0/24",
		"203.0.113.0/24:1-1024":      "203.0.113.0/24:1-1024",
		"0.0.0.0/0":                  "0.0.0.0/0",
		"2001:DB8::1":                "2001:db8::1",
		"[2001:db8::1]:443":          "[2001:db8::1]:443",
		"2001:db8::/32":              "2001:db8::/32",
		"[2001:db8::]/32:80-90":      "[2001:db8::]/32:80-90",
		"[2001:db8::/32]:80":         "[2001:db8::]/32:80",
		"::ffff:203.0.113.7":         "203.0.113.7",
		"::ffff:203.0.113.0/120":     "203.0.113.0/24",
		"[::ffff:203.0.113.0]/120:1": "203.0.113.0/24:1",
	} {
		r, err := ParseRule(text)
		if err != nil || r.String() != want {
			t.Errorf("ParseRule(%q) = %v, %v; want %s", text, r, err, want)
		}
	}
	for text, part := range map[string]string{
		"":                        "is empty",
		"https://example.com/":    "is a URL",
		"example.com/path":        "not a correct range",
		"*":                       "neither a domain",
		"*.":                      "neither a domain",
		"*.*.example.com":         "neither a domain",
		"a.*.example.com":         "neither a domain",
		"*example.com":            "neither a domain",
		".example.com":            "neither a domain",
		"exa mple.com":            "neither a domain",
		"a..b":                    "neither a domain",
		"user@example.com":        "neither a domain",
		strings.Repeat("a", 64):   "neither a domain",
		strings.Repeat("a.", 200): "longer than",
		"example.com:":            "wrong port",
		"example.com:0":           "wrong port",
		"example.com:65536":       "wrong port",
		"example.com:90-80":       "wrong port",
		"example.com:+80":         "wrong port",
		"example.com:http":        "wrong port",
		"2130706433":              "not a correct address",
		"0x7f000001":              "not a correct address",
		"0\xbc0":                  "neither a domain",
		"127.1":                   "not a correct address",
		"010.0.0.1":               "not a correct address",
		"１２７.1":                   "not a correct address",
		"203.0.113.256":           "not a correct address",
		"203.0.113.7/24":          "write 203.0.113.0/24",
		"203.0.113.0/33":          "not a correct range",
		"::ffff:1.2.3.0/24":       "not a correct range",
		"fe80::1%eth0":            "has a zone",
		"[203.0.113.7]:80":        "not a correct address",
		"[2001:db8::1]80":         "not a correct address",
	} {
		r, err := ParseRule(text)
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("ParseRule(%q) = %v, %v; want an error with %q", text, r, err, part)
		}
	}
}

func TestParsePolicy(t *testing.T) {
	p, err := ParsePolicy(true, sandbox.EgressPolicy{Allow: []string{"a.test"}, Deny: []string{"b.a.test:80"}})
	if err != nil || !p.Egress || p.AllowFirst || len(p.Allow) != 1 || p.Deny[0].String() != "b.a.test:80" {
		t.Errorf("policy %+v, %v", p, err)
	}
	p, err = ParsePolicy(true, sandbox.EgressPolicy{Allow: []string{"a.test"}, Deny: []string{"0.0.0.0/0"}, Order: sandbox.EgressAllowFirst})
	if err != nil || !p.AllowFirst {
		t.Errorf("policy %+v, %v", p, err)
	}
	for part, wrong := range map[string]sandbox.EgressPolicy{
		"order is":          {Order: "random"},
		"is empty":          {Deny: []string{""}},
		"neither a domain":  {Allow: []string{"a b"}},
		"leaves nothing":    {Allow: []string{"a.test"}, Deny: []string{"0.0.0.0/0"}},
		"at most 1000 are ": {Allow: make([]string, MaxRules+1)},
		"can have 65536":    {Allow: slices.Repeat([]string{strings.Repeat("a", 60) + ".test"}, 900), Deny: slices.Repeat([]string{strings.Repeat("b", 60) + ".test"}, 200)},
	} {
		_, err := ParsePolicy(true, wrong)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Kind != sandbox.Invalid || e.Code != "invalid_egress_policy" || !strings.Contains(e.Message, part) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// TestPolicyIsWrittenAsItIsNamed reads back what Written gives.
func TestPolicyIsWrittenAsItIsNamed(t *testing.T) {
	p, err := ParsePolicy(true, sandbox.EgressPolicy{Allow: []string{" Example.COM. ", "*.bücher.test:443"}, Deny: []string{"::ffff:1.2.3.4", "10.0.0.0/8:80-90"}})
	if err != nil {
		t.Fatal(err)
	}
	w := p.Written()
	want := sandbox.EgressPolicy{Allow: []string{"example.com", "*.xn--bcher-kva.test:443"}, Deny: []string{"1.2.3.4", "10.0.0.0/8:80-90"}, Order: sandbox.EgressDenyFirst}
	if !w.Equal(want) {
		t.Errorf("written %+v", w)
	}
	if again, err := ParsePolicy(true, w); err != nil || !again.Equal(p) {
		t.Errorf("read again %+v %v", again, err)
	}
	// The form that is kept may be longer than what a user wrote, and it is the one that counts.
	for n, fits := range map[int]bool{900: true, MaxRules: false} {
		list := slices.Repeat([]string{"ü.ü.ü.ü.test"}, n)
		if _, err := ParsePolicy(true, sandbox.EgressPolicy{Allow: list, Deny: list}); (err == nil) != fits {
			t.Errorf("twice %d rules: %v", n, err)
		}
	}
	p, err = ParsePolicy(false, sandbox.EgressPolicy{Order: sandbox.EgressAllowFirst})
	if w := p.Written(); err != nil || w.Order != sandbox.EgressAllowFirst || len(w.Allow)+len(w.Deny) != 0 {
		t.Errorf("written %+v %v", w, err)
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"example.com", "*.example.com:443", "[2001:db8::]/32:80-90", "::ffff:1.2.3.4", "1.2.3.0/24:1-2", "bücher.example", "127.1", "[::]:1", "1.2.3.4:5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRule(s)
		if err != nil {
			return
		}
		again, err := ParseRule(r.String())
		if err != nil || again != r {
			t.Errorf("%q is %q, which is %q, %v", s, r, again, err)
		}
	})
}
