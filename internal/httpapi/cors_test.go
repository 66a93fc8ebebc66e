package httpapi_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"ramet.dev/ramet/internal/httpapi"
)

const page = "https://app.example.com"

func withOrigins(origins ...string) options {
	return options{api: func(c *httpapi.Config) { c.CORSOrigins = origins }}
}

// preflight asks as a browser does: without a key.
func (e *env) preflight(path, origin string, header ...string) *http.Response {
	e.t.Helper()
	res, _ := e.do("OPTIONS", path, "", append([]string{
		"Authorization", "", "Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type",
	}, header...)...)
	return res
}

// corsOf are the headers of an answer that a browser looks at.
func corsOf(h http.Header) map[string][]string {
	out := map[string][]string{}
	for name, values := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			out[name] = values
		}
	}
	return out
}

func TestPreflight(t *testing.T) {
	e := start(t, withOrigins("http://localhost:5173", page))
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/sbx_x/files?path=a", "/v1/healthz", "/r/local/v1/sandboxes", "/r/none/v1/sandboxes"} {
		res := e.preflight(path, page)
		h := res.Header
		if res.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != page || h.Get("Access-Control-Allow-Methods") != "GET, HEAD, POST, PUT, PATCH, DELETE" ||
			h.Get("Access-Control-Max-Age") != "7200" || h.Get("Vary") != "Origin" || len(h.Values("Access-Control-Allow-Credentials")) != 0 {
			t.Errorf("%s: %d %v", path, res.StatusCode, h)
		}
		allowed := ", " + strings.ToLower(h.Get("Access-Control-Allow-Headers")) + ", "
		for _, name := range []string{"authorization", "content-type", "idempotency-key", "x-ramet-wake", "x-request-id", "range", "last-event-id"} {
			if !strings.Contains(allowed, ", "+name+", ") {
				t.Errorf("%s: %s may not be sent", path, name)
			}
		}
	}
	for _, origin := range []string{"https://evil.example", "null", "*", "https://app.example.com:444", "http://app.example.com", "https://app.example.com.evil.example", "https://APP.example.com"} {
		res := e.preflight("/v1/sandboxes", origin)
		if res.StatusCode != 403 || len(corsOf(res.Header)) != 0 || res.Header.Get("Vary") != "Origin" {
			t.Errorf("%s: %d %v", origin, res.StatusCode, res.Header)
		}
	}
}

func TestAnswersToPages(t *testing.T) {
	e := start(t, withOrigins(page))
	id := e.create()
	for _, c := range []struct {
		method, path, body, origin string
		status                     int
		cors                       bool
	}{
		{"GET", "/v1/sandboxes/" + id, "", page, 200, true},
		{"POST", "/v1/sandboxes/" + id + "/exec", `{"language":"bash","code":"echo hi"}`, page, 200, true},
		{"GET", "/v1/sandboxes/" + id + "/files?path=none", "", page, 404, true},
		{"GET", "/v1/none", "", page, 404, true},
		{"OPTIONS", "/v1/sandboxes", "", page, 405, true}, // asks nothing that a browser would
		{"GET", "/v1/sandboxes/" + id, "", "", 200, false},
		{"GET", "/v1/sandboxes/" + id, "", "https://evil.example", 200, false}, // who has a key may call from anywhere
		{"GET", "/v1/sandboxes/" + id, "", "null", 200, false},
	} {
		header := []string{}
		if c.origin != "" {
			header = []string{"Origin", c.origin}
		}
		res, body := e.do(c.method, c.path, c.body, header...)
		if res.StatusCode != c.status || res.Header.Get("Vary") != "Origin" {
			t.Errorf("%s %s for %q: %d %v %s", c.method, c.path, c.origin, res.StatusCode, res.Header, body)
		}
		if got := res.Header.Values("Access-Control-Allow-Origin"); c.cors && (len(got) != 1 || got[0] != page) || !c.cors && len(corsOf(res.Header)) != 0 {
			t.Errorf("%s %s for %q: %v", c.method, c.path, c.origin, corsOf(res.Header))
		}
		for _, name := range []string{"X-Run-Id", "X-Request-Id", "Retry-After", "Server-Timing", "Idempotent-Replayed", "Content-Range", "X-File-Size"} {
			if c.cors && !strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), name) {
				t.Errorf("%s %s: %s cannot be read", c.method, c.path, name)
			}
		}
	}
	// A page without a key can read why it is refused.
	res, _ := e.do("GET", "/v1/sandboxes", "", "Authorization", "", "Origin", page)
	if res.StatusCode != 401 || res.Header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("without a key: %d %v", res.StatusCode, res.Header)
	}
}

