# Made from src/ramet/_async/sandbox.py by tools/generate.py: change that.
"""A sandbox: a machine of its own, in which code and commands run."""

from __future__ import annotations

import builtins
import uuid
from datetime import datetime
from types import TracebackType
from typing import Iterator, Dict, Mapping, Optional, Sequence, Type, Union

from .. import errors
from .._calls import Call
from .._generated import models as m
from .._generated import operations as op
from ..results import Execution, ExecutionError, ExecutionEvent, Result
from ._kit import Callback, entering
from .client import Ramet
from .code import Code, exec_request
from .commands import Commands
from .contexts import Contexts
from .events import follow_events
from .files import Files
from .ports import Ports
from .pty import Pty
from .transport import Stream

SandboxLike = Union[str, "Sandbox", m.SandboxInfo]


def sandbox_id(sandbox: "SandboxLike") -> str:
    return sandbox if isinstance(sandbox, str) else sandbox.id


def checkpoint_id(checkpoint: Union[str, m.Checkpoint]) -> str:
    return checkpoint if isinstance(checkpoint, str) else checkpoint.id


class Sandbox:
    """A sandbox. Make one with ``create``, or find one with ``connect``; leaving its ``with`` block deletes it."""

    def __init__(self, client: Ramet, info: m.SandboxInfo) -> None:
        self.client = client
        """What its calls are made with."""
        self._transport = client.transport
        self._code = Code(client.transport, info.id)
        self.id = info.id
        self.info = info
        """The record of the sandbox, as it was last seen; ``refresh`` looks anew."""
        self.files = Files(client.transport, info.id)
        self.commands = Commands(client.transport, info.id)
        self.contexts = Contexts(client.transport, info.id)
        self.pty = Pty(client.transport, info.id)
        self.ports = Ports(client.transport, info.id)
        self.checkpoints = Checkpoints(self, client)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.status}>"

    @classmethod
    @entering
    def create(
        cls,
        template: Optional[str] = None,
        *,
        env: Optional[Dict[str, str]] = None,
        metadata: Optional[Dict[str, str]] = None,
        memory_mb: Optional[int] = None,
        vcpus: Optional[int] = None,
        disk_mb: Optional[int] = None,
        egress: Optional[bool] = None,
        egress_policy: Optional[m.EgressPolicy] = None,
        idle_timeout: Optional[int] = None,
        max_lifetime: Optional[int] = None,
        ends_in: Optional[int] = None,
        at_end: Optional[str] = None,
        persistent: Optional[bool] = None,
        isolation: Optional[str] = None,
        checkpoint: Union[str, m.Checkpoint, None] = None,
        reseed: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
        client: Optional[Ramet] = None,
    ) -> "Sandbox":
        """Makes a sandbox and returns when it takes calls. What is not given is the server's default.

        ``env`` is the environment of everything that runs in it, ``metadata`` what to find it by. ``egress=False`` takes it off the network,
        ``egress_policy`` says what it may reach. After ``idle_timeout`` seconds without a call it hibernates (0: never), or becomes a
        Space when it is ``persistent``; after ``max_lifetime`` seconds it ends. ``ends_in`` seconds from now is a deadline, which ``update`` moves and at
        which it is deleted, or what ``at_end`` says (``delete``, ``hibernate``, ``hibernate_disk``). ``isolation`` is what it must be isolated by (``kvm``, ``gvisor``, ``emulated``): a server
        that gives another one refuses it, with the code ``isolation_unavailable``. ``checkpoint`` starts it from one instead of a template.
        """
        client = client or Ramet.shared()
        body = m.SandboxCreate(
            template=template,
            env=env,
            metadata=metadata,
            memory_mb=memory_mb,
            vcpus=vcpus,
            disk_mb=disk_mb,
            egress=egress,
            egress_policy=egress_policy,
            idle_timeout_s=idle_timeout,
            max_lifetime_s=max_lifetime,
            ends_in_s=ends_in,
            at_end=at_end,
            persistent=persistent,
            isolation=isolation,
            checkpoint=None if checkpoint is None else checkpoint_id(checkpoint),
            reseed=reseed,
        )
        call = op.create_sandbox(body, idempotency_key=idempotency_key or str(uuid.uuid4()))
        return cls(client, client.transport.call(call))

    @classmethod
    @entering
    def connect(cls, id: str, *, client: Optional[Ramet] = None) -> "Sandbox":
        """A sandbox that exists. It does not wake it."""
        client = client or Ramet.shared()
        return cls(client, client.transport.call(op.get_sandbox(id)))

    @classmethod
    def list(
        cls,
        *,
        status: Optional[str] = None,
        template: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        limit: Optional[int] = None,
        client: Optional[Ramet] = None,
    ) -> Iterator[m.SandboxInfo]:
        """The sandboxes of the project, newest first; at most ``limit``. All filters must match; ``status="any"`` also
        shows stopped ones. They come page by page, as they are asked for."""
        client = client or Ramet.shared()
        wanted = None if metadata is None else [f"{k}={v}" for k, v in metadata.items()]
        cursor: Optional[str] = None
        left = limit
        while left is None or left > 0:
            page = client.transport.call(
                op.list_sandboxes(
                    limit=200 if left is None else min(left, 200), cursor=cursor, status=status, template=template, metadata=wanted
                )
            )
            for info in page.sandboxes:
                yield info
            cursor = page.next_cursor
            if not cursor or not page.sandboxes:
                return
            if left is not None:
                left -= len(page.sandboxes)

    def _see(self, call: Call[m.SandboxInfo]) -> m.SandboxInfo:
        """Makes a call that answers with the record."""
        self.info = self._transport.call(call)
        return self.info

    def refresh(self) -> m.SandboxInfo:
        """The record as it is now."""
        return self._see(op.get_sandbox(self.id))

    def is_running(self) -> bool:
        """Whether it is there and takes calls. One that hibernates does: a call wakes it."""
        try:
            info = self.refresh()
        except errors.NotFoundError:
            return False
        return info.status not in ("stopping", "stopped", "failed")

    def update(
        self,
        *,
        idle_timeout: Optional[int] = None,
        max_lifetime: Optional[int] = None,
        ends_in: Optional[int] = None,
        at_end: Optional[str] = None,
        metadata: Optional[Dict[str, Optional[str]]] = None,
    ) -> m.SandboxInfo:
        """Changes settings. What is not given stays; metadata are merged, and a value of None removes its key.
        ``ends_in`` moves the deadline to so many seconds from now; 0 takes it away."""
        body = m.SandboxUpdate(
            idle_timeout_s=idle_timeout, max_lifetime_s=max_lifetime, ends_in_s=ends_in, at_end=at_end, metadata=metadata
        )
        return self._see(op.update_sandbox(self.id, body))

    def set_egress(
        self,
        egress: bool = True,
        *,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        order: Optional[str] = None,
    ) -> m.SandboxInfo:
        """Replaces what it may reach, all of it. Rules are names, ``*.example.com``, addresses or networks, with ``:port`` behind them or without."""
        policy = m.EgressPolicy(allow=[*allow], deny=[*deny], order=order)
        call = op.set_egress(self.id, m.EgressSet(egress=egress, egress_policy=policy))
        return self._see(call)

    def delete(self) -> None:
        """Deletes it, and returns when all that it used is free. One that is gone is no error."""
        try:
            self._transport.call(op.delete_sandbox(self.id))
        except errors.NotFoundError:
            pass

    def close(self) -> None:
        """The same as ``delete``."""
        self.delete()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.delete()

    def run_code(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Union[str, m.Context, None] = None,
        timeout: Optional[float] = None,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        on_stdout: Optional[Callback[str]] = None,
        on_stderr: Optional[Callback[str]] = None,
        on_result: Optional[Callback[Result]] = None,
        on_error: Optional[Callback[ExecutionError]] = None,
    ) -> Execution:
        """Runs code and returns what it did. Python (the default) runs in the sandbox's one interpreter: variables and imports are there
        at the next call. ``javascript`` has an interpreter of that kind too, ``bash`` is a new process each time. With ``context`` the code runs in that one of ``contexts``.

        An exception of the code is in ``error``, and none of Python's; ``check()`` makes it one. After ``timeout`` seconds the code is interrupted, and so
        it is when the caller goes away. ``env`` and ``cwd`` are those of this call.
        """
        request = exec_request(code, language, context, timeout, env, cwd, user)
        return self._code.run(request, on_stdout, on_stderr, on_result, on_error)

    def run_code_stream(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Union[str, m.Context, None] = None,
        timeout: Optional[float] = None,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
    ) -> Stream[ExecutionEvent]:
        """Runs code and yields what it does as it comes; the last event is ``Exit``. The code starts when the first
        event is asked for, and is interrupted when the stream is closed before its end."""
        return self._code.stream(exec_request(code, language, context, timeout, env, cwd, user))

    def fork(
        self, n: int = 1, *, reseed: Optional[bool] = None, idempotency_key: Optional[str] = None
    ) -> "builtins.list[Sandbox]":
        """Makes ``n`` sandboxes with the memory, processes and files that this one has at this moment. All are made or none.
        With ``reseed=False`` the children draw the same random numbers from Python's global generators."""
        call = op.fork_sandbox(self.id, m.ForkRequest(n=n, reseed=reseed), idempotency_key=idempotency_key or str(uuid.uuid4()))
        forked = self._transport.call(call)
        return [type(self)(self.client, info) for info in forked.sandboxes]

    def merge_into(self, winner: SandboxLike) -> m.SandboxInfo:
        """Makes this sandbox what ``winner`` is, usually one of its forks: it has the machine of that one then, with its memory and
        files, and the id of the winner is retired. Its own machine is gone."""
        return self._see(op.merge_sandbox(self.id, sandbox_id(winner)))

    def diff(self, other: SandboxLike, paths: Optional[Sequence[str]] = None) -> m.Diff:
        """Which files ``other`` has besides (``added``), has not (``removed``) or has otherwise (``modified``)."""
        body = m.DiffRequest(other=sandbox_id(other), paths=None if paths is None else [*paths])
        return self._transport.call(op.diff_sandboxes(self.id, body))

    def hibernate(self) -> m.SandboxInfo:
        """Saves memory and disk and ends the machine. Any call that needs it wakes it, with all that ran in it."""
        return self._see(op.hibernate_sandbox(self.id))

    def wake(self) -> m.SandboxInfo:
        """Wakes it, and returns when it takes calls."""
        return self._see(op.wake_sandbox(self.id))

    def get_host(self, port: int) -> str:
        """The host name under which a port of the sandbox is reached, as ``3000-i1f38….example.com``, with a port where one is needed."""
        domain = self.client.preview_domain()
        if not 0 < port < 65536:
            raise ValueError(f"{port} is no TCP port")
        return f"{port}-i{self.id.split('_', 1)[-1]}.{domain}"

    def preview_url(self, port: int) -> str:
        """The URL of a port of the sandbox."""
        host = self.get_host(port)
        return f"{self.client.url.split(':', 1)[0]}://{host}"

    def metrics(self) -> m.Metrics:
        """What it uses, as the guest sees it and as it costs the host."""
        return self._transport.call(op.get_metrics(self.id))

    def console(self) -> str:
        """The last lines of the guest's serial console."""
        return self._transport.call(op.get_console(self.id))

    def events(self, *, since: Union[int, str, datetime, None] = None, follow: bool = True) -> Stream[m.SandboxEvent]:
        """What has happened to it, from the first event or from behind ``since`` (an event's id or a time), and with ``follow`` what
        happens. A connection that breaks is made anew where it was: nothing is lost, nothing comes twice."""
        return follow_events(self._transport, since, self.id, follow)

    def lineage(self) -> m.Lineage:
        """Its family: sandboxes and checkpoints that have an ancestor in common with it."""
        return self._transport.call(op.get_lineage(sandbox=self.id))


