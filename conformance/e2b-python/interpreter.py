"""The code interpreter through E2B's official Python client, sync and async.

Prints one JSON object per operation, and exits with 1 when one did not do what it should.
The server is named by E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL.
"""

import asyncio
import base64
import json

from _check import Differs, Skip, has, is_async, main, operation, raises, same, val
from e2b import NotFoundException, TimeoutException
from e2b_code_interpreter import AsyncSandbox, Sandbox


def out(execution):
    return "".join(execution.logs.stdout)


def err(execution):
    return "".join(execution.logs.stderr)


async def ok(s, code, **options):
    """Runs code that must not fail."""
    e = await val(s.run_code(code, **options))
    if e.error:
        raise AssertionError(f"{e.error.name}: {e.error.value}\n{e.error.traceback}"[:1500])
    return e


@operation("run_code: result")
async def result(s):
    e = await ok(s, "x = 20\nx * 2 + 2")
    same((e.text, len(e.results), e.results[0].is_main_result, out(e)), ("42", 1, True, ""))
    e = await ok(s, "x + 1")
    same(e.text, "21", "the state")
    e = await ok(s, "'it is text'")
    same(e.text, "it is text", "a string")
    e = await ok(s, "y = 1")
    same((e.text, e.results), (None, []), "nothing")


@operation("run_code: output")
async def output(s):
    e = await ok(s, "import sys, os\nprint('h\u00e9 \u2603 \U0001f600')\nprint('e', file=sys.stderr)\nos.system('echo from a child')")
    same(out(e).splitlines(), ["h\u00e9 \u2603 \U0001f600", "from a child"])
    same(err(e), "e\n")


@operation("run_code: count")
async def count(s):
    first = (await ok(s, "1")).execution_count
    same((await ok(s, "1")).execution_count, first + 1)


@operation("run_code: callbacks")
async def callbacks(s):
    seen = {"out": [], "err": [], "result": [], "error": []}
    code = "import sys, time\nprint('one', flush=True)\ntime.sleep(0.3)\nprint('two', file=sys.stderr, flush=True)\ndisplay(3)\n1/0"
    e = await val(s.run_code(
        code, on_stdout=seen["out"].append, on_stderr=seen["err"].append, on_result=seen["result"].append, on_error=seen["error"].append,
    ))
    same(("".join(m.line for m in seen["out"]), "".join(m.line for m in seen["err"])), ("one\n", "two\n"))
    same([r.text for r in seen["result"]], ["3"])
    same((len(seen["error"]), e.error.name), (1, "ZeroDivisionError"))
    same((seen["out"][0].error, seen["err"][0].error), (False, True))
    if not seen["out"][0].timestamp:
        raise AssertionError("no timestamp")


@operation("run_code: errors")
async def errors(s):
    e = await val(s.run_code("def f():\n    raise ValueError('because')\nf()"))
    same((e.error.name, e.error.value), ("ValueError", "because"))
    has(e.error.traceback, "ValueError")
    has(e.error.traceback, "because")
    e = await val(s.run_code("this is no python"))
    same(e.error.name, "SyntaxError")
    e = await val(s.run_code("import sys\nsys.exit(3)"))
    same((e.error.name, e.error.value), ("SystemExit", "3"))
    same((await ok(s, "1+1")).text, "2", "afterwards")


@operation("run_code: environment")
async def environment(s):
    same((await ok(s, "import os\nos.environ['GIVEN'], os.environ['MINE']", envs={"MINE": "a b"})).text, "('of create', 'a b')")
    same((await ok(s, "os.environ.get('MINE')")).text in (None, "None"), True, "the next call's")


@operation("run_code: working directory")
async def working_directory(s):
    same((await ok(s, "import os\nos.getcwd()")).text, "/home/user")
    await val(s.files.write("shared.txt", "from files"))
    same((await ok(s, "open('shared.txt').read()")).text, "from files")
    await ok(s, "os.chdir('/tmp')")
    same((await ok(s, "os.getcwd()")).text, "/tmp", "after a change")
    await ok(s, "os.chdir('/home/user')")


@operation("run_code: forms of results")
async def forms(s):
    code = """
class All:
    def _repr_html_(self): return '<b>html</b>'
    def _repr_markdown_(self): return '**md**'
    def _repr_svg_(self): return '<svg xmlns="http://www.w3.org/2000/svg"/>'
    def _repr_png_(self): return b'\\x89PNG123'
    def _repr_jpeg_(self): return b'\\xff\\xd8jpeg'
    def _repr_pdf_(self): return b'%PDF'
    def _repr_latex_(self): return '$x$'
    def _repr_json_(self): return {'a': [1, 2]}
    def _repr_javascript_(self): return 'alert(1)'
    def __repr__(self): return 'plain'
All()
"""
    r = (await ok(s, code)).results[0]
    same((r.text, r.html, r.markdown, r.latex, r.javascript), ("plain", "<b>html</b>", "**md**", "$x$", "alert(1)"))
    has(r.svg, "<svg")
    same(base64.b64decode(r.png), b"\x89PNG123")
    same(base64.b64decode(r.jpeg), b"\xff\xd8jpeg")
    same(base64.b64decode(r.pdf), b"%PDF")
    same(r.json, {"a": [1, 2]})
    same(set(r.formats()) >= {"text", "html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript"}, True, f"{list(r.formats())}")


