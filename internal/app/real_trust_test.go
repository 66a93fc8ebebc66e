//go:build integration

package app_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/config"
)

// TestRealGuestTrustsWhatItsHostTrusts verifies each certificate that was added to this host, in a guest.
func TestRealGuestTrustsWhatItsHostTrusts(t *testing.T) {
	added, err := filepath.Glob("/usr/local/share/ca-certificates/*.crt")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d certificates were added to this host", len(added))
	s := realServer(t)
	b := s.create(t, nil)
	for n, file := range added {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/root/host-%d.pem", n)
		s.call(t, "PUT", b.path("/files?path="+path), strings.NewReader(string(text)), nil)
		b.mustBash("openssl verify -CAfile /etc/ssl/certs/ca-certificates.crt " + path)
	}
	// And nothing else.
	authority, _ := newAuthority(t)
	s.call(t, "PUT", b.path("/files?path=/root/strange.pem"), strings.NewReader(string(authority)), nil)
	if r := b.bash("openssl verify -CAfile /etc/ssl/certs/ca-certificates.crt /root/strange.pem"); r.code == 0 {
		t.Errorf("a stranger's certificate is trusted: %+v", r)
	}
}

// newAuthority makes a certificate authority, and a certificate of it for an address.
func newAuthority(t *testing.T) (caPEM []byte, issue func(ip string) tls.Certificate) {
	t.Helper()
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	sign := func(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	caKey := newKey()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Ramet test authority"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER := sign(ca, ca, caKey, caKey)
	issue = func(ip string) tls.Certificate {
		key := newKey()
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: ip}, IPAddresses: []net.IP{net.ParseIP(ip)},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		return tls.Certificate{Certificate: [][]byte{sign(leaf, ca, key, caKey)}, PrivateKey: key}
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), issue
}

func TestRealGuestTrustsTheAuthorityOfTheSetting(t *testing.T) {
	private := newPrivateNet(t, "ramet-test-a", "10.213.0")
	authority, issue := newAuthority(t)
	ln := private.listen(t)
	serveHTTP(t, tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{issue(private.guest)}}),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "trusted") }))
	url := "https://" + ln.Addr().String() + "/"

	home := freshHome(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	// The certificates come with the identity, so the template that is there will do.
	s, err := start(home, false, func(c *config.Server) { c.GuestCA = file })
	if err != nil {
		t.Fatal(err)
	}
	s.stopAtEnd(t)
	b := s.create(t, nil)
	for what, got := range map[string]string{
		"curl":   b.mustBash("curl -sS --noproxy '*' " + url),
		"python": b.mustPython("import urllib.request; print(urllib.request.urlopen('" + url + "').read().decode(), end='')"),
		"pip's":  b.mustPython("import pip._vendor.requests as r; print(r.get('" + url + "').text, end='')"),
		"node":   b.mustBash("node -e \"require('https').get('" + url + "', r => r.pipe(process.stdout))\""),
	} {
		if got != "trusted" {
			t.Errorf("%s got %q", what, got)
		}
	}
	// Another server's guests, of the same snapshot, know nothing of it.
	if r := realServer(t).create(t, nil).bash("curl -sS --noproxy '*' " + url); r.code != 60 {
		t.Errorf("without the setting: %+v, want curl's 60", r)
	}
}
