"""What went wrong in other systems of this kind, through E2B's official Python client, sync and async.

Prints one JSON object per operation, and exits with 1 when one did not do what it should.
The server is named by E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL.
"""

import asyncio
import contextlib
import uuid

import e2b
from _check import eventually, has, is_async, main, operation, raises, same, val
from e2b_code_interpreter import AsyncSandbox, Sandbox


async def shell(s, command, **options):
    return (await val(s.commands.run(command, **options))).stdout


async def python(s, code, **options):
    e = await val(s.run_code(code, **options))
    return "".join(e.logs.stdout), "".join(e.logs.stderr), e.error


async def runs(s, mark):
    """Says whether a process with this mark in its command line runs."""
    return bool((await shell(s, f"pgrep -f '[{mark[0]}]{mark[1:]}' || true", user="root")).strip())


@operation("failures: a timeout ends the whole command")
async def timeout(s):
    async with raises(e2b.TimeoutException):
        await val(s.commands.run("(sleep 4711; true) | cat", timeout=1))

    async def gone():
        return not await runs(s, "sleep 4711")

    await eventually("the children have ended", gone)


@operation("failures: a kill ends the command's children")
async def kill(s):
    h = await val(s.commands.run("(sleep 4712; true) | cat", background=True))

    async def there():
        return await runs(s, "sleep 4712")

    async def gone():
        return not await there()

    await eventually("it runs", there)
    same(await val(h.kill()), True)
    await eventually("the children have ended", gone)


@operation("failures: a signal is no exit code that was made up")
async def signalled(s):
    async with raises(e2b.CommandExitException) as seen:
        await val(s.commands.run("kill -TERM $$"))
    has(str(seen[0].error), "terminated")


@operation("failures: a daemon that holds the output keeps no command open, and lives on")
async def daemon(s):
    await val(s.commands.run("setsid sleep 4713 & echo started", timeout=20))
    same(await runs(s, "sleep 4713"), True)
    await val(s.commands.run("pkill -f '[s]leep 4713'"))


@operation("failures: a reader that is slow gets all of the output")
async def slow(s):
    lines = []

    def read(text):
        lines.append(len(text))

    async def read_slowly(text):
        read(text)
        await asyncio.sleep(0.002)

    r = await val(s.commands.run("head -c 20000000 /dev/zero | tr '\\0' x", timeout=60, on_stdout=read_slowly if is_async(s) else read))
    same((len(r.stdout), sum(lines)), (20_000_000, 20_000_000))


@operation("failures: the environment of create is in commands, terminals and code")
async def environment(s):
    same(await shell(s, 'echo "$GIVEN"'), "of create\n")
    same((await python(s, "import os; print(os.environ['GIVEN'])"))[0], "of create\n")
    got = bytearray()
    size = e2b.PtySize(rows=24, cols=80)
    if is_async(s):
        h = await s.pty.create(size, got.extend)
        await s.pty.send_stdin(h.pid, b'echo "<$GIVEN>"; exit\n')
        await h.wait()
    else:
        h = s.pty.create(size)
        s.pty.send_stdin(h.pid, b'echo "<$GIVEN>"; exit\n')
        h.wait(on_pty=got.extend)
    has(bytes(got), b"<of create>")


@operation("failures: SystemExit, KeyboardInterrupt and input() end the code, not the interpreter")
async def ends(s):
    await python(s, "kept = 'kept'")
    for code, name in (("raise SystemExit(3)", "SystemExit"), ("raise KeyboardInterrupt", "KeyboardInterrupt")):
        same((await python(s, code))[2].name, name)
    out, _, error = await python(s, "input('name? ')")
    if error is None:
        raise AssertionError("input() came back")
    same((await python(s, "print(kept)"))[0], "kept\n")


@operation("failures: threads that print after the end of a call")
async def threads(s):
    code = "import threading, time\ndef late():\n    time.sleep(0.5)\n    print('late')\nthreading.Thread(target=late).start()\nprint('end')"
    same((await python(s, code))[0], "end\n")
    same((await python(s, "time.sleep(1)\nprint('next')"))[0], "late\nnext\n")


