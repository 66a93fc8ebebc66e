package httpapi_test

import (
	"os"
	"os/exec"
	"testing"
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

// TestPodflareClient runs the official client where RAMET_TEST_PODFLARE names a
// Python that has it.
func TestPodflareClient(t *testing.T) {
	python := os.Getenv("RAMET_TEST_PODFLARE")
	if python == "" {
		t.Skip("RAMET_TEST_PODFLARE names no Python with the package podflare")
	}
	e := start(t, options{})
	cmd := exec.CommandContext(t.Context(), python, "-c", podflareScript)
	cmd.Env = append(os.Environ(), "PODFLARE_HOSTD_URL="+e.url, "PODFLARE_API_URL="+e.url, // Client() reads the first, Sandbox() the second
		"PODFLARE_API_KEY="+e.key, "XDG_CACHE_HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	if e.machines.Running() != 0 {
		t.Errorf("%d machines are left", e.machines.Running())
	}
}
