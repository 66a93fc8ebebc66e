"""Terminals."""

import base64
import os
import subprocess
import sys

import httpx
from check import Differs, has, main, operation, raises, same, until

from podflare import PtySessionInfo, Sandbox

GROUP = "Terminals"
s = Sandbox()


class Screen:
    """What a terminal has shown."""

    def __init__(self):
        self.data, self.codes = b"", []

    def on_data(self, b):
        self.data += b

    def waits(self, part):
        until(f"it shows {part!r}", lambda: part in self.data)


def create(cmd, **more):
    screen = Screen()
    return s.pty.create(cmd=cmd, on_data=screen.on_data, on_exit=screen.codes.append, **more), screen


@operation(GROUP, "pty.create(): a terminal, its size, env, cwd")
def terminal():
    pty, screen = create("tty; stty size; echo $TERM $GREETING; pwd; exit 7", cols=100, rows=30, env={"GREETING": "hi"}, cwd="/tmp")
    same(pty.wait(60), 7)
    same(screen.codes, [7])
    lines = screen.data.decode().splitlines()
    if not lines[0].startswith("/dev/pts/"):
        raise AssertionError(lines)
    same(lines[1:], ["30 100", "xterm-256color hi", "/tmp"])


@operation(GROUP, "a command line in a login shell, a list without one")
def commands():
    pty, screen = create("shopt -q login_shell && echo login")
    same((pty.wait(60), screen.data), (0, b"login\r\n"))
    pty, screen = create(["echo", "$HOME", "a b"])
    same((pty.wait(60), screen.data), (0, b"$HOME a b\r\n"))
    with raises(ValueError):
        s.pty.create(cmd=[])
    with raises(RuntimeError) as seen:
        s.pty.create(cmd=["/no/such/program"])
    has(str(seen[0]), "pty_create failed")


@operation(GROUP, "send_input(): keys, Ctrl-C, Ctrl-D")
def keys():
    pty, screen = create("bash --norc --noprofile -i")

    def prompted():  # what is typed before it can meet a terminal that bash is just setting up
        until("it prompts", lambda: screen.data.endswith(b"# "))

    prompted()
    pty.send_input("echo $((40+2))-answer\n")
    screen.waits(b"42-answer")
    prompted()
    pty.send_input("bash -c 'echo star''ted; exec sleep 1000'\n")
    screen.waits(b"started")
    pty.send_input(b"\x03")
    prompted()
    pty.send_input("echo code-$?\n")
    screen.waits(b"code-130")
    prompted()
    pty.send_input(b"\x04")
    same(pty.wait(60), 0)


@operation(GROUP, "resize(): SIGWINCH")
def resize():
    pty, screen = create("trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done")
    screen.waits(b"ready")
    pty.resize(cols=200, rows=50)
    screen.waits(b"50 200")
    pty.kill()
    same(pty.wait(60), 137)


@operation(GROUP, "kill()")
def kill():
    pty, screen = create("trap '' INT TERM HUP; echo ready; while :; do sleep 0.1; done")
    screen.waits(b"ready")
    pty.kill()
    same((pty.wait(60), screen.codes), (137, [137]))


@operation(GROUP, "pty.list()")
def listed():
    pty, screen = create(["sleep", "1000"])
    [info] = [i for i in s.pty.list() if i.pty_id == pty.id]
    same((type(info), info.cmd_label, info.exit_code), (PtySessionInfo, "sleep 1000", None))
    if info.created_at_ms < 1_700_000_000_000:
        raise AssertionError(info)
    pty.kill()
    pty.wait(60)
    until("its end is told", lambda: [i.exit_code for i in s.pty.list() if i.pty_id == pty.id] == [137])
    raise Differs("sessions that have ended stay in the list, with their exit code, as long as their output is kept")


@operation(GROUP, "pty.attach(): output from the start, then live")
def attach():
    pty, screen = create("echo first; read x; echo got-$x")
    screen.waits(b"first")
    again = Screen()
    other = s.pty.attach(pty.id, on_data=again.on_data)
    again.waits(b"first")
    other.send_input("y\n")
    same((other.wait(60), pty.wait(60)), (0, 0))
    same(again.data, screen.data)
    has(again.data, b"got-y")


@operation(GROUP, "a session outlives the process that started it")
def outlives():
    code = f"""
from podflare import Client, Sandbox
s = Sandbox._from_id({s.id!r}, Client())
pty = s.pty.create(cmd="bash --norc --noprofile -i", timeout_ms=0)
pty.send_input(b"X=kept\\n")
print(pty.id, flush=True)
import os
os._exit(0)
"""
    id = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    screen = Screen()
    pty = s.pty.attach(id, on_data=screen.on_data)
    pty.send_input("echo still-$X\n")
    screen.waits(b"still-kept")
    pty.kill()
    same(pty.wait(60), 137)


@operation(GROUP, "45 silent seconds")
def silent():
    pty, screen = create("sleep 45; echo late")
    same((pty.wait(120), screen.data), (0, b"late\r\n"))


@operation(GROUP, "Client().pty_read()")
def read():
    pty, screen = create("cat")
    pty.send_input("hello\n")
    got, seq = b"", 0

    def shown():
        nonlocal got, seq
        r = s._client.pty_read(s.id, pty.id, seq, timeout_ms=5000)
        got, seq = got + base64.b64decode(r["data_b64"]), r["next_seq"]
        return got.count(b"hello") == 2  # the echo and cat's own

    until("both lines", shown)
    pty.send_input(b"\x04")
    until("its end", lambda: s._client.pty_read(s.id, pty.id, seq, timeout_ms=1000)["exited"])
    raise Differs("the answer is `{data_b64, next_seq, exited, exit_code}`; what the service answers is not published")


@operation(GROUP, "sessions that do not exist")
def missing():
    c = s._client
    for call in (lambda: c.pty_input(s.id, "pty_no", b"x"), lambda: c.pty_resize(s.id, "pty_no", 80, 24),
                 lambda: c.pty_kill(s.id, "pty_no"), lambda: list(c.pty_attach_stream(s.id, "pty_no"))):
        with raises(httpx.HTTPStatusError, 404):
            call()


main()
