# Made from tests/_async/test_code.py by tools/generate.py: change that.
from __future__ import annotations

import time
from typing import Any, List

import pytest

from ramet import (
    Ramet,
    Sandbox,
    CodeError,
    ConflictError,
    ExecutionError,
    Exit,
    InvalidRequestError,
    NotFoundError,
    Result,
    Started,
    Stderr,
    Stdout,
)

from .tools import collect

pytestmark = pytest.mark.anyio


def test_variables_live_on_from_call_to_call(sb: Sandbox) -> None:
    assert (sb.run_code("import math; r = 3")).text is None
    e = sb.run_code("print('hi'); math.pi * r**2")
    assert (e.text, e.stdout, e.stderr, e.exit_code, e.ok) == ("28.274333882308138", "hi\n", "", 0, True)
    assert e.error is None and e.reason is None and e.truncated_bytes == 0 and e.run_id.startswith("run_")
    assert e.check() is e


def test_an_exception_is_told_and_not_raised(sb: Sandbox) -> None:
    e = sb.run_code("x = 1\n1/0")
    assert e.error is not None and (e.error.name, e.error.value) == ("ZeroDivisionError", "division by zero")
    assert "1/0" in e.error.traceback and not e.ok and e.exit_code == 1
    with pytest.raises(CodeError, match="ZeroDivisionError: division by zero") as caught:
        e.check()
    assert caught.value.execution is e
    assert (sb.run_code("x")).text == "1"


def test_results_have_all_their_forms(sb: Sandbox) -> None:
    e = sb.run_code(
        "from IPython.display import display, HTML, JSON, Image\n"
        "display(HTML('<b>x</b>'), JSON({'a': [1, None]}))\n"
        "display(Image(data=b'\\x89PNG\\r\\n\\x1a\\n\\x00\\xff', format='png'))\n"
        "'last'"
    )
    assert [r.is_main_result for r in e.results] == [False, False, False, True]
    html, js, image, last = e.results
    assert html.html == "<b>x</b>" and js.json == {"a": [1, None]} and last.text == "'last'"
    assert image.png and image.png.strip() == "iVBORw0KGgoA/w==" and image.to_bytes("image/png") == b"\x89PNG\r\n\x1a\n\x00\xff"
    assert "image/png" in image.formats() and last.png is None and last.chart is None and last.data is None
    bundle: Any = js._repr_mimebundle_()
    assert bundle["application/json"] == {"a": [1, None]}


def test_callbacks_are_called_as_it_comes(sb: Sandbox) -> None:
    out: List[str] = []
    err: List[str] = []
    results: List[Result] = []
    failures: List[ExecutionError] = []
    at: List[float] = []

    def on_result(r: Result) -> None:
        results.append(r)

    def on_stdout(text: str) -> None:
        out.append(text)
        at.append(time.monotonic())

    begin = time.monotonic()
    e = sb.run_code(
        "import sys, time\nprint('a', flush=True)\ntime.sleep(1)\nprint('b', file=sys.stderr)\n{}['k']",
        on_stdout=on_stdout, on_stderr=err.append, on_result=on_result, on_error=failures.append,
    )  # fmt: skip
    assert out == ["a\n"] and "".join(err) == e.stderr and results == [] and [f.name for f in failures] == ["KeyError"]
    assert at[0] - begin < time.monotonic() - begin - 0.5, "the output came with the end"


def test_an_error_of_a_callback_is_the_callers(sb: Sandbox) -> None:
    def fail(text: str) -> None:
        raise KeyError(text)

    with pytest.raises(KeyError, match="a"):
        sb.run_code("print('a', flush=True)\nimport time; time.sleep(60)", on_stdout=fail)
    # The code was interrupted, and the interpreter is free.
    assert (sb.run_code("1", timeout=30)).text == "1"


