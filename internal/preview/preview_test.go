package preview_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/preview"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// env is a proxy in front of one sandbox, whose loopback address is that of this host.
type env struct {
	t       *testing.T
	control *control.Control
	proxy   *preview.Proxy
	id      sandbox.ID
	url     string
	port    atomic.Int64 // where requests go
	failed  atomic.Value // the last error's code
}

func start(t *testing.T, change ...func(*preview.Config)) *env {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), filepath.Join(dir, "ramet.db"))
	if err != nil {
		t.Fatal(err)
	}
	machines := controltest.NewMachines(filepath.Join(dir, "instances"))
	e := &env{t: t}
	log := slog.New(slog.DiscardHandler)
	e.control, err = control.New(t.Context(), control.Config{
		Store: st, Machines: machines, Templates: controltest.NewTemplates(), Log: log, Region: "local", Node: "n1",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := errors.Join(e.control.Close(ctx), st.Close()); err != nil {
			t.Error(err)
		}
		machines.StopAll()
	})
	sb, _, err := e.control.Create(t.Context(), sandbox.DefaultProject, control.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	e.id = sb.ID
	cfg := preview.Config{
		Control: e.control, Log: log,
		Fail: func(w http.ResponseWriter, _ *http.Request, _ preview.Target, err error) {
			var known *sandbox.Error
			if !errors.As(err, &known) {
				t.Errorf("the hook got %v", err)
				return
			}
			e.failed.Store(known.Code)
			http.Error(w, known.Code, http.StatusBadGateway)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	e.proxy = preview.New(cfg)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.proxy.Serve(w, r, preview.Target{Project: sandbox.DefaultProject, ID: e.id, Port: int(e.port.Load())})
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	e.url = server.URL
	return e
}

// app makes requests go to a program.
func (e *env) app(h http.HandlerFunc) {
	e.t.Helper()
	s := httptest.NewServer(h) // on 127.0.0.1 alone
	e.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	e.port.Store(int64(s.Listener.Addr().(*net.TCPAddr).Port))
}

// raw makes requests go to a program that is no HTTP server, and counts its connections.
func (e *env) raw(serve func(net.Conn)) *atomic.Int64 {
	e.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { l.Close() })
	var n atomic.Int64
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	e.port.Store(int64(l.Addr().(*net.TCPAddr).Port))
	return &n
}

func (e *env) do(method, path string, body io.Reader, header ...string) (*http.Response, string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, e.url+path, body)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return res, string(b)
}

// TestRequestAsItCame: a service that is bound to 127.0.0.1 gets what the caller sent, with where it
// came from, and without what is for one hop or for the server.
func TestRequestAsItCame(t *testing.T) {
	e := start(t, func(c *preview.Config) {
		c.Outgoing = func(out *http.Request, _ preview.Target) { out.Header.Del("E2b-Traffic-Access-Token") }
	})
	var got *http.Request
	var body string
	e.app(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got, body = r.Clone(context.Background()), string(b)
		w.Header().Set("X-Own", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "answer")
	})
	res, answer := e.do("PUT", "/a%2Fb/c?x=%zz;y&z", strings.NewReader("body"), "Host", "3000-abc.example.test",
		"E2b-Traffic-Access-Token", "secret", "X-Forwarded-For", "9.9.9.9", "X-Forwarded-Host", "evil", "Te", "gzip", "Proxy-Authorization", "x", "Cookie", "a=b")
	if res.StatusCode != http.StatusTeapot || answer != "answer" || res.Header.Get("X-Own") != "1" || res.Header.Get("Keep-Alive") != "" {
		t.Errorf("%d %q %v", res.StatusCode, answer, res.Header)
	}
	if got.Host != "3000-abc.example.test" || got.RequestURI != "/a%2Fb/c?x=%zz;y&z" || body != "body" || got.Method != "PUT" {
		t.Errorf("%s %s %s %q", got.Method, got.Host, got.RequestURI, body)
	}
	for name, want := range map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "3000-abc.example.test", "X-Forwarded-Proto": "http",
		"E2b-Traffic-Access-Token": "", "Te": "", "Proxy-Authorization": "", "Cookie": "a=b", "Accept-Encoding": "gzip", "User-Agent": "Go-http-client/1.1",
	} {
		if v := strings.Join(got.Header[name], ","); v != want {
			t.Errorf("%s is %q, not %q", name, v, want)
		}
	}
}

// TestOwnErrorsStay: a program's 502 is its answer, and no sign of a dead sandbox.
func TestOwnErrorsStay(t *testing.T) {
	e := start(t)
	e.app(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "my own", http.StatusBadGateway) })
	if res, body := e.do("GET", "/", nil); res.StatusCode != 502 || body != "my own\n" || e.failed.Load() != nil {
		t.Errorf("%d %q %v", res.StatusCode, body, e.failed.Load())
	}
}

func TestFailures(t *testing.T) {
	e := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.port.Store(int64(l.Addr().(*net.TCPAddr).Port))
	l.Close()
	expect := func(want string) {
		t.Helper()
		if res, body := e.do("GET", "/", nil); res.StatusCode != 502 || body != want+"\n" {
			t.Errorf("%d %q, want %s", res.StatusCode, body, want)
		}
	}
	expect("port_closed")
	e.raw(func(c net.Conn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "SSH-2.0-hello\r\n")
	})
	expect("bad_answer")
	e.raw(func(c net.Conn) { // a header without end
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for {
			if _, err := io.WriteString(c, "X: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
				return
			}
		}
	})
	expect("bad_answer")
	e.port.Store(70000)
	expect("invalid_port")
	if err := e.control.Delete(t.Context(), sandbox.DefaultProject, e.id); err != nil {
		t.Fatal(err)
	}
	e.port.Store(80)
	expect("sandbox_not_found")
}

