"""Contexts: interpreters of their own."""

from __future__ import annotations

from typing import List, Optional, Union

from .._generated import models as m
from .._generated import operations as op
from .transport import AsyncTransport


def context_id(context: Union[str, m.Context]) -> str:
    return context if isinstance(context, str) else context.id


class AsyncContexts:
    """Interpreters beside the sandbox's first one, whose id is ``default``. Each has a state and a queue of its own."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def create(self, language: Optional[str] = None, *, cwd: Optional[str] = None) -> m.Context:
        """Starts an interpreter (``python``, ``javascript`` or ``bash``) for ``run_code(..., context=...)``."""
        return await self._transport.call(op.create_context(self._sandbox, m.ContextCreate(language=language, cwd=cwd)))

    async def list(self) -> List[m.Context]:
        """The contexts that there are, oldest first."""
        return (await self._transport.call(op.list_contexts(self._sandbox))).contexts

    async def restart(self, context: Union[str, m.Context]) -> m.Context:
        """Replaces an interpreter by a new one: its state is lost, and the call that it runs ends."""
        return await self._transport.call(op.restart_context(self._sandbox, context_id(context)))

    async def remove(self, context: Union[str, m.Context]) -> None:
        """Ends an interpreter, and what runs in it."""
        await self._transport.call(op.delete_context(self._sandbox, context_id(context)))
