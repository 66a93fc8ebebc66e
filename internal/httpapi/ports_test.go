package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/wstream"
)

// listenLocal serves on this host's loopback, which is that of the fake guests.
func listenLocal(t *testing.T, serve func(*net.TCPConn)) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

func (e *env) connectPort(id string, port int) (*websocket.Conn, *http.Response, error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 20*time.Second)
	defer cancel()
	ws, res, err := websocket.Dial(ctx, fmt.Sprintf("%s/v1/sandboxes/%s/ports/%d/connect", e.url, id, port), &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + e.key}},
	})
	if err == nil {
		e.t.Cleanup(func() { ws.CloseNow() })
		ws.SetReadLimit(-1)
	}
	return ws, res, err
}

// pipeEnd is a Stream of the other end of a relay.
type pipeEnd struct{ *net.TCPConn }

func (p pipeEnd) Abort() {
	_ = p.SetLinger(0)
	_ = p.Close()
}

// TestConnectPort: bytes arrive whole both ways, and each side learns that the other sends no more.
func TestConnectPort(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	port := listenLocal(t, func(c *net.TCPConn) {
		all, err := io.ReadAll(c)
		if err == nil {
			_, err = c.Write(all)
		}
		if err != nil {
			t.Error(err)
		}
	})
	ws, _, err := e.connectPort(id, port)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 3<<20)
	rand.Read(data)
	ctx := t.Context()
	for part := range slices.Chunk(data, 1<<20) { // messages may be of any size
		if err := ws.Write(ctx, websocket.MessageBinary, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := ws.Write(ctx, websocket.MessageBinary, nil); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for {
		kind, m, err := ws.Read(ctx)
		if err != nil || kind != websocket.MessageBinary {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		if len(m) == 0 {
			break
		}
		got = append(got, m...)
	}
	if !bytes.Equal(got, data) {
		t.Fatalf("%d bytes came back", len(got))
	}
	if _, _, err := ws.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Fatal(err)
	}
}

func TestConnectPortErrors(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr).Port
	l.Close()
	for name, c := range map[string]struct {
		id     string
		port   int
		status int
		code   string
	}{
		"nothing listens": {id, closed, 409, "port_closed"},
		"no such port":    {id, 70000, 400, "invalid_port"},
		"no such sandbox": {"sbx_" + strings.Repeat("0", 32), 80, 404, "sandbox_not_found"},
	} {
		_, res, err := e.connectPort(c.id, c.port)
		if err == nil || res == nil {
			t.Fatalf("%s: %v", name, err)
		}
		var body rametv1.Error
		if derr := json.NewDecoder(res.Body).Decode(&body); derr != nil || res.StatusCode != c.status || body.Code != c.code {
			t.Errorf("%s: %d %+v, %v", name, res.StatusCode, body, derr)
		}
	}
	res, body := e.do("GET", fmt.Sprintf("/v1/sandboxes/%s/ports/%d/connect", id, closed), "")
	if res.StatusCode != http.StatusUpgradeRequired || !bytes.Contains(body, []byte("WebSocket")) {
		t.Errorf("no WebSocket: %d %s", res.StatusCode, body)
	}
	e.key = "rmt_wrong"
	if _, res, err := e.connectPort(id, closed); err == nil || res.StatusCode != 401 {
		t.Errorf("a wrong key: %v", err)
	}
}

// TestConnectPortBreaks: a connection that breaks does not look like one that ends.
func TestConnectPortBreaks(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	port := listenLocal(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	})
	ws, _, err := e.connectPort(id, port)
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(t.Context(), websocket.MessageBinary, []byte("x")); err != nil {
		t.Fatal(err)
	}
	var closed websocket.CloseError
	if _, _, err := ws.Read(t.Context()); !errors.As(err, &closed) || closed.Code != websocket.StatusInternalError || closed.Reason != wstream.ReasonReset {
		t.Errorf("a reset: %v", err)
	}
	seen := make(chan error, 1)
	port = listenLocal(t, func(c *net.TCPConn) {
		_, err := io.ReadAll(c)
		seen <- err
	})
	if ws, _, err = e.connectPort(id, port); err != nil {
		t.Fatal(err)
	}
	if err := ws.CloseNow(); err != nil { // no close frame: its client has vanished
		t.Fatal(err)
	}
	if err := <-seen; err == nil {
		t.Error("the program took a client that vanished for one that was done")
	}
	if ws, _, err = e.connectPort(id, port); err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(t.Context(), websocket.MessageText, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusInternalError {
		t.Errorf("a text message: %v", err)
	}
}

