from __future__ import annotations

import pytest

from ramet import AsyncSandbox, InvalidRequestError, NotFoundError

pytestmark = pytest.mark.anyio


async def test_contexts_share_no_variables(sb: AsyncSandbox) -> None:
    await sb.files.mkdir("there")
    context = await sb.contexts.create(cwd="there")
    assert context.language == "python" and context.id and context.running
    await sb.run_code("x = 1", context=context)
    e = await sb.run_code("x", context=context)
    assert e.text == "1"
    e = await sb.run_code("x")
    assert e.error is not None and e.error.name == "NameError"
    assert "there" in ((await sb.run_code("import os; os.getcwd()", context=context.id)).text or "")
    assert context.id in [c.id for c in await sb.contexts.list()]
    assert (await sb.contexts.restart(context)).id == context.id
    e = await sb.run_code("x", context=context)
    assert e.error is not None
    await sb.contexts.remove(context)
    assert context.id not in [c.id for c in await sb.contexts.list()]
    with pytest.raises(NotFoundError):
        await sb.run_code("1", context=context)
    with pytest.raises(NotFoundError):
        await sb.contexts.remove(context)


async def test_a_context_of_bash_keeps_its_state(sb: AsyncSandbox) -> None:
    context = await sb.contexts.create("bash")
    await sb.run_code("A=5", context=context)
    assert (await sb.run_code("echo $A", context=context)).stdout == "5\n"
    with pytest.raises(InvalidRequestError):
        await sb.contexts.create("cobol")


async def test_code_that_was_written_for_another_language_has_its_own_state(sb: AsyncSandbox) -> None:
    e = await sb.run_code("const y = 6; y * 7", language="javascript")
    assert e.text == "42"
    assert (await sb.run_code("y + 1", language="javascript")).text == "7"
