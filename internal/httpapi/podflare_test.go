package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// podflareScript is a session with Podflare's official client. The fake guest's
// Python keeps no state between calls, so it asks for none.
const podflareScript = `
import podflare, sys, httpx
from podflare import Sandbox, Client

c = Client()
assert c.healthz()
with Sandbox() as s:
    assert s.id.startswith("sbx_") and len(s.id) == 36, s.id
    r = s.run_code("print(6*7)")
    assert (r.stdout, r.stderr, r.exit_code) == ("42", "", 0), r
    r = s.run_code("print('a')\nprint('b\\x85\\u2028c')\nprint('d', end='')")
    assert r.stdout == "a\nb\x85\u2028c\nd", r
    r = s.run_code("import sys; sys.exit(3)")
    assert r.exit_code == 3, r
    r = s.run_code("1/0")
    assert r.exit_code == 1 and "ZeroDivisionError" in r.stderr, r
    r = s.run_code("echo $((6*7)); echo e >&2; exit 5", language="bash")
    assert (r.stdout, r.stderr, r.exit_code) == ("42", "e", 5), r
    events = list(s.run_code_stream("print(1); print(2)"))
    assert [(e.type, e.data, e.seq) for e in events] == [("stdout", "1", 0), ("stdout", "2", 1), ("exit", 0, 2)], events
    data = bytes(range(256)) * 1024
    s.upload(data, "up.bin")
    assert s.download("up.bin") == data
    big = bytes(range(256)) * 4096 * 5
    s.upload(big, "big.bin")
    assert s.download("big.bin") == big
s.close()  # again
with Sandbox() as s:
    s.upload(b"parent", "a.txt")
    children = s.fork(n=3)
    assert len({c.id for c in children} | {s.id}) == 4, children
    assert [c.run_code("print(open('a.txt').read())").stdout for c in children] == ["parent"] * 3
    children[1].upload(b"child", "a.txt")
    assert s.diff(children[1], ["."])["modified"] == ["./a.txt"]
    assert [(e.type, e.data) for e in children[0].replay()] == [("stdout", "parent"), ("exit", 0)], children[0].replay()
    s.merge_into(children[1])
    assert s.download("a.txt") == b"child"
    for c in children:
        c.close()
    try:
        s.fork(n=33)
        raise AssertionError("33 children were made")
    except httpx.HTTPStatusError as e:
        assert e.response.status_code == 400, e.response.text
with Sandbox(template="default", ram_mib=600, rootfs_gb=5, timeout_seconds=60, idle_timeout_seconds=30, persistent=True, egress=False) as s:
    assert s.run_code("print(1)").stdout == "1"
import threading, time
def until(what, cond, seconds=30):
    end = time.monotonic() + seconds
    while not cond():
        assert time.monotonic() < end, what
        time.sleep(0.02)
with Sandbox() as s:
    out, codes = [], []
    pty = s.pty.create(cmd="stty size; read x; echo got-$x; exit 3", cols=100, rows=30, on_data=out.append, on_exit=codes.append,
        env={"A": "1"}, timeout_ms=0)
    shown = lambda: b"".join(out)
    until("the size of the terminal", lambda: b"30 100" in shown())
    [info] = s.pty.list()
    assert (info.pty_id, info.cmd_label, info.exit_code) == (pty.id, "stty size; read x; echo got-$x; exit 3", None), info
    assert info.created_at_ms > 1e12
    pty.send_input("a\r")
    assert pty.wait(30) == 3 and codes == [3], codes
    until("what was typed", lambda: b"got-a" in shown())
    assert s.pty.list()[0].exit_code == 3, s.pty.list()
    again = []
    assert s.pty.attach(pty.id, on_data=again.append).wait(30) == 3
    assert b"".join(again) == shown(), again
    pty = s.pty.create(cmd=["sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done"], on_data=out.append)
    until("it is running", lambda: b"ready" in shown())
    pty.resize(cols=120, rows=50)
    until("the new size", lambda: b"50 120" in shown())
    pty.kill()
    assert pty.wait(30) == 137, pty.wait(0)
    pty = s.pty.create(cmd="cat; echo over", on_data=out.append)
    read = s._client.pty_read(s.id, pty.id, 0, timeout_ms=200)
    pty.send_input(b"hello\n")
    got, seq = b"", 0
    def reads(stop):
        global got, seq, read
        end = time.monotonic() + 30
        while not stop():
            assert time.monotonic() < end, got
            read = s._client.pty_read(s.id, pty.id, seq, timeout_ms=10_000)
            got, seq = got + __import__("base64").b64decode(read["data_b64"]), read["next_seq"]
    reads(lambda: b"hello" in got)
    assert read["exited"] is False and read["exit_code"] is None, read
    pty.send_input(b"\x04")
    reads(lambda: read["exited"])
    assert b"over" in got and read["exit_code"] == 0, (got, read)
    try:
        s.pty.create(cmd=["/no/such/program"])
        raise AssertionError("a program that does not exist was started")
    except RuntimeError as e:
        assert "pty_create failed" in str(e), e
    for call in (lambda: s._client.pty_input(s.id, "run_nope", b"x"), lambda: s._client.pty_resize(s.id, "run_nope", 1, 1),
                 lambda: s._client.pty_kill(s.id, "run_nope"), lambda: s._client.pty_read(s.id, "run_nope", 0)):
        try:
            call()
            raise AssertionError("a session that does not exist was found")
        except httpx.HTTPStatusError as e:
            assert e.response.status_code == 404 and e.response.json()["error"], e.response.text
try:
    Sandbox(template="nope")
    raise AssertionError("an unknown template was accepted")
except httpx.HTTPStatusError as e:
    assert e.response.status_code == 404, e.response.text
try:
    Sandbox(api_key="wrong")
    raise AssertionError("a wrong key was accepted")
except httpx.HTTPStatusError as e:
    assert e.response.status_code == 401 and e.response.json()["error"] == "invalid api key", e.response.text
print("all good")
`