@operation("run_code: several results")
async def several(s):
    e = await ok(s, "from IPython.display import display, HTML\ndisplay(1)\ndisplay(HTML('<i>2</i>'))\n3")
    same([r.is_main_result for r in e.results], [False, False, True])
    same((e.results[0].text, e.results[1].html, e.text), ("1", "<i>2</i>", "3"))


@operation("run_code: own MIME types")
async def extra(s):
    e = await ok(s, "display({'application/x-own': 'mine', 'text/plain': 'p'}, raw=True)")
    same((e.results[0].text, e.results[0].extra), ("p", {"application/x-own": "mine"}))


@operation("run_code: DataFrame")
async def dataframe(s):
    e = await ok(s, "import pandas as pd\npd.DataFrame({'name': ['a', 'b'], 'n': [1, 2], 'x': [0.5, 1.5]})")
    r = e.results[0]
    same(r.data, {"name": ["a", "b"], "n": [1, 2], "x": [0.5, 1.5]})
    has(r.html, "<table")
    has(r.text, "name")


CHART = "import matplotlib.pyplot as plt\nplt.figure()\n"


async def chart(s, code):
    e = await ok(s, CHART + code + "\nplt.show()")
    r = next((r for r in e.results if r.chart), None)
    if r is None:
        raise AssertionError(f"no chart in {[list(r.formats()) for r in e.results]}")
    same(base64.b64decode(r.png)[:4], b"\x89PNG")
    return r.chart


@operation("charts: line")
async def line(s):
    c = await chart(s, "plt.plot([1, 2, 3], [2, 4, 8], label='growth')\nplt.title('T')\nplt.xlabel('time (s)')\nplt.ylabel('size (kB)')")
    same((c.type.value, c.title, c.x_label, c.y_label, c.x_unit, c.y_unit), ("line", "T", "time (s)", "size (kB)", "s", "kB"))
    same([(e.label, [tuple(p) for p in e.points]) for e in c.elements], [("growth", [(1, 2), (2, 4), (3, 8)])])
    same((c.x_scale.value, len(c.x_ticks) == len(c.x_tick_labels)), ("linear", True))


@operation("charts: scatter")
async def scatter(s):
    c = await chart(s, "plt.scatter([1, 2], [3, 4], label='dots')")
    same(c.type.value, "scatter")
    same([[tuple(p) for p in e.points] for e in c.elements], [[(1, 3), (2, 4)]])


@operation("charts: bar")
async def bar(s):
    c = await chart(s, "plt.bar(['A', 'B'], [10, 20])\nplt.title('bars')")
    same((c.type.value, c.title), ("bar", "bars"))
    same([(e.label, float(e.value)) for e in c.elements], [("A", 10.0), ("B", 20.0)])


@operation("charts: pie")
async def pie(s):
    c = await chart(s, "plt.pie([1, 3], labels=['one', 'three'])")
    same(c.type.value, "pie")
    same([(e.label, round(e.angle), round(e.radius)) for e in c.elements], [("one", 90, 1), ("three", 270, 1)])


@operation("charts: box and whisker")
async def box(s):
    c = await chart(s, "plt.boxplot([[1, 2, 3, 4, 5, 20]])")
    same(c.type.value, "box_and_whisker")
    b = c.elements[0]
    same((b.min, b.median, b.max, [float(o) for o in b.outliers]), (1, 3.5, 5, [20.0]))


@operation("charts: several in one")
async def superchart(s):
    c = await chart(s, "f, (a, b) = plt.subplots(1, 2)\na.plot([1, 2], [1, 2])\nb.bar(['x'], [1])\nf.suptitle('both')")
    same((c.type.value, [e.type.value for e in c.elements]), ("superchart", ["line", "bar"]))


@operation("charts: Chinese, Japanese and Korean")
async def cjk(s):
    e = await ok(s, CHART + "plt.plot([1, 2])\nplt.title('\u4e2d\u6587 \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4')\nplt.show()")
    same("missing from" in err(e), False, err(e))
    same(e.results[0].chart.title, "\u4e2d\u6587 \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4")


@operation("contexts.create")
async def contexts_create(s):
    a = await val(s.create_code_context())
    b = await val(s.create_code_context(cwd="/tmp", language="python"))
    same((a.language, a.cwd, b.cwd), ("python", "/home/user", "/tmp"))
    await ok(s, "v = 'of a'", context=a)
    same((await ok(s, "v", context=a)).text, "of a")
    same((await val(s.run_code("v", context=b))).error.name, "NameError")
    same((await ok(s, "import os\nos.getcwd()", context=b)).text, "/tmp")
    same((await ok(s, "import os\nos.getcwd()", context=a)).text, "/home/user")


