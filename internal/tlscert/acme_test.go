package tlscert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/tlscert/certtest"
)

// pebble is Let's Encrypt's ACME server for tests, a process of its own. It
// validates for real: it asks a DNS server of the test and connects to the names.
type pebble struct {
	url     string // of its directory
	roots   string // PEM file: who signed its own certificate
	manage  string
	client  *http.Client
	process *exec.Cmd
	logs    *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// freePort returns a port of the loopback address that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// startPebble starts an ACME server that validates names on the given ports.
func startPebble(t *testing.T, tlsPort, httpPort int) *pebble {
	t.Helper()
	program := os.Getenv("RAMET_TEST_PEBBLE")
	if program == "" {
		t.Skip("RAMET_TEST_PEBBLE does not name the program pebble; 'make test-unit' builds it")
	}
	ca, dir := newCA(t), t.TempDir()
	if err := ca.Write(dir, "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	api, manage := freePort(t), freePort(t)
	settings := map[string]any{"pebble": map[string]any{
		"listenAddress":           fmt.Sprintf("127.0.0.1:%d", api),
		"managementListenAddress": fmt.Sprintf("127.0.0.1:%d", manage),
		"certificate":             filepath.Join(dir, "cert.pem"), "privateKey": filepath.Join(dir, "key.pem"),
		"httpPort": httpPort, "tlsPort": tlsPort, "keyAlgorithm": "ecdsa",
	}}
	b, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &pebble{
		url: fmt.Sprintf("https://127.0.0.1:%d/dir", api), manage: fmt.Sprintf("https://127.0.0.1:%d", manage),
		roots: filepath.Join(dir, "ca.pem"), logs: &syncBuffer{},
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}},
	}
	p.process = exec.Command(program, "-config", file, "-dnsserver", startDNS(t))
	p.process.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=20")
	p.process.Stdout, p.process.Stderr = p.logs, p.logs
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("the ACME server said:\n%s", p.logs)
		}
	})
	eventually(t, "the ACME server answers", func() error {
		_, err := p.get(p.url)
		return err
	})
	return p
}

func (p *pebble) stop() {
	if p.process.ProcessState == nil {
		p.process.Process.Kill()
		p.process.Wait()
	}
	p.client.CloseIdleConnections()
}

func (p *pebble) get(url string) ([]byte, error) {
	resp, err := p.client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return b, err
}

// issuers returns those who sign what the server issues.
func (p *pebble) issuers(t *testing.T) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	b, err := p.get(p.manage + "/roots/0")
	if err != nil || !pool.AppendCertsFromPEM(b) {
		t.Fatalf("the issuer's certificate: %v", err)
	}
	return pool
}

// startDNS answers that every name is this host.
func startDNS(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	srv := &dns.Server{Listener: ln, NotifyStartedFunc: func() { close(ready) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1},
				A:   net.IPv4(127, 0, 0, 1),
			}}
		}
		w.WriteMsg(m)
	})}
	done := make(chan error, 1)
	go func() { done <- srv.ActivateAndServe() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		srv.Shutdown()
		<-done
	})
	return ln.Addr().String()
}

// eventually tries until check passes, a minute at most.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute: %v", what, err)
		}
	}
}

// serveACME is serve for a port that the authority knows before.
func serveACME(t *testing.T, cfg config.TLS, port int, dir string, log *slog.Logger) (stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	_, stop = serveOn(t, ln, cfg, dir, log)
	return stop
}

func TestACME(t *testing.T) {
	for _, challenge := range []string{"tls-alpn-01", "http-01"} {
		t.Run(challenge, func(t *testing.T) {
			port, httpPort := freePort(t), freePort(t)
			ca := startPebble(t, port, httpPort)
			cfg := config.TLS{
				ACMEDomains: []string{"a.example.com", "b.example.com"}, ACMEEmail: "ops@example.com",
				ACMECA: ca.url, ACMECARoot: ca.roots,
			}
			if challenge == "http-01" {
				cfg.ACMEHTTP = fmt.Sprintf("127.0.0.1:%d", httpPort)
			}
			addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
			home := filepath.Join(t.TempDir(), "acme")
			logs := &syncBuffer{}
			log := slog.New(slog.NewTextHandler(logs, nil))
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the server said:\n%s", logs)
				}
			})
			stop := serveACME(t, cfg, port, home, log)
			var first *x509.Certificate
			for _, name := range cfg.ACMEDomains {
				eventually(t, "a certificate for "+name, func() (err error) {
					first, err = shown(t, addr, ca.issuers(t), name)
					return err
				})
			}
			if byHTTP := strings.Contains(ca.logs.String(), "validate w/ HTTP"); byHTTP != (challenge == "http-01") {
				t.Errorf("the challenge was not %s", challenge)
			}
			if _, err := shown(t, addr, ca.issuers(t), "c.example.com"); err == nil {
				t.Error("a certificate for a name that was not asked for")
			}
			if st, err := os.Stat(home); err != nil || st.Mode().Perm()&0o077 != 0 {
				t.Errorf("others can look into %s: %v, %v", home, st.Mode(), err)
			}
			if challenge == "http-01" {
				plainRefused(t, cfg.ACMEHTTP)
			}
			issuers := ca.issuers(t)
			stop()
			ca.stop()

			// The next server has them without the authority.
			stop = serveACME(t, cfg, port, home, log)
			defer stop()
			eventually(t, "the kept certificate", func() error {
				again, err := shown(t, addr, issuers, "b.example.com")
				if err == nil && !again.Equal(first) {
					t.Fatal("it is another one")
				}
				return err
			})
			if strings.Contains(logs.String(), "level=ERROR") {
				t.Errorf("errors in the log:\n%s", logs)
			}
		})
	}
}

// plainRefused sees that the port of the challenge serves nothing else.
func plainRefused(t *testing.T, addr string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/v1/info")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("plain HTTP was answered with %s", resp.Status)
	}
}

// TestACMEWithoutAuthority shows that a server whose authority is away serves
// the programs of its host, and ends at once.
func TestACMEWithoutAuthority(t *testing.T) {
	ca, err := certtest.New()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := ca.Write(dir, "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	cfg := config.TLS{
		ACMEDomains: []string{"a.example.com"}, ACMECARoot: filepath.Join(dir, "ca.pem"),
		ACMECA: fmt.Sprintf("https://127.0.0.1:%d/dir", freePort(t)),
	}
	logs := &syncBuffer{}
	s, addr := serve(t, cfg, t.TempDir(), slog.New(slog.NewTextHandler(logs, nil)))
	local, err := config.ServerInfo{LocalCert: s.LocalCert()}.TLSClient()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shown(t, addr, local.RootCAs, local.ServerName); err != nil {
		t.Error(err)
	}
	if _, err := shown(t, addr, ca.Pool(), "a.example.com"); err == nil {
		t.Error("a certificate out of nothing")
	}
	eventually(t, "the log tells of the authority", func() error {
		if !strings.Contains(logs.String(), "level=ERROR") {
			return fmt.Errorf("log: %s", logs)
		}
		return nil
	})
}
