"""The control API through E2B's official Python client, sync and async.

Prints one JSON object per operation; exits with 1 when one did not do what the client's
documentation says. The server is named by E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL.
Nothing here runs in a sandbox: other programs do that.
"""

import asyncio
import datetime
import inspect
import json
import os
import sys
import time
import traceback
import urllib.error
import urllib.request
import uuid

import e2b
from e2b import AsyncSandbox, Sandbox

MARK = uuid.uuid4().hex  # finds the sandboxes of this run among others
failures = 0
alive = set()


class Skip(Exception):
    """The installed version has no such call."""


class NotYet(Exception):
    """The server says clearly that it cannot."""


class Differs(Exception):
    """It works, in another way than on E2B's own servers."""


def report(operation, result, detail=""):
    global failures
    failures += result == "failed"
    line = {"operation": operation, "group": operation.split(".")[0], "result": result, "detail": detail}
    print(json.dumps(line), flush=True)


OPERATIONS = []

# What the client raises for a sandbox that is not there: older versions have one error for all things.
NotFound = getattr(e2b, "SandboxNotFoundException", e2b.SandboxException)


def needs(has):
    """Skips an operation that the installed version has no call for."""
    if not has:
        raise Skip


def takes(f, name):
    return name in inspect.signature(f).parameters


def pause(sandbox):
    """Pauses it. Older versions have that under another name."""
    return sandbox.pause() if hasattr(sandbox, "pause") else sandbox.beta_pause()


def pauses_at_end(timeout):
    """A sandbox that is paused at its end."""
    if takes(Sandbox.create, "lifecycle"):
        return create(timeout=timeout, lifecycle={"on_timeout": "pause"})
    sandbox = Sandbox.beta_create(timeout=timeout, auto_pause=True, metadata={"run": MARK})
    alive.add(sandbox.sandbox_id)
    return sandbox


def operation(name):
    def add(f):
        OPERATIONS.append((name, f))
        return f

    return add


def run(name, f):
    try:
        asyncio.run(f()) if inspect.iscoroutinefunction(f) else f()
    except Skip:
        return
    except NotYet as e:
        report(name, "not_yet", str(e))
    except Differs as e:
        report(name, "differs", str(e))
    except BaseException as e:
        traceback.print_exc()
        report(name, "failed", f"{type(e).__name__}: {e}"[:400])
    else:
        report(name, "works")


def create(**o):
    o.setdefault("timeout", 120)
    o["metadata"] = {"run": MARK, **o.get("metadata", {})}
    sandbox = Sandbox.create(**o)
    alive.add(sandbox.sandbox_id)
    return sandbox


def kill(sandbox):
    alive.discard(sandbox.sandbox_id)
    return sandbox.kill()


def equal(got, want, what=""):
    assert got == want, f"{what} is {got!r}, not {want!r}"


def raises(kind, f, text=""):
    try:
        f()
    except kind as e:
        assert text in str(e), f"the error is {str(e)!r} and does not say {text!r}"
        return e
    raise AssertionError(f"no {kind.__name__}")


def wait(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds} s still not: {what}"
        time.sleep(0.2)


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def left(sandbox):
    return (sandbox.get_info().end_at - now()).total_seconds()


def http(path, key=None, method="GET", headers=None, base="E2B_API_URL"):
    h = {"X-API-KEY": key or os.environ["E2B_API_KEY"], **(headers or {})}
    r = urllib.request.Request(os.environ[base] + path, headers=h, method=method)
    try:
        with urllib.request.urlopen(r, timeout=30) as res:
            return res.status, res.headers, res.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


@operation("sandbox.create")
def _():
    s = create(metadata={"a": "1"}, envs={"B": "2"})
    info = s.get_info()
    equal(info.sandbox_id, s.sandbox_id, "the id")
    equal(info.template_id, "base", "the template")
    equal(str(info.state.value), "running", "the state")
    equal(info.metadata, {"run": MARK, "a": "1"}, "the metadata")
    assert info.cpu_count > 0 and info.memory_mb >= 512, info
    assert abs((info.started_at - now()).total_seconds()) < 60, info.started_at
    assert 60 < left(s) <= 120, left(s)
    assert s._envd_access_token, "no token"
    equal(s.traffic_access_token, None, "the token of traffic")
    assert s.is_running()
    assert kill(s) is True
    equal(s.is_running(), False, "is_running after kill")


