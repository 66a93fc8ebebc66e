package interpreter_test

import (
	"encoding/json"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

type shown struct{ ID, Language, Cwd string }

func (e *env) contexts() map[string]shown {
	e.t.Helper()
	status, body := e.do("GET", "/contexts", "")
	var list []shown
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != 200 {
		e.t.Fatalf("%d %s", status, body)
	}
	out := make(map[string]shown)
	for _, c := range list {
		out[c.ID] = c
	}
	return out
}

func TestContextsComeAndGo(t *testing.T) {
	e := start(t)
	before := e.contexts()
	if before["default"] != (shown{"default", "python", "/home/user"}) || before["javascript"].Language != "javascript" {
		t.Errorf("%v", before)
	}
	for body, want := range map[string]shown{
		`{}`:                                 {"", "python", "/home/user"},
		`{"language":null,"cwd":null}`:       {"", "python", "/home/user"},
		`{"language":"js","cwd":"/tmp"}`:     {"", "javascript", "/tmp"},
		`{"language":"TypeScript"}`:          {"", "typescript", "/home/user"},
		`{"language":"bash","cwd":"/"}`:      {"", "bash", "/"},
		`{"language":"python","cwd":"/tmp"}`: {"", "python", "/tmp"},
	} {
		status, answer := e.do("POST", "/contexts", body)
		var made shown
		if err := json.Unmarshal([]byte(answer), &made); err != nil || status != 200 || made.ID == "" {
			t.Errorf("%s: %d %s", body, status, answer)
			continue
		}
		if got := e.contexts()[made.ID]; got != made || (shown{"", made.Language, made.Cwd}) != want {
			t.Errorf("%s: made %v, listed %v", body, made, got)
		}
		if status, answer := e.do("POST", "/contexts/"+made.ID+"/restart", ""); status != 200 {
			t.Errorf("restart: %d %s", status, answer)
		}
		if status, answer := e.do("DELETE", "/contexts/"+made.ID, ""); status != 204 {
			t.Errorf("remove: %d %s", status, answer)
		}
		for _, gone := range []struct{ method, path, body string }{
			{"DELETE", "/contexts/" + made.ID, ""},
			{"POST", "/contexts/" + made.ID + "/restart", ""},
			{"POST", "/execute", `{"code":"1","context_id":"` + made.ID + `"}`},
		} {
			if status, answer := e.do(gone.method, gone.path, gone.body); status != 404 || answer != "Context "+made.ID+" not found" {
				t.Errorf("%s: %d %s", gone.path, status, answer)
			}
		}
	}
	if now := e.contexts(); len(now) != len(before) {
		t.Errorf("left: %v", now)
	}
}

func TestContextsThatCannotBe(t *testing.T) {
	e := start(t)
	for body, want := range map[string]int{
		`{"language":"cobol"}`: 400, `{"language":"` + strings.Repeat("x", 10000) + `"}`: 400, `{"language":1}`: 422, `no`: 422,
		`{"cwd":"/a` + `\u0000"}`: 400,
	} {
		if status, answer := e.do("POST", "/contexts", body); status != want || answer == "" || len(answer) > 500 {
			t.Errorf("%.40s: %d %s", body, status, answer)
		}
	}
	if status, _ := e.do("DELETE", "/contexts/default", ""); status != 400 {
		t.Errorf("the first context: %d", status)
	}
}

func TestTheLanguagesOfDefaultContextsAreThere(t *testing.T) {
	e := start(t)
	status, body := e.do("POST", "/execute", `{"code":"v=5; echo $v","language":"bash"}`)
	if got := text(lines(t, body), "stdout"); status != 200 || got != "5\n" {
		t.Errorf("%d %s", status, body)
	}
	if c, ok := e.contexts()["bash"]; !ok || c.Cwd != "/home/user" {
		t.Errorf("%v", e.contexts())
	}
}

// A checkpoint may be of a time before the context was made.
func TestAnotherMachineOfTheSandboxMayNotHaveTheContext(t *testing.T) {
	e := start(t)
	run := func() int {
		status, _ := e.do("POST", "/execute", `{"code":"echo 1","language":"bash"}`)
		return status
	}
	if status := run(); status != 200 {
		t.Fatal(status)
	}
	if err := e.Control.RemoveContext(t.Context(), sandbox.DefaultProject, e.ID, "bash"); err != nil {
		t.Fatal(err)
	}
	e.Instance = "another"
	if status := run(); status != 200 {
		t.Errorf("in another machine: %d", status)
	}
}