def has_contexts(s, name):
    if not hasattr(s, name):
        raise Skip


@operation("contexts.list")
async def contexts_list(s):
    has_contexts(s, "list_code_contexts")
    listed = await val(s.list_code_contexts())
    languages = {c.language for c in listed}
    same({"python", "javascript"} <= languages, True, f"{languages}")
    same({c.cwd for c in listed if c.id == listed[0].id}, {"/home/user"})
    made = await val(s.create_code_context(language="javascript"))
    same([c.language for c in await val(s.list_code_contexts()) if c.id == made.id], ["javascript"])
    for c in listed:
        if c.language == "python":
            await ok(s, "1", context=c)
            break


@operation("contexts.restart")
async def contexts_restart(s):
    has_contexts(s, "restart_code_context")
    c = await val(s.create_code_context(cwd="/tmp"))
    await ok(s, "v = 1", context=c)
    await val(s.restart_code_context(c))
    same((await val(s.run_code("v", context=c))).error.name, "NameError")
    same((await ok(s, "import os\nos.getcwd()", context=c)).text, "/tmp")


@operation("contexts.remove")
async def contexts_remove(s):
    has_contexts(s, "remove_code_context")
    c = await val(s.create_code_context())
    await val(s.remove_code_context(c))
    same(c.id in [k.id for k in await val(s.list_code_contexts())], False)
    async with raises(NotFoundException):
        await val(s.run_code("1", context=c))
    async with raises(NotFoundException):
        await val(s.remove_code_context(c.id))


@operation("contexts: errors")
async def contexts_errors(s):
    for options in ({"language": "cobol"}, {"cwd": "/no/such/dir"}):
        async with raises(Exception) as seen:
            await val(s.create_code_context(**options))
        has(str(seen[0]), "400")


@operation("languages: javascript")
async def javascript(s):
    same((await ok(s, "const a = 40; let b = 1; a + 2", language="javascript")).text, "42")
    e = await ok(s, "console.log('log'); console.error('err'); a + b", language="js")
    same((e.text, out(e), err(e)), ("41", "log\n", "err\n"))
    same((await ok(s, "await new Promise(r => setTimeout(() => r('later'), 50))", language="javascript")).text, "later")
    same((await ok(s, "process.cwd()", language="javascript")).text, "/home/user")
    e = await val(s.run_code("throw new TypeError('no')", language="javascript"))
    same((e.error.name, e.error.value), ("TypeError", "no"))


@operation("languages: typescript")
async def typescript(s):
    e = await val(s.run_code("const n: number = 41; interface P { x: number }; const p: P = { x: n + 1 }; p.x", language="typescript"))
    if e.error and "TypeScript" in e.error.value + e.error.traceback:
        raise Differs("types are not stripped by the Node.js of the template: " + e.error.value[:100])
    same(e.error, None)
    same(e.text, "42")


@operation("languages: bash")
async def bash(s):
    e = await ok(s, "v=5; cd /tmp; echo $v-$(pwd)", language="bash")
    same(out(e), "5-/tmp\n")
    same(out(await ok(s, "echo $v-$PWD", language="bash")), "5-/tmp\n", "the state")


@operation("languages: others")
async def others(s):
    for language in ("r", "java"):
        async with raises(Exception) as seen:
            await val(s.run_code("1", language=language))
        has(str(seen[0]), "400")
    raise Differs("r and java are answered with 400, which names the languages that are here")


@operation("run_code: timeout interrupts")
async def timeout(s):
    await ok(s, "import time\nkept = 'kept'")
    async with raises(TimeoutException):
        await val(s.run_code("time.sleep(100)", timeout=1))
    same((await ok(s, "kept", timeout=30)).text, "kept")


@operation("run_code: a silent minute's fraction")
async def silent(s):
    same((await ok(s, "import time\ntime.sleep(12)\n'still here'")).text, "still here")


@operation("run_code: the interpreter dies")
async def dies(s):
    c = await val(s.create_code_context())
    e = await val(s.run_code("import os\nos._exit(1)", context=c))
    same(e.error.name, "UnexpectedEndOfExecution")
    same((await ok(s, "1+1", context=c)).text, "2")


@operation("run_code: at the same time in contexts")
async def parallel(s):
    contexts = [await val(s.create_code_context()) for _ in range(2)]
    if is_async(s):
        got = await asyncio.gather(*(s.run_code(f"import time\ntime.sleep(0.5)\n{i}", context=c) for i, c in enumerate(contexts)))
        same([e.text for e in got], ["0", "1"])
    else:
        for i, c in enumerate(contexts):
            same((await ok(s, str(i), context=c)).text, str(i))


@operation("run_code: large output")
async def large(s):
    e = await ok(s, "print('x' * 3000000)")
    same(len(out(e)), 3000001)


@operation("run_code: to_json")
async def to_json(s):
    e = await ok(s, "print('p')\n1")
    same(json.loads(e.to_json())["results"][0]["text"], "1")


main(Sandbox, AsyncSandbox, timeout=300, envs={"GIVEN": "of create"})
