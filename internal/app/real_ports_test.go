//go:build integration

package app_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/preview"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wstream"
)

// loopbackServices are Python that starts, on 127.0.0.1 of the guest alone: a file server on port 8000, on 8001
// a service that sends back what it gets until the other side ends, and on 8002 WebSockets that echo, by the standard library.
const loopbackServices = `
import base64, hashlib, os, socketserver, subprocess, threading
os.makedirs("/srv/www", exist_ok=True)
open("/srv/www/hello.txt", "w").write("hello from the guest")
web = subprocess.Popen(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", "/srv/www"])
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        data = bytearray()
        while part := self.request.recv(65536): data += part
        self.request.sendall(data)
class Socket(socketserver.StreamRequestHandler):
    def handle(self):
        lines = iter(self.rfile.readline, b"\r\n")
        headers = dict(l.decode().strip().split(": ", 1) for l in lines if b": " in l)
        key = {k.lower(): v for k, v in headers.items()}["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.wfile.write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n" % accept).encode())
        while head := self.rfile.read(2):
            n = head[1] & 127
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(n)))
            self.wfile.write(bytes([head[0], n]) + data)
            if head[0] & 15 == 8: return
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
for port, handler in (8001, Echo), (8002, Socket):
    threading.Thread(target=Server(("127.0.0.1", port), handler).serve_forever, daemon=True).start()
import socket, time
for port in 8000, 8001, 8002:
    end = time.monotonic() + 60
    while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < end: time.sleep(.05)
`

// dialPort connects to a port as 'ramet port' does.
func (b *box) dialPort(port int) (*websocket.Conn, error) {
	b.t.Helper()
	c, err := client.New(b.s.url, b.s.key, "test")
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	return c.ConnectPort(ctx, b.ID, port)
}

// tcpStream is a connection on this host.
type tcpStream struct{ *net.TCPConn }

func (s tcpStream) Abort() { _ = errors.Join(s.SetLinger(0), s.Close()) }

// echoes sends data to a port by way of a local connection and expects it back.
func (b *box) echoes(port int, data []byte) {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.Close()
	relayed := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			relayed <- err
			return
		}
		ws, err := b.dialPort(port)
		if err != nil {
			relayed <- errors.Join(err, conn.Close())
			return
		}
		relayed <- wstream.Relay(context.WithoutCancel(b.t.Context()), ws, tcpStream{conn.(*net.TCPConn)}, wstream.Options{})
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, err := conn.Write(data)
		if err := errors.Join(err, conn.(*net.TCPConn).CloseWrite()); err != nil {
			b.t.Errorf("send: %v", err)
		}
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, data) {
		b.t.Errorf("%d bytes of %d came back, %v", len(got), len(data), err)
	}
	if err := <-relayed; err != nil {
		b.t.Errorf("relay: %v", err)
	}
}

// TestRealPortForward reaches services that are bound to the guest's loopback address, whole and with half-closes,
// also after a hibernation and in a fork.
func TestRealPortForward(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustPython(loopbackServices)
	var list struct{ Ports []int }
	b.s.call(t, "GET", b.path("/ports"), nil, &list)
	if !strings.Contains(fmt.Sprint(list.Ports), "8000 8001 8002") {
		t.Errorf("it listens on %v", list.Ports)
	}
	data := make([]byte, 5<<20)
	rand.Read(data)
	begin := time.Now()
	b.echoes(8001, data)
	t.Logf("5 MiB there and back in %s", time.Since(begin))
	begin = time.Now()
	for range 10 {
		b.echoes(8001, []byte("x"))
	}
	t.Logf("a connection with one byte takes %s", time.Since(begin)/10)
	_, err := b.dialPort(9)
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != "port_closed" {
		t.Errorf("a closed port: %v", err)
	}
	open, err := b.dialPort(8001)
	if err != nil {
		t.Fatal(err)
	}
	defer open.CloseNow()
	b.hibernate()
	var closed websocket.CloseError
	if _, _, err := open.Read(t.Context()); !errors.As(err, &closed) || closed.Reason != "sandbox_hibernated" {
		t.Errorf("a connection to a sandbox that sleeps: %v", err)
	}
	b.echoes(8001, data[:1<<20]) // wakes it
	for _, child := range b.fork(1, nil) {
		child.echoes(8001, data[:1<<20])
	}
	b.echoes(8001, data[:1<<20])
}

