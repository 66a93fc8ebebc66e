# Made from src/ramet/_async/pty.py by tools/generate.py: change that.
"""Terminals."""

from __future__ import annotations

from types import TracebackType
from typing import Dict, Optional, Sequence, Type, Union

from .. import errors
from .._generated import models as m
from ..results import Exit, Started, Stdout
from ._kit import Background, Callback, Content, Source, emit
from .commands import Processes, Process
from .transport import Holder, Stream, Transport


class PtyHandle:
    """A terminal. It goes on when this program ends; ``kill`` ends it. Whoever wants what it shows reads it in one of three
    ways: ``on_data`` at the create, iterating over the handle, or ``wait``, which drops it."""

    def __init__(self, processes: Processes, started: Started, from_seq: int = 0, latest: bool = False) -> None:
        self._processes = processes
        self._next = from_seq
        self._latest = latest
        self._exit: Optional[Exit] = None
        self._background: Optional[Background] = None
        self._holder = Holder()
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

    def __iter__(self) -> Stream[bytes]:
        return self.output()

    def output(self) -> Stream[bytes]:
        """What it shows, from where the last reader stopped."""
        if self._background is not None:
            raise RuntimeError("on_data was given, which takes what the terminal shows: wait() is what is left")
        holder = self._renew()
        return Stream(self._output(holder), holder)

    def _output(self, holder: Holder) -> Source[bytes]:
        if self._exit is not None:
            return
        for seq, event in self._processes.follow(self.id, self._next, holder, latest=self._latest):
            self._next, self._latest = seq + 1, False
            if isinstance(event, Exit):
                self._exit = event
            elif isinstance(event, Stdout):
                yield event.data

    def _renew(self) -> Holder:
        self._holder = Holder()
        return self._holder

    def _drain(self, holder: Holder, on_data: Optional[Callback[bytes]]) -> None:
        with Stream(self._output(holder), holder) as output:
            for data in output:
                emit(on_data, data)

    def call_back(self, on_data: Callback[bytes]) -> None:
        """Calls back with what it shows from now on, beside the caller; ``wait`` is then for its end alone, and
        raises what a callback raised."""
        holder = self._renew()
        self._background = Background(lambda: self._drain(holder, on_data))

    def wait(self) -> Exit:
        """Waits for the end of its program."""
        if self._background is not None:
            self._background.join()
        else:
            self._drain(self._renew(), None)
        if self._exit is None:
            raise errors.cut(self._processes.transport.config.url)
        return self._exit

    def send_input(self, data: Content) -> int:
        """Types: ``"\\x03"`` is Ctrl-C, ``"\\x04"`` Ctrl-D. Returns how many bytes."""
        return self._processes.send(self.id, data, False)

    def resize(self, columns: int, rows: int) -> None:
        """Sets its size in characters."""
        self._processes.resize(self.id, columns, rows)

    def kill(self, signal: Union[str, int] = "SIGKILL") -> bool:
        """Ends it; False when it has ended already."""
        return self._processes.kill(self.id, signal)

    def disconnect(self) -> None:
        """Stops reading it; it goes on. ``on_data`` is not called any more."""
        background, self._background = self._background, None
        self._holder.closed = True
        if background is not None:
            background.stop(self._interrupt)

    def _interrupt(self) -> None:
        if self._holder.answer is not None:
            self._holder.answer.abort()

    def __enter__(self) -> "PtyHandle":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.disconnect()


class Pty:
    """Terminals of one sandbox."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._processes = Processes(transport, sandbox)

    def create(
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
    ) -> PtyHandle:
        """Opens a terminal with a login shell, or with a command in it."""
        if command is None:
            argv = ["bash", "-l"]
        else:
            argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        request = m.ProcessStart(
            argv=argv, env=env, cwd=cwd, user=user, timeout_s=timeout, tag=tag, pty=m.PtySize(columns=columns, rows=rows)
        )
        handle = PtyHandle(self._processes, self._processes.start(request))
        if on_data is not None:
            handle.call_back(on_data)
        return handle

    def connect(
        self, process: Process, *, from_seq: Optional[int] = None, on_data: Optional[Callback[bytes]] = None
    ) -> PtyHandle:
        """A terminal that was opened elsewhere, by its id or pid: what it shows from now on, or from the event that
        has the number ``from_seq`` (0: all that is kept)."""
        started = self._processes.find(process)
        handle = PtyHandle(self._processes, started, from_seq or 0, latest=from_seq is None)
        if on_data is not None:
            handle.call_back(on_data)
        return handle

    def send_input(self, process: Process, data: Content) -> int:
        """Types into a terminal."""
        return self._processes.send(process, data, False)

    def resize(self, process: Process, columns: int, rows: int) -> None:
        """Sets the size of a terminal in characters."""
        self._processes.resize(process, columns, rows)

    def kill(self, process: Process, signal: Union[str, int] = "SIGKILL") -> bool:
        """Ends a terminal; False when it is not there."""
        return self._processes.kill(process, signal)