@operation("sandbox.create_default_timeout")
def _():
    s = Sandbox.create(metadata={"run": MARK})
    alive.add(s.sandbox_id)
    assert 200 < left(s) <= 300, left(s)
    kill(s)


@operation("sandbox.create_bad")
def _():
    raises(e2b.SandboxException, lambda: create(template="no-such-template-" + MARK[:8]), "not found")
    raises(e2b.SandboxException, lambda: create(timeout=-5), "timeout")
    raises(e2b.SandboxException, lambda: create(timeout=10**12), "timeout")


@operation("sandbox.create_mcp")
def _():
    raises(e2b.SandboxException, lambda: Sandbox.create("base", mcp={"exa": {"apiKey": "x"}}), "not supported")
    raise NotYet("mcp is answered with a clear error")


@operation("sandbox.idempotent_create")
def _():
    if "idempotency_key" not in inspect.signature(Sandbox.create).parameters:
        raise Skip
    key = "run-" + MARK
    one, two = create(idempotency_key=key), create(idempotency_key=key)
    equal(one.sandbox_id, two.sandbox_id, "the second id")
    kill(one)


@operation("sandbox.kill")
def _():
    s = create()
    assert kill(s) is True
    assert kill(s) is False, "a second kill"
    assert Sandbox.kill("i" + "0" * 32) is False
    assert Sandbox.kill("nonsense") is False


@operation("sandbox.get_info")
def _():
    for id in ("i" + "0" * 32, "nonsense"):
        raises(NotFound, lambda: Sandbox.get_info(id))
    if not takes(Sandbox.create, "lifecycle"):
        s = create()
        assert Sandbox.get_info(s.sandbox_id).sandbox_id == s.sandbox_id
        kill(s)
        raises(NotFound, s.get_info)
        return
    s = create(lifecycle={"on_timeout": "pause", "auto_resume": True})
    info = Sandbox.get_info(s.sandbox_id)
    equal(info.lifecycle, {"on_timeout": "pause", "auto_resume": True}, "the lifecycle")
    equal(info.allow_internet_access, None, "internet access")
    kill(s)
    raises(NotFound, s.get_info)


@operation("sandbox.list")
def _():
    made = [create(metadata={"n": str(i), "odd key": "ä & b=c %41+"}) for i in range(3)]

    def ids(**o):
        limit, order = o.pop("limit", None), o.pop("order", None)
        more = {"order": order} if order else {}
        p = Sandbox.list(query=e2b.SandboxQuery(**{"metadata": {"run": MARK}, **o}), limit=limit, **more)
        pages = []
        while p.has_next:
            pages.append([x.sandbox_id for x in p.next_items()])
        return pages

    want = [s.sandbox_id for s in reversed(made)]
    equal(sum(ids(), []), want, "the list")
    equal(ids(limit=2), [want[:2], want[2:]], "the pages")
    if takes(Sandbox.list, "order"):
        equal(ids(limit=2, order="asc"), [want[::-1][:2], want[::-1][2:]], "the pages, oldest first")
    equal(sum(ids(metadata={"run": MARK, "n": "1"}), []), [made[1].sandbox_id], "those with n=1")
    equal(len(sum(ids(metadata={"run": MARK, "odd key": "ä & b=c %41+"}), [])), 3, "those with odd metadata")
    equal(sum(ids(metadata={"run": MARK, "odd key": "other"}), []), [], "those with other metadata")
    if hasattr(e2b.SandboxQuery, "template"):
        equal(len(sum(ids(template="base"), [])), 3, "those of the template")
        equal(sum(ids(template="other"), []), [], "those of another template")
    equal(sum(ids(state=[e2b.SandboxState.PAUSED]), []), [], "the paused ones")
    pause(made[0])
    equal(sum(ids(state=[e2b.SandboxState.PAUSED]), []), [made[0].sandbox_id], "the paused ones")
    equal(len(sum(ids(), [])), 3, "all of them")
    if "started_after" in e2b.SandboxQuery.__dataclass_fields__:
        equal(sum(ids(started_after=now() + datetime.timedelta(hours=1)), []), [], "those of the future")
        equal(len(sum(ids(started_after=now() - datetime.timedelta(hours=1)), [])), 3, "those of the last hour")
    for s in made:
        kill(s)
    raises(Exception, lambda: Sandbox.list(next_token="nonsense").next_items(), "nextToken")


