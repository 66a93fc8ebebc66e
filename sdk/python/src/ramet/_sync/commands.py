# Made from src/ramet/_async/commands.py by tools/generate.py: change that.
"""Commands: programs that run in a sandbox, in the foreground and in the background."""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import Dict, List, Literal, Optional, Sequence, Tuple, Type, Union, overload

from .. import errors
from .._calls import Lines
from .._generated import models as m
from .._generated import operations as op
from ..results import Collector, CommandEvent, CommandResult, Exit, Started, Stderr, Stdout, Truncated
from ._kit import Background, Callback, Content, Source, emit, sleep
from .code import read_event, run_events
from .transport import Holder, Stream, Transport

Process = Union[str, int, m.ProcessInfo]
"""A process: by its id, by its pid, or as the list has it."""

GONE = ("process_not_found", "not_found", "process_ended", "failed_precondition")
"""The codes of calls to a process that is not there any more."""

RECONNECTS = 3
"""How often in a row a broken connection to a background command is made anew without anything coming."""


class Processes:
    """The calls of one sandbox's processes, which commands and terminals have in common."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self.transport = transport
        self.sandbox = sandbox

    def start(self, request: m.ProcessStart) -> Started:
        """Starts a program that outlives the call, and returns when it runs."""
        request.detach = True
        answer = self.transport.open(op.start_process(self.sandbox, request, idempotency_key=str(uuid.uuid4())))
        try:
            for event in run_events(answer):
                if isinstance(event, Started):
                    return event
                if isinstance(event, Exit):
                    raise errors.InvalidRequestError(
                        event.message or f"the program could not be started: {event.reason}", code=event.reason or ""
                    )
            raise errors.cut(self.transport.config.url)
        finally:
            answer.close()

    def list(self) -> List[m.ProcessInfo]:
        return (self.transport.call(op.list_processes(self.sandbox))).processes

    def find(self, process: Process) -> Started:
        """The id and pid of a process that there is."""
        if isinstance(process, m.ProcessInfo):
            return Started(process.process, process.pid)
        for p in self.list():
            if process in (p.process, p.pid):
                return Started(p.process, p.pid)
        raise errors.NotFoundError(f"there is no process {process}", code="process_not_found")

    def id_of(self, process: Process) -> str:
        """The id of a process. An id is believed."""
        return process if isinstance(process, str) else (self.find(process)).run_id

    def kill(self, process: Process, signal: Union[str, int]) -> bool:
        try:
            id = self.id_of(process)
            self.transport.call(op.signal_process(self.sandbox, id, m.SignalRequest(signal=signal)))
        except (errors.NotFoundError, errors.ConflictError) as e:
            if e.code not in GONE:
                raise
            return False
        return True

    def send(self, process: Process, data: Content, eof: bool) -> int:
        call = op.write_stdin(self.sandbox, self.id_of(process), eof=eof)
        return (self.transport.call(call, data)).bytes

    def _stream(self, run_id: str, from_seq: int, latest: bool) -> Lines[m.RunEvent]:
        if latest:
            return op.stream_process(self.sandbox, run_id, latest=True)
        return op.stream_process(self.sandbox, run_id, from_seq=from_seq)

    def resize(self, process: Process, columns: int, rows: int) -> None:
        size = m.PtySize(columns=columns, rows=rows)
        self.transport.call(op.resize_process(self.sandbox, self.id_of(process), size))

    def follow(
        self, run_id: str, from_seq: int, holder: Holder, latest: bool = False
    ) -> "Source[Tuple[int, CommandEvent]]":
        """The events of a process from one on. A connection that breaks is made anew, where it was."""
        failures = 0
        while True:
            try:
                answer = holder.take(self.transport.open(self._stream(run_id, from_seq, latest)))
                try:
                    for line in answer.objects():
                        failures = 0
                        event = read_event(line, run_id)
                        number = line.get("seq")
                        seq = number if isinstance(number, int) else from_seq
                        from_seq, latest = seq + 1, False
                        if isinstance(event, Exit):
                            answer.finish()
                        if isinstance(event, (Stdout, Stderr, Truncated, Exit)):
                            yield seq, event
                        if isinstance(event, Exit):
                            return
                finally:
                    answer.close()
            except errors.ConnectionError:
                failures += 1
                if holder.closed or failures > RECONNECTS:
                    raise
                sleep(0.1 * 4 ** (failures - 1))


class CommandHandle:
    """A command in the background. It goes on whatever becomes of the handle, which holds no connection but while
    somebody iterates over it, waits, or has given callbacks."""

    def __init__(self, processes: Processes, started: Started, from_seq: int = 0) -> None:
        self._processes = processes
        self._collector = Collector(started.run_id)
        self._next = from_seq
        self._background: Optional[Background] = None
        self._holder = Holder()
        self.id = started.run_id
        """For ``commands.connect``."""
        self.pid = started.pid
        """As the guest's kernel counts."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} pid {self.pid}>"

    @property
    def stdout(self) -> str:
        """What has come of its standard output so far."""
        return self._collector.stdout

    @property
    def stderr(self) -> str:
        """What has come of its standard error so far."""
        return self._collector.stderr

    @property
    def exit_code(self) -> Optional[int]:
        """Its exit code, when its end has come."""
        return None if self._collector.exit is None else self._collector.exit.exit_code

    def __iter__(self) -> Stream[CommandEvent]:
        return self.events()

    def events(self) -> Stream[CommandEvent]:
        """What it says, from where the last reader stopped, with ``Exit`` at the end."""
        if self._background is not None:
            raise RuntimeError("callbacks were given, which take what the command says: wait() is what is left")
        holder = self._renew()
        return Stream(self._events(holder), holder)

    def _events(self, holder: Holder) -> Source[CommandEvent]:
        if self._collector.exit is not None:
            return
        for seq, event in self._processes.follow(self.id, self._next, holder):
            self._next = seq + 1
            self._collector.add(event)
            yield event

    def wait(
        self, *, on_stdout: Optional[Callback[str]] = None, on_stderr: Optional[Callback[str]] = None, check: bool = False
    ) -> CommandResult:
        """Waits for its end. With ``check`` a failure is a CommandError."""
        if self._background is not None:
            self._background.join()
        else:
            self._drain(self._renew(), on_stdout, on_stderr)
        result = self._collector.command()
        return result.check() if check else result

    def _renew(self) -> Holder:
        self._holder = Holder()
        return self._holder

    def _drain(
        self, holder: Holder, on_stdout: Optional[Callback[str]], on_stderr: Optional[Callback[str]]
    ) -> None:
        with Stream(self._events(holder), holder) as events:
            for event in events:
                if isinstance(event, Stdout):
                    emit(on_stdout, event.text)
                elif isinstance(event, Stderr):
                    emit(on_stderr, event.text)

    def call_back(self, on_stdout: Optional[Callback[str]], on_stderr: Optional[Callback[str]]) -> None:
        """Calls back with what it says from now on, beside the caller; ``wait`` is then for its end alone, and
        raises what a callback raised."""
        holder = self._renew()
        self._background = Background(lambda: self._drain(holder, on_stdout, on_stderr))

    def kill(self, signal: Union[str, int] = "SIGKILL") -> bool:
        """Sends a signal to its process group; False when it is not there any more."""
        return self._processes.kill(self.id, signal)

    def send_stdin(self, data: Content, *, eof: bool = False) -> int:
        """Writes to its standard input, which it must have been started with; returns how many bytes."""
        return self._processes.send(self.id, data, eof)

    def close_stdin(self) -> None:
        """Ends its standard input."""
        self._processes.send(self.id, b"", True)

    def disconnect(self) -> None:
        """Stops following it; it goes on. Callbacks are not called any more."""
        background, self._background = self._background, None
        self._holder.closed = True
        if background is not None:
            background.stop(self._interrupt)

    def _interrupt(self) -> None:
        if self._holder.answer is not None:
            self._holder.answer.abort()

    def __enter__(self) -> "CommandHandle":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.disconnect()


