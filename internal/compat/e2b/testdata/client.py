"""Exercises the surfaces inside a sandbox with E2B's official client, on fake machines."""

import asyncio
import inspect
import io
import sys
import time

import e2b
from e2b_code_interpreter import AsyncSandbox, Sandbox


async def val(x):
    return await x if inspect.isawaitable(x) else x


async def raised(kind, f):
    try:
        await val(f())
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


async def commands(s):
    out = []
    r = await val(s.commands.run("echo $A; echo err >&2", envs={"A": "x \u2603"}, on_stdout=out.append))
    assert (r.stdout, r.stderr, r.exit_code, "".join(out)) == ("x \u2603\n", "err\n", 0, "x \u2603\n"), r
    e = await raised(e2b.CommandExitException, lambda: s.commands.run("exit 3"))
    assert e.exit_code == 3 and e.error == "exit status 3", e
    await raised(e2b.TimeoutException, lambda: s.commands.run("sleep 60", timeout=1))
    h = await val(s.commands.run("read l; echo got $l", background=True, stdin=True))
    assert h.pid in [p.pid for p in await val(s.commands.list())]
    await val(h.disconnect())
    again = await val(s.commands.connect(h.pid))
    await val(s.commands.send_stdin(h.pid, "it\n"))
    assert (await val(again.wait())).stdout == "got it\n"
    h = await val(s.commands.run("sleep 60", background=True))
    assert await val(s.commands.kill(h.pid)) is True
    assert await val(s.commands.kill(h.pid)) is False
    h = await val(s.commands.run("cat", background=True, stdin=True))
    await val(s.commands.send_stdin(h.pid, "all"))
    await val(s.commands.close_stdin(h.pid))
    assert (await val(h.wait())).stdout == "all"
    await raised(e2b.NotFoundException, lambda: s.commands.connect(3999999))


async def files(s):
    info = await val(s.files.write("/w/a b/\u00fc.txt", "text"))
    assert (info.path, info.name) == ("/w/a b/\u00fc.txt", "\u00fc.txt"), info
    assert await val(s.files.read("/w/a b/\u00fc.txt")) == "text"
    await val(s.files.write("/w/gz", "z" * 100000, gzip=True))
    assert await val(s.files.read("/w/gz", gzip=True)) == "z" * 100000
    await val(s.files.write("/w/stream", io.BytesIO(bytes(range(256)))))
    assert bytes(await val(s.files.read("/w/stream", format="bytes"))) == bytes(range(256))
    several = await val(s.files.write_files([{"path": f"/w/s/{i}", "data": str(i)} for i in range(3)]))
    assert [f.path for f in several] == ["/w/s/0", "/w/s/1", "/w/s/2"]
    assert [e.name for e in await val(s.files.list("/w/s"))] == ["0", "1", "2"]
    assert len(await val(s.files.list("/w", depth=2))) > 5
    assert await val(s.files.exists("/w/gz")) and not await val(s.files.exists("/w/none"))
    assert (await val(s.files.get_info("/w/gz"))).permissions == "-rw-r--r--"
    assert await val(s.files.make_dir("/w/d")) is True and await val(s.files.make_dir("/w/d")) is False
    assert (await val(s.files.rename("/w/gz", "/w/d/gz"))).path == "/w/d/gz"
    await val(s.files.remove("/w/d"))
    e = await raised(e2b.FileNotFoundException, lambda: s.files.read("/none"))
    assert "/none" in str(e)
    await raised(e2b.InvalidArgumentException, lambda: s.files.read("/w"))
    await watch(s)


async def watch(s):
    seen = []
    if isinstance(s, AsyncSandbox):
        w = await s.files.watch_dir("/w", on_event=seen.append, recursive=True)
        look = list
    else:
        w = s.files.watch_dir("/w", recursive=True)
        look = w.get_new_events
    await val(s.files.write("/w/new/file", "x"))
    end = time.monotonic() + 30
    while not any(e.name == "new/file" for e in seen):
        seen += look()
        assert time.monotonic() < end, seen
        await asyncio.sleep(0.05)
    await val(w.stop())


async def code(s):
    e = await val(s.run_code("print('h\u00e9 \u2028')"))
    assert ("".join(e.logs.stdout), e.execution_count) == ("h\u00e9 \u2028\n", 1), e
    e = await val(s.run_code("import os; print(os.environ['A'])", envs={"A": "b"}))
    assert "".join(e.logs.stdout) == "b\n", e
    await raised(e2b.NotFoundException, lambda: s.run_code("1", context="nothere" and type("C", (), {"id": "nothere"})()))
    await raised(e2b.TimeoutException, lambda: s.run_code("import time; time.sleep(60)", timeout=1))
    assert {"python", "javascript"} <= {c.language for c in await val(s.list_code_contexts())}


async def main():
    for kind in (Sandbox, AsyncSandbox):
        s = await val(kind.create("base", envs={"HOME": "/nonexistent"}))
        assert await val(s.is_running())
        for part in (commands, files, code):
            await part(s)
        await val(s.kill())
        assert not await val(s.is_running())


asyncio.run(main())
print("all is well", file=sys.stdout)
