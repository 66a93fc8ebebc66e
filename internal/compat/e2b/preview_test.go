package e2b_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"ramet.dev/ramet/internal/sandbox"
)

// guestServer listens on a port of this host, which fake guests have as theirs.
func guestServer(t *testing.T, h http.HandlerFunc) (port string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestPreviewsThroughTheWholeListener(t *testing.T) {
	e := start(t, options{preview: true})
	sb := e.create(base)
	id := e.id(sb)
	next := make(chan struct{})
	port := guestServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 2 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				if err := http.NewResponseController(w).Flush(); err != nil {
					return
				}
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
		case "/ws":
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer c.CloseNow()
			kind, b, err := c.Read(r.Context())
			if err == nil {
				err = c.Write(r.Context(), kind, append([]byte("echo "), b...))
			}
			if err == nil {
				_ = c.Close(websocket.StatusNormalClosure, "")
			}
		case "/502":
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "the program's own")
		default:
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			fmt.Fprintf(w, "%s %s %s %s", r.Method, r.RequestURI, r.Host, b)
		}
	})
	host := port + "-" + id + ".localhost"
	if a := e.do("PUT", "/v1/a%2Fb?c=d;e", "body", "Host", host); a.status != 200 || string(a.body) != "PUT /v1/a%2Fb?c=d;e "+host+" body" {
		t.Errorf("a request: %d %s", a.status, a.body)
	}
	if a := e.do("GET", "/502", "", "Host", host); a.status != 502 || string(a.body) != "the program's own" {
		t.Errorf("the program's own 502: %d %s", a.status, a.body)
	}
	t.Run("events", func(t *testing.T) { e.readEvents(t, host, next) })
	t.Run("websocket", func(t *testing.T) {
		c, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(e.url, "http")+"/ws", &websocket.DialOptions{Host: host})
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseNow()
		if err := c.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, b, err := c.Read(t.Context()); err != nil || string(b) != "echo hello" {
			t.Errorf("%s %v", b, err)
		}
	})
	closed := guestServerClosed(t)
	a := e.do("GET", "/", "", "Host", closed+"-"+id+".localhost")
	if o := a.object(t); a.status != 502 || o["message"] != "The sandbox is running but port is not open" || fmt.Sprint(o["port"]) != closed || o["sandboxId"] != id {
		t.Errorf("a closed port: %d %s", a.status, a.body)
	}
	e.do("POST", "/sandboxes/"+id+"/pause", "")
	if a := e.do("GET", "/", "", "Host", host); a.status != 502 || a.object(t)["message"] != "The sandbox was not found" || e.record(id).State != sandbox.Hibernated {
		t.Errorf("a paused one: %d %s", a.status, a.body)
	}
}

// readEvents sees that each event comes when it is sent.
func (e *env) readEvents(t *testing.T, host string, next chan<- struct{}) {
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.url+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for i := range 2 {
		line, err := in.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d is %q, %v", i, line, err)
		}
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		select {
		case next <- struct{}{}:
		case <-time.After(20 * time.Second):
			t.Fatal("the program does not wait for its reader")
		}
	}
}

// guestServerClosed is a port at which nothing listens.
func guestServerClosed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
