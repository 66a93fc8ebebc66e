# Made from src/ramet/_async/contexts.py by tools/generate.py: change that.
"""Contexts: interpreters of their own."""

from __future__ import annotations

from typing import List, Optional, Union

from .._generated import models as m
from .._generated import operations as op
from .transport import Transport


def context_id(context: Union[str, m.Context]) -> str:
    return context if isinstance(context, str) else context.id


class Contexts:
    """Interpreters beside the sandbox's first one, whose id is ``default``. Each has a state and a queue of its own."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def create(self, language: Optional[str] = None, *, cwd: Optional[str] = None) -> m.Context:
        """Starts an interpreter (``python``, ``javascript`` or ``bash``) for ``run_code(..., context=...)``."""
        return self._transport.call(op.create_context(self._sandbox, m.ContextCreate(language=language, cwd=cwd)))

    def list(self) -> List[m.Context]:
        """The contexts that there are, oldest first."""
        return (self._transport.call(op.list_contexts(self._sandbox))).contexts

    def restart(self, context: Union[str, m.Context]) -> m.Context:
        """Replaces an interpreter by a new one: its state is lost, and the call that it runs ends."""
        return self._transport.call(op.restart_context(self._sandbox, context_id(context)))

    def remove(self, context: Union[str, m.Context]) -> None:
        """Ends an interpreter, and what runs in it."""
        self._transport.call(op.delete_context(self._sandbox, context_id(context)))
