"""Running code."""

import threading
import time

import httpx
from check import Differs, has, main, native, operation, raises, same, until

from podflare import Client, Event, ExecResult, Sandbox

GROUP = "Code"
s = Sandbox()


@operation(GROUP, "run_code(python)")
def python():
    r = s.run_code("print(6*7)")
    same(r, ExecResult(stdout="42", stderr="", exit_code=0))
    same(r.ok, True)


@operation(GROUP, "variables and imports persist")
def persists():
    s.run_code("import math\nx = 42")
    same(s.run_code("print(x * 2, math.floor(2.5))").stdout, "84 2")


@operation(GROUP, "stdout, stderr, exit_code")
def outputs():
    r = s.run_code("import sys\nprint('a')\nprint('b', file=sys.stderr)\nsys.exit(3)")
    same((r.stdout, r.stderr, r.exit_code), ("a", "b", 3))
    same(s.run_code("print(1)").stdout, "1", "after sys.exit")


@operation(GROUP, "uncaught exceptions")
def exceptions():
    r = s.run_code("def f():\n    return 1 / 0\nf()")
    same((r.exit_code, r.ok), (1, False))
    has(r.stderr, "ZeroDivisionError: division by zero")
    has(r.stderr, "in f")
    same(s.run_code("print(1)").stdout, "1", "after an exception")
    r = s.run_code("x = (")
    same(r.exit_code, 1)
    has(r.stderr, "SyntaxError")


@operation(GROUP, "text with and without line ends, U+0085, U+2028, no UTF-8")
def text():
    r = s.run_code("print('a')\nprint('b\\x85\\u2028\\u2029\\x0c\\x1c\\x1ec\\rd')\nprint('e', end='')")
    same(r.stdout, "a\nb\x85\u2028\u2029\x0c\x1c\x1ec\rd\ne")
    same(s.run_code("print()\nprint()\nprint('x')").stdout, "\n\nx")
    same(s.run_code("printf 'caf\\351\\n日本語 👋\\n'", language="bash").stdout, "caf\ufffd\n日本語 👋")
    raise Differs("bytes that are no UTF-8 arrive as U+FFFD, since a line of JSON has no others; `download` is exact")


@operation(GROUP, "run_code(bash)")
def bash():
    r = s.run_code("echo $((6*7)); echo e >&2; exit 5", language="bash")
    same((r.stdout, r.stderr, r.exit_code), ("42", "e", 5))
    same(s.run_code("V=1; cd /tmp", language="bash").exit_code, 0)
    same(s.run_code("echo \"[$V]\"", language="bash").stdout, "[]", "a new process each time")


@operation(GROUP, "another language")
def language():
    with raises(httpx.HTTPStatusError, 400):
        s.run_code("1", language="cobol")
    with raises(httpx.HTTPStatusError, 400):
        s.run_code("")


@operation(GROUP, "run_code_stream(): events as they come")
def stream():
    at, seen = [], []
    for e in s.run_code_stream("import time\nfor i in range(3):\n    print(i)\n    time.sleep(0.7)"):
        seen.append(e)
        at.append(time.monotonic())
    same([(e.type, e.data, e.seq) for e in seen], [("stdout", "0", 0), ("stdout", "1", 1), ("stdout", "2", 2), ("exit", 0, 3)])
    if not (isinstance(seen[0], Event) and abs(seen[0].ts / 1000 - time.time()) < 60 and seen[0].ts < seen[2].ts):
        raise AssertionError(seen)
    if at[1] - at[0] < 0.3:
        raise AssertionError(f"events came together: {at}")


@operation(GROUP, "leaving a stream ends its run")
def leave():
    events = s.run_code_stream("import time\nprint('begun')\nwhile True: time.sleep(0.1)")
    same(next(events).data, "begun")
    events.close()
    same(s.run_code("print('free')").stdout, "free")


@operation(GROUP, "calls to one sandbox queue")
def queue():
    s.run_code("order = []")
    threads = [threading.Thread(target=s.run_code, args=(f"import time\nfor _ in range(3): order.append({i}); time.sleep(0.1)",)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    order = [int(n) for n in s.run_code("print(*order)").stdout.split()]
    if len(order) != 12 or any(order[i : i + 3] != [order[i]] * 3 for i in range(0, 12, 3)):
        raise AssertionError(order)


@operation(GROUP, "45 silent seconds")
def silent():
    r = s.run_code("import time; time.sleep(45); print('late')")
    same((r.stdout, r.exit_code), ("late", 0))
    return "the package gives up after 30 s without a byte; the server sends an empty line after 10 s, which it skips"


@operation(GROUP, "10 MB of output")
def large():
    r = s.run_code("for i in range(100_000): print('x' * 99)")
    same((r.exit_code, len(r.stdout), r.stdout.count("\n")), (0, 9_999_999, 99_999))
    r = s.run_code("print('y' * 5_000_000)")
    same((r.exit_code, len(r.stdout)), (0, 5_000_000))


@operation(GROUP, "replay()")
def replay():
    with Sandbox() as t:
        same(t.replay(), [])
        t.run_code("print('one')")
        t.run_code("echo two; exit 4", language="bash")
        same([(e.type, e.data) for e in t.replay()], [("stdout", "one"), ("exit", 0), ("stdout", "two"), ("exit", 4)])
        t.run_code("for i in range(1500): print(i)")
        events = t.replay()
        same((len(events), events[-2].data, events[-1].type), (1000, "1499", "exit"))
    raise Differs("the last 1000 events, at most 1 MiB, of the calls that this client or the native `exec` made; forgotten when the server restarts")


@operation(GROUP, "Client().exec_stream()")
def low_level():
    same([(e.type, e.data) for e in Client().exec_stream(s.id, "print(1)")], [("stdout", "1"), ("exit", 0)])


@operation(GROUP, "the same sandbox from the native API")
def natively():
    same(native("GET", "/v1/sandboxes/" + s.id)["id"], s.id)
    until("it is listed", lambda: any(x["id"] == s.id for x in native("GET", "/v1/sandboxes")["sandboxes"]))


main()
