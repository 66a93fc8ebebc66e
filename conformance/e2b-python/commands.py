"""Commands and terminals through E2B's official Python client, sync and async.

Prints one JSON object per operation, and exits with 1 when one did not do what it should.
The server is named by E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL.
"""

import asyncio
import threading

import e2b
from _check import Skip, eventually, has, is_async, knows, main, operation, raises, same, val
from e2b import AsyncSandbox, CommandExitException, Sandbox, TimeoutException


@operation("commands.run")
async def run(s):
    r = await val(s.commands.run("echo out; echo err >&2"))
    same((r.stdout, r.stderr, r.exit_code, r.error or None), ("out\n", "err\n", 0, None))


@operation("commands.run: exit code")
async def exit_code(s):
    async with raises(CommandExitException) as seen:
        await val(s.commands.run("echo before; echo why >&2; exit 42"))
    e = seen[0]
    same((e.exit_code, e.stdout, e.stderr), (42, "before\n", "why\n"))
    same(e.error, "exit status 42")


@operation("commands.run: environment")
async def environment(s):
    r = await val(s.commands.run('echo "$GIVEN/$MINE/$HOME/$USER"', envs={"MINE": "a b"}))
    same(r.stdout, "of create/a b//home/user/user\n")
    r = await val(s.commands.run('echo "$MINE"'))
    same(r.stdout, "\n", "the next command's")


@operation("commands.run: user")
async def user(s):
    r = await val(s.commands.run("id -un; id -gn; pwd; echo $HOME"))
    same(r.stdout, "user\nuser\n/home/user\n/home/user\n")
    r = await val(s.commands.run("id -un; id -u; pwd; echo $HOME", user="root"))
    same(r.stdout, "root\n0\n/root\n/root\n")
    r = await val(s.commands.run("sudo -n id -u"))
    same(r.stdout, "0\n", "sudo")


@operation("commands.run: unknown user")
async def unknown_user(s):
    async with raises(e2b.AuthenticationException):
        await val(s.commands.run("true", user="nobody-of-that-name"))


@operation("commands.run: cwd")
async def cwd(s):
    r = await val(s.commands.run("pwd", cwd="/tmp"))
    same(r.stdout, "/tmp\n")
    await val(s.commands.run("mkdir -p below"))
    r = await val(s.commands.run("pwd", cwd="below"))
    same(r.stdout, "/home/user/below\n")


@operation("commands.run: cwd that is missing")
async def cwd_missing(s):
    async with raises(e2b.InvalidArgumentException) as seen:
        await val(s.commands.run("pwd", cwd="/no/such/place"))
    has(str(seen[0]), "/no/such/place")


@operation("commands.run: callbacks")
async def callbacks(s):
    out, err = [], []
    r = await val(s.commands.run("echo 1; echo 2 >&2; sleep 0.3; echo 3", on_stdout=out.append, on_stderr=err.append))
    same(("".join(out), "".join(err)), ("1\n3\n", "2\n"))
    same(r.stdout, "1\n3\n")
    if len(out) < 2:
        raise AssertionError(f"it was not streamed: {out}")


@operation("commands.run: timeout")
async def timeout(s):
    async with raises(TimeoutException):
        await val(s.commands.run("sleep 97", timeout=1))

    async def gone():
        return not any("sleep 97" in a for p in await val(s.commands.list()) for a in p.args)

    await eventually("the command has ended", gone)


@operation("commands.run: large and odd output")
async def large(s):
    r = await val(s.commands.run("head -c 4000000 /dev/zero | tr '\\0' x"))
    same(len(r.stdout), 4000000)
    r = await val(s.commands.run(r"printf 'h\303\251 \342\230\203 \360\237\230\200 \377'"))
    same(r.stdout, "h\u00e9 \u2603 \U0001f600 \ufffd")
    r = await val(s.commands.run("printf 'no newline'"))
    same(r.stdout, "no newline")


@operation("commands.run: children that stay")
async def children(s):
    r = await val(s.commands.run("sleep 60 & echo done", timeout=20))
    same(r.stdout, "done\n")


@operation("commands.run in background, wait")
async def background(s):
    h = await val(s.commands.run("sleep 0.2; echo late; exit 3", background=True))
    if h.pid <= 0:
        raise AssertionError(f"pid {h.pid}")
    async with raises(CommandExitException) as seen:
        await val(h.wait())
    same((seen[0].exit_code, seen[0].stdout), (3, "late\n"))


@operation("commands.list")
async def listing(s):
    h = await val(s.commands.run("sleep 61", background=True, envs={"IN_LIST": "yes"}, cwd="/tmp"))
    found = [p for p in await val(s.commands.list()) if p.pid == h.pid]
    same(len(found), 1)
    p = found[0]
    same((p.cmd, list(p.args)[:2], p.cwd), ("/bin/bash", ["-l", "-c"], "/tmp"))
    same(p.envs.get("IN_LIST"), "yes")
    await val(h.kill())


@operation("commands.kill")
async def kill(s):
    h = await val(s.commands.run("sleep 62", background=True))
    same(await val(s.commands.kill(h.pid)), True)
    async with raises(CommandExitException):
        await val(h.wait())
    same(await val(s.commands.kill(h.pid)), False, "a second kill")
    h = await val(s.commands.run("sleep 62", background=True))
    same(await val(h.kill()), True, "by its handle")


@operation("commands.connect")
async def connect(s):
    h = await val(s.commands.run("read line; echo got $line; exit 5", background=True, stdin=True))
    await val(h.disconnect())
    again = await val(s.commands.connect(h.pid))
    same(again.pid, h.pid)
    await val(s.commands.send_stdin(h.pid, "after all\n"))
    async with raises(CommandExitException) as seen:
        await val(again.wait())
    same((seen[0].exit_code, seen[0].stdout), (5, "got after all\n"))


