"""What the asynchronous half needs that is more than the synchronous one with awaits in it."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import weakref
from types import TracebackType
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Dict,
    Generator,
    Generic,
    Iterable,
    Optional,
    Protocol,
    Type,
    TypeVar,
    Union,
)

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")
C = TypeVar("C")
S = TypeVar("S", bound="Closable")

Source = AsyncGenerator[T, None]

Callback = Callable[[T], Union[None, Awaitable[None]]]
"""Called with what comes; it may be a coroutine function, and is waited for."""

Content = Union[str, bytes, bytearray, memoryview, IO[bytes], Iterable[bytes], AsyncIterable[bytes]]
"""What can be written: text, bytes, a file that is open for reading bytes, or pieces of bytes."""

CHUNK = 256 << 10


async def emit(callback: Optional[Callback[T]], value: T) -> None:
    """Calls a callback, if there is one."""
    if callback is not None:
        waiting = callback(value)
        if inspect.isawaitable(waiting):
            await waiting


class Entering(Generic[C]):
    """An object that is being made: ``await`` it, or enter it with ``async with``."""

    def __init__(self, making: Coroutine[Any, Any, C]) -> None:
        self._making = making
        self._made: Any = None

    def __await__(self) -> Generator[Any, None, C]:
        return self._making.__await__()

    async def __aenter__(self) -> C:
        self._made = await self._making
        await self._made.__aenter__()
        return self._made  # type: ignore[no-any-return]

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self._made.__aexit__(kind, error, trace)


def entering(make: "Callable[P, Coroutine[Any, Any, C]]") -> "Callable[P, Entering[C]]":
    """Lets what a coroutine function returns be entered without an ``await`` before it."""

    def call(*args: "P.args", **kwargs: "P.kwargs") -> "Entering[C]":
        return Entering(make(*args, **kwargs))

    call.__doc__, call.__name__, call.__qualname__ = make.__doc__, make.__name__, make.__qualname__
    return call


class Background:
    """Work that goes on beside the caller, who ends it by ``join`` or ``stop``."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.ensure_future(work())
        # An error is the one's who joins; without this it would be logged when nobody does.
        self._task.add_done_callback(lambda t: t.cancelled() or t.exception())

    async def join(self) -> None:
        """Waits for the end of the work, and raises what it raised."""
        await asyncio.shield(self._task)

    async def stop(self, interrupt: Callable[[], Awaitable[None]]) -> None:
        """Ends the work: a task is cancelled. One that ends itself only has its read interrupted."""
        if self._task is asyncio.current_task():
            await interrupt()
            return
        self._task.cancel()
        try:
            await self._task
        except (asyncio.CancelledError, Exception):  # it was told to end, whatever it says to that
            pass


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def is_file(content: object) -> bool:
    return isinstance(content, io.IOBase) or hasattr(content, "read")


async def pieces(content: Content) -> AsyncIterator[bytes]:
    """The content in pieces, as httpx sends them. Blocking reads are done in a thread."""
    if isinstance(content, AsyncIterable):
        async for piece in content:
            yield piece
    elif is_file(content):
        file: Any = content
        while True:
            piece = await asyncio.to_thread(file.read, CHUNK)
            if not piece:
                return
            yield piece
    else:
        parts: Any = content
        for piece in parts:
            yield piece


class LocalFile:
    """A file of this machine, used in a thread."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    async def open(cls, path: "str | os.PathLike[str]", mode: str) -> "LocalFile":
        file: Any = await asyncio.to_thread(open, path, mode)
        return cls(file)

    async def read(self, size: int) -> bytes:
        return await asyncio.to_thread(self._file.read, size)

    async def write(self, data: bytes) -> None:
        await asyncio.to_thread(self._file.write, data)

    async def close(self) -> None:
        await asyncio.to_thread(self._file.close)


class Closable(Protocol):
    @property
    def closed(self) -> bool: ...


class Shared(Generic[S]):
    """One object for each key in each event loop, made at its first use."""

    def __init__(self) -> None:
        self._loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Dict[object, S]]" = weakref.WeakKeyDictionary()

    def get(self, key: object, make: Callable[[], S]) -> S:
        objects = self._loops.setdefault(asyncio.get_running_loop(), {})
        if key not in objects or objects[key].closed:
            objects[key] = make()
        return objects[key]
