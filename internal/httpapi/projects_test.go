package httpapi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// adminKey makes a key as the server's own is one, and uses it.
func (e *env) adminKey() {
	e.t.Helper()
	const secret = "rmt_admin_secret_of_the_test"
	if _, err := e.control.AddAdminKey(e.t.Context(), sandbox.DefaultProject, "local", secret); err != nil {
		e.t.Fatal(err)
	}
	e.key = secret
}

// keyOf makes a key of a project over the API.
func (e *env) keyOf(project string) rametv1.KeyCreated {
	e.t.Helper()
	res, body := e.do("POST", "/v1/keys", `{"project":"`+project+`"}`)
	var k rametv1.KeyCreated
	if err := json.Unmarshal(body, &k); err != nil || res.StatusCode != 200 || k.Project != project {
		e.t.Fatalf("%d %s", res.StatusCode, body)
	}
	return k
}

func TestOnlyAdminsReachOtherProjects(t *testing.T) {
	e := start(t, options{})
	e.adminKey()
	adminSecret := e.key
	a, b := e.keyOf("team-a"), e.keyOf("team-b")
	if res, body := e.do("PUT", "/v1/projects/team-a", `{"max_sandboxes":1}`); res.StatusCode != 200 || !strings.Contains(string(body), `"max_sandboxes":1`) {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if _, body := e.do("GET", "/v1/projects", ""); strings.Count(string(body), `"name"`) != 3 {
		t.Errorf("an admin sees %s", body)
	}
	e.key = a.Key
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/v1/keys", `{"project":"team-b"}`, 404, "project_not_found"},
		{"GET", "/v1/keys?project=team-b", "", 404, "project_not_found"},
		{"DELETE", "/v1/keys/" + b.Id, "", 404, "key_not_found"},
		{"GET", "/v1/projects/team-b", "", 404, "project_not_found"},
		{"PUT", "/v1/projects/team-b", `{}`, 404, "project_not_found"},
		{"PUT", "/v1/projects/team-a", `{"max_sandboxes":-1}`, 403, "admin_only"},
		{"GET", "/v1/projects/nosuch", "", 404, "project_not_found"},
	} {
		if res, body := e.do(c.method, c.path, c.body); res.StatusCode != c.status || !strings.Contains(string(body), `"`+c.code+`"`) {
			t.Errorf("%s %s: %d %s", c.method, c.path, res.StatusCode, body)
		}
	}
	if _, body := e.do("GET", "/v1/projects", ""); strings.Count(string(body), `"name"`) != 1 {
		t.Errorf("team-a sees %s", body)
	}
	e.create()
	res, body := e.do("POST", "/v1/sandboxes", "")
	if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" || !strings.Contains(string(body), `"code":"quota_sandboxes"`) {
		t.Errorf("over the quota: %d %s", res.StatusCode, body)
	}
	// A key of the admin's project is not an admin's, and cannot revoke it.
	e.key = adminSecret
	plain := e.keyOf(sandbox.DefaultProject)
	_, list := e.do("GET", "/v1/keys", "")
	var keys rametv1.KeyList
	if err := json.Unmarshal(list, &keys); err != nil {
		t.Fatal(err)
	}
	e.key = plain.Key
	for _, k := range keys.Keys {
		if !k.Admin {
			continue
		}
		if res, body := e.do("DELETE", "/v1/keys/"+k.Id, ""); res.StatusCode != 403 {
			t.Errorf("revoke an admin's key: %d %s", res.StatusCode, body)
		}
	}
	e.key = adminSecret
	if res, body := e.do("PUT", "/v1/projects/Bad%20name", ""); res.StatusCode != 400 || !strings.Contains(string(body), "invalid_project") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if res, body := e.do("PUT", "/v1/projects/x", `{"max_disk_mb":-2}`); res.StatusCode != 400 || !strings.Contains(string(body), "invalid_quota") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestRevokingAKeyEndsItsStreams(t *testing.T) {
	e := start(t, options{})
	e.adminKey()
	adminSecret := e.key
	k := e.keyOf("team-a")
	e.key = k.Key
	id := e.create()
	_, stream := e.openStream(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec", `{"code":"echo on; sleep 60","language":"bash"}`)
	if ev := readEvent(t, stream); ev.Type != "stdout" {
		t.Fatalf("%+v", ev)
	}
	e.key = adminSecret
	if res, body := e.do("DELETE", "/v1/keys/"+k.Id, ""); res.StatusCode != 204 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	ended := make(chan rametv1.Event, 1)
	go func() {
		for ev := readEvent(t, stream); ; ev = readEvent(t, stream) {
			if ev.Type != "stderr" { // that says it too
				ended <- ev
				return
			}
		}
	}()
	select {
	case ev := <-ended:
		if ev.Type != "stream_error" || ev.Code == nil || *ev.Code != "key_revoked" {
			t.Errorf("%+v", ev)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the stream goes on")
	}
	e.key = k.Key
	if res, _ := e.do("GET", "/v1/info", ""); res.StatusCode != 401 {
		t.Errorf("%d", res.StatusCode)
	}
}

func TestBackupIsForAdmins(t *testing.T) {
	e := start(t, options{control: func(c *control.Config) {
		dir := t.TempDir()
		c.Files = store.Files{Dir: dir, Key: filepath.Join(dir, "key")}
		if err := os.WriteFile(c.Files.Key, []byte("rmt_x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}})
	id := e.create()
	if res, body := e.do("GET", "/v1/backup", ""); res.StatusCode != 403 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	e.adminKey()
	res, body := e.do("GET", "/v1/backup", "")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/gzip" {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	to := t.TempDir()
	files := store.Files{Dir: to, Database: filepath.Join(to, "ramet.db"), Key: filepath.Join(to, "key")}
	if err := store.RestoreBackup(t.Context(), files, bytes.NewReader(body), false); err != nil {
		t.Fatal(err)
	}
	restored, err := store.Open(t.Context(), files.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	parsed, _ := sandbox.ParseID(id)
	if _, err := restored.Get(t.Context(), sandbox.DefaultProject, parsed); err != nil {
		t.Error(err)
	}
}
