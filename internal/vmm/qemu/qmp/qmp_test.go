package qmp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns a client's connection and the server's end.
func pair(t testing.TB) (client, server *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		conns[i] = c.(*net.UnixConn)
	}
	t.Cleanup(func() { conns[0].Close(); conns[1].Close() })
	return conns[0], conns[1]
}

const greeting = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}}, "capabilities": ["oob"]}}` + "\n"

// request is a command as the server sees it.
type request struct {
	Execute   string
	Arguments json.RawMessage
	ID        string
}

// serve answers every command by answer until the connection ends.
func serve(t testing.TB, conn net.Conn, answer func(request) string) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer conn.Close()
		if _, err := io.WriteString(conn, greeting); err != nil {
			return
		}
		d := json.NewDecoder(conn)
		for {
			var r request
			if d.Decode(&r) != nil {
				return
			}
			if _, err := io.WriteString(conn, answer(r)); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { conn.Close(); wg.Wait() })
}

func ok(r request) string { return fmt.Sprintf(`{"return": {}, "id": %q}`+"\n", r.ID) }

func connect(t testing.TB, answer func(request) string) *Client {
	t.Helper()
	c, s := pair(t)
	serve(t, s, answer)
	q, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q
}

func TestRun(t *testing.T) {
	q := connect(t, func(r request) string {
		switch r.Execute {
		case "double":
			var a struct{ N int }
			if err := json.Unmarshal(r.Arguments, &a); err != nil {
				t.Error(err)
			}
			return fmt.Sprintf(`{"event": "NOISE", "data": {}}`+"\n"+`{"return": {"n": %d}, "id": %q}`+"\n", 2*a.N, r.ID)
		case "refuse":
			return fmt.Sprintf(`{"error": {"class": "CommandNotFound", "desc": "no"}, "id": %q}`+"\n", r.ID)
		}
		return ok(r)
	})
	var wg sync.WaitGroup
	for n := range 50 {
		wg.Go(func() {
			var out struct{ N int }
			if err := q.Run(t.Context(), "double", map[string]int{"n": n}, &out); err != nil || out.N != 2*n {
				t.Errorf("double %d: %d, %v", n, out.N, err)
			}
		})
	}
	wg.Wait()
	var e *Error
	if err := q.Run(t.Context(), "refuse", nil, nil); !errors.As(err, &e) || e.Class != "CommandNotFound" || e.Command != "refuse" {
		t.Errorf("refuse: %v", err)
	}
}

func TestRunEnds(t *testing.T) {
	silent := func(r request) string {
		if r.Execute == "qmp_capabilities" {
			return ok(r)
		}
		return ""
	}
	t.Run("context", func(t *testing.T) {
		q := connect(t, silent)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := q.Run(ctx, "wait", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		q := connect(t, silent)
		errs := make(chan error, 1)
		go func() { errs <- q.Run(t.Context(), "wait", nil, nil) }()
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		if err := q.Run(t.Context(), "late", nil, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestExpiredCallLeavesTheConnection is a call that has no time left: it must
// fail alone, and not take the monitor from all that follow.
func TestExpiredCallLeavesTheConnection(t *testing.T) {
	q := connect(t, ok)
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := q.Run(over, "late", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := q.Run(t.Context(), "next", nil, nil); err != nil {
		t.Errorf("the call after it: %v", err)
	}
}

func TestConnectFails(t *testing.T) {
	for name, hello := range map[string]string{
		"ended": "", "not a greeting": "{\"return\": {}}\n", "garbage": "hello\n", "endless": strings.Repeat("x", maxLine+100),
	} {
		t.Run(name, func(t *testing.T) {
			c, s := pair(t)
			go func() {
				_, _ = io.WriteString(s, hello) // the client may hang up first
				s.Close()
			}()
			if _, err := Connect(t.Context(), c); !errors.Is(err, ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("silent", func(t *testing.T) {
		c, _ := pair(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := Connect(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestEvents(t *testing.T) {
	q := connect(t, func(r request) string {
		if r.Execute == "emit" {
			s := `{"event": "OTHER", "data": {}}` + "\n"
			for i := range subscriptionBuffer + 10 {
				s += fmt.Sprintf(`{"event": "WANTED", "data": {"i": %d}}`+"\n", i)
			}
			return s + ok(r)
		}
		return ok(r)
	})
	sub := q.Subscribe("WANTED")
	if err := q.Run(t.Context(), "emit", nil, nil); err != nil {
		t.Fatal(err)
	}
	for i := range subscriptionBuffer {
		e, err := sub.Next(t.Context())
		if err != nil || e.Name != "WANTED" || string(e.Data) != fmt.Sprintf(`{"i": %d}`, i) {
			t.Fatalf("event %d: %s %s, %v", i, e.Name, e.Data, err)
		}
	}
	if sub.Lost() != 10 {
		t.Errorf("%d events lost instead of 10", sub.Lost())
	}
	sub.Close()
	other := q.Subscribe("NEVER")
	q.Close()
	if _, err := other.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := q.Subscribe("LATE").Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("subscribed after the end: %v", err)
	}
}

// TestSendFiles checks that a descriptor goes along with its command.
func TestSendFiles(t *testing.T) {
	c, s := pair(t)
	got := make(chan string, 1)
	go func() {
		defer s.Close()
		_, _ = io.WriteString(s, greeting) // the client fails if it does not come
		buf, oob := make([]byte, 4096), make([]byte, 128)
		for range 2 {
			n, on, _, _, err := s.ReadMsgUnix(buf, oob)
			if err != nil {
				return
			}
			if on > 0 {
				got <- content(t, oob[:on])
			}
			var r request
			if json.Unmarshal(buf[:n], &r) != nil {
				return
			}
			_, _ = io.WriteString(s, ok(r)) // as above
		}
	}()
	q, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	path := t.TempDir() + "/f"
	if err := os.WriteFile(path, []byte("handed over"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := q.Run(t.Context(), "getfd", nil, nil, f); err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "handed over" {
		t.Errorf("got %q", s)
	}
}

// content reads the file in a control message.
func content(t *testing.T, oob []byte) string {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		t.Errorf("control messages: %v", err)
		return ""
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		t.Errorf("rights: %v", err)
		return ""
	}
	f := os.NewFile(uintptr(fds[0]), "received")
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// FuzzRead feeds a connection with arbitrary bytes: it must end without a
// panic, and calls must end with it.
func FuzzRead(f *testing.F) {
	f.Add([]byte(greeting + `{"return": {}, "id": "1"}` + "\n" + `{"event": "STOP"}` + "\n"))
	f.Add([]byte(greeting + `{"error": {"class": 1}, "id": "1"}` + "\n"))
	f.Add([]byte(greeting + `{"return": [], "id": "1"}` + "\n" + `{"return": [], "id": "1"}` + "\n" + `[]` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(data), 64)
		c := &Client{done: make(chan struct{}), pending: map[string]chan reply{"1": make(chan reply, 1)}, subs: map[*Subscription]bool{}}
		sub := c.Subscribe("STOP")
		if err := c.readAll(r, make(chan struct{})); err == nil {
			t.Error("the reader ended without an error")
		}
		sub.Close()
	})
}