// TestConnectPortEndsWithTheServer: it is not waited for.
func TestConnectPortEndsWithTheServer(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	port := listenLocal(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	ws, _, err := e.connectPort(id, port)
	if err != nil {
		t.Fatal(err)
	}
	e.api.Drain()
	if _, _, err := ws.Read(t.Context()); err == nil {
		t.Error("the connection outlived the server")
	}
}

// TestRelayToALocalConnection is what 'ramet port' does: relays at both ends.
func TestRelayToALocalConnection(t *testing.T) {
	e := start(t, options{keepAlive: 5 * time.Millisecond}) // pings all the time
	id := e.create()
	port := listenLocal(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	local := listenLocal(t, func(c *net.TCPConn) {
		ws, _, err := e.connectPort(id, port)
		if err != nil {
			t.Error(err)
			return
		}
		if err := wstream.Relay(context.Background(), ws, pipeEnd{c}, wstream.Options{}); err != nil {
			t.Error(err)
		}
	})
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", local))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	data := make([]byte, 5<<20)
	rand.Read(data)
	go func() {
		_, err := conn.Write(data)
		if err := errors.Join(err, conn.(*net.TCPConn).CloseWrite()); err != nil {
			t.Error(err)
		}
	}()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

func TestListPorts(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	port := listenLocal(t, func(*net.TCPConn) {})
	res, err := e.client.ListPortsWithResponse(t.Context(), id)
	if err != nil || res.JSON200 == nil || !slices.Contains(res.JSON200.Ports, port) {
		t.Fatalf("%v, %v", res, err)
	}
}

func TestWatchFiles(t *testing.T) {
	e := start(t, options{keepAlive: 20 * time.Millisecond})
	id := e.create()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", e.url+"/v1/sandboxes/"+id+"/files/watch?path=.&recursive=true&info=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	alive := 0
	next := func() (c rametv1.FileChange) {
		t.Helper()
		for lines.Scan() {
			if len(lines.Bytes()) == 0 {
				alive++
				continue
			}
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				t.Fatalf("%q: %v", lines.Bytes(), err)
			}
			return c
		}
		t.Fatal(lines.Err())
		return c
	}
	if c := next(); c.Type != "started" {
		t.Fatalf("%+v", c)
	}
	write, body := e.do("PUT", "/v1/sandboxes/"+id+"/files?path=new/f&parents=true&attribute=origin%3Dte=st", "hello")
	if write.StatusCode != 200 || !bytes.Contains(body, []byte(`"attributes":{"origin":"te=st"}`)) {
		t.Fatalf("%d %s", write.StatusCode, body)
	}
	var c rametv1.FileChange
	for c.Path == nil || *c.Path != "new/f" {
		c = next()
	}
	if c.Type != "change" || *c.Change != "create" || c.Info == nil || c.Info.Size != 5 || (*c.Info.Attributes)["origin"] != "te=st" {
		t.Fatalf("%+v", c)
	}
	// Silence is kept alive.
	for alive == 0 {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		if len(lines.Bytes()) == 0 {
			alive++
		}
	}
	e.api.Drain()
	for c.Type != "stream_error" {
		c = next()
	}
	if *c.Code != "shutting_down" {
		t.Errorf("%+v", c)
	}
}

func TestWatchFilesErrors(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	for path, want := range map[string]int{"/none": 404, "/root/f": 409, "": 400} {
		if path == "/root/f" {
			e.do("PUT", "/v1/sandboxes/"+id+"/files?path=/root/f", "x")
		}
		if res, body := e.do("GET", "/v1/sandboxes/"+id+"/files/watch?path="+path, ""); res.StatusCode != want {
			t.Errorf("%q: %d %s", path, res.StatusCode, body)
		}
	}
	for _, bad := range []string{"x", "=x", "a=1&attribute=a=2"} {
		if res, body := e.do("PUT", "/v1/sandboxes/"+id+"/files?path=f&attribute="+bad, "x"); res.StatusCode != 400 {
			t.Errorf("attribute %q: %d %s", bad, res.StatusCode, body)
		}
	}
}
