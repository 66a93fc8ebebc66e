package e2b_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/sandbox"
)

func TestRoutesByHost(t *testing.T) {
	e := start(t, options{domain: "box.example.com:8443"})
	sb := e.create(base)
	id := e.id(sb)
	hex := strings.TrimPrefix(id, "i")
	for host, want := range map[string]string{
		"49983-" + id + ".box.example.com":           "envd of " + id,
		"49999-" + id + ".box.example.com:8443":      "interpreter of " + id,
		"3000-" + id + ".box.example.com":            "port 3000 of " + id,
		"3000-" + id + ".localhost:7070":             "port 3000 of " + id,
		"3000-" + id + ".anything.at.all.":           "port 3000 of " + id,
		"3000-" + strings.ToUpper(id) + ".localhost": "port 3000 of " + id,
		"3000-" + hex + ".localhost":                 "port 3000 of " + id,
		"3000-" + id + "-ramet.localhost":            "port 3000 of " + id,
	} {
		// Neither paths nor headers lead elsewhere from such a host.
		for _, path := range []string{"/", "/v1/sandboxes", "/sandboxes", "/health", "/files?signature=x"} {
			a := e.do("GET", path, "", "Host", host, "X-Api-Key", "-", "E2b-Sandbox-Id", "i"+strings.Repeat("0", 32), "E2b-Sandbox-Port", "1")
			if a.status != 200 || string(a.body) != want {
				t.Errorf("%s%s: %d %s", host, path, a.status, a.body)
			}
		}
	}
	got := e.do("GET", "/", "", "Host", "49983-"+id+".localhost")
	if c := e.last(); got.status != 200 || c.target.Token != sb["envdAccessToken"] || c.target.Project != "default" || c.target.Shown != id || c.target.User != "user" {
		t.Errorf("the target is %+v", e.last().target)
	}
	for _, host := range []string{"0-" + id + ".localhost", "70000-" + id + ".localhost"} {
		e.do("GET", "/", "", "Host", host).fails(t, host, 400, "port")
	}
	// What only looks like it is another host, but not below the domain that is for nothing else.
	for host, status := range map[string]int{"1-server.example.com": 401, "api-1.example.com": 401, "1-server.box.example.com": 502} {
		if a := e.do("GET", "/", "", "Host", host); a.status != status {
			t.Errorf("%s: %d %s", host, a.status, a.body)
		}
	}
}