@operation("failures: output that is no text")
async def odd(s):
    same((await python(s, "print('no newline', end='')"))[0], "no newline")
    out, _, error = await python(s, "print('\\ud800 after')")
    same(error, None)
    has(out, " after")
    same((await python(s, "import os; _ = os.write(1, b'\\xff raw')"))[0], "\ufffd raw")
    same((await python(s, "import subprocess; _ = subprocess.run(['printf', 'child'])"))[0], "child")


@operation("failures: an interpreter that crashes is there again")
async def crash(s):
    for code in ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "import os\nos._exit(0)"):
        same((await python(s, code))[2].name, "UnexpectedEndOfExecution")
        same((await python(s, "print(1)"))[0], "1\n")
    same((await python(s, "import os; print(os.getcwd())"))[0], "/home/user\n")


@operation("failures: code that is given up blocks nobody")
async def abandoned(s):
    if is_async(s):
        task = asyncio.create_task(s.run_code("print('begun')\nwhile True: pass"))
        await asyncio.sleep(1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    else:
        async with raises(e2b.TimeoutException):
            s.run_code("while True: pass", timeout=1)
    same((await python(s, "print('free')", timeout=20))[0], "free\n")


@operation("failures: a context that the memory has no room for is refused, and wedges nothing")
async def contexts(s):
    hog = """
with open('/proc/meminfo') as f:
    left = next(int(line.split()[1]) for line in f if line.startswith('MemAvailable')) << 10
hog = b'x' * (left - (100 << 20))
"""
    same((await python(s, hog))[2], None)
    async with raises(Exception) as seen:
        await val(s.create_code_context())
    has(str(seen[0]), "memory")
    same((await python(s, "print('others')"))[0], "others\n")
    same((await python(s, "del hog"))[2], None)
    await val(s.remove_code_context(await val(s.create_code_context())))


@operation("failures: each error of a file has its own kind")
async def file_errors(s):
    async with raises(e2b.NotFoundException):
        await val(s.files.read("/no/such/file"))
    async with raises(e2b.InvalidArgumentException):
        await val(s.files.list("/etc/passwd"))
    async with raises(e2b.InvalidArgumentException):
        await val(s.files.read("/etc"))
    async with raises(e2b.InvalidArgumentException):
        await val(s.files.make_dir("/etc/passwd/below"))


@operation("failures: names that are no UTF-8 hide no other file")
async def names(s):
    d = "/home/user/" + uuid.uuid4().hex
    await shell(s, f"mkdir {d} && cd {d} && touch $'odd\\xff' plain")
    same("plain" in [e.name for e in await val(s.files.list(d))], True)


@operation("failures: a file that was written is its user's")
async def owner(s):
    name = "/home/user/" + uuid.uuid4().hex + "/deep/file"
    await val(s.files.write(name, b"\x00\xff\xfe binary \r\n"))
    same(await shell(s, f"stat -c %U $(dirname {name}) {name}; echo more >> {name}"), "user\nuser\n")
    same(bytes(await val(s.files.read(name, format="bytes"))), b"\x00\xff\xfe binary \r\nmore\n")


@operation("failures: timeouts of nothing and less")
async def timeouts(s):
    same(await shell(s, "sleep 0.2; echo no limit", timeout=0), "no limit\n")
    for timeout in (-1, 10**9):
        with contextlib.suppress(e2b.SandboxException, ValueError):
            await val(s.set_timeout(timeout))
        same(await val(s.is_running()), True)
        await val(s.set_timeout(300))


@operation("failures: environment, state and files after a pause")
async def paused(s):
    await python(s, "state = 41")
    await val(s.files.write("of-before", "there"))
    pause = getattr(s, "pause", None) or s.beta_pause
    await val(pause())
    await val(s.connect(timeout=300))
    same((await python(s, "import os; print(state + 1, os.environ['GIVEN'], open('of-before').read())"))[0], "42 of create there\n")
    same(await shell(s, "echo $GIVEN"), "of create\n")


main(Sandbox, AsyncSandbox, timeout=300, envs={"GIVEN": "of create"})
