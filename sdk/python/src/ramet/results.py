"""What code and commands say: events as they come, and all of them together."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Mapping, Optional, Tuple, Union

from ._codec import as_object
from .errors import CodeError, CommandError, DecodeError

CHART = "application/vnd.ramet.chart+json"
DATA = "application/vnd.ramet.data+json"


@dataclass(frozen=True)
class Started:
    """The first event: it runs."""

    run_id: str
    """The id for ``commands.kill`` and ``commands.connect``."""
    pid: int
    """As the guest's kernel counts."""
    type: Literal["started"] = field(default="started", repr=False)


@dataclass(frozen=True)
class Stdout:
    """Standard output, as it came: text that is never split inside a character."""

    text: str
    data: bytes = field(repr=False)
    """The exact bytes; in ``text`` those that are not UTF-8 are replaced."""
    type: Literal["stdout"] = field(default="stdout", repr=False)


@dataclass(frozen=True)
class Stderr:
    """Standard error, as it came."""

    text: str
    data: bytes = field(repr=False)
    type: Literal["stderr"] = field(default="stderr", repr=False)


@dataclass(frozen=True)
class Truncated:
    """So many bytes of output were dropped here."""

    bytes: int
    type: Literal["truncated"] = field(default="truncated", repr=False)


@dataclass(frozen=True)
class ExecutionError:
    """The exception that code did not catch."""

    name: str
    """Its class."""
    value: str
    traceback: str
    type: Literal["error"] = field(default="error", repr=False)


@dataclass(frozen=True)
class Exit:
    """The last event."""

    exit_code: int
    """128 plus the signal when one ended it."""
    reason: Optional[str] = None
    """None when it ended by itself; ``signaled``, ``timeout``, ``interrupted``, ``interpreter_died``,
    ``out_of_memory`` or ``start_failed``."""
    signal: Optional[int] = None
    message: Optional[str] = None
    """One sentence, with a reason."""
    duration_ms: float = 0.0
    """By the guest's clock."""
    type: Literal["exit"] = field(default="exit", repr=False)


@dataclass(frozen=True)
class Result:
    """A value that code has displayed, or that of its last expression, in every form that it has."""

    raw: Mapping[str, str]
    """By MIME type; images and PDF in base64."""
    is_main_result: bool = False
    """Whether it is the value of the last expression."""
    type: Literal["result"] = field(default="result", repr=False)

    @property
    def text(self) -> Optional[str]:
        return self.raw.get("text/plain")

    @property
    def html(self) -> Optional[str]:
        return self.raw.get("text/html")

    @property
    def markdown(self) -> Optional[str]:
        return self.raw.get("text/markdown")

    @property
    def latex(self) -> Optional[str]:
        return self.raw.get("text/latex")

    @property
    def javascript(self) -> Optional[str]:
        return self.raw.get("application/javascript")

    @property
    def svg(self) -> Optional[str]:
        return self.raw.get("image/svg+xml")

    @property
    def png(self) -> Optional[str]:
        """In base64; ``to_bytes("image/png")`` decodes it."""
        return self.raw.get("image/png")

    @property
    def jpeg(self) -> Optional[str]:
        return self.raw.get("image/jpeg")

    @property
    def pdf(self) -> Optional[str]:
        return self.raw.get("application/pdf")

    @property
    def json(self) -> Any:
        """What ``application/json`` holds, or None."""
        return self._parsed("application/json")

    @property
    def chart(self) -> Any:
        """A chart as what it shows: ``type``, ``title``, ``elements`` and so on; None for what is no chart."""
        return self._parsed(CHART)

    @property
    def data(self) -> Any:
        """A DataFrame as columns: their names with lists of values; None for what is no DataFrame."""
        return self._parsed(DATA)

    def _parsed(self, mime: str) -> Any:
        text = self.raw.get(mime)
        if text is None:
            return None
        try:
            return json.loads(text)
        except ValueError:
            raise DecodeError(f"the {mime} of a result is no JSON") from None

    def formats(self) -> List[str]:
        """The MIME types that there are."""
        return list(self.raw)

    def to_bytes(self, mime: str) -> bytes:
        """One form as bytes, such as those of an image file."""
        text = self.raw[mime]
        if mime.startswith("image/") and mime != "image/svg+xml" or mime == "application/pdf":
            return base64.b64decode(text)
        return text.encode()

    def __str__(self) -> str:
        return self.text or f"<{', '.join(self.raw)}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Dict[str, Any]:
        """How notebooks show it."""
        bundle: Dict[str, Any] = dict(self.raw)
        if "application/json" in bundle:
            bundle["application/json"] = self.json
        return {k: v for k, v in bundle.items() if k not in (CHART, DATA)}


ExecutionEvent = Union[Started, Stdout, Stderr, Result, ExecutionError, Truncated, Exit]
CommandEvent = Union[Stdout, Stderr, Truncated, Exit]


