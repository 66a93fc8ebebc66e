"""Turns JSON into the dataclasses of _generated/models.py and back.

What the server adds in later versions is skipped; what is missing or of another type
is a DecodeError.
"""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Callable, Dict, List, Optional, Tuple, Union, cast, get_args, get_origin, get_type_hints

from .errors import DecodeError


Decoder = Callable[[Any], Any]


def decode(kind: Any, value: Any) -> Any:
    """Makes a value of a type, as annotations of models name it, of JSON."""
    return _decoder(kind)(value)


def as_object(value: Any) -> Optional[Dict[str, Any]]:
    """A JSON object as what it is, or None for what is none."""
    return cast("Dict[str, Any]", value) if isinstance(value, dict) else None


def encode(value: Any) -> Any:
    """Makes JSON of a model. Fields that are None are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name.rstrip("_"): encode(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if getattr(value, f.name) is not None
        }
    pairs = as_object(value)
    if pairs is not None:
        return {k: encode(v) for k, v in pairs.items()}  # None is a value here: it removes a key
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in cast("List[Any]", value)]
    return value


@lru_cache(maxsize=None)
def _decoder(kind: Any) -> Decoder:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda v: v
    if kind is datetime:
        return _datetime
    if kind is float:
        return lambda v: float(_expect(v, (int, float), "number"))
    if origin is Union:  # Optional: the models have no other
        inner = _decoder(next(a for a in args if a is not type(None)))
        return lambda v: None if v is None else inner(v)
    if origin is list:
        item = _decoder(args[0])
        return lambda v: [item(x) for x in _expect(v, list, "list")]
    if origin is dict:
        item = _decoder(args[1])
        return lambda v: {k: item(x) for k, x in _expect(v, dict, "object").items()}
    if dataclasses.is_dataclass(kind):
        return _object(kind)
    return lambda v: _expect(v, kind, getattr(kind, "__name__", "value"))


def _expect(value: Any, kind: Any, name: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise DecodeError(f"a {name} was expected, not {type(value).__name__}")
    return value


def _object(kind: Any) -> Decoder:
    fields: Dict[str, Tuple[str, Any, bool]] = {}
    decoders: "list[Decoder] | None" = None
    for f in dataclasses.fields(kind):
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        fields[f.name] = (f.name.rstrip("_"), f, required)

    def make(value: Any) -> Any:
        nonlocal decoders
        if decoders is None:  # at the first use, so that a model may contain itself
            hints = get_type_hints(kind)
            decoders = [_decoder(hints[name]) for name in fields]
        _expect(value, dict, kind.__name__)
        out: Dict[str, Any] = {}
        for (name, (key, _, required)), item in zip(fields.items(), decoders):
            if key not in value:
                if required:
                    raise DecodeError(f"{kind.__name__} has no {key}")
                continue
            try:
                out[name] = item(value[key])
            except DecodeError as e:
                raise DecodeError(f"{kind.__name__}.{key}: {e}") from None
        return kind(**out)

    return make


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")


def _datetime(value: Any) -> datetime:
    """Reads RFC 3339, with any number of digits behind the second."""
    found = _TIME.fullmatch(_expect(value, str, "time"))
    if not found:
        raise DecodeError(f"{value[:40]!r} is not a time")
    day, clock, fraction, zone = found.groups()
    offset = timedelta()
    if zone not in "Zz":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
        if zone[0] == "-":
            offset = -offset
    try:
        t = datetime.fromisoformat(f"{day}T{clock}")
        return t.replace(microsecond=int((fraction or "0")[:6].ljust(6, "0")), tzinfo=timezone(offset))
    except ValueError:
        raise DecodeError(f"{value[:40]!r} is not a time") from None
