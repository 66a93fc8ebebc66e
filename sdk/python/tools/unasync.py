"""Makes the synchronous half of the package, and of its tests, from the asynchronous one.

Sources are changed word by word (Python's own tokenizer says what a word is) and else left as they are; what really
differs between the two is in _async/_kit.py and _sync/_kit.py, which people write.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WORDS = {
    "AsyncIterator": "Iterator",
    "AsyncIterable": "Iterable",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "aclose": "close",
    "aiter_bytes": "iter_bytes",
    "aread": "read",
    "AsyncClient": "Client",
    "AsyncHTTPTransport": "HTTPTransport",
    "_async": "_sync",
}

HEADER = "# Made from {} by tools/generate.py: change that.\n"


def word(name: str) -> str:
    if name in WORDS:
        return WORDS[name]
    if name.startswith("Async") and name[5:6].isupper():
        return name[5:]
    if name.startswith("_Async") and name[6:7].isupper():
        return "_" + name[6:]
    return name


def text(source: str) -> str:
    """The synchronous form of a source."""
    lines = source.splitlines(keepends=True)
    out: list[str] = []
    row, column = 1, 0
    swallow = False  # the blank behind a dropped word
    for t in tokenize.generate_tokens(io.StringIO(source).readline):
        # What stands between two tokens is kept as it is.
        (r, c) = t.start
        gap = ""
        while row < r:
            gap += lines[row - 1][column:]
            row, column = row + 1, 0
        gap += lines[row - 1][column:c] if row <= len(lines) else ""
        if swallow and gap.startswith(" "):
            gap = gap[1:]
        swallow = False
        out.append(gap)
        if t.type == tokenize.NAME and t.string in ("async", "await"):
            swallow = True
        elif t.type == tokenize.NAME:
            out.append(word(t.string))
        elif t.type == tokenize.STRING and t.string[0] in "fF" and "await " in t.string:
            raise ValueError(f"line {row}: an await inside of a string is not seen by every version of Python")
        elif t.type == tokenize.STRING:  # annotations in quotes, and what documentation names
            out.append(re.sub(r"\b_?Async[A-Z]\w+", lambda found: word(found[0]), t.string))
        else:
            out.append(t.string)
        row, column = t.end
    return "".join(out)


def files() -> dict[Path, str]:
    """The synchronous files by their paths."""
    out: dict[Path, str] = {}
    for half in (ROOT / "src" / "ramet" / "_async", ROOT / "tests" / "_async"):
        for path in sorted(half.glob("*.py")):
            if path.name == "_kit.py":
                continue
            target = half.parent / "_sync" / path.name
            if half.parent.name == "tests":
                target = target.with_name(path.name.replace("test_", "test_sync_"))
            out[target] = HEADER.format(path.relative_to(ROOT)) + text(path.read_text())
    return out