// TestRealPreview passes HTTP and WebSockets on to the guest, before and after a hibernation.
func TestRealPreview(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustPython(loopbackServices)
	id, err := sandbox.ParseID(b.ID)
	if err != nil {
		t.Fatal(err)
	}
	proxy := preview.New(preview.Config{Control: b.s.app.Control(), Log: slog.New(slog.DiscardHandler)})
	port := 8000
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxy.Serve(w, r, preview.Target{Project: sandbox.DefaultProject, ID: id, Port: port})
	}))
	defer server.Close()
	get := func(want int) string {
		t.Helper()
		res, err := http.Get(server.URL + "/hello.txt")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != want {
			t.Fatalf("%d %q, %v", res.StatusCode, body, err)
		}
		return string(body)
	}
	for round := range 2 {
		port = 8000
		if got := get(200); got != "hello from the guest" {
			t.Errorf("%q", got)
		}
		begin := time.Now()
		for range 20 {
			get(200)
		}
		t.Logf("round %d: a small file takes %s", round, time.Since(begin)/20)
		port = 8002
		ws, _, err := websocket.Dial(t.Context(), server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := ws.Write(t.Context(), websocket.MessageText, []byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, m, err := ws.Read(t.Context()); err != nil || string(m) != "ping" {
			t.Errorf("%q, %v", m, err)
		}
		if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Errorf("close: %v", err)
		}
		port = 9
		get(502)
		if round == 0 {
			b.hibernate()
		}
	}
	// A large answer comes whole.
	b.mustBash("head -c 30000000 /dev/zero > /srv/www/hello.txt")
	port = 8000
	begin := time.Now()
	if got := get(200); len(got) != 30_000_000 {
		t.Errorf("%d bytes", len(got))
	}
	t.Logf("30 MB in %s", time.Since(begin))
}

// TestRealWatch follows changes that a program in the guest makes, in directories that it makes, and goes on
// after a checkpoint has frozen the guest for a moment.
func TestRealWatch(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustBash("mkdir -p /root/w/old")
	req, err := http.NewRequestWithContext(t.Context(), "GET", b.s.url+b.path("/files/watch?path=w&recursive=true&info=true"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.s.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	type change struct {
		Type, Path, Change, Code string
		Info                     struct{ Size int64 }
	}
	changes := make(chan change, 1024)
	go func() {
		defer close(changes)
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			var c change
			if len(lines.Bytes()) > 0 && json.Unmarshal(lines.Bytes(), &c) == nil {
				changes <- c
			}
		}
	}()
	until := func(match func(change) bool) (seen []string) {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			select {
			case c, ok := <-changes:
				if !ok {
					t.Fatalf("the watch ended after %q", seen)
				}
				seen = append(seen, strings.TrimSpace(c.Change+" "+c.Path))
				if match(c) {
					return seen
				}
			case <-deadline:
				t.Fatalf("only %q was told", seen)
			}
		}
	}
	until(func(c change) bool { return c.Type == "started" })
	for round := range 2 {
		name := fmt.Sprintf("n%d", round)
		b.mustBash("cd /root/w && mkdir -p " + name + "/a/b && echo hello > " + name + "/a/b/f && echo x > old/g && mv old/g old/h && rm old/h")
		seen := strings.Join(until(func(c change) bool { return c.Change == "remove" && c.Path == "old/h" }), "\n")
		for _, want := range []string{"create " + name, "create " + name + "/a", "create " + name + "/a/b", "create " + name + "/a/b/f", "create old/g", "rename old/g", "create old/h"} {
			if strings.Count("\n"+seen+"\n", "\n"+want+"\n") != 1 {
				t.Errorf("round %d: %q was not told once in\n%s", round, want, seen)
			}
		}
		if round == 0 {
			b.s.call(t, "POST", b.path("/checkpoints"), obj{"name": "c"}, nil)
		}
	}
	b.hibernate()
	until(func(c change) bool { return c.Type == "stream_error" && c.Code == "sandbox_hibernated" })

	// Attributes are kept by the guest's file system.
	var info struct{ Attributes map[string]string }
	b.s.call(t, "PUT", b.path("/files?path=f&attribute=origin%3Dtest"), strings.NewReader("x"), nil)
	b.s.call(t, "GET", b.path("/files/stat?path=f"), nil, &info)
	if info.Attributes["origin"] != "test" {
		t.Errorf("%v", info.Attributes)
	}
}
