package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/coder/websocket"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/cli/clitest"
	"ramet.dev/ramet/internal/client"
)

// TestConnectPortOverTLS: a server that speaks HTTP/2 is asked for a WebSocket by HTTP/1.1.
func TestConnectPortOverTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	srv := httptest.NewUnstartedServer(clitest.New(t.TempDir()).Handler())
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	c, err := client.New(srv.URL, clitest.Key, "test", client.WithTLS(&tls.Config{RootCAs: roots}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sb, err := c.Create(ctx, v1.SandboxCreate{})
	if err != nil {
		t.Fatal(err)
	}
	ports, err := c.Ports(ctx, sb.Id)
	if err != nil || !slices.Contains(ports, port) {
		t.Fatalf("%v, %v", ports, err)
	}
	ws, err := c.ConnectPort(ctx, sb.Id, port)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if err := ws.Write(ctx, websocket.MessageBinary, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, m, err := ws.Read(ctx); err != nil || string(m) != "hello" {
		t.Fatalf("%q, %v", m, err)
	}
	l.Close()
	var api *client.Error
	if _, err := c.ConnectPort(ctx, sb.Id, port); !errors.As(err, &api) || api.Status != 409 || api.Code != "port_closed" {
		t.Errorf("a closed port: %v", err)
	}
	bad, err := client.New("http://127.0.0.1:1", "", "test", client.WithoutProxy())
	if err != nil {
		t.Fatal(err)
	}
	var none *client.UnreachableError
	if _, err := bad.ConnectPort(ctx, sb.Id, port); !errors.As(err, &none) {
		t.Errorf("no server: %v", err)
	}
}
