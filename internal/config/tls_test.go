package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTLSSettings(t *testing.T) {
	const file = "acme_domain: [A.example.com, b.example.com, a.example.com.]\nacme_email: ops@example.com\nlisten: 0.0.0.0:443\n"
	r, err := Load(sources(t, nil, nil, file))
	if err != nil {
		t.Fatal(err)
	}
	want := TLS{ACMEDomains: []string{"a.example.com", "b.example.com"}, ACMEEmail: "ops@example.com", ACMECA: DefaultACMECA}
	if d := cmp.Diff(want, r.Server().TLS); d != "" {
		t.Error(d)
	}
	if u := r.Client().URL; u != "https://127.0.0.1:443" {
		t.Errorf("URL %s", u)
	}
	env := map[string]string{"RAMET_TLS_CERT": "/c.pem", "RAMET_TLS_KEY": "/k.pem", "RAMET_CA": "/ca.pem"}
	if r, err = Load(sources(t, env, map[string]string{"insecure_listen": "true"}, "")); err != nil {
		t.Fatal(err)
	}
	if s := r.Server(); !s.TLS.Enabled() || s.TLS.KeyFile != "/k.pem" || !s.InsecureListen || r.Client().CA != "/ca.pem" {
		t.Errorf("%+v", s)
	}
	if r, err = Load(sources(t, nil, nil, "")); err != nil || r.Server().TLS.Enabled() {
		t.Errorf("TLS by itself, %v", err)
	}
}

func TestTLSRefuses(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"a certificate without its key": {"tls_cert: /c.pem\n", "belong together"},
		"a key without its certificate": {"tls_key: /k.pem\n", "belong together"},
		"files and ACME":                {"tls_cert: /c.pem\ntls_key: /k.pem\nacme_domain: a.example.com\n", "both given"},
		"ACME without a name":           {"acme_email: a@example.com\n", "without acme_domain"},
		"a relative file":               {"tls_cert: c.pem\n", "absolute path"},
		"a wildcard":                    {"acme_domain: '*.example.com'\n", "no wildcards"},
		"an address for a name":         {"acme_domain: 192.0.2.1\n", "not addresses"},
		"a name without a dot":          {"acme_domain: localhost\n", "with a dot"},
		"a path for a name":             {"acme_domain: a.example.com/../..\n", "host names"},
		"too many names":                {"acme_domain: " + strings.Repeat("x", 3) + manyNames() + "\n", "at most"},
		"an authority without TLS":      {"acme_domain: a.example.com\nacme_ca: http://ca.example.com/dir\n", "https URL"},
		"no e-mail address":             {"acme_domain: a.example.com\nacme_email: 'Ops <a@example.com>'\n", "e-mail address"},
		"no port for the challenge":     {"acme_domain: a.example.com\nacme_http: 0.0.0.0\n", "HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load(sources(t, nil, nil, c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// manyNames returns more names than are possible.
func manyNames() string {
	var b strings.Builder
	for n := range maxDomains + 1 {
		b.WriteString(".example.com," + strings.Repeat("y", n+1))
	}
	return b.String() + ".example.com"
}

func TestLocalCertificateOfServerInfo(t *testing.T) {
	if cfg, err := (ServerInfo{}).TLSClient(); cfg != nil || err != nil {
		t.Errorf("%v, %v", cfg, err)
	}
	// One that cannot be read must not end as trust in whoever the host trusts.
	if cfg, err := (ServerInfo{LocalCert: "x"}).TLSClient(); cfg != nil || err == nil {
		t.Errorf("%v, %v", cfg, err)
	}
}