@operation("timeout.set")
def _():
    s = create()
    s.set_timeout(600)
    assert 500 < left(s) <= 600, left(s)
    s.set_timeout(30)
    assert 0 < left(s) <= 30, left(s)
    Sandbox.set_timeout(s.sandbox_id, 60)
    assert 30 < left(s) <= 60, left(s)
    raises(e2b.SandboxException, lambda: s.set_timeout(-1), "timeout")
    kill(s)
    raises(e2b.SandboxException, lambda: s.set_timeout(10), "not found")


@operation("timeout.kills")
def _():
    s = create(timeout=2)
    wait("it is gone", lambda: not s.is_running())
    raises(NotFound, s.get_info)
    raises(NotFound, lambda: Sandbox.connect(s.sandbox_id))
    alive.discard(s.sandbox_id)


@operation("timeout.pauses")
def _():
    s = pauses_at_end(2)
    wait("it is paused", lambda: s.get_info().state.value == "paused")
    equal(s.is_running(), False, "is_running of a paused one")
    again = Sandbox.connect(s.sandbox_id, timeout=100)
    assert again.is_running()
    assert 50 < left(again) <= 100, left(again)
    kill(s)


@operation("timeout.auto_resume")
def _():
    needs(takes(Sandbox.create, "lifecycle"))
    s = create(timeout=4, lifecycle={"on_timeout": "pause", "auto_resume": True})
    wait("it is paused", lambda: s.get_info().state.value == "paused")
    assert s.files.exists("/"), "a call woke it"
    equal(s.get_info().state.value, "running", "the state after a call")
    kill(s)


@operation("pause.resume")
def _():
    s = create()
    assert pause(s) is not False
    equal(s.get_info().state.value, "paused", "the state")
    second = pause(s)
    assert second is False or not hasattr(s, "pause"), "a second pause"
    equal(s.is_running(), False, "is_running")
    equal(s.sandbox_id, Sandbox.connect(s.sandbox_id, timeout=200).sandbox_id, "the id after the resume")
    assert s.is_running(), "the old handle works on"
    assert 100 < left(s) <= 200, left(s)
    s.connect(timeout=20)
    assert left(s) > 100, "a connect with less time took time away"
    s.connect(timeout=400)
    assert left(s) > 300, "a connect with more time gave none"
    kill(s)
    raises(NotFound, lambda: pause(s))


@operation("pause.filesystem_only")
def _():
    needs(hasattr(Sandbox, "pause"))
    s = create()
    s.pause(keep_memory=False)
    equal(s.get_info().state.value, "paused", "the state")
    s.connect()
    assert s.is_running()
    kill(s)


@operation("pause.reboot")
def _():
    needs(takes(Sandbox._cls_connect, "on_resume"))
    s = create()
    s.pause()
    s.connect(on_resume="reboot")
    assert s.is_running()
    kill(s)


@operation("pause.tokens_survive")
def _():
    s = create(network={"allow_public_traffic": False})
    before = (s._envd_access_token, s.traffic_access_token)
    assert all(before), before
    pause(s)
    again = Sandbox.connect(s.sandbox_id)
    equal((again._envd_access_token, again.traffic_access_token), before, "the tokens")
    kill(s)


@operation("metrics.get")
def _():
    s = create()
    list = s.get_metrics()
    equal(len(list), 1, "the number of samples")
    m = list[0]
    assert m.cpu_count > 0 and 0 <= m.cpu_used_pct <= 100, m
    assert 0 < m.mem_used <= m.mem_total and 0 < m.disk_used <= m.disk_total, m
    past = now() - datetime.timedelta(days=2)
    equal(s.get_metrics(start=past, end=past + datetime.timedelta(days=1)), [], "the samples of the past")
    kill(s)
    raises(NotFound, s.get_metrics)
    raise Differs("one sample of now, no history; mem_cache is 0")


