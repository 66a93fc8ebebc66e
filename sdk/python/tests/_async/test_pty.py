from __future__ import annotations

import pytest

from ramet import AsyncSandbox, ConflictError, NotFoundError

pytestmark = pytest.mark.anyio

# A program that says how large its terminal is, at its start and whenever that changes, until a line is typed.
SIZES = """
import os, select, sys
size = None
while not select.select([0], [], [], 0.05)[0]:
    if size != os.get_terminal_size():
        size = os.get_terminal_size()
        print("size", *size, flush=True)
sys.exit(len(input()))
"""


async def test_a_terminal(sb: AsyncSandbox) -> None:
    async with await sb.pty.create(command=["python3", "-c", SIZES], columns=100, rows=30, tag="mine") as pty:
        shown = b""
        async with pty.output() as output:
            async for data in output:
                shown += data
                if b"size 100 30\r\n" in shown:
                    break
        listed = [p for p in await sb.commands.list() if p.process == pty.id]
        assert [(p.tag, p.pty, p.running) for p in listed] == [("mine", True, True)]
        await pty.resize(120, 40)
        async with pty.output() as output:
            async for data in output:
                shown += data
                if b"size 120 40\r\n" in shown:
                    break
        assert await pty.send_input("four\r") == 5
        assert (await pty.wait()).exit_code == 4 and pty.exit_code == 4
        with pytest.raises(ConflictError):
            await pty.resize(1, 1)


async def test_on_data_and_the_keys(sb: AsyncSandbox) -> None:
    shown = bytearray()
    pty = await sb.pty.create(command="trap 'echo int; exit 7' INT; echo ready; while :; do sleep 0.1; done", on_data=shown.extend)
    with pytest.raises(RuntimeError):
        pty.output()
    # What is typed before the trap is there would end the program.
    other = await sb.pty.connect(pty.id, from_seq=0)
    async with other.output() as output:
        seen = b""
        async for data in output:
            seen += data
            if b"ready" in seen:
                break
    await pty.send_input(b"\x03")
    assert (await pty.wait()).exit_code == 7
    assert b"ready\r\n" in shown and b"int\r\n" in shown


async def test_a_shell_that_is_killed(sb: AsyncSandbox) -> None:
    pty = await sb.pty.create()
    again = await sb.pty.connect(pty.pid)
    assert again.id == pty.id
    await again.send_input("echo $((6*7)); tty >/dev/null && echo yes\n")
    async with pty.output() as output:
        shown = b""
        async for data in output:
            shown += data
            if b"42" in shown and b"yes\r\n" in shown:
                break
    assert await sb.pty.kill(pty.id)
    assert (await again.wait()).reason == "signaled" and await sb.pty.kill(pty.id) is False
    with pytest.raises(NotFoundError):
        await sb.pty.connect("run_nope")


async def test_disconnect_stops_the_callbacks(sb: AsyncSandbox) -> None:
    shown = bytearray()
    pty = await sb.pty.create(command=["cat"], on_data=shown.extend)
    await pty.disconnect()
    await pty.disconnect()
    before = bytes(shown)
    await pty.send_input("more\n")
    assert bytes(shown) == before
    assert await pty.kill()