@operation("commands.connect: unknown")
async def connect_unknown(s):
    async with raises(e2b.NotFoundException):
        await val(s.commands.connect(999999))


@operation("commands.send_stdin")
async def send_stdin(s):
    h = await val(s.commands.run("read a; read b; echo $b $a", background=True, stdin=True))
    await val(s.commands.send_stdin(h.pid, "one\n"))
    await val(s.commands.send_stdin(h.pid, "zw\u00f6lf\n"))
    r = await val(h.wait())
    same(r.stdout, "zw\u00f6lf one\n")
    async with raises(e2b.NotFoundException):
        await val(s.commands.send_stdin(h.pid, "x"))


@operation("commands.close_stdin")
async def close_stdin(s):
    if not hasattr(s.commands, "close_stdin"):
        raise Skip
    h = await val(s.commands.run("wc -c", background=True, stdin=True))
    await val(s.commands.send_stdin(h.pid, "12345"))
    await val(s.commands.close_stdin(h.pid))
    r = await val(h.wait())
    same(r.stdout.strip(), "5")


@operation("commands.stream_input")
async def stream_input(s):
    if not hasattr(s.commands, "stream_input"):
        raise Skip
    h = await val(s.commands.run("for i in 1 2 3; do read l; echo $l; done", background=True, stdin=True))
    if is_async(s):
        async with s.commands.stream_input(h.pid) as sink:
            for line in ("a\n", "b\n", b"c\n"):
                await sink.send(line)
    else:
        s.commands.stream_input(h.pid, ["a\n", "b\n", b"c\n"])
    r = await val(h.wait())
    same(r.stdout, "a\nb\nc\n")


@operation("commands.run: stdin is empty by default")
async def no_stdin(s):
    r = await val(s.commands.run("cat; echo end", timeout=20))
    same(r.stdout, "end\n")


class Terminal:
    """A terminal of either client, whose output is collected."""

    def __init__(self, s, handle, output):
        self.s, self.handle, self.output = s, handle, output

    @classmethod
    async def open(cls, s, **options):
        output = bytearray()
        knows(s.pty.create, "size")
        size = e2b.PtySize(rows=33, cols=101)
        if is_async(s):
            return cls(s, await s.pty.create(size, output.extend, **options), output)
        return cls(s, s.pty.create(size, **options), output)

    def read(self):
        """Reads in the background, which the sync client leaves to its caller."""
        if is_async(self.s):
            return

        def loop():
            try:
                for _, _, data in self.handle:
                    if data:
                        self.output.extend(data)
            except Exception as e:
                self.error = e

        self.thread = threading.Thread(target=loop, daemon=True)
        self.thread.start()

    async def type(self, text):
        await val(self.s.pty.send_stdin(self.handle.pid, text.encode()))

    async def says(self, text):
        await eventually(f"the terminal says {text!r} in {bytes(self.output)!r:.300}", lambda: text.encode() in bytes(self.output))


@operation("pty.create, send_stdin, resize")
async def pty(s):
    t = await Terminal.open(s, envs={"PTY_ENV": "of the terminal"}, cwd="/tmp")
    t.read()
    await t.type("stty size; echo $PTY_ENV-$TERM-$(pwd)-$(id -un)\n")
    await t.says("33 101")
    await t.says("of the terminal-xterm-256color-/tmp-user")
    await val(s.pty.resize(t.handle.pid, e2b.PtySize(rows=20, cols=66)))
    await t.type("stty size\n")
    await t.says("20 66")
    await t.type("echo beg$((4-3))n; sleep 100\n")
    await t.says("beg1n")
    await t.type("\x03")
    await t.type("echo int$((40+2))\n")
    await t.says("int42")
    same(await val(s.pty.kill(t.handle.pid)), True)
    same(await val(s.pty.kill(t.handle.pid)), False, "a second kill")


@operation("pty: exit")
async def pty_exit(s):
    output = bytearray()
    if is_async(s):
        h = await s.pty.create(e2b.PtySize(rows=24, cols=80), output.extend, timeout=30)
    else:
        h = s.pty.create(e2b.PtySize(rows=24, cols=80), timeout=30)
    await val(s.pty.send_stdin(h.pid, b"exit 7\n"))
    async with raises(CommandExitException) as seen:
        await val(h.wait())
    same(seen[0].exit_code, 7)


@operation("pty.connect")
async def pty_connect(s):
    if not hasattr(s.pty, "connect"):
        raise Skip
    t = await Terminal.open(s)
    await val(t.handle.disconnect())
    output = bytearray()
    if is_async(s):
        h = await s.pty.connect(t.handle.pid, output.extend)
        again = Terminal(s, h, output)
    else:
        again = Terminal(s, s.pty.connect(t.handle.pid), output)
    again.read()
    await again.type("echo back$((1+1))\n")
    await again.says("back2")
    same(await val(s.pty.kill(t.handle.pid)), True)


@operation("commands: many at once")
async def many(s):
    if is_async(s):
        got = await asyncio.gather(*(s.commands.run(f"sleep 0.1; echo {i}") for i in range(12)))
        same([r.stdout for r in got], [f"{i}\n" for i in range(12)])
    else:
        handles = [s.commands.run(f"sleep 0.1; echo {i}", background=True) for i in range(12)]
        same([h.wait().stdout for h in handles], [f"{i}\n" for i in range(12)])


main(Sandbox, AsyncSandbox, template="base", timeout=300, envs={"GIVEN": "of create"})