@operation("snapshot.create")
def _():
    needs(hasattr(Sandbox, "create_snapshot"))
    s = create(metadata={"of": "parent"})
    name = "snap-" + MARK[:8]
    one, two = s.create_snapshot(), s.create_snapshot(name=name)
    equal((one.names, two.names), ([], [name]), "the names")
    assert s.is_running()
    p = Sandbox.list_snapshots(sandbox_id=s.sandbox_id, limit=1)
    found = []
    while p.has_next:
        found += p.next_items()
    equal([x.snapshot_id for x in found], [two.snapshot_id, one.snapshot_id], "the list")
    kill(s)
    for template in (one.snapshot_id, name):
        child = create(template=template)
        assert child.is_running()
        equal(child.get_info().metadata, {"run": MARK}, "the metadata")
        kill(child)
    assert Sandbox.delete_snapshot(one.snapshot_id) is True
    assert Sandbox.delete_snapshot(one.snapshot_id) is False
    assert Sandbox.delete_snapshot(name) is True
    raises(e2b.SandboxException, lambda: create(template=one.snapshot_id), "not found")
    raises(e2b.SandboxException, lambda: Sandbox.create_snapshot(s.sandbox_id))


@operation("sandbox.fork")
def _():
    needs(hasattr(Sandbox, "fork"))
    s = create()
    children = s.fork(count=2, timeout=77)
    equal(len(children), 2, "the number of children")
    for c in children:
        alive.add(c.sandbox_id)
        assert c.is_running() and c.sandbox_id != s.sandbox_id
        assert c._envd_access_token != s._envd_access_token, "a child has its parent's token"
        assert 30 < left(c) <= 77, left(c)
        kill(c)
    assert s.is_running()
    kill(s)
    raises(NotFound, lambda: Sandbox.fork(s.sandbox_id))


@operation("network.create")
def _():
    s = create(network={"allow_out": ["example.com", "203.0.113.0/24"], "deny_out": [e2b.ALL_TRAFFIC]})
    needs(hasattr(s.get_info(), "network"))
    n = s.get_info().network
    equal(n["allow_out"], ["example.com", "203.0.113.0/24"], "allow_out")
    equal(n["deny_out"], ["0.0.0.0/0"], "deny_out")
    kill(s)
    s = create(allow_internet_access=False)
    equal(s.get_info().allow_internet_access, False, "internet access")
    kill(s)


@operation("network.update")
def _():
    needs(hasattr(Sandbox, "update_network"))
    s = create()
    s.update_network({"allow_out": ["example.com"], "deny_out": [e2b.ALL_TRAFFIC]})
    equal(s.get_info().network["allow_out"], ["example.com"], "allow_out")
    s.update_network({"deny_out": ["198.51.100.7"]})
    n = s.get_info().network
    equal((n.get("allow_out", []), n["deny_out"]), ([], ["198.51.100.7"]), "the lists")
    s.update_network({"allow_internet_access": False})
    equal(s.get_info().allow_internet_access, False, "internet access")
    s.update_network({})
    equal(s.get_info().allow_internet_access, None, "internet access")
    raises(e2b.SandboxException, lambda: s.update_network({"deny_out": ["not a rule"]}))
    kill(s)
    raises(e2b.SandboxException, lambda: s.update_network({}), "not found")


@operation("network.transforms")
def _():
    needs(hasattr(Sandbox, "update_network"))
    s = create()
    rules = {"example.com": [{"transform": {"headers": {"X-A": "b"}}}]}
    raises(e2b.SandboxException, lambda: s.update_network({"allow_out": ["example.com"], "rules": rules}), "not supported")
    kill(s)
    raise NotYet("rules that change headers are answered with a clear error")


