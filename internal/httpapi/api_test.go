package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

func TestCreateAnswersAsPodflare(t *testing.T) {
	e := start(t, options{})
	res, body := e.do("POST", "/v1/sandboxes", `{"template":"default","ram_mib":1000,"rootfs_gb":8,"egress":false,"timeout_seconds":60,"persistent":true}`)
	if res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	var sb rametv1.Sandbox
	if err := json.Unmarshal(body, &sb); err != nil {
		t.Fatal(err)
	}
	if sb.State != "ready" || sb.Status != "running" || !strings.HasPrefix(sb.Id, "sbx_") || len(sb.Id) != 36 {
		t.Errorf("id %q state %q status %q", sb.Id, sb.State, sb.Status)
	}
	if sb.MemoryMb != 1024 || sb.DiskMb != 8192 || sb.Egress || sb.Vcpus != 2 || sb.Isolation != "emulated" || sb.Region != "local" || sb.Node != "n1" {
		t.Errorf("%+v", sb)
	}
	if !sb.Persistent || sb.OnIdle != "space" || sb.Origin != "create" {
		t.Errorf("persistent %t, on idle %q, origin %q", sb.Persistent, sb.OnIdle, sb.Origin)
	}
	if sb.MaxLifetimeS != 60 || sb.IdleTimeoutS != 0 || sb.ExpiresAt == nil || !sb.ExpiresAt.Equal(sb.CreatedAt.Add(60*time.Second)) {
		t.Errorf("times %d %d %v", sb.MaxLifetimeS, sb.IdleTimeoutS, sb.ExpiresAt)
	}
	for _, step := range []string{"record", "start_vmm", "identity", "commit", "total"} {
		if _, ok := (*sb.TimingsMs)[step]; !ok {
			t.Errorf("no timing of %s in %v", step, *sb.TimingsMs)
		}
		if !strings.Contains(res.Header.Get("Server-Timing"), step+";dur=") {
			t.Errorf("no %s in Server-Timing %q", step, res.Header.Get("Server-Timing"))
		}
	}
}

func TestGetListDelete(t *testing.T) {
	e := start(t, options{})
	var ids []string
	for i := range 5 {
		env := map[string]string{"SECRET": "hidden-value"}
		md := map[string]string{"n": fmt.Sprint(i), "odd": fmt.Sprint(i%2 == 1)}
		res, err := e.client.CreateSandboxWithResponse(t.Context(), nil, rametv1.SandboxCreate{Metadata: &md, Env: &env})
		if err != nil || res.JSON200 == nil {
			t.Fatalf("%v %s", err, res.Body)
		}
		ids = append(ids, res.JSON200.Id)
	}
	// Two pages, newest first.
	limit := 3
	page, err := e.client.ListSandboxesWithResponse(t.Context(), &rametv1.ListSandboxesParams{Limit: &limit})
	if err != nil || page.JSON200 == nil {
		t.Fatal(err)
	}
	if len(page.JSON200.Sandboxes) != 3 || page.JSON200.Sandboxes[0].Id != ids[4] || page.JSON200.NextCursor == nil {
		t.Fatalf("first page %s", page.Body)
	}
	if bytes.Contains(page.Body, []byte("hidden-value")) {
		t.Error("the list shows the environment")
	}
	page, err = e.client.ListSandboxesWithResponse(t.Context(), &rametv1.ListSandboxesParams{Limit: &limit, Cursor: page.JSON200.NextCursor})
	if err != nil || page.JSON200 == nil || len(page.JSON200.Sandboxes) != 2 || page.JSON200.Sandboxes[1].Id != ids[0] || page.JSON200.NextCursor != nil {
		t.Fatalf("second page %v %s", err, page.Body)
	}
	odd := []string{"odd=true"}
	page, err = e.client.ListSandboxesWithResponse(t.Context(), &rametv1.ListSandboxesParams{Metadata: &odd})
	if err != nil || page.JSON200 == nil || len(page.JSON200.Sandboxes) != 2 {
		t.Fatalf("filtered page %v %s", err, page.Body)
	}

	for range 2 { // deleting again is the same
		if res, body := e.do("DELETE", "/v1/sandboxes/"+ids[0], ""); res.StatusCode != 204 || len(body) != 0 {
			t.Fatalf("delete: %d %s", res.StatusCode, body)
		}
	}
	if res, body := e.do("DELETE", "/v1/sandboxes/"+sandbox.NewID().String(), ""); res.StatusCode != 404 {
		t.Errorf("delete of an unknown id: %d %s", res.StatusCode, body)
	}
	got, err := e.client.GetSandboxWithResponse(t.Context(), ids[0])
	if err != nil || got.JSON200 == nil || got.JSON200.Status != "stopped" {
		t.Errorf("get of a deleted one: %v %s", err, got.Body)
	}
	if res, body := e.do("POST", "/v1/sandboxes/"+ids[0]+"/exec", `{"code":"1"}`); res.StatusCode != 404 || !strings.Contains(string(body), `"error":"sandbox not found"`) {
		t.Errorf("exec in a deleted one: %d %s", res.StatusCode, body)
	}
	if e.machines.Running() != 4 {
		t.Errorf("%d machines run", e.machines.Running())
	}
}

