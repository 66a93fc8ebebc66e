"""What tests need in one form when they wait and in another when they do not."""

from __future__ import annotations

from typing import AsyncIterator, List, TypeVar

T = TypeVar("T")


async def collect(source: AsyncIterator[T]) -> List[T]:
    return [item async for item in source]


async def first(source: AsyncIterator[T], n: int) -> List[T]:
    out: List[T] = []
    async for item in source:
        out.append(item)
        if len(out) == n:
            break
    return out