@operation("network.private_ports")
def _():
    s = create(network={"allow_public_traffic": False})
    assert s.traffic_access_token, "no token"
    headers = {"E2b-Sandbox-Id": s.sandbox_id, "E2b-Sandbox-Port": "8123"}
    equal(http("/", headers=headers, base="E2B_SANDBOX_URL")[0], 403, "the status without the token")
    kill(s)
    status, _, body = http("/", headers=headers, base="E2B_SANDBOX_URL")
    equal((status, json.loads(body)), (502, {"sandboxId": s.sandbox_id, "message": "The sandbox was not found", "code": 502}), "the answer of a gone one")


@operation("auth.bad_key")
def _():
    more = {"validate_api_key": False} if takes(e2b.ConnectionConfig.__init__, "validate_api_key") else {}
    for key in ("e2b_" + "0" * 40, "other"):
        raises(e2b.AuthenticationException, lambda: Sandbox.list(api_key=key, **more).next_items())
        raises(e2b.AuthenticationException, lambda: Sandbox.create(api_key=key, **more))
    status, _, body = http("/sandboxes", key="e2b_00")
    equal((status, json.loads(body)["code"]), (401, 401), "the answer")


@operation("auth.bearer")
def _():
    r = urllib.request.Request(os.environ["E2B_API_URL"] + "/teams", headers={"Authorization": "Bearer " + os.environ["E2B_API_KEY"]})
    with urllib.request.urlopen(r, timeout=30) as res:
        assert len(json.loads(res.read())) == 1


@operation("logs.get")
def _():
    s = create()
    for path in (f"/sandboxes/{s.sandbox_id}/logs", f"/v2/sandboxes/{s.sandbox_id}/logs?limit=10&direction=backward"):
        status, _, body = http(path)
        logs = json.loads(body)["logs"]
        assert status == 200 and logs, (status, logs)
    kill(s)
    raise Differs("the events of the sandbox's life, not what runs in it")


@operation("template.exists")
def _():
    if not hasattr(e2b.Template, "exists"):
        raise Skip
    assert e2b.Template.exists("base") is True
    assert e2b.Template.exists("no-such-" + MARK[:8]) is False


@operation("template.build")
def _():
    t = e2b.Template().from_base_image() if hasattr(e2b.Template, "from_base_image") else e2b.Template().from_image("debian")
    raises(Exception, lambda: e2b.Template.build(t, alias="x-" + MARK[:8]), "not supported")
    raise NotYet("a clear error")


@operation("volume.create")
def _():
    needs(hasattr(e2b, "Volume"))
    raises(Exception, lambda: e2b.Volume.create("v" + MARK[:8]), "not supported")
    raise NotYet("a clear error")


@operation("secret.create")
def _():
    needs(hasattr(e2b, "Secret") and hasattr(e2b.Secret, "create"))
    names = inspect.signature(e2b.Secret.create).parameters
    o = {k: v for k, v in {"name": "s", "value": "v"}.items() if k in names}
    try:
        e2b.Secret.create(**o)
    except TypeError:
        raise Skip
    except Exception as e:
        assert "not supported" in str(e), e
        raise NotYet("a clear error")
    raise AssertionError("no error")


@operation("async.sandbox")
async def _():
    s = await AsyncSandbox.create(timeout=60, metadata={"run": MARK, "async": "1"})
    alive.add(s.sandbox_id)
    assert await s.is_running()
    p = AsyncSandbox.list(query=e2b.SandboxQuery(metadata={"run": MARK, "async": "1"}))
    equal([x.sandbox_id for x in await p.next_items()], [s.sandbox_id], "the list")
    await s.set_timeout(100)
    info = await s.get_info()
    assert (info.end_at - now()).total_seconds() > 60
    await (s.pause() if hasattr(s, "pause") else s.beta_pause())
    equal(await s.is_running(), False, "is_running of a paused one")
    again = await AsyncSandbox.connect(s.sandbox_id)
    assert await again.is_running()
    assert await s.kill() is True
    alive.discard(s.sandbox_id)


if __name__ == "__main__":
    only = sys.argv[1:]
    try:
        for name, f in OPERATIONS:
            if not only or name in only or name.split(".")[0] in only:
                run(name, f)
    finally:
        for id in alive:
            Sandbox.kill(id)
    # Not sys.exit: threads of the client's transport can abort the interpreter as it shuts down,
    # after all has been said.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if failures else 0)
