"""On real machines. Run by a Go test, which starts the server and names it in the environment; at most two
sandboxes live at a time."""

from __future__ import annotations

import asyncio

import pytest

from ramet import AsyncSandbox, ConflictError, Sandbox, Stdout


def test_the_program_of_the_readme() -> None:
    with Sandbox.create() as sb:
        sb.run_code("import math; r = 3").check()
        assert sb.run_code("math.pi * r**2").text == "28.274333882308138"
        assert sb.commands.run("uname -s", check=True).stdout == "Linux\n"
        sb.files.write("hello.txt", "hi")
        for child in sb.fork(1):
            with child:
                assert child.run_code("r + 1").text == "4" and child.files.read("hello.txt") == "hi"
                child.run_code("r = 10").check()
                assert sb.run_code("r").text == "3"
                sb.merge_into(child)
        assert sb.run_code("r").text == "10"


def test_hibernation_keeps_variables_and_commands() -> None:
    with Sandbox.create(metadata={"test": "sdk"}) as sb:
        sb.run_code("data = list(range(1000))").check()
        h = sb.commands.run("echo begin; read x; echo got $x", background=True, stdin=True)
        with h.events() as events:
            for event in events:
                assert isinstance(event, Stdout)
                break
        # Who follows a run when the machine is saved is told so, and it goes on at the wake.
        run = ""
        with pytest.raises(ConflictError) as caught:
            with sb.run_code_stream("import time; print('on', flush=True); time.sleep(3); data.append('end')") as stream:
                for e in stream:
                    if isinstance(e, Stdout):
                        run = stream_run(sb)
                        assert sb.hibernate().status == "hibernated"
        assert caught.value.code == "sandbox_hibernated"
        assert sb.refresh().status == "hibernated"
        h.send_stdin("there\n")  # wakes it
        r = h.wait()
        assert (r.stdout, r.exit_code) == ("begin\ngot there\n", 0)
        assert sb.commands.connect(run).wait().exit_code == 0
        assert sb.run_code("len(data), data[-1]").text == "(1001, 'end')"


def stream_run(sb: Sandbox) -> str:
    """The id of the code that runs."""
    (process,) = [p for p in sb.commands.list() if p.running and p.language == "python"]
    return process.process


def test_checkpoints() -> None:
    with Sandbox.create() as sb:
        sb.run_code("x = 1").check()
        point = sb.checkpoints.create("one")
        sb.run_code("x = 2").check()
        sb.checkpoints.restore(point)
        assert sb.run_code("x").text == "1"
        with sb.checkpoints.spawn(point) as other:
            assert other.run_code("x").text == "1"
        sb.checkpoints.delete(point)


def test_a_terminal_contexts_and_ports() -> None:
    with Sandbox.create() as sb:
        with sb.pty.create(columns=91, rows=33, user="user") as pty:
            pty.send_input("stty size; id -un; exit 5\n")
            shown = b"".join(pty.output())
        assert b"33 91" in shown and b"\nuser" in shown and pty.exit_code == 5
        context = sb.contexts.create()
        sb.run_code("y = 7", context=context).check()
        assert sb.run_code("y", context=context).text == "7" and sb.run_code("y").error is not None
        sb.commands.run(["python3", "-m", "http.server", "--bind", "127.0.0.1", "8123"], background=True)
        sb.commands.run("until curl -sf localhost:8123 >/dev/null; do sleep 0.1; done", timeout=60, check=True)
        assert 8123 in sb.ports.list()
        with sb.ports.connect(8123) as c:
            c.send(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while True:
                data = c.receive()
                if not data:
                    break
                answer += data
        assert answer.startswith(b"HTTP/1.0 200")
        with sb.files.watch("/root") as watch:
            sb.run_code("open('made', 'w').write('1')").check()
            assert next((e.path, e.change) for e in watch if e.path == "made") == ("made", "create")


def test_asynchronously() -> None:
    async def main() -> None:
        async with AsyncSandbox.create(egress=False) as sb:
            out: "list[str]" = []
            e = await sb.run_code("for i in range(3): print(i, flush=True)", on_stdout=out.append)
            assert "".join(out) == e.stdout == "0\n1\n2\n"
            data = bytes(range(256)) * 65536
            await sb.files.write("big", data)
            assert await sb.files.read("big", "bytes") == data
            r = await sb.commands.run("sha256sum < big | cut -c1-8; curl -sm 5 http://203.0.113.1 || echo closed")
            assert r.stdout.endswith("closed\n")
        await sb.client.close()

    asyncio.run(main())
