package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestServerWithoutKeysRefusesWebPages(t *testing.T) {
	e := start(t, options{noAuth: true})
	port := e.url[strings.LastIndexByte(e.url, ':'):]
	for _, c := range []struct {
		host, origin string
		want         int
	}{
		{"127.0.0.1" + port, "", 200},
		{"localhost" + port, "", 200},
		{"LOCALHOST", "", 200},
		{"[::1]" + port, "", 200},
		{"127.0.0.1" + port, "http://127.0.0.1" + port, 200},
		{"evil.example" + port, "", 403},
		{"127.0.0.1.evil.example", "", 403},
		{"localhost.evil.example" + port, "", 403},
		{"192.0.2.1" + port, "", 403},
		{"127.0.0.1" + port, "http://evil.example", 403},
		{"127.0.0.1" + port, "http://127.0.0.1:1", 403},
		{"127.0.0.1" + port, "null", 403},
		{"evil.example" + port, "http://evil.example" + port, 403},
	} {
		for _, method := range []string{"GET", "POST"} {
			r, err := http.NewRequestWithContext(t.Context(), method, e.url+"/v1/sandboxes", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != c.want {
				t.Errorf("%s for %s from %q: %d, want %d", method, c.host, c.origin, res.StatusCode, c.want)
			}
		}
	}
}

func TestKeysNeedNoHost(t *testing.T) {
	e := start(t, options{})
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.url+"/v1/sandboxes", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "ramet.example"
	r.Header.Set("Authorization", "Bearer "+e.key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("%d", res.StatusCode)
	}
}

// TestBodyThatDoesNotComeFreesItsConnection announces bodies and sends a part of them at most.
func TestBodyThatDoesNotComeFreesItsConnection(t *testing.T) {
	e := start(t, options{bodyTimeout: 200 * time.Millisecond})
	id := e.create()
	for _, c := range []struct {
		name, request, key, sent string
		want                     int
	}{
		{"refused", "POST /v1/sandboxes", "wrong", "", 401},
		{"json", "POST /v1/sandboxes", e.key, "{", 408},
		{"exec", "POST /v1/sandboxes/" + id + "/exec", e.key, "", 408},
		{"upload", "PUT /v1/sandboxes/" + id + "/files?path=/root/f", e.key, "abc", 408},
		{"no such path", "POST /v1/none", e.key, "", 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n%s", c.request, c.key, c.sent)
			r := bufio.NewReader(conn)
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != c.want {
				t.Errorf("%d, want %d", res.StatusCode, c.want)
			}
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if err == nil {
				_, err = r.ReadByte()
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("the connection is not closed: %v", err)
			}
		})
	}
}

func TestUploadThatMovesHasItsTime(t *testing.T) {
	e := start(t, options{bodyTimeout: 300 * time.Millisecond})
	id := e.create()
	read, write := io.Pipe()
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for range 10 {
			<-tick.C
			if _, err := write.Write([]byte("x")); err != nil {
				return
			}
		}
		write.Close()
	}()
	r, err := http.NewRequestWithContext(t.Context(), "PUT", e.url+"/v1/sandboxes/"+id+"/files?path=/root/slow", read)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, _ := io.ReadAll(res.Body); res.StatusCode != 200 || !strings.Contains(string(b), `"size":10`) {
		t.Errorf("%d %s", res.StatusCode, b)
	}
}

// TestAnswerMayTakeLongerThanItsBody checks that the deadline ends with the body.
func TestAnswerMayTakeLongerThanItsBody(t *testing.T) {
	e := start(t, options{bodyTimeout: 300 * time.Millisecond})
	id := e.create()
	_, body := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"language":"bash","code":"sleep 1; echo done"}`)
	if got := brief(events(t, body)); got != "stdout:\"done\"\nexit:0\n" {
		t.Errorf("%s", got)
	}
}
