"""Creating, finding and ending sandboxes; keys, regions, errors."""

import os
import re
import subprocess
import sys
import uuid

import httpx
from check import URL, Differs, has, main, native, operation, raises, same, until

import podflare
from podflare import Client, Sandbox

GROUP = "Sandboxes"


def status(id):
    return native("GET", "/v1/sandboxes/" + id)["status"]


@operation(GROUP, "Client().healthz()")
def healthz():
    same(Client().healthz(), True)


@operation(GROUP, "PODFLARE_HOSTD_URL")
def hostd_url():
    same(Client().host, URL)
    s = Sandbox(api_key=os.environ["PODFLARE_API_KEY"])
    same(s._client.host, URL)
    s.close()
    return "read by `Client()` and by `Sandbox(api_key=…)` or `Sandbox(traceparent=…)`"


@operation(GROUP, "PODFLARE_API_URL")
def api_url():
    s = Sandbox()
    same(s._client.host, URL)
    s.close()
    # In a process that has only the other variable the package calls the service.
    env = {k: v for k, v in os.environ.items() if k != "PODFLARE_API_URL"}
    code = "import podflare.sandbox as s; print(s._get_default_client(None).host)"
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60).stdout
    same(out.strip(), "https://api.podflare.ai")
    return "what `Sandbox()` reads: set both variables"


@operation(GROUP, "Sandbox(), .id, .close()")
def create():
    s = Sandbox()
    if not re.fullmatch(r"sbx_[0-9a-f]{32}", s.id):
        raise AssertionError(s.id)
    same(status(s.id), "running")
    s.close()
    same(status(s.id), "stopped")


@operation(GROUP, "close() twice")
def close_twice():
    s = Sandbox()
    s.close()
    s.close()


@operation(GROUP, "with Sandbox() as s, also after an exception")
def context_manager():
    try:
        with Sandbox() as s:
            raise KeyError("mine")
    except KeyError:
        pass
    same(status(s.id), "stopped")


@operation(GROUP, "Sandbox(client=Client()), close_default_client()")
def clients():
    c = Client(api_key=os.environ["PODFLARE_API_KEY"])
    with Sandbox(client=c) as a, Sandbox(client=c) as b:
        same(a.run_code("print(1)").stdout, "1")
        same(b.run_code("print(2)").stdout, "2")
    c.close()
    podflare.close_default_client()
    with Sandbox() as s:
        same(s.run_code("print(3)").stdout, "3")


@operation(GROUP, "Client().create_sandbox(), destroy_sandbox()")
def low_level():
    c = Client()
    id = c.create_sandbox()
    c.destroy_sandbox(id)
    same(status(id), "stopped")
    info = c.create_sandbox_info()
    same((info["state"], info["region"]), ("ready", "local"))
    c.destroy_sandbox(info["id"])


@operation(GROUP, "template")
def template():
    with Sandbox(template="default") as s:
        same(native("GET", "/v1/sandboxes/" + s.id)["template"], "default")
    with raises(httpx.HTTPStatusError, 404):
        Sandbox(template="no-such-template")


@operation(GROUP, "ram_mib, rootfs_gb")
def sizes():
    with Sandbox(ram_mib=2000, rootfs_gb=6) as s:
        mb = int(s.run_code("free -m | awk '/^Mem:/ {print $2}'", language="bash").stdout)
        gb = int(s.run_code("df --output=size -BM / | tail -1 | tr -dc 0-9", language="bash").stdout) / 1024
        if not (1700 < mb <= 2048 and 5 < gb <= 6):
            raise AssertionError((mb, gb))
    with raises(httpx.HTTPStatusError, 400):
        Sandbox(ram_mib=1 << 20)
    raise Differs("more than there can be is refused with 400, not lowered; `ram_mib` is rounded up to a step of 128")


@operation(GROUP, "egress=False")
def no_egress():
    with Sandbox(egress=False) as s:
        r = s.run_code("import socket\ntry:\n    socket.create_connection(('192.0.2.1', 80), 3); print('open')\nexcept OSError: print('closed')")
        same(r.stdout, "closed")
        [child] = s.fork(1)
        same(native("GET", "/v1/sandboxes/" + child.id)["egress"], False, "egress of the child")
        child.close()
    with Sandbox() as s:
        same(native("GET", "/v1/sandboxes/" + s.id)["egress"], True, "egress by default")


@operation(GROUP, "timeout_seconds")
def lifetime():
    with Sandbox(timeout_seconds=4) as s:
        until("its lifetime is over", lambda: status(s.id) == "stopped")
        with raises(httpx.HTTPStatusError, 404):
            s.run_code("print(1)")
    return "without it a sandbox lives on; there are no tiers that cap it"


@operation(GROUP, "idle_timeout_seconds")
def idle():
    with Sandbox(idle_timeout_seconds=3) as s:
        # A call that is longer is no idleness.
        same(s.run_code("import time; time.sleep(6); print(1)").stdout, "1")
        until("it was idle", lambda: status(s.id) == "stopped")
        with raises(httpx.HTTPStatusError, 404):
            s.run_code("print(1)")


@operation(GROUP, "no idle_timeout_seconds")
def default_idle():
    with Sandbox() as s:
        same(native("GET", "/v1/sandboxes/" + s.id)["on_idle"], "hibernate")
    raise Differs("after 300 s without a call it hibernates, where the service destroys it: the next call wakes it")


@operation(GROUP, "region of this server")
def region():
    with Sandbox(region="local") as s:
        same(s._client.host, URL + "/r/local")
        same(s.run_code("print(1)").stdout, "1")
        [child] = s.fork(1)
        child.close()
    raise Differs("`local`, or what the setting `region` says; the names that the package knows (`us-west`, `us-central`, `us-east`, `eu`, `sg`) "
                  "and their aliases never reach another server than Podflare's: it has their addresses in it")


@operation(GROUP, "unknown region")
def unknown_region():
    with raises(httpx.HTTPStatusError, 404) as seen:
        Sandbox(region="mars")
    has(seen[0].response.json()["error"], "mars")


@operation(GROUP, "wrong key, no key")
def keys():
    with raises(httpx.HTTPStatusError, 401) as seen:
        Sandbox(api_key="pf_live_wrong")
    same(seen[0].response.json()["error"], "invalid api key")
    r = httpx.post(URL + "/v1/sandboxes", json={})
    same((r.status_code, r.json()["error"]), (401, "missing Authorization: Bearer <key>"))


@operation(GROUP, "traceparent")
def traceparent():
    trace = uuid.uuid4().hex
    with Sandbox(traceparent=f"00-{trace}-00f067aa0ba902b7-01") as s:
        s.run_code("print(1)")
    with open(os.environ["RAMET_HOME"] + "/server.log") as f:
        lines = [line for line in f if trace in line]
    if not (any("/exec" in line for line in lines) and len(lines) >= 3):
        raise AssertionError(lines)


@operation(GROUP, "calls of a sandbox that is gone")
def gone():
    s = Sandbox()
    s.close()
    for call in (lambda: s.run_code("1"), lambda: s.fork(1), lambda: s.pty.list()):
        with raises(httpx.HTTPStatusError, 404) as seen:
            call()
        # The body of a stream that was refused is not read yet.
    same(seen[0].response.json()["error"], "sandbox not found")


main()
