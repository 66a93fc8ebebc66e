from __future__ import annotations

from typing import List

import pytest

from ramet import AsyncRamet, AsyncSandbox, CommandError, Exit, InvalidRequestError, NotFoundError, Stderr, Stdout
from wire import Proxy

from .tools import collect

pytestmark = pytest.mark.anyio


async def test_run(sb: AsyncSandbox) -> None:
    out: List[str] = []
    r = await sb.commands.run("echo out; echo err >&2; exit 3", on_stdout=out.append)
    assert (r.stdout, r.stderr, r.exit_code, r.ok, r.reason) == ("out\n", "err\n", 3, False, None)
    assert out == ["out\n"]
    with pytest.raises(CommandError, match="exit code 3: err") as caught:
        await sb.commands.run("echo err >&2; exit 3", check=True)
    assert caught.value.result.exit_code == 3


async def test_a_list_is_a_program_with_arguments(sb: AsyncSandbox) -> None:
    r = await sb.commands.run(["printf", "%s|", "a b", "$HOME", ""])
    assert r.stdout == "a b|$HOME||"


async def test_input_and_exact_bytes(sb: AsyncSandbox) -> None:
    data = bytes(range(256)) * 4096
    r = await sb.commands.run(["cat"], input=data)
    assert r.stdout_bytes == data and r.ok
    # It may be read late.
    assert (await sb.commands.run("sleep 2; wc -c", input=b"x" * 8_000_000, check=True)).stdout == "8000000\n"
    # Input that nobody reads is no error.
    assert (await sb.commands.run("exit 0", input=b"x" * 1_000_000)).ok


async def test_env_cwd_and_timeout(sb: AsyncSandbox) -> None:
    await sb.files.mkdir("here")
    r = await sb.commands.run("echo $A; basename $PWD; exec sleep 60", env={"A": "1"}, cwd="here", timeout=0.5)
    assert (r.stdout, r.reason) == ("1\nhere\n", "timeout")


async def test_a_program_that_is_not_there(sb: AsyncSandbox) -> None:
    r = await sb.commands.run(["no-such-program"])
    assert (r.exit_code, r.reason) == (127, "start_failed") and r.message
    with pytest.raises(InvalidRequestError) as caught:
        await sb.commands.run(["no-such-program"], background=True)
    assert caught.value.code == "start_failed"


async def test_background(sb: AsyncSandbox) -> None:
    h = await sb.commands.run("read x; echo got $x; read y; echo end $y >&2; exit 4", background=True, stdin=True)
    assert h.exit_code is None and h.pid > 0 and h.id.startswith("run_")
    assert await h.send_stdin("a\n") == 2
    async with h.events() as events:
        async for event in events:
            assert isinstance(event, Stdout) and event.text == "got a\n"
            break
    assert h.stdout == "got a\n"
    await h.send_stdin(b"b\n", eof=True)
    # The next reader goes on where the last one stopped.
    rest = await collect(h.events())
    assert [type(e) for e in rest] == [Stderr, Exit] and h.exit_code == 4
    r = await h.wait()
    assert (r.stdout, r.stderr, r.exit_code) == ("got a\n", "end b\n", 4)
    assert await collect(h.events()) == [] and await h.kill() is False
    with pytest.raises(CommandError):
        await h.wait(check=True)


async def test_background_with_callbacks(sb: AsyncSandbox) -> None:
    out: List[str] = []
    h = await sb.commands.run("echo a; read x; echo b", background=True, stdin=True, on_stdout=out.append)
    await h.close_stdin()
    assert (await h.wait()).ok and "".join(out) == "a\nb\n"
    with pytest.raises(RuntimeError):
        h.events()


async def test_disconnect_and_connect(sb: AsyncSandbox) -> None:
    out: List[str] = []
    async with await sb.commands.run("echo a; exec sleep 60", background=True, on_stdout=out.append) as h:
        pass
    assert [p.running for p in await sb.commands.list() if p.process == h.id] == [True]
    for process in (h.id, h.pid):
        again = await sb.commands.connect(process)
        assert (again.id, again.pid) == (h.id, h.pid)
    assert await again.kill()
    r = await again.wait()
    assert (r.stdout, r.reason, r.signal) == ("a\n", "signaled", 9)
    listed = [p for p in await sb.commands.list() if p.process == h.id]
    assert [(p.running, p.exit_code) for p in listed] == [(False, 137)]


async def test_a_process_that_is_not_there(sb: AsyncSandbox) -> None:
    assert await sb.commands.kill("run_nope") is False and await sb.commands.kill(4_000_000) is False
    for process in ("run_nope", 4_000_000):
        with pytest.raises(NotFoundError) as caught:
            await sb.commands.connect(process)
        assert caught.value.code == "process_not_found"


async def test_a_background_command_is_followed_over_a_break(proxy: Proxy, sb: AsyncSandbox) -> None:
    async with AsyncRamet(proxy.url, (await sb_key(sb))) as client:
        there = await AsyncSandbox.connect(sb.id, client=client)
        h = await there.commands.run("for i in 1 2 3; do echo $i; read x; done", background=True, stdin=True)
        seen: List[str] = []
        async with h.events() as events:
            async for event in events:
                if isinstance(event, Stdout):
                    seen.append(event.text)
                    proxy.cut()
                    await h.send_stdin("\n")
    assert seen == ["1\n", "2\n", "3\n"] and h.exit_code == 0


async def sb_key(sb: AsyncSandbox) -> str:
    """A key of the project of a sandbox."""
    return sb.client.transport.config.api_key
