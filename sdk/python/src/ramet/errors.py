"""What can go wrong. Every error that the package raises itself is a RametError."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Dict, Optional, Type

if TYPE_CHECKING:
    from .results import CommandResult, Execution


class RametError(Exception):
    """The base of all errors."""

    message: str
    """One sentence, the server's where it was the server that refused."""
    code: str
    """A stable word for programs, such as ``sandbox_not_found``; "" when there is none."""
    status: Optional[int]
    """The HTTP status; None when there was no answer, or in the middle of a stream."""
    request_id: str
    """What the server's log has the call under; "" when there was no answer."""
    hint: str
    """What to do about it, when message does not say it."""
    retry_after: Optional[float]
    """Seconds after which the same call may succeed, when the server says it."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: Optional[int] = None,
        request_id: str = "",
        hint: str = "",
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.request_id = request_id
        self.hint = hint or _HINTS.get(code, "")
        self.retry_after = retry_after

    def __str__(self) -> str:
        text = self.message
        if self.hint:
            text = f"{text.rstrip('.')}. {self.hint[0].upper()}{self.hint[1:]}."
        known = [self.code, str(self.status or ""), self.request_id and f"request {self.request_id}"]
        told = ", ".join(k for k in known if k)
        return f"{text} [{told}]" if told else text


class ConfigurationError(RametError):
    """The settings make no sense; no call was made."""


class AuthenticationError(RametError):
    """401: there was no key, or one that is wrong or revoked."""


class PermissionDeniedError(RametError):
    """403: the guest's user may not do it, or only an admin's key may."""


class InvalidRequestError(RametError):
    """400, 405, 408, 413, 415: the call itself is wrong; repeating it will not help."""


class NotFoundError(RametError):
    """404: there is no such thing, or it is another project's."""


class ConflictError(RametError):
    """409: it is there, but in the wrong state for the call."""


class RateLimitError(RametError):
    """429: a limit is reached. ``retry_after`` may say when to try again."""


class QuotaError(RateLimitError):
    """429: the project's quota is used up."""


class ServerError(RametError):
    """5xx: the server's fault. Its log has more under ``request_id``."""


class UnavailableError(ServerError):
    """503: the server cannot do it now; ``retry_after`` says when to try again."""


class UnsupportedError(ServerError):
    """501: this server, or this template, cannot do it at all."""


class NoSpaceError(ServerError):
    """507: the sandbox's disk is full."""


class DecodeError(ServerError, ValueError):
    """What the server sent is not what its API says: is it a Ramet server, of a version that fits?"""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unreadable_answer")


class ConnectionError(RametError, builtins.ConnectionError):
    """No server answered, or the connection broke before the end."""

    may_have_run: bool
    """Whether the call may have had an effect: False when no connection was made."""

    def __init__(self, message: str, *, may_have_run: bool = False, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.may_have_run = may_have_run


class TimeoutError(RametError, builtins.TimeoutError):
    """The server did not answer in time, or a stream said nothing for so long that it is dead."""

    may_have_run: bool = True
    """The call was sent: it may have had an effect."""


class CodeError(RametError):
    """Code has failed, and ``check`` was asked for."""

    def __init__(self, message: str, execution: Execution) -> None:
        super().__init__(message)
        self.execution = execution


class CommandError(RametError):
    """A command has failed, and ``check`` was asked for."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


_STATUSES: Dict[int, Type[RametError]] = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitError,
    501: UnsupportedError,
    503: UnavailableError,
    507: NoSpaceError,
}

# Codes that a stream can end with, where there is no status any more.
_STREAM_CODES: Dict[str, Type[RametError]] = {
    "sandbox_hibernated": ConflictError,
    "sandbox_deleted": NotFoundError,
    "sandbox_failed": ConflictError,
    "sandbox_merged": ConflictError,
    "sandbox_restored": ConflictError,
    "key_revoked": AuthenticationError,
    "shutting_down": UnavailableError,
    "guest_unreachable": UnavailableError,
    "machine_gone": UnavailableError,
    "no_space": NoSpaceError,
}

_KEY_HINT = "set RAMET_API_KEY, or api_key, to a key that 'ramet keys create' has made"

_HINTS: Dict[str, str] = {
    "key_revoked": _KEY_HINT,
    "sandbox_not_found": "it may have ended or belong to another project: Sandbox.list() yields those that there are",
    "sandbox_deleted": "create another one with Sandbox.create()",
    "sandbox_failed": "create another one with Sandbox.create(); its record says in fail_reason what happened",
    "sandbox_hibernated": "wake() it, or use a client without wake=False",
    "template_not_found": "build it with Ramet().templates.build(name); templates.list() has those that there are",
    "checkpoint_not_found": "sb.checkpoints.list() yields those that there are",
    "space_not_found": "a Space is consumed by its resume; Ramet().spaces.list() yields those that there are",
    "quota_sandboxes": "delete sandboxes of the project, or raise its limit with 'ramet project set'",
    "quota_memory": "delete sandboxes of the project, or raise its limit with 'ramet project set'",
    "quota_disk": "delete sandboxes of the project, or raise its limit with 'ramet project set'",
    "too_many_checkpoints": "delete some, or pass delete_oldest=True",
    "host_memory_full": "delete sandboxes on the host, or ask for less memory_mb",
    "host_disk_full": "delete sandboxes on the host, or ask for less disk_mb",
    "file_not_found": "relative paths start at the home directory of the user",
    "no_space": "delete files in the sandbox, or create it with more disk_mb",
    "idempotency_key_reused": "choose another idempotency_key: this one was used for a call with another body",
    "process_not_found": "sb.commands.list() has the processes that there are",
}


def from_answer(
    status: int, message: str, code: str, request_id: str, retry_after: Optional[float] = None
) -> RametError:
    """The error of an answer outside 2xx."""
    kind = _STATUSES.get(status)
    if kind is None:
        kind = ServerError if status >= 500 else InvalidRequestError
    if code.startswith("quota_"):
        kind = QuotaError
    hint = _KEY_HINT if kind is AuthenticationError else ""
    return kind(message, code=code, status=status, request_id=request_id, hint=hint, retry_after=retry_after)


def from_stream(message: str, code: str, request_id: str = "") -> RametError:
    """The error that a stream ended with."""
    return _STREAM_CODES.get(code, ServerError)(message, code=code, request_id=request_id)


def cut(url: str) -> ConnectionError:
    """A stream that ended before its last event."""
    return ConnectionError(
        f"the connection to {url} was lost before the end; what it was following may still run",
        may_have_run=True,
        hint="commands.list() has what runs, and commands.connect() follows a background command again",
    )