def test_stream(sb: Sandbox) -> None:
    events = collect(sb.run_code_stream("print(1)\nimport sys; print(2, file=sys.stderr)\n3"))
    kinds = [e.type for e in events]
    assert kinds[0] == "started" and kinds[-1] == "exit" and "result" in kinds
    assert isinstance(events[0], Started) and events[0].run_id.startswith("run_")
    assert "".join(e.text for e in events if isinstance(e, Stdout)) == "1\n"
    assert "".join(e.text for e in events if isinstance(e, Stderr)) == "2\n"
    assert [e.text for e in events if isinstance(e, Result)] == ["3"]
    assert events[-1] == Exit(0, duration_ms=events[-1].duration_ms) if isinstance(events[-1], Exit) else False


def test_leaving_a_stream_interrupts_the_code(sb: Sandbox) -> None:
    with sb.run_code_stream("n = 0\nwhile True:\n  n += 1\n  print(n, flush=True)") as stream:
        for event in stream:
            if isinstance(event, Stdout):
                break
    assert int((sb.run_code("n", timeout=30)).text or "0") > 0
    assert collect(stream) == []


def test_timeout_interrupts_the_code_and_keeps_the_state(sb: Sandbox) -> None:
    e = sb.run_code("x = 5\nimport time; time.sleep(60)", timeout=0.3)
    assert e.reason == "timeout" and not e.ok and e.message
    assert (sb.run_code("x")).text == "5"


def test_interrupt_from_elsewhere(sb: Sandbox) -> None:
    with sb.run_code_stream("print('on', flush=True)\nimport time; time.sleep(60)") as stream:
        run, end = "", None
        for event in stream:
            if isinstance(event, Started):
                run = event.run_id
            elif isinstance(event, Stdout):
                assert sb.commands.kill(run, "SIGINT")
            elif isinstance(event, Exit):
                end = event
    assert end is not None and end.reason == "interrupted"
    assert sb.commands.kill(run) is False


def test_bash_env_and_cwd(sb: Sandbox) -> None:
    sb.files.mkdir("here")
    e = sb.run_code("echo $A; basename $PWD; exit 3", language="bash", env={"A": "é\u2028"}, cwd="here")
    assert (e.stdout, e.exit_code, e.ok) == ("é\u2028\nhere\n", 3, False)


def test_bytes_that_are_no_text(sb: Sandbox) -> None:
    events = collect(sb.run_code_stream("printf '\\xff\\x00a'", language="bash"))
    assert b"".join(e.data for e in events if isinstance(e, Stdout)) == b"\xff\x00a"
    assert "".join(e.text for e in events if isinstance(e, Stdout)) == "\ufffd\x00a"


def test_much_output_and_long_lines(sb: Sandbox) -> None:
    e = sb.run_code("print('x' * 3_000_000); [print(i) for i in range(20000)]; None")
    lines = e.stdout.split("\n")
    assert len(lines[0]) == 3_000_000 and lines[1:] == [*map(str, range(20000)), ""]


def test_code_that_is_wrong(sb: Sandbox) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        sb.run_code("")
    assert (caught.value.code, caught.value.status) == ("invalid_code", 400) and caught.value.request_id
    with pytest.raises(InvalidRequestError):
        sb.run_code("1", language="cobol")
    with pytest.raises(ValueError):
        sb.run_code("1", timeout=float("nan"))


def test_a_sandbox_that_is_gone(client: Ramet) -> None:
    sb = Sandbox.create(client=client)
    sb.delete()
    sb.delete()
    with pytest.raises((NotFoundError, ConflictError)):
        sb.run_code("1")
    assert not sb.is_running()


def test_a_sandbox_that_ends_under_a_run(client: Ramet) -> None:
    sb = Sandbox.create(client=client)
    with pytest.raises(NotFoundError) as caught:
        with sb.run_code_stream("print('on', flush=True)\nimport time; time.sleep(60)") as stream:
            for event in stream:
                if isinstance(event, Stdout):
                    sb.delete()
    assert caught.value.code == "sandbox_deleted" and caught.value.status is None
