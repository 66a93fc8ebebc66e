package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// serve answers every call with h.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := New(srv.URL, "key", "test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		kind, body string
		want       Error
	}{
		"ours":       {"application/json", `{"error":"no","code":"c","request_id":"r"}`, Error{409, "c", "no", "r"}},
		"charset":    {"application/json; charset=utf-8", `{"error":"no","code":"c"}`, Error{409, "c", "no", "header"}},
		"not ours":   {"text/html", "<html>", Error{409, "", "answered 409 Conflict, and not as a Ramet server does", "header"}},
		"not JSON":   {"application/json", "{", Error{409, "", "not as a Ramet server does", "header"}},
		"no message": {"application/json", "{}", Error{409, "", "not as a Ramet server does", "header"}},
	} {
		t.Run(name, func(t *testing.T) {
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("X-Request-Id", "header")
				w.WriteHeader(409)
				io.WriteString(w, c.body)
			})
			_, err := cl.Get(t.Context(), "sbx_x")
			var got *Error
			if !errors.As(err, &got) {
				t.Fatalf("%v", err)
			}
			if got.Status != c.want.Status || got.Code != c.want.Code || got.RequestID != c.want.RequestID || !strings.Contains(got.Message, c.want.Message) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	c, err := New(url, "", "test")
	if err != nil {
		t.Fatal(err)
	}
	var gone *UnreachableError
	if err := c.Health(t.Context()); !errors.As(err, &gone) || gone.URL != url {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Health(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
}

func TestStream(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for name, c := range map[string]struct {
		body   string
		events int
		check  func(error) bool
	}{
		"whole": {
			"\n\n" + `{"type":"stdout","data":"a","seq":0,"ts":1}` + "\n\n" + `{"type":"exit","data":0,"seq":1,"ts":1}` + "\n", 2,
			func(err error) bool { return err == io.EOF },
		},
		"long line": {
			`{"type":"stdout","data":"` + long + `","seq":0,"ts":1}` + "\n" + `{"type":"exit","data":0,"seq":1,"ts":1}` + "\n", 2,
			func(err error) bool { return err == io.EOF },
		},
		"what follows the exit is not read": {
			`{"type":"exit","data":0,"seq":1,"ts":1}` + "\nnonsense\n", 1,
			func(err error) bool { return err == io.EOF },
		},
		"no exit": {
			`{"type":"stdout","data":"a","seq":0,"ts":1}` + "\n", 1,
			func(err error) bool { return errors.Is(err, ErrCut) },
		},
		"half a line": {`{"type":"exit","data":0`, 0, func(err error) bool { return errors.Is(err, ErrCut) }},
		"nothing":     {"", 0, func(err error) bool { return errors.Is(err, ErrCut) }},
		"nonsense":    {"nonsense\n", 0, func(err error) bool { return err != nil && !errors.Is(err, ErrCut) }},
		"stream error": {
			`{"type":"stream_error","data":"it broke","code":"guest_lost","seq":0,"ts":1}` + "\n", 0,
			func(err error) bool {
				var e *Error
				return errors.As(err, &e) && e.Code == "guest_lost" && e.Message == "it broke"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Run-Id", "run-1")
				io.WriteString(w, c.body)
			})
			run, err := cl.Exec(t.Context(), "sbx_x", v1.ExecRequest{Code: "x"})
			if err != nil {
				t.Fatal(err)
			}
			defer run.Close()
			n := 0
			for {
				_, err = run.Next()
				if err != nil {
					break
				}
				n++
			}
			if run.ID != "run-1" || n != c.events || !c.check(err) {
				t.Errorf("run %s: %d events, then %v", run.ID, n, err)
			}
		})
	}
}

// TestCancelEndsAStreamThatSaysNothing also shows that the server notices.
func TestCancelEndsAStreamThatSaysNothing(t *testing.T) {
	left := make(chan struct{})
	cl := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(left)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run, err := cl.Exec(ctx, "sbx_x", v1.ExecRequest{Code: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	cancel()
	if _, err := run.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Error("the server did not notice")
	}
}

func TestText(t *testing.T) {
	b64 := "/wD+"
	bad := "%"
	for name, c := range map[string]struct {
		e    v1.Event
		want string
		ok   bool
	}{
		"text":     {v1.Event{Data: []byte(`"a\u2028b"`)}, "a\u2028b", true},
		"bytes":    {v1.Event{Data: []byte(`"?"`), DataB64: &b64}, "\xff\x00\xfe", true},
		"not text": {v1.Event{Data: []byte(`1`)}, "", false},
		"bad b64":  {v1.Event{Data: []byte(`"?"`), DataB64: &bad}, "", false},
	} {
		got, err := Text(&c.e)
		if string(got) != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// FuzzStream follows any bytes as a run's stream.
func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"type":"exit","data":0,"seq":1,"ts":1}` + "\n"))
	f.Add([]byte(`{"type":"result","data":{"text/plain":"1"}}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ctx, cancel := context.WithCancelCause(context.Background())
		run := &Run{lines: newLines(ctx, cancel, io.NopCloser(strings.NewReader(string(b))))}
		defer run.Close()
		for {
			e, err := run.Next()
			if err != nil {
				return
			}
			Text(e)
			Number(e)
			Result(e)
		}
	})
}
