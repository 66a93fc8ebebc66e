package app

import (
	"errors"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
)

func TestExposure(t *testing.T) {
	files := config.TLS{CertFile: "/c", KeyFile: "/k"}
	acme := config.TLS{ACMEDomains: []string{"a.example.com"}}
	for _, c := range []struct {
		name string
		cfg  config.Server
		code string // of the refusal
	}{
		{"plain on loopback", config.Server{Listen: "127.0.0.1:1"}, ""},
		{"plain on IPv6 loopback without keys", config.Server{Listen: "[::1]:1", NoAuth: true}, ""},
		{"TLS on loopback", config.Server{Listen: "127.0.0.1:1", TLS: files}, ""},
		{"plain on all addresses", config.Server{Listen: ":1"}, "plain_http"},
		{"plain on a private address", config.Server{Listen: "10.1.2.3:1"}, "plain_http"},
		{"plain on a name", config.Server{Listen: "host.example.com:1"}, "plain_http"},
		{"plain, allowed", config.Server{Listen: "0.0.0.0:1", InsecureListen: true}, ""},
		{"files", config.Server{Listen: "0.0.0.0:1", TLS: files}, ""},
		{"ACME", config.Server{Listen: "[::]:1", TLS: acme}, ""},
		{"TLS without keys", config.Server{Listen: "0.0.0.0:1", TLS: files, NoAuth: true}, "open_without_keys"},
		{"plain without keys, allowed", config.Server{Listen: "0.0.0.0:1", InsecureListen: true, NoAuth: true}, "open_without_keys"},
	} {
		err := checkExposure(c.cfg)
		var refused *sandbox.Error
		switch {
		case c.code == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.code != "" && (!errors.As(err, &refused) || refused.Code != c.code):
			t.Errorf("%s: %v, want %s", c.name, err, c.code)
		case c.code == "plain_http" && !strings.Contains(err.Error(), "--tls-cert"):
			t.Errorf("%s: %v does not say what to do", c.name, err)
		}
	}
}

// TestPrepareRefusesFirst shows that nobody waits for a template to learn that the server cannot start.
func TestPrepareRefusesFirst(t *testing.T) {
	for code, cfg := range map[string]config.Server{
		"plain_http":      {Home: t.TempDir(), Listen: "0.0.0.0:1"},
		"bad_certificate": {Home: t.TempDir(), Listen: "0.0.0.0:1", TLS: config.TLS{CertFile: "/nosuch", KeyFile: "/nosuch"}},
	} {
		var refused *sandbox.Error
		if err := Prepare(t.Context(), cfg); !errors.As(err, &refused) || refused.Code != code {
			t.Errorf("%v, want %s", err, code)
		}
	}
}
