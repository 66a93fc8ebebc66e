# Made from tests/_async/tools.py by tools/generate.py: change that.
"""What tests need in one form when they wait and in another when they do not."""

from __future__ import annotations

from typing import Iterator, List, TypeVar

T = TypeVar("T")


def collect(source: Iterator[T]) -> List[T]:
    return [item for item in source]


def first(source: Iterator[T], n: int) -> List[T]:
    out: List[T] = []
    for item in source:
        out.append(item)
        if len(out) == n:
            break
    return out
