# Made from src/ramet/_async/code.py by tools/generate.py: change that.
"""Running code, and the contexts that it runs in."""

from __future__ import annotations

from typing import Any, Iterator, Dict, Mapping, Optional, Union

from .. import errors
from .._generated import models as m
from .._generated import operations as op
from ..results import (
    Collector,
    Execution,
    ExecutionError,
    ExecutionEvent,
    Exit,
    Result,
    Stderr,
    Stdout,
    parse_event,
)
from ._kit import Callback, Source, emit
from .contexts import context_id
from .transport import Answer, Holder, Stream, Transport


def read_event(line: Mapping[str, Any], run_id: str) -> Optional[ExecutionEvent]:
    """Reads a line of a run's stream; None for a type that is not known."""
    if line.get("type") == "stream_error":
        raise errors.from_stream(str(line.get("data", "the server could not go on")), str(line.get("code", "")))
    return parse_event(line, run_id)


def run_events(answer: Answer) -> Iterator[ExecutionEvent]:
    """The events of a run's stream, of which ``Exit`` is the last."""
    for line in answer.objects():
        event = read_event(line, answer.run_id)
        if event is None:
            continue
        if isinstance(event, Exit):
            answer.finish()
        yield event
        if isinstance(event, Exit):
            return


class Code:
    """What runs code in one sandbox."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def run(
        self,
        request: m.ExecRequest,
        on_stdout: Optional[Callback[str]],
        on_stderr: Optional[Callback[str]],
        on_result: Optional[Callback[Result]],
        on_error: Optional[Callback[ExecutionError]],
    ) -> Execution:
        answer = self._transport.open(op.exec(self._sandbox, request))
        try:
            collector = Collector(answer.run_id)
            for event in run_events(answer):
                collector.add(event)
                if isinstance(event, Stdout):
                    emit(on_stdout, event.text)
                elif isinstance(event, Stderr):
                    emit(on_stderr, event.text)
                elif isinstance(event, Result):
                    emit(on_result, event)
                elif isinstance(event, ExecutionError):
                    emit(on_error, event)
            return collector.execution()
        finally:
            answer.close()

    def stream(self, request: m.ExecRequest) -> Stream[ExecutionEvent]:
        holder = Holder()
        return Stream(self._events(request, holder), holder)

    def _events(self, request: m.ExecRequest, holder: Holder) -> Source[ExecutionEvent]:
        answer = holder.take(self._transport.open(op.exec(self._sandbox, request)))
        try:
            for event in run_events(answer):
                yield event
        finally:
            answer.close()


def exec_request(
    code: str,
    language: Optional[str],
    context: Union[str, m.Context, None],
    timeout: Optional[float],
    env: Optional[Dict[str, str]],
    cwd: Optional[str],
    user: Optional[str],
) -> m.ExecRequest:
    return m.ExecRequest(
        code=code,
        language=language,
        context=None if context is None else context_id(context),
        timeout_s=timeout,
        env=env,
        cwd=cwd,
        user=user,
        format="chunks",
    )
