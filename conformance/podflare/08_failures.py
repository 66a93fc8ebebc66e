"""What went wrong in other systems of this kind."""

import os
import threading
import time

import httpx
from check import has, main, operation, raises, same

from podflare import Sandbox

GROUP = "Failures"
s = Sandbox()


def bash(code):
    return s.run_code(code, language="bash")


@operation(GROUP, "SystemExit, KeyboardInterrupt and input() end the code, not the interpreter")
def ends():
    s.run_code("kept = 'kept'")
    same(s.run_code("raise SystemExit(3)").exit_code, 3)
    r = s.run_code("raise KeyboardInterrupt")
    has(r.stderr, "KeyboardInterrupt")
    same(r.ok, False)
    same(s.run_code("input('name? ')").ok, False)
    same(s.run_code("print(kept)").stdout, "kept")


@operation(GROUP, "an interpreter that crashes is there again")
def crash():
    for code in ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "import os\nos._exit(7)"):
        r = s.run_code(code)
        same(r.ok, False)
        r = s.run_code("print(1)")
        same((r.stdout, r.exit_code), ("1", 0))
        has(r.stderr, "restarted")


@operation(GROUP, "threads that print after the end of a call")
def threads():
    code = "import threading, time\ndef late():\n    time.sleep(0.5)\n    print('late')\nthreading.Thread(target=late).start()\nprint('end')"
    same(s.run_code(code).stdout, "end")
    same(s.run_code("time.sleep(1)\nprint('next')").stdout, "late\nnext")


@operation(GROUP, "output that is no text")
def odd():
    r = s.run_code("print('\\ud800 after')")
    same(r.exit_code, 0)
    has(r.stdout, " after")
    same(s.run_code("import os; _ = os.write(1, b'\\xff raw')").stdout, "\ufffd raw")
    same(s.run_code("import subprocess; _ = subprocess.run(['printf', 'child'])").stdout, "child")


@operation(GROUP, "a daemon that holds the output keeps no call open, and lives on")
def daemon():
    t = time.monotonic()
    same(bash("setsid sleep 4711 & echo started").stdout, "started")
    if time.monotonic() - t > 20:
        raise AssertionError("the call waited for the daemon")
    same(bash("pgrep -f '[s]leep 4711' | wc -l").stdout, "1")
    bash("pkill -f '[s]leep 4711'")


@operation(GROUP, "leaving a stream ends its command and its children")
def leave():
    events = s.run_code_stream("echo begun; (sleep 4712; true) | cat", language="bash")
    same(next(events).data, "begun")
    events.close()
    end = time.monotonic() + 20
    while bash("pgrep -f '[s]leep 4712' | wc -l").stdout != "0":
        if time.monotonic() > end:
            raise AssertionError("the command goes on")
        time.sleep(0.1)


@operation(GROUP, "a signal is no exit code that was made up")
def signalled():
    same(bash("kill -TERM $$").exit_code, 143)


@operation(GROUP, "a reader that is slow gets all of the output")
def slow():
    total = 0
    for n, e in enumerate(s.run_code_stream("for i in range(200_000): print('x' * 99)")):
        if e.type == "stdout":
            total += len(e.data)
        if n < 20:
            time.sleep(0.1)
    same(total, 200_000 * 99)


@operation(GROUP, "each error of a file says what it is")
def file_errors():
    with raises(OSError) as seen:
        s.download("/etc")
    has(str(seen[0]), "IsADirectoryError")
    with raises(OSError) as seen:
        s.upload(b"x", "/etc")
    has(str(seen[0]), "directory")


@operation(GROUP, "a full disk is an error, and there is room again afterwards")
def full():
    bash("fallocate -l $(($(df --output=avail -B1 /root | tail -1) - (2 << 20))) /root/fill")
    try:
        with raises(OSError):
            s.upload(os.urandom(6_000_000), "/root/new")
    finally:
        bash("rm /root/fill")
    s.upload(b"new", "/root/new")
    same(s.download("/root/new"), b"new")


@operation(GROUP, "a caller in a sandbox that is closed does not wait")
def closed():
    ended = threading.Event()

    def read():
        try:
            s.run_code("while True: pass")
        except httpx.HTTPError:
            pass  # how it is told depends on how far the call has come
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    with Sandbox() as other:
        same(other.run_code("print('another sandbox')").stdout, "another sandbox")
    s.close()
    same(ended.wait(20), True, "it ended")


main()
