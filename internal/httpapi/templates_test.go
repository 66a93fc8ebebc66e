package httpapi_test

import (
	"context"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

func TestTemplates(t *testing.T) {
	e := start(t, options{})
	e.templates.OnBuild = func(ctx context.Context, name string) error {
		progress.Report(ctx, progress.Event{Step: "build root filesystem", Detail: "unpacking", Fraction: 0.5})
		if name == "broken" {
			return sandbox.Errorf(sandbox.Unavailable, "mirror_unreachable", "the package mirror does not answer")
		}
		return nil
	}
	res, body := e.do("POST", "/v1/templates", `{"name":"mine"}`)
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	if res.StatusCode != 200 || len(lines) != 4 || !strings.Contains(lines[1], `"fraction":0.5`) || !strings.Contains(lines[3], `"type":"done"`) || !strings.Contains(lines[3], `"name":"mine"`) {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if _, body = e.do("POST", "/v1/templates", `{"name":"broken"}`); !strings.Contains(string(body), `"code":"mirror_unreachable"`) || !strings.Contains(string(body), `"type":"error"`) {
		t.Errorf("%s", body)
	}
	if _, body = e.do("GET", "/v1/templates", ""); strings.Count(string(body), `"hash"`) != 2 {
		t.Errorf("%s", body)
	}
	_, body = e.do("POST", "/v1/sandboxes", `{"template":"mine"}`)
	if !strings.Contains(string(body), `"template":"mine"`) {
		t.Fatalf("%s", body)
	}
	if res, body = e.do("DELETE", "/v1/templates/mine", ""); res.StatusCode != 409 || !strings.Contains(string(body), "template_in_use") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	_, list := e.do("GET", "/v1/sandboxes", "")
	id := string(list)[strings.Index(string(list), "sbx_"):][:36]
	e.do("DELETE", "/v1/sandboxes/"+id, "")
	if res, body = e.do("DELETE", "/v1/templates/mine", ""); res.StatusCode != 204 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if res, body = e.do("DELETE", "/v1/templates/mine", ""); res.StatusCode != 404 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}
