package envd_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	envdv1 "ramet.dev/ramet/api/envd/v1"
	"ramet.dev/ramet/api/envd/v1/envdv1connect"
	"ramet.dev/ramet/internal/compat/e2b/e2btest"
)

// patience is how long a test waits for what should happen at once.
const patience = 30 * time.Second

type env struct {
	*e2btest.Env
	t *testing.T
}

func start(t *testing.T) *env { return &env{e2btest.Start(t), t} }

// header adds what routes a request to envd.
type header map[string]string

func (h header) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("E2b-Sandbox-Port", "49983")
	for k, v := range h {
		if v != "" {
			r.Header.Set(k, v)
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

func (e *env) http(h header) *http.Client { return &http.Client{Transport: h} }

func (e *env) process(h header) envdv1connect.ProcessClient {
	return envdv1connect.NewProcessClient(e.http(withToken(h)), e.URL, connect.WithProtoJSON())
}

func (e *env) files(h header) envdv1connect.FilesystemClient {
	return envdv1connect.NewFilesystemClient(e.http(withToken(h)), e.URL, connect.WithProtoJSON())
}

func withToken(h header) header {
	out := header{"X-Access-Token": e2btest.Token}
	for k, v := range h {
		out[k] = v
	}
	return out
}

// do makes a raw request with the token.
func (e *env) do(method, path, body string, h header) (*http.Response, string) {
	e.t.Helper()
	return e.raw(method, path, body, withToken(h))
}

// raw makes a raw request.
func (e *env) raw(method, path, body string, h header) (*http.Response, string) {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.URL+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "identity") // else the transport adds and undoes gzip
	res, err := e.http(h).Do(r)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res, string(b)
}

// message reads the body of an error.
func message(t *testing.T, body string) (code int, text string) {
	t.Helper()
	var m struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	return m.Code, m.Message
}

// bash is a command as clients start it, but not in a login shell: what this machine's profile does
// is nothing for a test to depend on.
func bash(code string) *envdv1.StartRequest {
	off := false
	return &envdv1.StartRequest{Process: &envdv1.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", code}}, Stdin: &off}
}

// outcome is what a process did.
type outcome struct {
	pid    uint32
	stdout string
	stderr string
	end    *envdv1.ProcessEvent_EndEvent
	alive  int // keep-alives
	err    error
}

// follow reads a stream to its end.
func follow(stream *connect.ServerStreamForClient[envdv1.StartResponse]) outcome {
	var o outcome
	for stream.Receive() {
		o.take(stream.Msg().GetEvent())
	}
	o.err = stream.Err()
	return o
}

func (o *outcome) take(e *envdv1.ProcessEvent) {
	switch {
	case e.GetStart() != nil:
		o.pid = e.GetStart().Pid
	case e.GetData() != nil:
		o.stdout += string(e.GetData().GetStdout())
		o.stderr += string(e.GetData().GetStderr())
	case e.GetEnd() != nil:
		o.end = e.GetEnd()
	case e.GetKeepalive() != nil:
		o.alive++
	}
}

// run runs a process to its end.
func (e *env) run(req *envdv1.StartRequest, h header) outcome {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	stream, err := e.process(h).Start(ctx, req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer stream.Close()
	return follow(stream)
}

// begin starts a process and returns when it runs.
func (e *env) begin(ctx context.Context, req *envdv1.StartRequest, h header) (*connect.ServerStreamForClient[envdv1.StartResponse], uint32) {
	e.t.Helper()
	stream, err := e.process(h).Start(ctx, req)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { stream.Close() })
	if !stream.Receive() {
		e.t.Fatalf("no start event: %v", stream.Err())
	}
	s := stream.Msg().GetEvent().GetStart()
	if s == nil {
		e.t.Fatalf("the first event is %v", stream.Msg())
	}
	return stream, s.Pid
}

func byPid(pid uint32) *envdv1.ProcessSelector {
	return &envdv1.ProcessSelector{Selector: &envdv1.ProcessSelector_Pid{Pid: pid}}
}

// waitFor waits until cond holds.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("after %s still not: %s", patience, what)
		}
	}
}

func listing(path string) *envdv1.ListDirRequest { return &envdv1.ListDirRequest{Path: path} }
