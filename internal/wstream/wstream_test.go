package wstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// tcp is a Stream.
type tcp struct{ *net.TCPConn }

func (s tcp) Abort() {
	_ = s.SetLinger(0)
	_ = s.Close()
}

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (a, b tcp) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	return tcp{near.(*net.TCPConn)}, tcp{far.(*net.TCPConn)}
}

// relayed returns a WebSocket whose other end is relayed to a program, and what that relay ends with.
func relayed(t *testing.T, o Options) (ws *websocket.Conn, program tcp, ended <-chan error) {
	t.Helper()
	program, stream := pair(t)
	result := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err == nil {
			err = Relay(r.Context(), ws, stream, o)
		}
		result <- err
	}))
	t.Cleanup(s.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	ws, _, err := websocket.Dial(ctx, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	return ws, program, result
}

// TestTwoRelays join two TCP connections by a WebSocket that is pinged all the time. The reader of
// one is slower than the writer of the other.
func TestTwoRelays(t *testing.T) {
	ws, program, ended := relayed(t, Options{Server: true, Ping: time.Millisecond})
	user, stream := pair(t)
	other := make(chan error, 1)
	go func() { other <- Relay(context.Background(), ws, stream, Options{}) }()
	data := make([]byte, 3<<20)
	rand.Read(data)
	send := func(s tcp) {
		_, err := s.Write(data)
		if err := errors.Join(err, s.CloseWrite()); err != nil {
			t.Error(err)
		}
	}
	go send(user)
	go send(program)
	for _, s := range []tcp{program, user} {
		if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	if err := errors.Join(<-ended, <-other); err != nil {
		t.Error(err)
	}
}

// TestOtherEndLeavesWell: what it had sent arrives, and then the end.
func TestOtherEndLeavesWell(t *testing.T) {
	ws, program, ended := relayed(t, Options{Server: true})
	if err := ws.Write(t.Context(), websocket.MessageBinary, []byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(program); err != nil || string(got) != "last words" {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestBreaks: what breaks on one side is a reset on the other, with the reason that there is.
func TestBreaks(t *testing.T) {
	ws, program, ended := relayed(t, Options{Server: true, Reason: func(error) string { return "why" }})
	program.Abort()
	var closed websocket.CloseError
	if _, _, err := ws.Read(t.Context()); !errors.As(err, &closed) || closed.Code != websocket.StatusInternalError || closed.Reason != "why" {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a reset ended well")
	}
	for name, end := range map[string]func(*websocket.Conn) error{
		"vanishes":     func(ws *websocket.Conn) error { return ws.CloseNow() },
		"fails":        func(ws *websocket.Conn) error { return ws.Close(websocket.StatusInternalError, "broken") },
		"sends a text": func(ws *websocket.Conn) error { return ws.Write(t.Context(), websocket.MessageText, []byte("x")) },
	} {
		ws, program, ended := relayed(t, Options{Server: true})
		if err := end(ws); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := io.ReadAll(program); err == nil {
			t.Errorf("%s: the program saw a good end", name)
		}
		ws.CloseNow() // else the other end waits for its answer
		if err := <-ended; err == nil {
			t.Errorf("%s: it ended well", name)
		}
	}
}

// TestEndOfTheContext ends it, whatever both ends do.
func TestEndOfTheContext(t *testing.T) {
	ws, _, _ := relayed(t, Options{Server: true})
	user, stream := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Relay(ctx, ws, stream, Options{}) }()
	cancel()
	if err := <-ended; err == nil {
		t.Error("it ended well")
	}
	if _, err := user.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
}
