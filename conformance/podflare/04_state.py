"""Forks, merges and Spaces."""

import time

import httpx
from check import Differs, has, main, native, operation, raises, same, until

from podflare import Client, Sandbox

GROUP = "State"


@operation(GROUP, "fork(n)")
def fork():
    with Sandbox() as s:
        s.run_code("x = 1; f = open('/tmp/f', 'w'); f.write('parent'); f.flush()")
        children = s.fork(n=3)
        same(len({c.id for c in children} | {s.id}), 4)
        for i, c in enumerate(children):
            same(c.run_code("print(x, open('/tmp/f').read())").stdout, "1 parent")
            c.run_code(f"x = {i + 10}; f.write(str(x)); f.flush()")
        same([c.run_code("print(x, open('/tmp/f').read())").stdout for c in [s, *children]], ["1 parent", "10 parent10", "11 parent11", "12 parent12"])
        [grandchild] = children[0].fork()
        same(grandchild.run_code("print(x)").stdout, "10")
        draws = {c.run_code("import random, os; print(random.random(), os.urandom(8))").stdout for c in [s, *children, grandchild]}
        same(len(draws), 5, "random numbers of their own")
        for c in [grandchild, *children]:
            c.close()
        same(s.run_code("print(x)").stdout, "1", "the parent afterwards")


@operation(GROUP, "fork(32)")
def fork_many():
    with Sandbox(ram_mib=512) as s:
        s.run_code("x = 7")
        begin = time.monotonic()
        children = s.fork(n=32)
        took = time.monotonic() - begin
        same(len({c.id for c in children}), 32)
        try:
            same(children[0].run_code("print(x)").stdout, "7")
            same(children[31].run_code("print(x)").stdout, "7")
        finally:
            for c in children:
                c.close()
        if took > 60:
            raise AssertionError(f"{took:.0f} s, and the package waits 60")
    return "the host must have room: `memory_overcommit`"


@operation(GROUP, "fork(0), fork(33)")
def fork_bounds():
    with Sandbox() as s:
        with raises(ValueError):
            s.fork(0)
        with raises(httpx.HTTPStatusError, 400):
            s.fork(33)
    with raises(httpx.HTTPStatusError, 404):
        s.fork(1)


@operation(GROUP, "fork of a sandbox with a size of its own")
def fork_sized():
    with Sandbox(ram_mib=600, rootfs_gb=5) as s:
        [c] = s.fork(1)
        same(c.run_code("print(1)").stdout, "1")
        c.close()


@operation(GROUP, "merge_into(winner)")
def merge():
    with Sandbox() as s:
        s.run_code("x = 'parent'")
        a, b = s.fork(2)
        b.run_code("x = 'winner'; open('/tmp/w', 'w').write(x)")
        id = s.id
        s.merge_into(b)
        same((s.id, s.run_code("print(x, open('/tmp/w').read())").stdout), (id, "winner winner"))
        b.close()  # does nothing
        same(s.run_code("print(x)").stdout, "winner", "after the winner's close()")
        same(a.run_code("print(x)").stdout, "parent", "its sibling")
        with raises(httpx.HTTPStatusError, 404):
            s.merge_into(b)
        with raises(ValueError):
            s.merge_into(s)
        with raises(httpx.HTTPStatusError, 400):
            Client().merge_into(s.id, s.id)
        a.close()


def space_of(s):
    """The Space that a sandbox becomes."""
    return until("it is a Space", lambda: next((x["id"] for x in native("GET", "/v1/spaces")["spaces"] if x["sandbox"] == s.id), None))


@operation(GROUP, "persistent=True: frozen when idle")
def freeze():
    s = Sandbox(persistent=True, idle_timeout_seconds=2)
    space = space_of(s)
    with raises(httpx.HTTPStatusError, 404):
        s.run_code("print(1)")
    Client().delete_space(space)
    with raises(httpx.HTTPStatusError, 404):
        Sandbox.resume(space)
    raise Differs("there is no webhook that tells the id of the Space: `GET /v1/spaces` lists them, and the event `space_made` has it")


@operation(GROUP, "Sandbox.resume(space)")
def resume():
    s = Sandbox(persistent=True, idle_timeout_seconds=2, egress=False)
    s.run_code("x = 99")
    s.upload(b"kept", "/tmp/kept")
    space = space_of(s)
    r = Sandbox.resume(space, idle_timeout_seconds=600, timeout_seconds=900, egress=True)
    if r.id == s.id:
        raise AssertionError("it has the old id")
    same((r.run_code("print(x)").stdout, r.download("/tmp/kept")), ("99", b"kept"))
    settings = native("GET", "/v1/sandboxes/" + r.id)
    same([settings[k] for k in ("idle_timeout_s", "max_lifetime_s", "egress")], [600, 900, True])
    with raises(httpx.HTTPStatusError, 404):
        Sandbox.resume(space)  # it is consumed
    same(settings["on_idle"], "space")
    r.close()
    raise Differs("the resumed sandbox is persistent again unless `persistent=False` is given, so that nothing is lost")


@operation(GROUP, "Sandbox.resume(space, persistent=…)")
def resume_again():
    s = Sandbox(persistent=True, idle_timeout_seconds=1)
    first = space_of(s)
    again = Sandbox.resume(first, persistent=True, idle_timeout_seconds=1)
    second = space_of(again)
    if first == second:
        raise AssertionError("the id is the old one")
    last = Sandbox.resume(second, persistent=False, idle_timeout_seconds=1)
    until("it was deleted", lambda: native("GET", "/v1/sandboxes/" + last.id)["status"] == "stopped")
    same([x for x in native("GET", "/v1/spaces")["spaces"] if x["sandbox"] == last.id], [])


@operation(GROUP, "delete_space() of none")
def delete_none():
    with raises(httpx.HTTPStatusError, 404) as seen:
        Client().delete_space("spc_" + "0" * 32)
    has(seen[0].response.json()["error"], "space not found")


main()
