# Made from src/ramet/_async/events.py by tools/generate.py: change that.
"""What happens to sandboxes, as server-sent events."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Iterator, Optional, Tuple, Union

from .. import errors
from .._codec import decode
from .._generated import models as m
from .._generated import operations as op
from ._kit import Source, sleep
from .transport import Answer, Holder, Stream, Transport

RECONNECTS = 6
"""How often in a row a broken connection is made anew without an event coming: over about 20 seconds."""


def follow_events(
    transport: Transport, since: Union[int, str, datetime, None], sandbox: Optional[str], follow: bool
) -> Stream[m.SandboxEvent]:
    if isinstance(since, datetime):
        since = since.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    holder = Holder()
    return Stream(_follow(transport, None if since is None else str(since), sandbox, follow, holder), holder)


def _follow(
    transport: Transport, since: Optional[str], sandbox: Optional[str], follow: bool, holder: Holder
) -> Source[m.SandboxEvent]:
    failures, opened = 0, False
    while True:
        try:
            call = op.stream_events(since=since, sandbox=sandbox, follow=follow)
            answer = holder.take(transport.open(call))
            opened = True
            try:
                for kind, data in _server_events(answer):
                    failures = 0
                    event = _read(kind, data)
                    if event.id:
                        since = str(event.id)
                    yield event
            finally:
                answer.close()
            if not follow:
                return
            raise errors.cut(transport.config.url)
        except (errors.ConnectionError, errors.UnavailableError):
            failures += 1
            if holder.closed or not opened or failures > RECONNECTS:
                raise
        sleep(min(0.1 * 3 ** (failures - 1), 10))


def _server_events(answer: Answer) -> Iterator[Tuple[str, str]]:
    kind, data = "", ""
    for raw in answer.text_lines():
        line = raw.decode(errors="replace").rstrip("\r")
        if not line:
            if data:
                yield kind, data
            kind, data = "", ""
            continue
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "event":
            kind = value
        elif name == "data":
            data += value


def _read(kind: str, data: str) -> m.SandboxEvent:
    try:
        value = json.loads(data)
        if kind == "error":
            raise errors.from_stream(str(value["error"]), str(value["code"]), str(value.get("request_id", "")))
        if kind == "gap":
            return m.SandboxEvent(
                id=0, time=datetime.now(timezone.utc), sandbox="", type="gap", state="", reason=str(value["reason"]), cause="", data={}
            )
        event: m.SandboxEvent = decode(m.SandboxEvent, value)
        return event
    except (ValueError, KeyError, TypeError) as e:
        raise errors.ServerError(f"an event cannot be read: {e}", code="unreadable_answer") from e