func TestPlainFailures(t *testing.T) {
	e := start(t, func(c *preview.Config) { c.Fail = nil })
	e.port.Store(1)
	if res, body := e.do("GET", "/", nil); res.StatusCode != 502 || !strings.Contains(body, "nothing listens on port 1") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if err := e.control.Delete(t.Context(), sandbox.DefaultProject, e.id); err != nil {
		t.Fatal(err)
	}
	if res, body := e.do("GET", "/", nil); res.StatusCode != 404 || body != "sandbox not found\n" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// TestNothingIsSentTwice: a program may have acted on a request that it has not answered.
func TestNothingIsSentTwice(t *testing.T) {
	e := start(t)
	for _, method := range []string{"GET", "POST", "DELETE"} {
		conns := e.raw(func(c net.Conn) {
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
		})
		var body io.Reader
		if method == "POST" {
			body = strings.NewReader("once")
		}
		if _, got := e.do(method, "/", body, "Idempotency-Key", "k"); got != "bad_answer\n" {
			t.Errorf("%s: %q", method, got)
		}
		if n := conns.Load(); n != 1 {
			t.Errorf("%s reached the program %d times", method, n)
		}
	}
}

// TestServerSentEvents arrive one by one.
func TestServerSentEvents(t *testing.T) {
	e := start(t)
	proceed := make(chan struct{})
	e.app(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-proceed:
			case <-r.Context().Done():
				return
			}
		}
	})
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		proceed <- struct{}{} // the program waits until this one was seen
	}
}

// TestAnswerWhileTheRequestStillComes: neither direction waits for the other.
func TestAnswerWhileTheRequestStillComes(t *testing.T) {
	e := start(t)
	e.app(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "heard "+line)
			_ = http.NewResponseController(w).Flush()
		}
	})
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", e.url, in)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(out, "one\n") }()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for _, word := range []string{"one", "two"} {
		if line, err := lines.ReadString('\n'); err != nil || line != "heard "+word+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if word == "one" {
			if _, err := io.WriteString(out, "two\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := lines.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func TestWebSocket(t *testing.T) {
	e := start(t)
	e.app(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}})
		if err != nil {
			t.Error(err)
			return
		}
		for {
			kind, m, err := ws.Read(r.Context())
			if err != nil {
				return
			}
			if ws.Write(r.Context(), kind, append([]byte("echo "), m...)) != nil {
				return
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, e.url, &websocket.DialOptions{Subprotocols: []string{"chat"}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if ws.Subprotocol() != "chat" {
		t.Errorf("subprotocol %q", ws.Subprotocol())
	}
	for _, word := range []string{"a", "b"} {
		if err := ws.Write(ctx, websocket.MessageText, []byte(word)); err != nil {
			t.Fatal(err)
		}
		if _, m, err := ws.Read(ctx); err != nil || string(m) != "echo "+word {
			t.Fatalf("%q, %v", m, err)
		}
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
}

// TestAfterTheMachineHasChanged: what is open ends with its machine, and the next request finds the
// one that the sandbox has now.
func TestAfterTheMachineHasChanged(t *testing.T) {
	e := start(t)
	e.app(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/forever" {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
	for range 3 {
		if _, body := e.do("GET", "/", nil); body != "ok" {
			t.Fatalf("%q", body)
		}
		r, err := http.NewRequestWithContext(t.Context(), "GET", e.url+"/forever", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.control.Hibernate(t.Context(), sandbox.DefaultProject, e.id); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("an answer that was cut off looks whole")
		}
		res.Body.Close()
	}
	if _, body := e.do("GET", "/", nil); body != "ok" {
		t.Fatalf("%q", body)
	}
}

// TestCallerLeaves: the program hears of it.
func TestCallerLeaves(t *testing.T) {
	e := start(t)
	begun, left := make(chan struct{}), make(chan struct{})
	e.app(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(left)
	})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", e.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if res, err := http.DefaultClient.Do(r); err == nil {
			res.Body.Close()
		}
	}()
	<-begun
	cancel()
	<-done
	select {
	case <-left:
	case <-time.After(20 * time.Second):
		t.Error("the program still works for a caller that has left")
	}
}

func TestDrain(t *testing.T) {
	e := start(t)
	e.app(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	e.proxy.Drain()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("an answer that was cut off looks whole")
	}
	if _, body := e.do("GET", "/", nil); body != "shutting_down\n" {
		t.Errorf("%q", body)
	}
}

// counter makes a body of random bytes and their checksum.
type counter struct {
	left int
	sum  hash.Hash
}

func (c *counter) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), c.left)]
	rand.Read(p)
	c.left -= len(p)
	return c.sum.Write(p)
}

// TestLargeBodiesTakeNoMemory streams a body up and back and looks at the heap meanwhile.
func TestLargeBodiesTakeNoMemory(t *testing.T) {
	const size, most = 64 << 20, 32 << 20
	e := start(t)
	e.app(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	})
	var peak atomic.Uint64
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				peak.Store(max(peak.Load(), m.HeapAlloc))
			case <-stop:
				return
			}
		}
	}()
	up := &counter{left: size, sum: sha256.New()}
	r, err := http.NewRequestWithContext(t.Context(), "POST", e.url, up)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	down := sha256.New()
	n, err := io.Copy(down, res.Body)
	close(stop)
	<-watched
	if err != nil || n != size || !bytes.Equal(down.Sum(nil), up.sum.Sum(nil)) {
		t.Fatalf("%d bytes came back, %v", n, err)
	}
	t.Logf("the heap had at most %d KiB", peak.Load()>>10)
	if got := peak.Load(); got > most {
		t.Errorf("the heap grew to %d MiB", got>>20)
	}
}