func TestErrorsHaveOneForm(t *testing.T) {
	e := start(t, options{})
	for _, c := range []struct {
		name, method, path, auth string
		status                   int
		sentence, code           string
	}{
		{"no key", "GET", "/v1/sandboxes", "", 401, "missing Authorization: Bearer <key>", "missing_api_key"},
		{"basic", "GET", "/v1/sandboxes", "Basic abc", 401, "missing Authorization: Bearer <key>", "missing_api_key"},
		{"empty key", "GET", "/v1/sandboxes", "Bearer ", 401, "missing Authorization: Bearer <key>", "missing_api_key"},
		{"wrong key", "POST", "/v1/sandboxes", "Bearer wrong", 401, "invalid api key", "invalid_api_key"},
		{"no route, no key", "GET", "/v2/x", "", 401, "missing Authorization: Bearer <key>", "missing_api_key"},
		{"no route", "GET", "/v2/x", "Bearer " + e.key, 404, "this path does not exist; the API is described in api/openapi.yaml", "no_such_path"},
		{"method", "PATCH", "/v1/sandboxes", "Bearer " + e.key, 405, "this path does not have this method; it has GET, HEAD, POST", "method_not_allowed"},
		{"unknown sandbox", "GET", "/v1/sandboxes/sbx_1cc2937f86644dc3a3ad3ffb9010c70d", "Bearer " + e.key, 404, "sandbox not found", "sandbox_not_found"},
		{"bad id", "GET", "/v1/sandboxes/..%2f..%2fetc", "bearer " + e.key, 404, "sandbox not found", "sandbox_not_found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := http.NewRequestWithContext(t.Context(), c.method, e.url+c.path, nil)
			if c.auth != "" {
				r.Header.Set("Authorization", c.auth)
			}
			r.Header.Set("X-Request-Id", "my-id.1")
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			var got rametv1.Error
			if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
				t.Fatal(err)
			}
			want := rametv1.Error{Error: c.sentence, Code: c.code, RequestId: "my-id.1"}
			if res.StatusCode != c.status || got != want {
				t.Errorf("%d %+v", res.StatusCode, got)
			}
			if res.Header.Get("X-Request-Id") != "my-id.1" || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("header %v", res.Header)
			}
		})
	}
}

