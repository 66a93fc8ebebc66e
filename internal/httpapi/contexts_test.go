package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
)

func TestContexts(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	base := "/v1/sandboxes/" + id + "/contexts"
	res, body := e.do("POST", base, `{"language":"sh","cwd":"/"}`)
	var made rametv1.Context
	if err := json.Unmarshal([]byte(body), &made); err != nil || res.StatusCode != 201 {
		t.Fatalf("create: %d %s", res.StatusCode, body)
	}
	if made.Language != "bash" || made.Cwd != "/" || !made.Running || !strings.HasPrefix(made.Id, "ctx_") {
		t.Errorf("context %+v", made)
	}
	if res, body := e.do("POST", base, ""); res.StatusCode != 201 || !strings.Contains(string(body), `"python"`) {
		t.Errorf("create without a body: %d %s", res.StatusCode, body)
	}
	res, body = e.do("GET", base, "")
	var list rametv1.ContextList
	if err := json.Unmarshal([]byte(body), &list); err != nil || res.StatusCode != 200 || len(list.Contexts) != 3 {
		t.Fatalf("list: %d %s", res.StatusCode, body)
	}
	if list.Contexts[0].Id != "default" || list.Contexts[1] != made {
		t.Errorf("list %+v", list)
	}
	_, body = e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"context":"`+made.Id+`","code":"echo in"}`)
	if got := brief(events(t, body)); got != "stdout:\"in\"\nexit:0\n" {
		t.Errorf("run in it: %s", got)
	}
	if _, body = e.do("GET", "/v1/sandboxes/"+id+"/processes", ""); !strings.Contains(string(body), `"context":"`+made.Id+`"`) {
		t.Errorf("processes: %s", body)
	}
	if res, body = e.do("POST", base+"/"+made.Id+"/restart", ""); res.StatusCode != 200 || !strings.Contains(string(body), made.Id) {
		t.Errorf("restart: %d %s", res.StatusCode, body)
	}
	if res, body = e.do("DELETE", base+"/"+made.Id, ""); res.StatusCode != 204 {
		t.Errorf("delete: %d %s", res.StatusCode, body)
	}
}

func TestContextErrors(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	base := "/v1/sandboxes/" + id + "/contexts"
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", base, `{"language":"cobol"}`, 400, "invalid_language"},
		{"POST", base, `{"language":"r"}`, 400, "language_not_installed"},
		{"POST", base, `{"language":"typescript"}`, 400, "invalid_language"},
		{"POST", base, `{"cwd":"a\u0000b"}`, 400, "invalid_path"},
		{"POST", base, `{"nosuch":1}`, 400, "unknown_field"},
		{"POST", base + "/nosuch/restart", "", 404, "context_not_found"},
		{"DELETE", base + "/nosuch", "", 404, "context_not_found"},
		{"DELETE", base + "/default", "", 409, "context_failed"},
		{"GET", "/v1/sandboxes/sbx_00000000000000000000000000000000/contexts", "", 404, "sandbox_not_found"},
		{"POST", "/v1/sandboxes/" + id + "/exec", `{"code":"1","language":"java"}`, 400, "language_not_installed"},
		{"POST", "/v1/sandboxes/" + id + "/exec", `{"code":"1","context":"default","user":"user"}`, 400, "invalid_user"},
	} {
		res, body := e.do(c.method, c.path, c.body)
		if res.StatusCode != c.status || !strings.Contains(string(body), `"`+c.code+`"`) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, res.StatusCode, body, c.status, c.code)
		}
	}
	_, body := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"code":"1","context":"nosuch"}`)
	if !strings.Contains(string(body), `"context_not_found"`) {
		t.Errorf("run in a context that is not there: %s", body)
	}
	for n := 0; ; n++ {
		if res, body := e.do("POST", base, `{"language":"bash"}`); res.StatusCode != 201 {
			if res.StatusCode != 429 || !strings.Contains(string(body), `"too_many_contexts"`) {
				t.Errorf("too many: %d %s", res.StatusCode, body)
			}
			break
		}
		if n > 40 {
			t.Fatal("there is no limit")
		}
	}
}
