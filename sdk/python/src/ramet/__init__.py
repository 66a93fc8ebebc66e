"""Sandboxes of a Ramet server.

    from ramet import Sandbox

    with Sandbox.create() as sb:
        print(sb.run_code("6 * 7").text)

``AsyncSandbox`` is the same with ``await``. Everything is described in README.md; what a call does exactly, in
the documents of the server.
"""

from ._async.client import AsyncRamet
from ._async.commands import AsyncCommandHandle
from ._async.ports import AsyncPortConnection
from ._async.pty import AsyncPtyHandle
from ._async.sandbox import AsyncSandbox
from ._async.transport import AsyncStream
from ._generated.models import (
    BuildEvent,
    Capacity,
    Checkpoint,
    Context,
    Diff,
    EgressPolicy,
    Extracted,
    FileEvent,
    FileInfo,
    Info,
    Key,
    KeyCreated,
    Lineage,
    Metrics,
    ProcessInfo,
    Project,
    SandboxEvent,
    SandboxInfo,
    Space,
    Template,
    Usage,
)
from ._sync.client import Ramet
from ._sync.commands import CommandHandle
from ._sync.ports import PortConnection
from ._sync.pty import PtyHandle
from ._sync.sandbox import Sandbox
from ._sync.transport import Stream
from ._version import __version__
from .errors import (
    AuthenticationError,
    CodeError,
    CommandError,
    ConfigurationError,
    ConflictError,
    ConnectionError,
    DecodeError,
    InvalidRequestError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    QuotaError,
    RametError,
    RateLimitError,
    ServerError,
    TimeoutError,
    UnavailableError,
    UnsupportedError,
)
from .results import (
    CommandEvent,
    CommandResult,
    Execution,
    ExecutionError,
    ExecutionEvent,
    Exit,
    Result,
    Started,
    Stderr,
    Stdout,
    Truncated,
)

__all__ = [
    "AsyncCommandHandle",
    "AsyncPortConnection",
    "AsyncPtyHandle",
    "AsyncRamet",
    "AsyncSandbox",
    "AsyncStream",
    "AuthenticationError",
    "BuildEvent",
    "Capacity",
    "Checkpoint",
    "CodeError",
    "CommandError",
    "CommandEvent",
    "CommandHandle",
    "CommandResult",
    "ConfigurationError",
    "ConflictError",
    "ConnectionError",
    "Context",
    "DecodeError",
    "Diff",
    "EgressPolicy",
    "Execution",
    "ExecutionError",
    "ExecutionEvent",
    "Exit",
    "Extracted",
    "FileEvent",
    "FileInfo",
    "Info",
    "InvalidRequestError",
    "Key",
    "KeyCreated",
    "Lineage",
    "Metrics",
    "NoSpaceError",
    "NotFoundError",
    "PermissionDeniedError",
    "PortConnection",
    "ProcessInfo",
    "Project",
    "PtyHandle",
    "QuotaError",
    "Ramet",
    "RametError",
    "RateLimitError",
    "Result",
    "Sandbox",
    "SandboxEvent",
    "SandboxInfo",
    "ServerError",
    "Space",
    "Started",
    "Stderr",
    "Stdout",
    "Stream",
    "Template",
    "TimeoutError",
    "Truncated",
    "UnavailableError",
    "UnsupportedError",
    "Usage",
    "__version__",
]