func TestPagesOfEveryOrigin(t *testing.T) {
	e := start(t, withOrigins("*"))
	for _, origin := range []string{page, "null"} {
		if res := e.preflight("/v1/sandboxes", origin); res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d %v", origin, res.StatusCode, res.Header)
		}
		if res, _ := e.do("GET", "/v1/sandboxes", "", "Origin", origin); res.StatusCode != 200 || res.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d %v", origin, res.StatusCode, res.Header)
		}
	}
	if res, _ := e.do("GET", "/v1/sandboxes", "", "Authorization", "", "Origin", page); res.StatusCode != 401 {
		t.Errorf("without a key: %d", res.StatusCode)
	}
}

func TestNoOriginIsAllowedByItself(t *testing.T) {
	e := start(t, options{})
	if res := e.preflight("/v1/sandboxes", page); res.StatusCode != 403 || len(corsOf(res.Header)) != 0 {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	if res, _ := e.do("GET", "/v1/sandboxes", "", "Origin", page); res.StatusCode != 200 || len(corsOf(res.Header)) != 0 || res.Header.Get("Vary") != "" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
}

// A server without keys takes calls of pages that it was told by name, and of no others.
func TestPagesOfAServerWithoutKeys(t *testing.T) {
	named := withOrigins(page)
	named.noAuth = true
	e := start(t, named)
	if res, body := e.do("POST", "/v1/sandboxes", "{}", "Origin", page); res.StatusCode != 200 || res.Header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("a page that is named: %d %s", res.StatusCode, body)
	}
	if res, _ := e.do("POST", "/v1/sandboxes", "{}", "Origin", "https://evil.example"); res.StatusCode != 403 || len(corsOf(res.Header)) != 0 {
		t.Errorf("another page: %d %v", res.StatusCode, res.Header)
	}
	all := withOrigins("*")
	all.noAuth = true
	e = start(t, all)
	if res, _ := e.do("POST", "/v1/sandboxes", "{}", "Origin", page); res.StatusCode != 403 || len(corsOf(res.Header)) != 0 {
		t.Errorf("any page: %d %v", res.StatusCode, res.Header)
	}
	if res := e.preflight("/v1/sandboxes", page); res.StatusCode != 403 {
		t.Errorf("a question of any page: %d", res.StatusCode)
	}
}

// Browsers open WebSockets to anywhere without asking.
func TestWebSocketsOfPages(t *testing.T) {
	port := listenLocal(t, func(c *net.TCPConn) { _ = c.CloseWrite() })
	e := start(t, withOrigins(page))
	id := e.create()
	for origin, want := range map[string]int{"": 101, page: 101, e.url: 101, "https://evil.example": 403, "null": 403, "http://127.0.0.1": 403, "https://": 403} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		ws, res, err := websocket.Dial(ctx, e.url+"/v1/sandboxes/"+id+"/ports/"+strconv.Itoa(port)+"/connect", &websocket.DialOptions{
			HTTPHeader: http.Header{"Authorization": {"Bearer " + e.key}, "Origin": {origin}},
		})
		if err == nil {
			ws.CloseNow()
		}
		cancel()
		if res == nil || res.StatusCode != want {
			t.Errorf("%q: %v, %v, want %d", origin, res, err, want)
		}
	}
}

// What another region says of origins is for those who call it: two answers are one too many.
func TestPagesThatNameAnotherRegion(t *testing.T) {
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://far.example")
		w.Header().Set("Access-Control-Expose-Headers", "X-Far")
		w.WriteHeader(200)
	}))
	t.Cleanup(far.Close)
	at, err := url.Parse(far.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := start(t, options{api: func(c *httpapi.Config) {
		c.CORSOrigins, c.Regions = []string{page}, map[string]*url.URL{"far": at}
	}})
	res, _ := e.do("GET", "/r/far/v1/sandboxes", "", "Origin", page)
	if got := res.Header.Values("Access-Control-Allow-Origin"); res.StatusCode != 200 || len(got) != 1 || got[0] != page || len(res.Header.Values("Access-Control-Expose-Headers")) != 1 {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	res, _ = e.do("GET", "/r/far/v1/sandboxes", "", "Origin", "https://far.example")
	if res.StatusCode != 200 || len(corsOf(res.Header)) != 0 {
		t.Errorf("a page that only the other allows: %d %v", res.StatusCode, res.Header)
	}
	if res := e.preflight("/r/far/v1/sandboxes", page); res.StatusCode != 204 {
		t.Errorf("a question: %d", res.StatusCode)
	}
}
