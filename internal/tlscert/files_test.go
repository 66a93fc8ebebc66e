package tlscert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/tlscert/certtest"
)

func newCA(t *testing.T) *certtest.CA {
	t.Helper()
	ca, err := certtest.New()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// inDir returns the settings of the pair in a directory.
func inDir(dir string) config.TLS {
	return config.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
}

// serve serves with certificates of cfg, and returns their source and the address.
func serve(t *testing.T, cfg config.TLS, dir string, log *slog.Logger) (*Source, net.Addr) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := serveOn(t, ln, cfg, dir, log)
	return s, ln.Addr()
}

// serveOn serves on ln until stop is called, or the test ends.
func serveOn(t *testing.T, ln net.Listener, cfg config.TLS, dir string, log *slog.Logger) (s *Source, stop func()) {
	t.Helper()
	s, err := Open(cfg, ln.Addr(), dir, log)
	if err != nil {
		ln.Close()
		t.Fatal(err)
	}
	srv := &http.Server{
		TLSConfig: s.Config(), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(r.Proto)) }),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.ServeTLS(ln, "", ""); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}()
	s.Start()
	stop = sync.OnceFunc(func() {
		if err := errors.Join(srv.Close(), s.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
		<-done
	})
	t.Cleanup(stop)
	return s, stop
}

// shown returns the certificate that the server at addr shows for a name, as a
// client that trusts pool verifies it.
func shown(t *testing.T, addr net.Addr, pool *x509.CertPool, name string) (*x509.Certificate, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: name}}
	conn, err := d.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestChangedFilesAreServedAtOnce(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	if err := ca.Write(dir, "a.example.com"); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, inDir(dir), "", discard())
	first, err := shown(t, addr, ca.Pool(), "a.example.com")
	if err != nil {
		t.Fatal(err)
	}
	again, err := shown(t, addr, ca.Pool(), "a.example.com")
	if err != nil || !again.Equal(first) {
		t.Fatalf("the certificate changed by itself: %v", err)
	}
	// Renewals within one tick of a filesystem's clock, too.
	for range 5 {
		if err := ca.Write(dir, "a.example.com"); err != nil {
			t.Fatal(err)
		}
		next, err := shown(t, addr, ca.Pool(), "a.example.com")
		if err != nil {
			t.Fatal(err)
		}
		if next.Equal(first) {
			t.Fatal("the certificate before is still served")
		}
		first = next
	}
	if _, err := shown(t, addr, ca.Pool(), "b.example.com"); err == nil {
		t.Error("a certificate passed for a name that is not its own")
	}
}

// TestFilesThatDoNotFit shows that half a renewal, or a broken one, costs no
// connection, and is told once.
func TestFilesThatDoNotFit(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	if err := ca.Write(dir, "a.example.com"); err != nil {
		t.Fatal(err)
	}
	logs := &bytes.Buffer{}
	f, err := openFiles(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), slog.New(slog.NewTextHandler(logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	before := f.get()
	cert, key, err := ca.Issue("a.example.com")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what   string
		change func()
	}{
		{"a new certificate without its key", func() { write("cert.pem", cert) }},
		{"half a certificate", func() { write("cert.pem", cert[:len(cert)/2]) }},
		{"an empty file", func() { write("cert.pem", nil) }},
		{"too much", func() { write("cert.pem", bytes.Repeat([]byte("x"), maxPEM+1)) }},
		{"no file", func() {
			if err := os.Remove(filepath.Join(dir, "cert.pem")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		c.change()
		logs.Reset()
		for range 3 {
			if f.get() != before {
				t.Errorf("%s: another certificate is served", c.what)
			}
		}
		if n := strings.Count(logs.String(), "\n"); n != 1 {
			t.Errorf("%s: %d lines in the log: %s", c.what, n, logs)
		}
	}
	write("cert.pem", cert)
	write("key.pem", key)
	if got := f.get(); got == before || !bytes.Equal(got.Certificate[0], decode(t, cert)) {
		t.Error("the whole renewal is not served")
	}
}

func decode(t *testing.T, text []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("no PEM")
	}
	return block.Bytes
}

func TestSettledFilesAreNotReadAgain(t *testing.T) {
	old := stamp{inode: 1, changed: time.Now().Add(-time.Minute)}
	if !(stamps{old, old}).settled(time.Now()) {
		t.Error("a change of a minute ago is not settled")
	}
	if (stamps{old, stamp{changed: time.Now()}}).settled(time.Now()) {
		t.Error("a change of this moment is settled")
	}
}

func TestFilesOfNoUseAreRefused(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	if err := ca.Write(dir, "a.example.com"); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := ca.Write(other, "a.example.com"); err != nil {
		t.Fatal(err)
	}
	mixed := inDir(dir)
	mixed.KeyFile = inDir(other).KeyFile
	for what, cfg := range map[string]config.TLS{
		"another's key":      mixed,
		"no such file":       inDir(t.TempDir()),
		"roots without any":  {ACMEDomains: []string{"a.example.com"}, ACMECARoot: inDir(dir).KeyFile},
		"roots that are not": {ACMEDomains: []string{"a.example.com"}, ACMECARoot: filepath.Join(dir, "nosuch.pem")},
	} {
		if err := Check(cfg); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: error %v", what, err)
		}
	}
	if err := errors.Join(Check(inDir(dir)), Check(config.TLS{})); err != nil {
		t.Error(err)
	}
}

// TestLocalCertificate shows what server.json is good for: programs of this host
// know the server by it, whatever names its other certificate has.
func TestLocalCertificate(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	if err := ca.Write(dir, "a.example.com"); err != nil {
		t.Fatal(err)
	}
	s, addr := serve(t, inDir(dir), "", discard())
	cfg, err := config.ServerInfo{LocalCert: s.LocalCert()}.TLSClient()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shown(t, addr, cfg.RootCAs, cfg.ServerName); err != nil {
		t.Errorf("the server does not pass for itself: %v", err)
	}
	if _, err := shown(t, addr, cfg.RootCAs, "a.example.com"); err == nil {
		t.Error("the local certificate vouches for others")
	}
	// A stranger on the same port, who also has a certificate for the name.
	if err := ca.Write(dir, config.LocalName); err != nil {
		t.Fatal(err)
	}
	_, stranger := serve(t, inDir(dir), "", discard())
	if _, err := shown(t, stranger, cfg.RootCAs, cfg.ServerName); err == nil {
		t.Error("a stranger passes for the server")
	}
}

func TestOldProtocolsAreRefused(t *testing.T) {
	ca, dir := newCA(t), t.TempDir()
	if err := ca.Write(dir, "a.example.com"); err != nil {
		t.Fatal(err)
	}
	_, addr := serve(t, inDir(dir), "", discard())
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		d := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), ServerName: "a.example.com", MinVersion: version, MaxVersion: version}}
		conn, err := d.DialContext(t.Context(), "tcp", addr.String())
		if err == nil {
			conn.Close()
		}
		if ok != (err == nil) {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}
