"""Terminals."""

from __future__ import annotations

from types import TracebackType
from typing import Dict, Optional, Sequence, Type, Union

from .. import errors
from .._generated import models as m
from ..results import Exit, Started, Stdout
from ._kit import Background, Callback, Content, Source, emit
from .commands import AsyncProcesses, Process
from .transport import AsyncHolder, AsyncStream, AsyncTransport


class AsyncPtyHandle:
    """A terminal. It goes on when this program ends; ``kill`` ends it. Whoever wants what it shows reads it in one of three
    ways: ``on_data`` at the create, iterating over the handle, or ``wait``, which drops it."""

    def __init__(self, processes: AsyncProcesses, started: Started, from_seq: int = 0, latest: bool = False) -> None:
        self._processes = processes
        self._next = from_seq
        self._latest = latest
        self._exit: Optional[Exit] = None
        self._background: Optional[Background] = None
        self._holder = AsyncHolder()
        self.id = started.run_id
        """For ``pty.connect``."""
        self.pid = started.pid
        """As the guest's kernel counts."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} pid {self.pid}>"

    @property
    def exit_code(self) -> Optional[int]:
        """The exit code of its program, when its end has come."""
        return None if self._exit is None else self._exit.exit_code

    def __aiter__(self) -> AsyncStream[bytes]:
        return self.output()

    def output(self) -> AsyncStream[bytes]:
        """What it shows, from where the last reader stopped."""
        if self._background is not None:
            raise RuntimeError("on_data was given, which takes what the terminal shows: wait() is what is left")
        holder = self._renew()
        return AsyncStream(self._output(holder), holder)

    async def _output(self, holder: AsyncHolder) -> Source[bytes]:
        if self._exit is not None:
            return
        async for seq, event in self._processes.follow(self.id, self._next, holder, latest=self._latest):
            self._next, self._latest = seq + 1, False
            if isinstance(event, Exit):
                self._exit = event
            elif isinstance(event, Stdout):
                yield event.data

    def _renew(self) -> AsyncHolder:
        self._holder = AsyncHolder()
        return self._holder

    async def _drain(self, holder: AsyncHolder, on_data: Optional[Callback[bytes]]) -> None:
        async with AsyncStream(self._output(holder), holder) as output:
            async for data in output:
                await emit(on_data, data)

    def call_back(self, on_data: Callback[bytes]) -> None:
        """Calls back with what it shows from now on, beside the caller; ``wait`` is then for its end alone, and
        raises what a callback raised."""
        holder = self._renew()
        self._background = Background(lambda: self._drain(holder, on_data))

    async def wait(self) -> Exit:
        """Waits for the end of its program."""
        if self._background is not None:
            await self._background.join()
        else:
            await self._drain(self._renew(), None)
        if self._exit is None:
            raise errors.cut(self._processes.transport.config.url)
        return self._exit

    async def send_input(self, data: Content) -> int:
        """Types: ``"\\x03"`` is Ctrl-C, ``"\\x04"`` Ctrl-D. Returns how many bytes."""
        return await self._processes.send(self.id, data, False)

    async def resize(self, columns: int, rows: int) -> None:
        """Sets its size in characters."""
        await self._processes.resize(self.id, columns, rows)

    async def kill(self, signal: Union[str, int] = "SIGKILL") -> bool:
        """Ends it; False when it has ended already."""
        return await self._processes.kill(self.id, signal)

    async def disconnect(self) -> None:
        """Stops reading it; it goes on. ``on_data`` is not called any more."""
        background, self._background = self._background, None
        self._holder.closed = True
        if background is not None:
            await background.stop(self._interrupt)

    async def _interrupt(self) -> None:
        if self._holder.answer is not None:
            self._holder.answer.abort()

    async def __aenter__(self) -> "AsyncPtyHandle":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.disconnect()


class AsyncPty:
    """Terminals of one sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._processes = AsyncProcesses(transport, sandbox)

    async def create(
        self,
        *,
        command: Union[str, Sequence[str], None] = None,
        columns: int = 80,
        rows: int = 24,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
        tag: Optional[str] = None,
        on_data: Optional[Callback[bytes]] = None,
    ) -> AsyncPtyHandle:
        """Opens a terminal with a login shell, or with a command in it."""
        if command is None:
            argv = ["bash", "-l"]
        else:
            argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        request = m.ProcessStart(
            argv=argv, env=env, cwd=cwd, user=user, timeout_s=timeout, tag=tag, pty=m.PtySize(columns=columns, rows=rows)
        )
        handle = AsyncPtyHandle(self._processes, await self._processes.start(request))
        if on_data is not None:
            handle.call_back(on_data)
        return handle

    async def connect(
        self, process: Process, *, from_seq: Optional[int] = None, on_data: Optional[Callback[bytes]] = None
    ) -> AsyncPtyHandle:
        """A terminal that was opened elsewhere, by its id or pid: what it shows from now on, or from the event that
        has the number ``from_seq`` (0: all that is kept)."""
        started = await self._processes.find(process)
        handle = AsyncPtyHandle(self._processes, started, from_seq or 0, latest=from_seq is None)
        if on_data is not None:
            handle.call_back(on_data)
        return handle

    async def send_input(self, process: Process, data: Content) -> int:
        """Types into a terminal."""
        return await self._processes.send(process, data, False)

    async def resize(self, process: Process, columns: int, rows: int) -> None:
        """Sets the size of a terminal in characters."""
        await self._processes.resize(process, columns, rows)

    async def kill(self, process: Process, signal: Union[str, int] = "SIGKILL") -> bool:
        """Ends a terminal; False when it is not there."""
        return await self._processes.kill(process, signal)
