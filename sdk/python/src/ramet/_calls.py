"""What a call of the API is, before the transport makes it.

The functions of _generated/operations.py make these; the transport's methods take the
kind that says what the answer is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Generic, Mapping, Optional, Sequence, Tuple, TypeVar, Union
from urllib.parse import quote

T = TypeVar("T")


@dataclass
class Request:
    """A call: an operation of api/openapi.yaml with its arguments."""

    operation: str
    method: str
    path: str
    answer: Any  # what the answer, or each of its lines, is decoded as; None: there is none
    params: Sequence[Tuple[str, str]] = ()
    headers: Dict[str, str] = field(default_factory=lambda: {})
    body: Optional[object] = None  # a model, sent as JSON
    content_type: str = ""  # of a raw body, which is given to the transport


class Call(Request, Generic[T]):
    """A call whose answer is one value."""


class Lines(Request, Generic[T]):
    """A call whose answer is a stream of JSON lines."""


class ServerEvents(Request, Generic[T]):
    """A call whose answer is a stream of server-sent events."""


class Raw(Request):
    """A call whose answer is bytes."""


Argument = Union[str, int, bool, Sequence[str], None]


def _text(value: Union[str, int, bool]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def query_params(values: Mapping[str, Argument]) -> Sequence[Tuple[str, str]]:
    out: "list[Tuple[str, str]]" = []
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, (str, int, bool)):
            out.append((name, _text(value)))
        else:
            out.extend((name, item) for item in value)
    return out


def header_params(values: Mapping[str, Argument]) -> Dict[str, str]:
    return {name: _text(value) for name, value in values.items() if isinstance(value, (str, int, bool))}


def path_part(part: object) -> str:
    """A part of a path. What is no name at all, as "..", stays one part too."""
    text = str(part)
    if not text:
        raise ValueError("an id or name is empty")
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")
