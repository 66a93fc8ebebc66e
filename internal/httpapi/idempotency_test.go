package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
)

func TestRepetitionMakesNothingAgain(t *testing.T) {
	e := start(t, options{})
	body := `{"metadata":{"job":"1"}}`
	res1, first := e.do("POST", "/v1/sandboxes", body, "Idempotency-Key", "job 1")
	res2, second := e.do("POST", "/v1/sandboxes", body, "Idempotency-Key", "job 1")
	if res1.StatusCode != 200 || !bytes.Equal(first, second) || res2.StatusCode != 200 {
		t.Fatalf("%d %s\n%d %s", res1.StatusCode, first, res2.StatusCode, second)
	}
	if res1.Header.Get("Idempotent-Replayed") != "" || res2.Header.Get("Idempotent-Replayed") != "true" ||
		res2.Header.Get("Server-Timing") != res1.Header.Get("Server-Timing") || res2.Header.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v\n%v", res1.Header, res2.Header)
	}
	if res, b := e.do("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "job 1"); res.StatusCode != 409 || !strings.Contains(string(b), "idempotency_key_reused") {
		t.Errorf("another body: %d %s", res.StatusCode, b)
	}
	if res, b := e.do("POST", "/v1/keys", body, "Idempotency-Key", "job 1"); res.StatusCode != 409 {
		t.Errorf("another path: %d %s", res.StatusCode, b)
	}
	if res, b := e.do("POST", "/v1/sandboxes", body, "Idempotency-Key", "job 2"); res.StatusCode != 200 || bytes.Equal(b, first) {
		t.Errorf("another key: %d %s", res.StatusCode, b)
	}
	if res, b := e.do("POST", "/v1/sandboxes", body, "Idempotency-Key", strings.Repeat("x", 256)); res.StatusCode != 400 || !strings.Contains(string(b), "invalid_idempotency_key") {
		t.Errorf("long key: %d %s", res.StatusCode, b)
	}
	if e.machines.Running() != 2 {
		t.Errorf("%d machines", e.machines.Running())
	}
	// Another caller's keys are another's.
	mine := e.key
	e.adminKey()
	if res, b := e.do("POST", "/v1/sandboxes", body, "Idempotency-Key", "job 1"); res.StatusCode != 200 || bytes.Equal(b, first) {
		t.Errorf("another caller: %d %s", res.StatusCode, b)
	}
	e.key = mine

	// Answers hold secrets: a key's is not readable in the database.
	_, k1 := e.do("POST", "/v1/keys", `{"name":"ci"}`, "Idempotency-Key", "key 1")
	_, k2 := e.do("POST", "/v1/keys", `{"name":"ci"}`, "Idempotency-Key", "key 1")
	if !bytes.Equal(k1, k2) || !bytes.Contains(k1, []byte(`"key":"rmt_`)) {
		t.Fatalf("%s %s", k1, k2)
	}
	_, rest, _ := strings.Cut(string(k1), `"key":"rmt_`)
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(e.dbPath + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(rest[20:40])) {
			t.Errorf("the secret is in ramet.db%s", suffix)
		}
	}
}

func TestFailedCallsAreMadeAgain(t *testing.T) {
	e := start(t, options{})
	fail := true
	e.machines.OnStart = func(context.Context, control.StartRequest) error {
		if fail {
			return errors.New("not now")
		}
		return nil
	}
	if res, b := e.do("POST", "/v1/sandboxes", "", "Idempotency-Key", "k"); res.StatusCode != 500 {
		t.Fatalf("%d %s", res.StatusCode, b)
	}
	fail = false
	if res, b := e.do("POST", "/v1/sandboxes", "", "Idempotency-Key", "k"); res.StatusCode != 200 || res.Header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("%d %s", res.StatusCode, b)
	}
}

func TestConcurrentRepetitionsWaitForTheFirst(t *testing.T) {
	e := start(t, options{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for range 20 {
		wg.Go(func() {
			res, b := e.do("POST", "/v1/sandboxes", `{"env":{"A":"1"}}`, "Idempotency-Key", "same")
			mu.Lock()
			defer mu.Unlock()
			if res.StatusCode != 200 {
				t.Errorf("%d %s", res.StatusCode, b)
			}
			answers[string(b)]++
		})
	}
	wg.Wait()
	if len(answers) != 1 || e.machines.Running() != 1 {
		t.Errorf("%d answers, %d machines", len(answers), e.machines.Running())
	}
}

// TestCreateIsFoundWhenItsAnswerWasNotKept is a server that ended between the
// create and the keeping of its answer.
func TestCreateIsFoundWhenItsAnswerWasNotKept(t *testing.T) {
	e := start(t, options{})
	_, first := e.do("POST", "/v1/sandboxes", "", "Idempotency-Key", "k")
	if err := e.store.Purge(t.Context(), zero, zero, future); err != nil {
		t.Fatal(err)
	}
	res, second := e.do("POST", "/v1/sandboxes", "", "Idempotency-Key", "k")
	if res.StatusCode != 200 || string(first[:45]) != string(second[:45]) {
		t.Fatalf("%s %s", first, second)
	}
	if e.machines.Running() != 1 {
		t.Errorf("%d machines", e.machines.Running())
	}
}

var (
	zero   = time.Unix(0, 0)
	future = time.Now().Add(time.Hour)
)

func TestDetachedProgramsStartOnce(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	path, body := "/v1/sandboxes/"+id+"/processes", `{"argv":["sh","-c","echo hello"],"detach":true}`
	res1, first := e.do("POST", path, body, "Idempotency-Key", "p")
	res2, second := e.do("POST", path, body, "Idempotency-Key", "p")
	if res1.StatusCode != 200 || res2.Header.Get("Idempotent-Replayed") != "true" || res1.Header.Get("X-Run-Id") != res2.Header.Get("X-Run-Id") {
		t.Fatalf("%d %s\n%d %s", res1.StatusCode, first, res2.StatusCode, second)
	}
	if b := brief(events(t, second)); b != brief(events(t, first)) || !strings.Contains(b, "hello") {
		t.Errorf("%s\n%s", first, second)
	}
	if _, list := e.do("GET", path, ""); strings.Count(string(list), `"process"`) != 1 {
		t.Errorf("%s", list)
	}
	if res, b := e.do("POST", path, `{"argv":["true"],"detach":true}`, "Idempotency-Key", "p"); res.StatusCode != 409 {
		t.Errorf("another program: %d %s", res.StatusCode, b)
	}
}