@dataclass(frozen=True)
class Execution:
    """What a run of code did."""

    run_id: str
    results: List[Result]
    stdout: str
    stderr: str
    error: Optional[ExecutionError]
    exit_code: int
    reason: Optional[str]
    """None when the code ended by itself; see ``Exit.reason``."""
    signal: Optional[int]
    message: Optional[str]
    duration_ms: float
    truncated_bytes: int
    """How much output was dropped."""

    @property
    def text(self) -> Optional[str]:
        """The value of the last expression as text; None when it had none."""
        for r in reversed(self.results):
            if r.is_main_result:
                return r.text
        return None

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end, without an exception."""
        return self.exit_code == 0 and self.error is None and self.reason is None

    def check(self) -> "Execution":
        """Returns itself, or raises CodeError when the code has failed."""
        if self.ok:
            return self
        if self.error:
            raise CodeError(f"the code raised {self.error.name}: {self.error.value}", self)
        raise CodeError(self.message or f"the code ended with the exit code {self.exit_code}", self)


@dataclass(frozen=True)
class CommandResult:
    """What a command did."""

    run_id: str
    stdout: str
    stderr: str
    stdout_bytes: bytes = field(repr=False)
    """The exact bytes; in ``stdout`` those that are not UTF-8 are replaced."""
    stderr_bytes: bytes = field(repr=False)
    exit_code: int
    reason: Optional[str]
    signal: Optional[int]
    message: Optional[str]
    duration_ms: float
    truncated_bytes: int

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.reason is None

    def check(self) -> "CommandResult":
        """Returns itself, or raises CommandError when the command has failed."""
        if self.ok:
            return self
        why = self.message or f"the command ended with the exit code {self.exit_code}"
        last = self.stderr.strip().splitlines()[-1:]
        raise CommandError(f"{why}: {last[0]}" if last else why, self)


def parse_event(line: Mapping[str, Any], run_id: str = "") -> Optional[ExecutionEvent]:
    """Reads an event of a run's stream; None for a type that is not known."""
    kind, data = line.get("type"), line.get("data")
    try:
        if kind in ("stdout", "stderr"):
            text, b64 = str(data), line.get("data_b64")
            raw = text.encode() if b64 is None else base64.b64decode(b64, validate=True)
            return Stdout(text, raw) if kind == "stdout" else Stderr(text, raw)
        if kind == "result":
            forms = as_object(data)
            if forms is None:
                raise DecodeError("the data of a result is no object")
            return Result({k: str(v) for k, v in forms.items()}, bool(line.get("main")))
        if kind == "error":
            return ExecutionError(str(line.get("name", "")), str(line.get("value", "")), str(line.get("traceback", "")))
        if kind == "truncated":
            return Truncated(int(str(data)))
        if kind == "started":
            return Started(str(line.get("process", run_id)), int(str(data)))
        if kind == "exit":
            return Exit(
                int(str(data)), line.get("reason"), line.get("signal"), line.get("message"), float(line.get("duration_ms", 0))
            )
    except (TypeError, ValueError) as e:
        raise DecodeError(f"an event of a run cannot be read: {e}") from None
    return None


class Collector:
    """Puts the events of a run together."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._out: List[Tuple[str, bytes]] = []
        self._err: List[Tuple[str, bytes]] = []
        self._results: List[Result] = []
        self._error: Optional[ExecutionError] = None
        self._truncated = 0
        self.exit: Optional[Exit] = None

    def add(self, event: ExecutionEvent) -> None:
        if isinstance(event, Stdout):
            self._out.append((event.text, event.data))
        elif isinstance(event, Stderr):
            self._err.append((event.text, event.data))
        elif isinstance(event, Result):
            self._results.append(event)
        elif isinstance(event, ExecutionError):
            self._error = event
        elif isinstance(event, Truncated):
            self._truncated += event.bytes
        elif isinstance(event, Exit):
            self.exit = event

    @property
    def stdout(self) -> str:
        return _text(self._out)

    @property
    def stderr(self) -> str:
        return _text(self._err)

    def execution(self) -> Execution:
        e = self._ended()
        return Execution(
            self.run_id, self._results, self.stdout, self.stderr, self._error,
            e.exit_code, e.reason, e.signal, e.message, e.duration_ms, self._truncated,
        )  # fmt: skip

    def command(self) -> CommandResult:
        e = self._ended()
        return CommandResult(
            self.run_id, self.stdout, self.stderr, _bytes(self._out), _bytes(self._err),
            e.exit_code, e.reason, e.signal, e.message, e.duration_ms, self._truncated,
        )  # fmt: skip

    def _ended(self) -> Exit:
        if self.exit is None:
            raise RuntimeError("the run has not ended")
        return self.exit


def _text(parts: List[Tuple[str, bytes]]) -> str:
    return "".join(text for text, _ in parts)


def _bytes(parts: List[Tuple[str, bytes]]) -> bytes:
    return b"".join(data for _, data in parts)
