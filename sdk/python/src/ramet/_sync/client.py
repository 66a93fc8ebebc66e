# Made from src/ramet/_async/client.py by tools/generate.py: change that.
"""The client of one server: its connections, and what belongs to the server and not to one sandbox."""

from __future__ import annotations

import uuid
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Iterator, Callable, List, Optional, Type, Union

from .. import _config, errors
from .._generated import models as m
from .._generated import operations as op
from ._kit import Callback, Shared, emit, entering
from .events import follow_events
from .transport import Stream, Transport

if TYPE_CHECKING:
    from .sandbox import Sandbox

_shared: "Shared[Ramet]" = Shared()


class Ramet:
    """A client of a Ramet server.

    Without ``url`` and ``api_key`` it is RAMET_URL and RAMET_API_KEY, and without those the server of this machine. A connection is given
    up after ``connect_timeout`` seconds and tried once more. A stream that says nothing at all for ``stream_timeout`` seconds is dead (the server says
    something every 10); other answers may take as long as they take, or ``request_timeout`` seconds. With ``wake=False`` calls that would
    wake a hibernated sandbox are refused.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        api_key: Optional[str] = None,
        *,
        connect_timeout: float = 2.5,
        request_timeout: Optional[float] = None,
        stream_timeout: float = 60.0,
        wake: bool = True,
    ) -> None:
        config = _config.load(url, api_key)
        self.url = config.url
        self.transport = Transport(
            config, connect_timeout=connect_timeout, request_timeout=request_timeout, stream_timeout=stream_timeout, wake=wake
        )
        self._preview_domain: Optional[str] = None
        self.checkpoints = ServerCheckpoints(self.transport)
        self.spaces = Spaces(self)
        self.templates = Templates(self.transport)
        self.keys = Keys(self.transport)
        self.projects = Projects(self.transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @classmethod
    def shared(cls) -> "Ramet":
        """The client that is used where none is given, of the server that the environment names now."""
        key = _config.load(None, None)
        make: Callable[[], Ramet] = lambda: Ramet()  # noqa: E731
        return _shared.get(key, make)

    @property
    def closed(self) -> bool:
        """Whether it was closed. The shared one is made anew then."""
        return self.transport.closed

    def close(self) -> None:
        """Closes its connections. Sandboxes go on."""
        self.transport.close()

    def __enter__(self) -> "Ramet":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def info(self) -> m.Info:
        """What the server is."""
        return self.transport.call(op.get_info())

    def preview_domain(self) -> str:
        """Below which domain ports of sandboxes are reached. The server is asked once."""
        if self._preview_domain is None:
            domain = (self.info()).preview_domain
            if not domain:
                raise errors.UnsupportedError(
                    f"{self.url} has no domain for previews", code="no_preview_domain", hint="use ports.connect, or a newer server"
                )
            self._preview_domain = domain
        return self._preview_domain

    def capacity(self) -> m.Capacity:
        """What the host keeps ready, and how creates were served."""
        return self.transport.call(op.get_capacity())

    def usage(self) -> m.Usage:
        """What sandboxes and templates cost the host."""
        return self.transport.call(op.get_usage())

    def events(
        self, *, since: Union[int, str, datetime, None] = None, sandbox: Optional[str] = None, follow: bool = True
    ) -> Stream[m.SandboxEvent]:
        """What has happened to sandboxes of the project, from the first event or from behind ``since`` (an event's id or a time), and with
        ``follow`` what happens. A connection that breaks is made anew where it was: nothing is lost, nothing comes twice."""
        return follow_events(self.transport, since, sandbox, follow)

    def lineage(self, sandbox: Optional[str] = None) -> m.Lineage:
        """Which sandboxes and checkpoints come of which: of all, or of one sandbox's family."""
        return self.transport.call(op.get_lineage(sandbox=sandbox))


class ServerCheckpoints:
    """The checkpoints of all sandboxes of the project."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[m.Checkpoint]:
        """All of them, newest first."""
        cursor: Optional[str] = None
        while True:
            page = self._transport.call(op.list_checkpoints(limit=200, cursor=cursor))
            for checkpoint in page.checkpoints:
                yield checkpoint
            cursor = page.next_cursor
            if not cursor:
                return

    def get(self, id: str) -> m.Checkpoint:
        """One of them."""
        return self._transport.call(op.get_checkpoint(id))

    def delete(self, id: str) -> None:
        """Deletes one. What was started from it goes on."""
        self._transport.call(op.delete_checkpoint(id))


class Spaces:
    """Spaces: what persistent sandboxes become when they are idle, to be resumed once."""

    def __init__(self, client: Ramet) -> None:
        self._client = client
        self._transport = client.transport

    def list(self) -> Iterator[m.Space]:
        """All of them, newest first."""
        cursor: Optional[str] = None
        while True:
            page = self._transport.call(op.list_spaces(limit=200, cursor=cursor))
            for space in page.spaces:
                yield space
            cursor = page.next_cursor
            if not cursor:
                return

    def get(self, id: str) -> m.Space:
        """One of them."""
        return self._transport.call(op.get_space(id))

    @entering
    def resume(
        self,
        space: Union[str, m.Space],
        *,
        idle_timeout: Optional[int] = None,
        max_lifetime: Optional[int] = None,
        idempotency_key: Optional[str] = None,
    ) -> "Sandbox":
        """Makes a sandbox of a Space, in which all that ran goes on. The Space is consumed."""
        from .sandbox import Sandbox

        body = m.SpaceResume(idle_timeout_s=idle_timeout, max_lifetime_s=max_lifetime)
        id = space if isinstance(space, str) else space.id
        call = op.resume_space(id, body, idempotency_key=idempotency_key or str(uuid.uuid4()))
        return Sandbox(self._client, self._transport.call(call))

    def delete(self, space: Union[str, m.Space]) -> None:
        """Deletes one."""
        self._transport.call(op.delete_space(space if isinstance(space, str) else space.id))


class Templates:
    """What sandboxes are made from."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[m.Template]:
        """Those that are built on the server."""
        return (self._transport.call(op.list_templates())).templates

    def build(self, name: str, *, on_progress: Optional[Callback[m.BuildEvent]] = None) -> m.Template:
        """Builds a template, or waits for its build. One whose inputs have not changed is not built again."""
        answer = self._transport.open(op.build_template(m.TemplateBuild(name=name)))
        try:
            for line in answer.objects():
                event = answer.decode(m.BuildEvent, line)
                if event.type == "progress":
                    emit(on_progress, event)
                elif event.type == "done" and event.template is not None:
                    answer.finish()
                    return event.template
                elif event.type == "error":
                    raise errors.from_stream(event.error or "the build failed", event.code or "", event.request_id or "")
            raise errors.cut(self._transport.config.url)
        finally:
            answer.close()

    def delete(self, name: str) -> None:
        """Deletes one that no sandbox stands on."""
        self._transport.call(op.delete_template(name))


class Keys:
    """API keys."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, project: Optional[str] = None) -> List[m.Key]:
        """The keys of a project, without their secrets."""
        return (self._transport.call(op.list_keys(project=project))).keys

    def create(
        self,
        name: Optional[str] = None,
        *,
        project: Optional[str] = None,
        format: Optional[str] = None,
        idempotency_key: Optional[str] = None,
    ) -> m.KeyCreated:
        """Makes a key. The answer is the only place that ever has its secret."""
        body = m.KeyCreate(name=name, project=project, format=format)
        return self._transport.call(op.create_key(body, idempotency_key=idempotency_key or str(uuid.uuid4())))

    def delete(self, id: str) -> None:
        """Revokes a key. Calls of it that are under way end."""
        self._transport.call(op.delete_key(id))


class Projects:
    """Projects, with their limits and what they use."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[m.Project]:
        """Those that the key may see."""
        return (self._transport.call(op.list_projects())).projects

    def get(self, name: str) -> m.Project:
        """One of them."""
        return self._transport.call(op.get_project(name))

    def set(
        self,
        name: str,
        *,
        max_sandboxes: Optional[int] = None,
        max_memory_mb: Optional[int] = None,
        max_disk_mb: Optional[int] = None,
    ) -> m.Project:
        """Makes a project, or changes its limits; needs an admin's key. 0 is the server's default, -1 none."""
        body = m.ProjectSet(max_sandboxes=max_sandboxes, max_memory_mb=max_memory_mb, max_disk_mb=max_disk_mb)
        return self._transport.call(op.set_project(name, body))
