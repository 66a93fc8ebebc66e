package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/httpapi"
)

// The names that Podflare's client has for the idle timeout and the lifetime mean what
// they mean there; ours mean what they always did.
func TestIdleTimeoutsMeanWhatTheirNameSays(t *testing.T) {
	e := start(t, options{})
	for body, want := range map[string]string{
		`{}`:                           "hibernate",
		`{"idle_timeout_s": 60}`:       "hibernate",
		`{"persistent": true}`:         "space",
		`{"idle_timeout_seconds": 60}`: "delete",
		`{"idle_timeout_seconds": 60, "persistent": true}`: "space",
	} {
		res, got := e.do(http.MethodPost, "/v1/sandboxes", body)
		var sb rametv1.Sandbox
		if err := json.Unmarshal(got, &sb); err != nil || res.StatusCode != 200 || sb.OnIdle != want {
			t.Errorf("%s: %d %s", body, res.StatusCode, got)
		}
	}
	res, got := e.do(http.MethodPost, "/v1/sandboxes", `{"idle_timeout_seconds": 1}`)
	if res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, got)
	}
	var sb rametv1.Sandbox
	if err := json.Unmarshal(got, &sb); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 20*time.Second, "it was deleted for being idle", func() bool {
		_, got := e.do(http.MethodGet, "/v1/sandboxes/"+sb.Id, "")
		return strings.Contains(string(got), `"status":"stopped"`)
	})
	if res, got := e.do(http.MethodPost, "/v1/sandboxes/"+sb.Id+"/exec", `{"code": "1"}`); res.StatusCode != 404 {
		t.Errorf("%d %s", res.StatusCode, got)
	}
}

func TestRegionsAndTheEndpoint(t *testing.T) {
	e := start(t, options{api: func(c *httpapi.Config) { c.PublicURL = "https://here.example.com" }})
	for _, path := range []string{"/r/local/v1/sandboxes", "/v1/sandboxes"} {
		res, got := e.do(http.MethodPost, path, "{}", "X-Podflare-Region", "local")
		var sb rametv1.Sandbox
		if err := json.Unmarshal(got, &sb); err != nil || res.StatusCode != 200 || sb.Region != "local" || sb.Endpoint == nil || *sb.Endpoint != "https://here.example.com" {
			t.Errorf("%s: %d %s", path, res.StatusCode, got)
		}
	}
	before := e.machines.Running()
	for path, region := range map[string]string{"/r/mars/v1/sandboxes": "", "/v1/sandboxes": "mars"} {
		res, got := e.do(http.MethodPost, path, "{}", "X-Podflare-Region", region)
		if res.StatusCode != 404 || !strings.Contains(string(got), `"code":"region_not_found"`) || res.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %d %s", path, res.StatusCode, got)
		}
	}
	if got := e.machines.Running(); got != before {
		t.Errorf("%d machines, there were %d", got, before)
	}
}
