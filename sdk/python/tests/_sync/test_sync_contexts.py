# Made from tests/_async/test_contexts.py by tools/generate.py: change that.
from __future__ import annotations

import pytest

from ramet import Sandbox, InvalidRequestError, NotFoundError

pytestmark = pytest.mark.anyio


def test_contexts_share_no_variables(sb: Sandbox) -> None:
    sb.files.mkdir("there")
    context = sb.contexts.create(cwd="there")
    assert context.language == "python" and context.id and context.running
    sb.run_code("x = 1", context=context)
    e = sb.run_code("x", context=context)
    assert e.text == "1"
    e = sb.run_code("x")
    assert e.error is not None and e.error.name == "NameError"
    assert "there" in ((sb.run_code("import os; os.getcwd()", context=context.id)).text or "")
    assert context.id in [c.id for c in sb.contexts.list()]
    assert (sb.contexts.restart(context)).id == context.id
    e = sb.run_code("x", context=context)
    assert e.error is not None
    sb.contexts.remove(context)
    assert context.id not in [c.id for c in sb.contexts.list()]
    with pytest.raises(NotFoundError):
        sb.run_code("1", context=context)
    with pytest.raises(NotFoundError):
        sb.contexts.remove(context)


def test_a_context_of_bash_keeps_its_state(sb: Sandbox) -> None:
    context = sb.contexts.create("bash")
    sb.run_code("A=5", context=context)
    assert (sb.run_code("echo $A", context=context)).stdout == "5\n"
    with pytest.raises(InvalidRequestError):
        sb.contexts.create("cobol")


def test_code_that_was_written_for_another_language_has_its_own_state(sb: Sandbox) -> None:
    e = sb.run_code("const y = 6; y * 7", language="javascript")
    assert e.text == "42"
    assert (sb.run_code("y + 1", language="javascript")).text == "7"
