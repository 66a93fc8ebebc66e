"""What Podflare publishes: its benchmarks and the programs of its introduction."""

import io
import os
import time
from contextlib import redirect_stdout

from check import Differs, has, main, native, operation, same, until

from podflare import Sandbox

GROUP = "Published programs"


def round_trip(count, whole):
    """Create, echo, close, some times; returns the milliseconds of each."""
    took = []
    for _ in range(count):
        begin = time.perf_counter()
        s = Sandbox()
        r = s.run_code("echo ready", language="bash")
        end = time.perf_counter()
        s.close()
        took.append(1000 * ((time.perf_counter() if whole else end) - begin))
        same((r.stdout, r.exit_code), ("ready", 0))
    return sorted(took)


@operation(GROUP, "cold start benchmark: create, echo; 5 runs")
def cold():
    round_trip(5, whole=False)


@operation(GROUP, "reliability benchmark: create, echo, close; 30 runs")
def reliability():
    same(len(round_trip(30, whole=True)), 30)


# The first program of the package's page, word for word.
QUICKSTART = '''
from podflare import Sandbox

# Create a sandbox (persistent Python REPL, preloaded libs on python-datasci)
sbx = Sandbox(template="python-datasci")

# Execute code — state persists across calls
sbx.run_code("x = 42")
print(sbx.run_code("print(x * 2)").stdout)  # "84"

# Fork — spawn N copies of the running sandbox
children = sbx.fork(n=5)
children[0].run_code("x = 100")   # isolated per branch

# Merge a branch back into the parent
sbx.merge_into(children[0])

# Upload + download files
sbx.upload("data.csv", open("local.csv", "rb").read())
sbx.run_code("import pandas as pd; df = pd.read_csv('data.csv')")

# Destroy
sbx.close()
'''

# And the second.
STREAMING = '''
from podflare import Sandbox

with Sandbox() as s:
    for ev in s.run_code_stream("for i in range(3): print(i)"):
        if ev.type == "stdout":
            print(ev.data, flush=True)
'''

# After its first program with a terminal: without the region, whose address the package knows, and without npm.
TERMINAL = '''
from podflare import Sandbox

with Sandbox() as sbx:
    # Spawn a real tty. timeout_ms=0 keeps the session alive until
    # close() or the sandbox's max_lifetime.
    pty = sbx.pty.create(
        cmd="cat > /tmp/answers; stty size",
        cols=120, rows=40,
        on_data=lambda chunk: print(chunk.decode(), end=""),
        timeout_ms=0,
    )

    # Send keystrokes — strings are UTF-8, bytes are raw
    pty.send_input("\\r" * 9)
    pty.send_input(b"\\x04")               # Ctrl-D
    pty.resize(cols=200, rows=50)         # child receives SIGWINCH
    exit_code = pty.wait()                # blocks until the child exits
    print("exit", exit_code)
'''


def printed(program):
    out = io.StringIO()
    scope = {}
    with redirect_stdout(out):
        exec(program, scope)
    return out.getvalue(), scope


@operation(GROUP, "the package's first example")
def quickstart():
    for name in ("local.csv", "data.csv"):
        with open(name, "w") as f:
            f.write("a,b\n1,2\n")
    out, scope = printed(QUICKSTART)
    same(out, "84\n")
    for child in scope["children"][1:]:
        child.close()
    return "word for word. Its `upload` has the arguments in the wrong order for the package, which makes a file of another name: so it does in the service"


@operation(GROUP, "the same with upload's arguments in the package's order")
def quickstart_right():
    with open("local.csv", "w") as f:
        f.write("a,b\n1,2\n")
    with Sandbox(template="python-datasci") as s:
        s.upload(open("local.csv", "rb").read(), "data.csv")
        r = s.run_code("import pandas as pd; df = pd.read_csv('data.csv'); print(df.b[0], len(df))")
        same((r.stdout, r.stderr, r.exit_code), ("2 1", "", 0))


@operation(GROUP, "template=\"python-datasci\": pd and np without import")
def preimported():
    with Sandbox(template="python-datasci") as s:
        if s.run_code("pd.DataFrame({'a': [1]}); np.zeros(1)").exit_code == 0:
            return
        same(s.run_code("import pandas, numpy, scipy, matplotlib").exit_code, 0)
    raise Differs("the packages are there and have to be imported")


@operation(GROUP, "the package's second example (streaming)")
def streaming():
    same(printed(STREAMING)[0], "0\n1\n2\n")


@operation(GROUP, "an example with a terminal, after the package's own")
def terminal():
    out, _ = printed(TERMINAL)
    has(out, "exit 0")


main()