func TestHealthNeedsNoKey(t *testing.T) {
	e := start(t, options{})
	e.key = "none"
	res, body := e.do("GET", "/v1/healthz", "")
	if res.StatusCode != 200 || string(body) != "ok" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

func TestNoAuth(t *testing.T) {
	e := start(t, options{noAuth: true})
	e.key = ""
	if res, body := e.do("POST", "/v1/sandboxes", ""); res.StatusCode != 200 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestKeys(t *testing.T) {
	e := start(t, options{})
	name := "ci"
	made, err := e.client.CreateKeyWithResponse(t.Context(), nil, rametv1.KeyCreate{Name: &name})
	if err != nil || made.JSON200 == nil {
		t.Fatalf("%v %s", err, made.Body)
	}
	k := made.JSON200
	if k.Name != "ci" || !strings.HasPrefix(k.Key, k.Prefix) || !strings.HasPrefix(k.Id, "key_") {
		t.Errorf("%+v", k)
	}
	list, err := e.client.ListKeysWithResponse(t.Context(), nil)
	if err != nil || list.JSON200 == nil || len(list.JSON200.Keys) != 2 {
		t.Fatalf("%v %s", err, list.Body)
	}
	if bytes.Contains(list.Body, []byte(k.Key)) {
		t.Error("the list shows the secret")
	}
	first := e.key
	e.key = k.Key
	if res, body := e.do("GET", "/v1/info", ""); res.StatusCode != 200 {
		t.Fatalf("with the new key: %d %s", res.StatusCode, body)
	}
	e.key = first
	if res, body := e.do("DELETE", "/v1/keys/"+k.Id, ""); res.StatusCode != 204 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	e.key = k.Key
	if res, _ := e.do("GET", "/v1/info", ""); res.StatusCode != 401 {
		t.Errorf("a revoked key still works: %d", res.StatusCode)
	}
	e.key = first
	if res, _ := e.do("DELETE", "/v1/keys/"+k.Id, ""); res.StatusCode != 404 {
		t.Errorf("deleting it again: %d", res.StatusCode)
	}
	// The secret is in no file of the database.
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(e.dbPath + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(k.Key)) || bytes.Contains(b, []byte(k.Key[12:])) {
			t.Errorf("the secret is in ramet.db%s", suffix)
		}
		if !bytes.Contains(b, []byte(k.Id)) && suffix == "-wal" {
			t.Error("the search looked in the wrong place: the key's id is not there")
		}
	}
	if strings.Contains(e.log.String(), k.Key) {
		t.Error("the secret is in the log")
	}
}

func TestProjectsDoNotSeeEachOther(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	_, secret, err := e.control.CreateKey(context.Background(), "other", "other")
	if err != nil {
		t.Fatal(err)
	}
	mine := e.key
	e.key = secret
	for _, c := range []struct{ method, path, body string }{
		{"GET", "", ""},
		{"DELETE", "", ""},
		{"PATCH", "", `{"idle_timeout_s":1}`},
		{"POST", "/exec", `{"code":"echo","language":"bash"}`},
		{"POST", "/processes", `{"argv":["true"]}`},
		{"GET", "/processes", ""},
		{"GET", "/files?path=/", ""},
		{"PUT", "/files?path=/x", "x"},
		{"GET", "/files/list?path=/", ""},
		{"GET", "/archive?path=/", ""},
		{"GET", "/metrics", ""},
		{"GET", "/console", ""},
	} {
		if res, body := e.do(c.method, "/v1/sandboxes/"+id+c.path, c.body); res.StatusCode != 404 {
			t.Errorf("%s %s of another project: %d %s", c.method, c.path, res.StatusCode, body)
		}
	}
	if res, body := e.do("GET", "/v1/events?follow=false&sandbox="+id, ""); res.StatusCode != 404 {
		t.Errorf("events of another project: %d %s", res.StatusCode, body)
	}
	for _, path := range []string{"/v1/sandboxes?status=any", "/v1/events?follow=false"} {
		if res, body := e.do("GET", path, ""); res.StatusCode != 200 || strings.Contains(string(body), id) {
			t.Errorf("%s shows another project's sandbox: %d", path, res.StatusCode)
		}
	}
	e.key = mine
	if res, _ := e.do("GET", "/v1/sandboxes/"+id, ""); res.StatusCode != 200 {
		t.Errorf("its own project: %d", res.StatusCode)
	}
}

func TestMetricsAndConsole(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	m, err := e.client.GetMetricsWithResponse(t.Context(), id)
	if err != nil || m.JSON200 == nil || m.JSON200.MemoryTotalBytes != 1<<30 || m.JSON200.Host.OwnPages != 600 {
		t.Errorf("%v %s", err, m.Body)
	}
	res, body := e.do("GET", "/v1/sandboxes/"+id+"/console", "")
	if res.StatusCode != 200 || !strings.Contains(string(body), "Linux version") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestLifecycleCallsTellTheirSteps(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	for _, c := range []struct{ method, body, steps string }{
		{"PATCH", `{"metadata":{"a":"1"}}`, "total"},
		{"DELETE", "", "record free commit total"},
		{"DELETE", "", "total"}, // nothing is left to do
	} {
		res, body := e.do(c.method, "/v1/sandboxes/"+id, c.body)
		if res.StatusCode/100 != 2 {
			t.Fatalf("%s: %d %s", c.method, res.StatusCode, body)
		}
		var steps []string
		for entry := range strings.SplitSeq(res.Header.Get("Server-Timing"), ", ") {
			name, _, ok := strings.Cut(entry, ";dur=")
			if !ok {
				t.Errorf("%s: %q is no step", c.method, entry)
			}
			steps = append(steps, name)
		}
		if got := strings.Join(steps, " "); got != c.steps {
			t.Errorf("%s has the steps %q, want %q", c.method, got, c.steps)
		}
	}
}
