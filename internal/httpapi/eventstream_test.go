package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
)

// readSSE reads the next event, skipping comments.
func readSSE(t *testing.T, r *bufio.Reader) (id int64, typ string, e rametv1.SandboxEvent) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("read an event: %v", err)
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			id, _ = strconv.ParseInt(value, 10, 64)
		case "event":
			typ = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				t.Fatalf("%q: %v", value, err)
			}
		case "":
			if typ != "" {
				return id, typ, e
			}
		}
	}
}

func TestEventsStreamAndResume(t *testing.T) {
	e := start(t, options{keepAlive: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	res, stream := e.openStream(ctx, "GET", "/v1/events", "")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	id := e.create()
	first, typ, ev := readSSE(t, stream)
	if typ != "creating" || ev.Sandbox != id || ev.Id != first || ev.Cause != "create" || ev.Reason == "" {
		t.Fatalf("%d %s %+v", first, typ, ev)
	}
	cancel() // a client that loses its connection misses what comes meanwhile …
	e.do("DELETE", "/v1/sandboxes/"+id, "")
	other := e.create()
	// … and gets exactly that when it comes again.
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.url+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+e.key)
	r.Header.Set("Last-Event-ID", strconv.FormatInt(first, 10))
	res, err = http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	again := bufio.NewReader(res.Body)
	var got []string
	last := first
	for range 5 {
		n, typ, ev := readSSE(t, again)
		if n <= last {
			t.Errorf("event %d after %d", n, last)
		}
		last = n
		who := "first"
		if ev.Sandbox == other {
			who = "other"
		}
		got = append(got, who+" "+typ)
	}
	if want := "first running,first stopping,first stopped,other creating,other running"; strings.Join(got, ",") != want {
		t.Errorf("%v", got)
	}
	_, body := e.do("GET", "/v1/events?follow=false&sandbox="+other, "")
	if n := strings.Count(string(body), "\ndata: "); n != 2 {
		t.Errorf("%d events of one sandbox: %s", n, body)
	}
	_, body = e.do("GET", "/v1/events?follow=false&since="+time.Now().Add(time.Minute).UTC().Format(time.RFC3339), "")
	if strings.Contains(string(body), "data:") {
		t.Errorf("events of the future: %s", body)
	}
	if res, body := e.do("GET", "/v1/events?since=yesterday", ""); res.StatusCode != 400 || !strings.Contains(string(body), "invalid_since") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestEventsSayWhenSomeAreForgotten(t *testing.T) {
	e := start(t, options{})
	e.create()
	if err := e.store.Purge(t.Context(), zero, future, zero); err != nil {
		t.Fatal(err)
	}
	e.create()
	_, body := e.do("GET", "/v1/events?follow=false&since=1", "")
	if !strings.HasPrefix(string(body), "event: gap\n") || strings.Count(string(body), "\nid: ") != 2 {
		t.Errorf("%s", body)
	}
}

func TestUpdate(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	res, body := e.do("PATCH", "/v1/sandboxes/"+id, `{"idle_timeout_seconds":60,"max_lifetime_s":3600,"metadata":{"a":"1","b":null}}`)
	if res.StatusCode != 200 || !strings.Contains(string(body), `"idle_timeout_s":60`) || !strings.Contains(string(body), `"metadata":{"a":"1"}`) {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	for _, c := range []struct{ body, code string }{
		{`{"idle_timeout_s":-1}`, "invalid_timeout"},
		{`{"max_lifetime_s":99999999999}`, "invalid_timeout"},
		{`{"max_lifetime_s":1,"timeout_seconds":1}`, "two_names"},
		{`{"state":"running"}`, "unknown_field"},
		{`{"metadata":{"":"x"}}`, "invalid_metadata"},
	} {
		if res, body := e.do("PATCH", "/v1/sandboxes/"+id, c.body); res.StatusCode != 400 || !strings.Contains(string(body), c.code) {
			t.Errorf("%s: %d %s", c.body, res.StatusCode, body)
		}
	}
	e.do("DELETE", "/v1/sandboxes/"+id, "")
	if res, _ := e.do("PATCH", "/v1/sandboxes/"+id, `{"max_lifetime_s":1}`); res.StatusCode != 404 {
		t.Errorf("a stopped one: %d", res.StatusCode)
	}
}
