package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/tlscert"
	"ramet.dev/ramet/internal/tlscert/certtest"
)

// overTLS serves e's API on a listener of its own with a certificate for
// 127.0.0.1, and makes e call it there. It returns the authority and the
// directory of the certificate's files.
func (e *env) overTLS() (ca *certtest.CA, dir string) {
	e.t.Helper()
	ca, err := certtest.New()
	if err != nil {
		e.t.Fatal(err)
	}
	dir = e.t.TempDir()
	if err := ca.Write(dir, "127.0.0.1"); err != nil {
		e.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	cfg := config.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	certs, err := tlscert.Open(cfg, ln.Addr(), "", slog.New(slog.DiscardHandler))
	if err != nil {
		e.t.Fatal(err)
	}
	srv := e.api.HTTPServer()
	srv.TLSConfig = certs.Config()
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(ln, "", "") }()
	e.t.Cleanup(func() {
		e.api.Drain()
		if err := errors.Join(srv.Close(), certs.Close()); err != nil {
			e.t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			e.t.Error(err)
		}
	})
	e.url = "https://" + ln.Addr().String()
	return ca, dir
}

// tlsClient returns a client of an authority's servers, with HTTP/2 or without.
func tlsClient(t *testing.T, ca *certtest.CA, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// call makes a request and leaves the answer open.
func (e *env) call(ctx context.Context, c *http.Client, method, path, body string) *http.Response {
	e.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.Do(r)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	e.t.Cleanup(func() { res.Body.Close() })
	return res
}

// TestStreamsOverTLS runs code, follows the events and sends files over one
// HTTP/2 connection, and without HTTP/2.
func TestStreamsOverTLS(t *testing.T) {
	for proto, http2 := range map[string]bool{"HTTP/2.0": true, "HTTP/1.1": false} {
		t.Run(proto, func(t *testing.T) {
			e := start(t, options{keepAlive: 50 * time.Millisecond})
			id := e.create()
			ca, _ := e.overTLS()
			c := tlsClient(t, ca, http2)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			following := e.call(ctx, c, "GET", "/v1/events", "")
			if following.Proto != proto || following.StatusCode != 200 {
				t.Fatalf("events: %s %s", following.Proto, following.Status)
			}
			// A run that waits for what comes after its first line: the stream is not held back.
			run := e.call(ctx, c, "POST", "/v1/sandboxes/"+id+"/exec",
				`{"language":"bash","code":"echo first; while ! [ -e go ]; do sleep 0.01; done; echo second"}`)
			lines := bufio.NewReader(run.Body)
			var seen []byte
			for !strings.Contains(string(seen), "first") {
				line, err := lines.ReadBytes('\n')
				if err != nil {
					t.Fatal(err)
				}
				seen = append(seen, line...)
			}
			other := e.call(ctx, c, "POST", "/v1/sandboxes/"+id+"/exec", `{"language":"bash","code":"touch go"}`)
			if b, err := io.ReadAll(other.Body); err != nil || brief(events(t, b)) != "exit:0\n" {
				t.Fatalf("%v: %s", err, b)
			}
			rest, err := io.ReadAll(lines)
			if err != nil {
				t.Fatal(err)
			}
			if got := brief(events(t, append(seen, rest...))); got != "stdout:\"first\"\nstdout:\"second\"\nexit:0\n" {
				t.Errorf("the run: %s", got)
			}
			big := strings.Repeat("0123456789abcdef", 1<<16)
			if res := e.call(ctx, c, "PUT", "/v1/sandboxes/"+id+"/files?path=/root/big", big); res.StatusCode/100 != 2 {
				b, _ := io.ReadAll(res.Body)
				t.Fatalf("upload: %s %s", res.Status, b)
			}
			back, err := io.ReadAll(e.call(ctx, c, "GET", "/v1/sandboxes/"+id+"/files?path=/root/big", "").Body)
			if err != nil || string(back) != big {
				t.Errorf("download: %d bytes, %v", len(back), err)
			}
			e.call(ctx, c, "DELETE", "/v1/sandboxes/"+id, "")
			sse := bufio.NewReader(following.Body)
			for {
				if _, typ, ev := readSSE(t, sse); typ == "stopping" && ev.Sandbox == id {
					break
				}
			}
		})
	}
}

// TestOpenCallsOutliveARenewal shows that a new certificate is for new connections.
func TestOpenCallsOutliveARenewal(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	ca, dir := e.overTLS()
	c := tlsClient(t, ca, true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := e.call(ctx, c, "POST", "/v1/sandboxes/"+id+"/exec", `{"language":"bash","code":"while ! [ -e go ]; do sleep 0.01; done; echo done"}`)
	if err := ca.Write(dir, "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	fresh := e.call(ctx, tlsClient(t, ca, true), "POST", "/v1/sandboxes/"+id+"/exec", `{"language":"bash","code":"touch go"}`)
	if fresh.TLS.PeerCertificates[0].Equal(run.TLS.PeerCertificates[0]) {
		t.Error("a new connection got the certificate before")
	}
	if b, err := io.ReadAll(run.Body); err != nil || brief(events(t, b)) != "stdout:\"done\"\nexit:0\n" {
		t.Errorf("%v: %s", err, b)
	}
}

func TestTLSRefusesStrangersAndPlainHTTP(t *testing.T) {
	e := start(t, options{})
	e.overTLS()
	other, err := certtest.New()
	if err != nil {
		t.Fatal(err)
	}
	var unverified *tls.CertificateVerificationError
	if res, err := tlsClient(t, other, true).Get(e.url + "/v1/healthz"); !errors.As(err, &unverified) {
		if err == nil {
			res.Body.Close()
		}
		t.Errorf("a client that trusts another authority: %v", err)
	}
	e.url = strings.Replace(e.url, "https", "http", 1)
	if res := e.call(t.Context(), http.DefaultClient, "GET", "/v1/healthz", ""); res.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: %s", res.Status)
	}
}

// TestLargeHeadersAreRefused shows the bound that a request's headers have.
func TestLargeHeadersAreRefused(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		e := start(t, options{})
		ca, _ := e.overTLS()
		r, err := http.NewRequestWithContext(t.Context(), "GET", e.url+"/v1/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Large", strings.Repeat("x", 200<<10))
		res, err := tlsClient(t, ca, http2).Do(r)
		if err != nil {
			continue // the connection may end before the client has sent all
		}
		res.Body.Close()
		if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("HTTP/2 %t: %s", http2, res.Status)
		}
	}
}