class Checkpoints:
    """Checkpoints of one sandbox: points to go back to, or to start others from."""

    def __init__(self, sandbox: Sandbox, client: Ramet) -> None:
        self._sandbox = sandbox
        self._client = client
        self._transport = client.transport

    def create(
        self,
        name: Optional[str] = None,
        *,
        kind: Optional[str] = None,
        delete_oldest: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
    ) -> m.Checkpoint:
        """Makes a checkpoint while the sandbox goes on: of all (``full``, the default), or of the ``disk`` only."""
        body = m.CheckpointCreate(name=name, kind=kind, delete_oldest=delete_oldest)
        call = op.create_checkpoint(self._sandbox.id, body, idempotency_key=idempotency_key or str(uuid.uuid4()))
        return self._transport.call(call)

    def list(self) -> Iterator[m.Checkpoint]:
        """Its checkpoints, newest first."""
        cursor: Optional[str] = None
        while True:
            page = self._transport.call(op.list_sandbox_checkpoints(self._sandbox.id, limit=200, cursor=cursor))
            for checkpoint in page.checkpoints:
                yield checkpoint
            cursor = page.next_cursor
            if not cursor:
                return

    def restore(self, checkpoint: Union[str, m.Checkpoint]) -> m.SandboxInfo:
        """Takes the sandbox back to a checkpoint. What was there since is gone; its id and settings stay."""
        body = m.RestoreRequest(checkpoint=checkpoint_id(checkpoint))
        info = self._transport.call(op.restore_sandbox(self._sandbox.id, body))
        self._sandbox.info = info
        return info

    def delete(self, checkpoint: Union[str, m.Checkpoint]) -> None:
        """Deletes a checkpoint. What was started from it goes on."""
        self._transport.call(op.delete_checkpoint(checkpoint_id(checkpoint)))

    @entering
    def spawn(
        self,
        checkpoint: Union[str, m.Checkpoint],
        *,
        env: Optional[Dict[str, str]] = None,
        metadata: Optional[Dict[str, str]] = None,
        egress: Optional[bool] = None,
        egress_policy: Optional[m.EgressPolicy] = None,
        idle_timeout: Optional[int] = None,
        max_lifetime: Optional[int] = None,
        persistent: Optional[bool] = None,
        isolation: Optional[str] = None,
        reseed: Optional[bool] = None,
        idempotency_key: Optional[str] = None,
    ) -> Sandbox:
        """Starts another sandbox from a checkpoint. What is not given is as it was in the sandbox of the checkpoint."""
        return Sandbox.create(
            checkpoint=checkpoint,
            env=env,
            metadata=metadata,
            egress=egress,
            egress_policy=egress_policy,
            idle_timeout=idle_timeout,
            max_lifetime=max_lifetime,
            persistent=persistent,
            isolation=isolation,
            reseed=reseed,
            idempotency_key=idempotency_key,
            client=self._client,
        )
