# Made from tests/_async/test_commands.py by tools/generate.py: change that.
from __future__ import annotations

from typing import List

import pytest

from ramet import Ramet, Sandbox, CommandError, Exit, InvalidRequestError, NotFoundError, Stderr, Stdout
from wire import Proxy

from .tools import collect

pytestmark = pytest.mark.anyio


def test_run(sb: Sandbox) -> None:
    out: List[str] = []
    r = sb.commands.run("echo out; echo err >&2; exit 3", on_stdout=out.append)
    assert (r.stdout, r.stderr, r.exit_code, r.ok, r.reason) == ("out\n", "err\n", 3, False, None)
    assert out == ["out\n"]
    with pytest.raises(CommandError, match="exit code 3: err") as caught:
        sb.commands.run("echo err >&2; exit 3", check=True)
    assert caught.value.result.exit_code == 3


def test_a_list_is_a_program_with_arguments(sb: Sandbox) -> None:
    r = sb.commands.run(["printf", "%s|", "a b", "$HOME", ""])
    assert r.stdout == "a b|$HOME||"


def test_input_and_exact_bytes(sb: Sandbox) -> None:
    data = bytes(range(256)) * 4096
    r = sb.commands.run(["cat"], input=data)
    assert r.stdout_bytes == data and r.ok
    # It may be read late.
    assert (sb.commands.run("sleep 2; wc -c", input=b"x" * 8_000_000, check=True)).stdout == "8000000\n"
    # Input that nobody reads is no error.
    assert (sb.commands.run("exit 0", input=b"x" * 1_000_000)).ok


def test_env_cwd_and_timeout(sb: Sandbox) -> None:
    sb.files.mkdir("here")
    r = sb.commands.run("echo $A; basename $PWD; exec sleep 60", env={"A": "1"}, cwd="here", timeout=0.5)
    assert (r.stdout, r.reason) == ("1\nhere\n", "timeout")


def test_a_program_that_is_not_there(sb: Sandbox) -> None:
    r = sb.commands.run(["no-such-program"])
    assert (r.exit_code, r.reason) == (127, "start_failed") and r.message
    with pytest.raises(InvalidRequestError) as caught:
        sb.commands.run(["no-such-program"], background=True)
    assert caught.value.code == "start_failed"


def test_background(sb: Sandbox) -> None:
    h = sb.commands.run("read x; echo got $x; read y; echo end $y >&2; exit 4", background=True, stdin=True)
    assert h.exit_code is None and h.pid > 0 and h.id.startswith("run_")
    assert h.send_stdin("a\n") == 2
    with h.events() as events:
        for event in events:
            assert isinstance(event, Stdout) and event.text == "got a\n"
            break
    assert h.stdout == "got a\n"
    h.send_stdin(b"b\n", eof=True)
    # The next reader goes on where the last one stopped.
    rest = collect(h.events())
    assert [type(e) for e in rest] == [Stderr, Exit] and h.exit_code == 4
    r = h.wait()
    assert (r.stdout, r.stderr, r.exit_code) == ("got a\n", "end b\n", 4)
    assert collect(h.events()) == [] and h.kill() is False
    with pytest.raises(CommandError):
        h.wait(check=True)


def test_background_with_callbacks(sb: Sandbox) -> None:
    out: List[str] = []
    h = sb.commands.run("echo a; read x; echo b", background=True, stdin=True, on_stdout=out.append)
    h.close_stdin()
    assert (h.wait()).ok and "".join(out) == "a\nb\n"
    with pytest.raises(RuntimeError):
        h.events()


def test_disconnect_and_connect(sb: Sandbox) -> None:
    out: List[str] = []
    with sb.commands.run("echo a; exec sleep 60", background=True, on_stdout=out.append) as h:
        pass
    assert [p.running for p in sb.commands.list() if p.process == h.id] == [True]
    for process in (h.id, h.pid):
        again = sb.commands.connect(process)
        assert (again.id, again.pid) == (h.id, h.pid)
    assert again.kill()
    r = again.wait()
    assert (r.stdout, r.reason, r.signal) == ("a\n", "signaled", 9)
    listed = [p for p in sb.commands.list() if p.process == h.id]
    assert [(p.running, p.exit_code) for p in listed] == [(False, 137)]


def test_a_process_that_is_not_there(sb: Sandbox) -> None:
    assert sb.commands.kill("run_nope") is False and sb.commands.kill(4_000_000) is False
    for process in ("run_nope", 4_000_000):
        with pytest.raises(NotFoundError) as caught:
            sb.commands.connect(process)
        assert caught.value.code == "process_not_found"


def test_a_background_command_is_followed_over_a_break(proxy: Proxy, sb: Sandbox) -> None:
    with Ramet(proxy.url, (sb_key(sb))) as client:
        there = Sandbox.connect(sb.id, client=client)
        h = there.commands.run("for i in 1 2 3; do echo $i; read x; done", background=True, stdin=True)
        seen: List[str] = []
        with h.events() as events:
            for event in events:
                if isinstance(event, Stdout):
                    seen.append(event.text)
                    proxy.cut()
                    h.send_stdin("\n")
    assert seen == ["1\n", "2\n", "3\n"] and h.exit_code == 0


def sb_key(sb: Sandbox) -> str:
    """A key of the project of a sandbox."""
    return sb.client.transport.config.api_key
