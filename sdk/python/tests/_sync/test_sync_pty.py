# Made from tests/_async/test_pty.py by tools/generate.py: change that.
from __future__ import annotations

import pytest

from ramet import Sandbox, ConflictError, NotFoundError

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


def test_a_terminal(sb: Sandbox) -> None:
    with sb.pty.create(command=["python3", "-c", SIZES], columns=100, rows=30, tag="mine") as pty:
        shown = b""
        with pty.output() as output:
            for data in output:
                shown += data
                if b"size 100 30\r\n" in shown:
                    break
        listed = [p for p in sb.commands.list() if p.process == pty.id]
        assert [(p.tag, p.pty, p.running) for p in listed] == [("mine", True, True)]
        pty.resize(120, 40)
        with pty.output() as output:
            for data in output:
                shown += data
                if b"size 120 40\r\n" in shown:
                    break
        assert pty.send_input("four\r") == 5
        assert (pty.wait()).exit_code == 4 and pty.exit_code == 4
        with pytest.raises(ConflictError):
            pty.resize(1, 1)


def test_on_data_and_the_keys(sb: Sandbox) -> None:
    shown = bytearray()
    pty = sb.pty.create(command="trap 'echo int; exit 7' INT; echo ready; while :; do sleep 0.1; done", on_data=shown.extend)
    with pytest.raises(RuntimeError):
        pty.output()
    # What is typed before the trap is there would end the program.
    other = sb.pty.connect(pty.id, from_seq=0)
    with other.output() as output:
        seen = b""
        for data in output:
            seen += data
            if b"ready" in seen:
                break
    pty.send_input(b"\x03")
    assert (pty.wait()).exit_code == 7
    assert b"ready\r\n" in shown and b"int\r\n" in shown


def test_a_shell_that_is_killed(sb: Sandbox) -> None:
    pty = sb.pty.create()
    again = sb.pty.connect(pty.pid)
    assert again.id == pty.id
    again.send_input("echo $((6*7)); tty >/dev/null && echo yes\n")
    with pty.output() as output:
        shown = b""
        for data in output:
            shown += data
            if b"42" in shown and b"yes\r\n" in shown:
                break
    assert sb.pty.kill(pty.id)
    assert (again.wait()).reason == "signaled" and sb.pty.kill(pty.id) is False
    with pytest.raises(NotFoundError):
        sb.pty.connect("run_nope")


def test_disconnect_stops_the_callbacks(sb: Sandbox) -> None:
    shown = bytearray()
    pty = sb.pty.create(command=["cat"], on_data=shown.extend)
    pty.disconnect()
    pty.disconnect()
    before = bytes(shown)
    pty.send_input("more\n")
    assert bytes(shown) == before
    assert pty.kill()
