package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func TestServesAndLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, options{listen: "127.0.0.1:0", keepAlive: time.Second}, w) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var at struct {
		URL, Key string
		AdminKey string `json:"admin_key"`
		PID      int
	}
	if err := json.Unmarshal([]byte(line), &at); err != nil || at.PID != os.Getpid() {
		t.Fatalf("%s: %v", line, err)
	}
	id := call(t, at.Key, at.URL+"/v1/sandboxes", "{}", 200)
	id = id[strings.Index(id, `"sbx_`)+1:]
	id = id[:strings.Index(id, `"`)]
	out := call(t, at.Key, at.URL+"/v1/sandboxes/"+id+"/exec", `{"code": "print(6 * 7)"}`, 200)
	if !strings.Contains(out, `"data":"42"`) {
		t.Errorf("the run said %s", out)
	}
	call(t, at.AdminKey, at.URL+"/v1/gc", "{}", 200)
	call(t, at.Key, at.URL+"/v1/gc", "{}", 403)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func call(t *testing.T, key, url, body string, want int) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		t.Fatalf("%s: %d %s, %v", url, res.StatusCode, b, err)
	}
	return string(b)
}

// A key of this server is a shell on the host.
func TestListensForThisHostAlone(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "localhost:0", "nonsense"} {
		if l, err := listen(address); err == nil {
			l.Close()
			t.Errorf("it listens on %s", address)
		}
	}
}