class Commands:
    """Programs in a sandbox."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self._processes = Processes(transport, sandbox)

    @overload
    def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        background: Literal[False] = False,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
        input: Optional[Content] = None,
        check: bool = False,
        on_stdout: Optional[Callback[str]] = None,
        on_stderr: Optional[Callback[str]] = None,
    ) -> CommandResult: ...

    @overload
    def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        background: Literal[True],
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
        stdin: bool = False,
        tag: Optional[str] = None,
        on_stdout: Optional[Callback[str]] = None,
        on_stderr: Optional[Callback[str]] = None,
    ) -> CommandHandle: ...

    def run(
        self,
        command: Union[str, Sequence[str]],
        *,
        background: bool = False,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
        stdin: bool = False,
        tag: Optional[str] = None,
        input: Optional[Content] = None,
        check: bool = False,
        on_stdout: Optional[Callback[str]] = None,
        on_stderr: Optional[Callback[str]] = None,
    ) -> Union[CommandResult, CommandHandle]:
        """Runs a command: a string is run by bash, a list is a program and its arguments.

        In the foreground it returns what the command did, when it has ended; when the caller goes away before, it is
        interrupted. ``timeout`` are seconds after which it is interrupted, ``input`` is its standard input, and with ``check`` a failure
        is a CommandError. With ``background`` it returns a handle at once, and the command goes on when the caller goes away.
        """
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        request = m.ProcessStart(
            argv=argv, env=env, cwd=cwd, user=user, timeout_s=timeout, tag=tag, stdin=stdin or input is not None or None
        )
        if background:
            handle = CommandHandle(self._processes, self._processes.start(request))
            if on_stdout is not None or on_stderr is not None:
                handle.call_back(on_stdout, on_stderr)
            return handle
        result = self._foreground(request, input, on_stdout, on_stderr)
        return result.check() if check else result

    def _foreground(
        self,
        request: m.ProcessStart,
        input: Optional[Content],
        on_stdout: Optional[Callback[str]],
        on_stderr: Optional[Callback[str]],
    ) -> CommandResult:
        answer = self._transport.open(op.start_process(self._sandbox, request))
        try:
            collector = Collector(answer.run_id)
            for event in run_events(answer):
                collector.add(event)
                if isinstance(event, Stdout):
                    emit(on_stdout, event.text)
                elif isinstance(event, Stderr):
                    emit(on_stderr, event.text)
                elif isinstance(event, Started) and input is not None:
                    self._feed(event.run_id, input)
            return collector.command()
        finally:
            answer.close()

    def _feed(self, run_id: str, input: Content) -> None:
        """Writes all of a command's input. What it says meanwhile waits in the sandbox, so that neither waits for the other."""
        try:
            self._processes.send(run_id, input, True)
        except (errors.NotFoundError, errors.ConflictError) as e:
            if e.code not in GONE:  # it did not read to the end, as is its right
                raise

    def list(self) -> List[m.ProcessInfo]:
        """Everything that runs, code too, and background commands that have ended."""
        return self._processes.list()

    def connect(self, process: Process, *, from_seq: int = 0) -> CommandHandle:
        """A handle of a command that was started elsewhere, by its id or pid. It begins with what the command said
        first, or with the event that has the number ``from_seq``."""
        return CommandHandle(self._processes, self._processes.find(process), from_seq)

    def kill(self, process: Process, signal: Union[str, int] = "SIGKILL") -> bool:
        """Sends a signal to a process group; False when it is not there. With SIGINT it interrupts code."""
        return self._processes.kill(process, signal)

    def send_stdin(self, process: Process, data: Content, *, eof: bool = False) -> int:
        """Writes to the standard input of a command that was started with ``stdin``."""
        return self._processes.send(process, data, eof)