func TestRoutesByHeaders(t *testing.T) {
	e := start(t, options{domain: "box.example.com"})
	id := e.id(e.create(base))
	for _, host := range []string{"localhost", "localhost:7070", "127.0.0.1:1", "[::1]:7070", "192.0.2.7", "sandbox.e2b.app", "sandbox.box.example.com", "box.example.com"} {
		a := e.do("GET", "/health", "", "Host", host, "X-Api-Key", "-", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999")
		if string(a.body) != "interpreter of "+id {
			t.Errorf("%s: %d %s", host, a.status, a.body)
		}
	}
	// Clients of 2025 name the sandbox in the call that resumes it, too.
	if a := e.do("POST", "/sandboxes/"+id+"/connect", `{"timeout":60}`, "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983"); a.status != 200 {
		t.Errorf("connect with the headers of a sandbox: %d %s", a.status, a.body)
	}
	if a := e.do("GET", "/health", "", "E2b-Sandbox-Id", id); string(a.body) != "envd of "+id {
		t.Errorf("without a port: %d %s", a.status, a.body)
	}
	// A header of a page that is shown at another host turns nothing.
	if a := e.do("GET", "/health", "", "Host", "www.example.com", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999"); a.status != 200 || !strings.HasPrefix(string(a.body), "Health") {
		t.Errorf("another host: %d %s", a.status, a.body)
	}
	for _, port := range []string{"0", "x", "-1", "65536", "80 "} {
		a := e.do("GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", port)
		if port == "80 " { // the client's library trims it
			continue
		}
		a.fails(t, "port "+port, 400, "port")
	}
}

func TestEachSurfaceSeesTheSameSandbox(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	for _, shown := range []string{id, "sbx_" + strings.TrimPrefix(id, "i")} {
		a := e.do("GET", "/v1/sandboxes/"+shown, "", "Authorization", "Bearer "+e.key, "X-Api-Key", "-")
		o := a.object(t)
		if a.status != 200 || o["ends_at"] == nil || o["at_end"] != "delete" {
			t.Errorf("%s natively: %d %s", shown, a.status, a.body)
		}
	}
	made := e.do("POST", "/v1/sandboxes", `{"ends_in_s":60,"at_end":"hibernate"}`, "Authorization", "Bearer "+e.key, "Content-Type", "application/json").object(t)
	o := e.do("GET", "/sandboxes/"+made["id"].(string), "").object(t)
	if o["lifecycle"].(map[string]any)["onTimeout"] != "pause" || o["lifecycle"].(map[string]any)["autoResume"] != true {
		t.Errorf("a native sandbox is %v", o)
	}
	native := e.do("POST", "/v1/sandboxes", `{}`, "Authorization", "Bearer "+e.key, "Content-Type", "application/json").object(t)
	if o := e.do("GET", "/sandboxes/"+native["id"].(string), "").object(t); o["endAt"] != "2999-01-01T00:00:00Z" {
		t.Errorf("one without a deadline ends at %v", o["endAt"])
	}
	if a := e.do("GET", "/v1/nope", "", "Authorization", "Bearer "+e.key); a.status != 404 || a.object(t)["code"] != "no_such_path" {
		t.Errorf("a native error: %d %s", a.status, a.body)
	}
}

func TestKeys(t *testing.T) {
	e := start(t, options{})
	for what, header := range map[string][]string{
		"a header":       {"X-Api-Key", e.key},
		"a bearer":       {"X-Api-Key", "-", "Authorization", "Bearer " + e.key},
		"both":           {"X-Api-Key", e.key, "Authorization", "Bearer other"},
		"an empty first": {"X-Api-Key", "", "Authorization", "bearer " + e.key},
	} {
		if a := e.do("GET", "/v2/sandboxes", "", header...); a.status != 200 {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	for what, header := range map[string][]string{
		"none":      {"X-Api-Key", "-"},
		"a wrong":   {"X-Api-Key", "e2b_00"},
		"basic":     {"X-Api-Key", "-", "Authorization", "Basic " + e.key},
		"in vain":   {"X-Api-Key", sandbox.HexKey("rmt_0000000000000000")},
		"too short": {"X-Api-Key", "e2b_"},
	} {
		e.do("GET", "/v2/sandboxes", "", header...).fails(t, what, 401, "")
		e.do("POST", "/v2/sandboxes", base, header...).fails(t, what, 401, "")
	}
	// Any key works in the shape that the clients take, and in its own.
	if _, err := e.control.AddAdminKey(t.Context(), "default", "", "rmt_AbCdEf-_0123456789"); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"rmt_AbCdEf-_0123456789", sandbox.HexKey("rmt_AbCdEf-_0123456789")} {
		if a := e.do("GET", "/v2/sandboxes", "", "X-Api-Key", key); a.status != 200 {
			t.Errorf("%s: %d %s", key, a.status, a.body)
		}
	}
	id := func() string {
		keys, err := e.control.Keys(t.Context(), "default")
		if err != nil {
			t.Fatal(err)
		}
		return keys[0].ID
	}()
	if err := e.control.DeleteKey(t.Context(), sandbox.Key{Admin: true}, id); err != nil {
		t.Fatal(err)
	}
	e.do("GET", "/v2/sandboxes", "").fails(t, "a revoked key", 401, "")
}

func TestServerWithoutKeys(t *testing.T) {
	e := start(t, options{noAuth: true})
	for _, header := range [][]string{{"X-Api-Key", "-"}, {"X-Api-Key", "anything"}} {
		if a := e.do("GET", "/v2/sandboxes", "", header...); a.status != 200 {
			t.Errorf("%v: %d %s", header, a.status, a.body)
		}
	}
	e.do("GET", "/v2/sandboxes", "", "Host", "evil.example.com").fails(t, "a name that resolves to this host", 403, "loopback")
	e.do("POST", "/v2/sandboxes", base, "Origin", "https://evil.example.com").fails(t, "a page of elsewhere", 403, "web pages")
}

func TestGoneAndPausedSandboxesAre502(t *testing.T) {
	e := start(t, options{})
	gone := e.id(e.create(base))
	e.do("DELETE", "/sandboxes/"+gone, "")
	paused := e.id(e.create(base))
	e.do("POST", "/sandboxes/"+paused+"/pause", "")
	for _, id := range []string{gone, paused, "i" + strings.Repeat("0", 32), "nonsense"} {
		for _, port := range []string{"49983", "49999", "3000"} {
			a := e.do("GET", "/health", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", port)
			if want := fmt.Sprintf(`{"sandboxId":"%s","message":"The sandbox was not found","code":502}`, id); a.status != 502 || string(a.body) != want {
				t.Errorf("%s:%s: %d %s, want %s", id, port, a.status, a.body, want)
			}
		}
	}
	if s := e.record(paused).State; s != sandbox.Hibernated {
		t.Errorf("traffic made it %s", s)
	}
	a := e.do("GET", "/", "", "Host", "3000-"+gone+".localhost", "Accept", "text/html,*/*")
	if a.status != 502 || !strings.Contains(a.head.Get("Content-Type"), "text/html") || !strings.Contains(string(a.body), gone) {
		t.Errorf("a browser: %d %s", a.status, a.body)
	}
	a = e.do("GET", "/", "", "Host", "3000-x<b>.localhost", "Accept", "text/html")
	if strings.Contains(string(a.body), "<b>") {
		t.Errorf("what the client sent is in the page: %s", a.body)
	}
}

func TestClosedPorts(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	a := e.do("GET", "/", "", "Host", "9999-"+id+".localhost")
	if want := `{"sandboxId":"` + id + `","message":"The sandbox is running but port is not open","port":9999,"code":502}`; a.status != 502 || string(a.body) != want {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := e.do("GET", "/", "", "Host", "9999-"+id+".localhost", "Accept", "text/html"); a.status != 502 || !strings.Contains(string(a.body), "9999") {
		t.Errorf("a browser: %d %s", a.status, a.body)
	}
}

func TestTrafficWakesOnlyWithAutoResume(t *testing.T) {
	e := start(t, options{})
	auto := e.id(e.create(`{"templateID":"base","timeout":3600,"autoPause":true,"autoResume":{"enabled":true}}`))
	e.do("POST", "/sandboxes/"+auto+"/pause", "")
	if a := e.do("GET", "/stat", "", "E2b-Sandbox-Id", auto); a.status != 200 {
		t.Fatalf("a call to one that resumes by itself: %d %s", a.status, a.body)
	}
	if sb := e.record(auto); sb.State != sandbox.Running || e.left(auto) != time.Hour {
		t.Errorf("it is %s with %s left", sb.State, e.left(auto))
	}
	// One that is made natively wakes as by any other call.
	native := e.do("POST", "/v1/sandboxes", `{}`, "Authorization", "Bearer "+e.key, "Content-Type", "application/json").object(t)["id"].(string)
	e.do("POST", "/sandboxes/"+native+"/pause", "")
	if a := e.do("GET", "/stat", "", "E2b-Sandbox-Id", native); a.status != 200 || e.record(native).State != sandbox.Running {
		t.Errorf("a call to a native one: %d %s, and it is %s", a.status, a.body, e.record(native).State)
	}
}

func TestPrivatePorts(t *testing.T) {
	e := start(t, options{})
	sb := e.create(`{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	id, token := e.id(sb), sb["trafficAccessToken"].(string)
	other := e.create(`{"templateID":"base","network":{"allowPublicTraffic":false}}`)["trafficAccessToken"].(string)
	for _, port := range []string{"3000", "49999"} {
		for _, wrong := range []string{"-", "", "x", other, sb["envdAccessToken"].(string)} {
			a := e.do("GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", port, "E2B-Traffic-Access-Token", wrong)
			if a.status != 403 || a.object(t)["sandboxId"] != id {
				t.Errorf("port %s with %q: %d %s", port, wrong, a.status, a.body)
			}
		}
		if a := e.do("GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", port, "E2B-Traffic-Access-Token", token); a.status != 200 {
			t.Errorf("port %s with its token: %d %s", port, a.status, a.body)
		}
	}
	e.do("GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "3000", "E2B-Traffic-Access-Token", token)
	for _, h := range []string{"E2b-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port"} {
		if v := e.last().head.Get(h); v != "" {
			t.Errorf("the guest was told %s: %s", h, v)
		}
	}
	// envd asks for its own token.
	if a := e.do("GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983"); a.status != 200 {
		t.Errorf("envd: %d %s", a.status, a.body)
	}
}

func TestTokensSurviveARestartAndAPause(t *testing.T) {
	dir := t.TempDir()
	m := controltest.NewMachines(dir + "/instances")
	t.Cleanup(m.StopAll)
	e := open(t, dir, m, options{})
	before := e.create(`{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	id := e.id(before)
	e.do("POST", "/sandboxes/"+id+"/pause", "")
	e.close()
	e = open(t, dir, m, options{})
	after := e.do("POST", "/v2/sandboxes/"+id+"/connect", "").object(t)
	for _, f := range []string{"envdAccessToken", "trafficAccessToken"} {
		if before[f] != after[f] || before[f] == "" {
			t.Errorf("%s was %v and is %v", f, before[f], after[f])
		}
	}
}

func TestSignedLinksWithoutASandbox(t *testing.T) {
	e := start(t, options{})
	sb := e.create(base)
	e.create(base)
	sign := func(operation, user, end string) string {
		text := "/a b:" + operation + ":" + user + ":" + sb["envdAccessToken"].(string)
		q := url.Values{"path": {"/a b"}}
		if user != "" {
			q.Set("username", user)
		}
		if end != "" {
			text += ":" + end
			q.Set("signature_expiration", end)
		}
		sum := sha256.Sum256([]byte(text))
		q.Set("signature", "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
		return "/files?" + q.Encode()
	}
	for link, method := range map[string]string{sign("read", "", ""): "GET", sign("write", "root", ""): "POST", sign("read", "user", "99999999999"): "GET"} {
		a := e.do(method, link, "", "X-Api-Key", "-")
		if a.status != 200 || string(a.body) != "envd of "+e.id(sb) {
			t.Errorf("%s: %d %s", link, a.status, a.body)
		}
		other := map[string]string{"GET": "POST", "POST": "GET"}[method]
		e.do(other, link, "", "X-Api-Key", "-").fails(t, "another operation", 401, "signed")
	}
	e.do("GET", "/files?path=%2Fa+b&signature=v1_x", "").fails(t, "a wrong signature", 401, "signed")
	e.do("DELETE", "/sandboxes/"+e.id(sb), "")
	e.do("GET", sign("read", "", ""), "").fails(t, "a link of one that is gone", 401, "signed")
}

func TestPagesOfElsewhereMayAsk(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	ask := []string{"Origin", "https://app.example.com", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-api-key,content-type", "X-Api-Key", "-"}
	for what, more := range map[string][]string{
		"/v2/sandboxes":               nil,
		"/sandboxes/" + id + "/pause": nil,
		"/process.Process/Start":      {"Host", "49983-" + id + ".localhost"},
		"/execute":                    {"Host", "49999-" + id + ".localhost"},
		"/files":                      {"Host", "49983-i" + strings.Repeat("0", 32) + ".localhost"},
	} {
		a := e.do("OPTIONS", what, "", append(more, ask...)...)
		if a.status != 204 || a.head.Get("Access-Control-Allow-Origin") != "*" || a.head.Get("Access-Control-Allow-Headers") != "x-api-key,content-type" ||
			!strings.Contains(a.head.Get("Access-Control-Allow-Methods"), "PUT") {
			t.Errorf("%s: %d %v", what, a.status, a.head)
		}
	}
	for _, path := range []string{"/v2/sandboxes", "/v2/sandboxes?limit=x"} {
		if a := e.do("GET", path, "", "Origin", "https://app.example.com"); a.head.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d %v", path, a.status, a.head)
		}
	}
	// What is shown at a port is its own business.
	a := e.do("OPTIONS", "/", "", append([]string{"Host", "3000-" + id + ".localhost"}, ask...)...)
	if a.head.Get("Access-Control-Allow-Origin") != "" || string(a.body) != "port 3000 of "+id {
		t.Errorf("a port: %d %v %s", a.status, a.head, a.body)
	}
	// The native API has only pages that it was told.
	if a := e.do("OPTIONS", "/v1/sandboxes", "", ask...); a.head.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("the native API: %v", a.head)
	}
}

// A browser refuses an answer that says twice who may read it.
func TestOriginsOfTheNativeAPIAreItsOwn(t *testing.T) {
	const page = "https://app.example.com"
	e := start(t, options{origins: []string{page}})
	id := e.id(e.create(base))
	for path, want := range map[string]string{"/v2/sandboxes": "*", "/v1/sandboxes": page} {
		for method, header := range map[string][]string{"GET": nil, "OPTIONS": {"Access-Control-Request-Method", "POST"}} {
			a := e.do(method, path, "", append([]string{"Origin", page}, header...)...)
			if got := a.head.Values("Access-Control-Allow-Origin"); len(got) != 1 || got[0] != want {
				t.Errorf("%s %s: %d %v", method, path, a.status, a.head)
			}
		}
	}
	a := e.do("GET", "/", "", "Host", "3000-"+id+".localhost", "Origin", page)
	if a.status != 200 || a.head.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a port: %d %v", a.status, a.head)
	}
}

func TestRequestsAreLoggedAndPanicsAnswered(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	a := e.do("GET", "/panic", "", "E2b-Sandbox-Id", id, "X-Request-Id", "r-1")
	a.fails(t, "a panic", 500, "r-1")
	if a.head.Get("X-Request-Id") != "r-1" {
		t.Errorf("the request id is %q", a.head.Get("X-Request-Id"))
	}
	e.do("GET", "/sandboxes/nope", "", "X-Request-Id", "r-2").fails(t, "an error", 404, "")
	waitFor(t, "the log has both", func() bool {
		log := e.log.String()
		return strings.Contains(log, "request=r-1") && strings.Contains(log, "request=r-2") &&
			strings.Contains(log, "sandbox=sbx_"+strings.TrimPrefix(id, "i")) && strings.Contains(log, "on purpose")
	})
}