// silentScript waits longer for output than the client waits for a byte.
const silentScript = `
from podflare import Sandbox, Client
with Sandbox(client=Client(timeout=3.0)) as s:
    r = s.run_code("import time; time.sleep(8); print('late')")
    assert (r.stdout, r.exit_code) == ("late", 0), r
    out = []
    pty = s.pty.create(cmd="sleep 8; echo late", on_data=out.append)
    assert pty.wait(30) == 0 and b"late" in b"".join(out), out
    assert len(s.fork(n=32)) == 32
print("all good")
`

// TestPodflareClient runs the official client where RAMET_TEST_PODFLARE names a
// Python that has it.
func TestPodflareClient(t *testing.T) { podflareClient(t, podflareScript, options{}) }

func TestPodflareClientWaitsForWhatIsSilent(t *testing.T) {
	podflareClient(t, silentScript, options{keepAlive: time.Second})
}

func podflareClient(t *testing.T, script string, o options) {
	python := os.Getenv("RAMET_TEST_PODFLARE")
	if python == "" {
		t.Skip("RAMET_TEST_PODFLARE names no Python with the package podflare")
	}
	e := start(t, o)
	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	cmd.Env = append(os.Environ(), "PODFLARE_HOSTD_URL="+e.url, "PODFLARE_API_URL="+e.url, // Client() reads the first, Sandbox() the second
		"PODFLARE_API_KEY="+e.key, "XDG_CACHE_HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	if script == podflareScript && e.machines.Running() != 0 {
		t.Errorf("%d machines are left", e.machines.Running())
	}
}

func TestTerminalsRefuseBadInput(t *testing.T) {
	e := start(t, options{})
	of := "/v1/sandboxes/" + e.create() + "/pty"
	e.refused(400, "invalid_argv", "POST", of, `{}`)
	e.refused(400, "two_names", "POST", of, `{"shellCmd":"ls","argv":["ls"]}`)
	e.refused(400, "invalid_env", "POST", of, `{"shellCmd":"ls","env":[["A"]]}`)
	e.refused(400, "invalid_env", "POST", of, `{"shellCmd":"ls","env":[["A=","b"]]}`)
	e.refused(400, "invalid_type", "POST", of, `{"shellCmd":"ls","env":{"A":"b"}}`)
	e.refused(400, "unknown_field", "POST", of, `{"cmd":"ls"}`)
	e.refused(400, "invalid_pty", "POST", of, `{"shellCmd":"ls","cols":-1}`)
	e.refused(400, "invalid_pty", "POST", of, `{"shellCmd":"ls","rows":100000}`)
	e.refused(400, "invalid_base64", "POST", of+"/run_x/input", `{"data_b64":"%"}`)
	e.refused(400, "invalid_pty", "POST", of+"/run_x/resize", `{}`)
	e.refused(400, "invalid_parameter", "POST", of+"/run_x/read", `{"timeout_ms":-1}`)
	e.refused(404, "not_found", "GET", of+"/run_x/attach", "")
	for _, path := range []string{"/pty", "/replay", "/pty/run_x/attach"} {
		e.refused(404, "sandbox_not_found", "GET", "/v1/sandboxes/sbx_"+strings.Repeat("0", 32)+path, "")
	}
	e.refused(405, "method_not_allowed", "DELETE", of, "")
}

func TestTerminalsEndWithTheServer(t *testing.T) {
	e := start(t, options{})
	of := "/v1/sandboxes/" + e.create() + "/pty"
	res, lines := e.openStream(t.Context(), http.MethodPost, of, `{"argv":["sleep","1000"]}`)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	var event struct{ Type, SessionID, Message string }
	line, err := lines.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &event)
	}
	if err != nil || event.Type != "pty_ready" || !strings.Contains(line, `"session_id":"run_`) {
		t.Fatalf("%q %v", line, err)
	}
	e.api.Drain()
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.Contains(string(rest), `{"type":"pty_error","message":"the server is shutting down; attach again in a moment"`) {
		t.Errorf("%q %v", rest, err)
	}
	if !strings.HasPrefix(strings.TrimSpace(string(rest)), "{") {
		t.Errorf("%q", rest)
	}
	// The program goes on: its session can be attached again.
	if _, got := e.do(http.MethodGet, of, ""); !strings.Contains(string(got), `"exit_code":null`) {
		t.Errorf("%s", got)
	}
}
