"""What the synchronous half needs that is less than the asynchronous one; see _async/_kit.py."""

from __future__ import annotations

import atexit
import io
import os
import threading
import time
from typing import IO, Any, Callable, Dict, Generator, Generic, Iterable, Iterator, Optional, Protocol, TypeVar, Union

T = TypeVar("T")
C = TypeVar("C", bound="Closable")
F = TypeVar("F", bound=Callable[..., Any])

Source = Generator[T, None, None]

Callback = Callable[[T], None]
"""Called with what comes."""

Content = Union[str, bytes, bytearray, memoryview, IO[bytes], Iterable[bytes]]
"""What can be written: text, bytes, a file that is open for reading bytes, or pieces of bytes."""

CHUNK = 256 << 10


def emit(callback: Optional[Callback[T]], value: T) -> None:
    """Calls a callback, if there is one."""
    if callback is not None:
        callback(value)


def entering(make: F) -> F:
    return make


class Background:
    """Work that goes on beside the caller, who ends it by ``join`` or ``stop``."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._error: Optional[BaseException] = None
        self._work = work
        # A daemon: a program that ends does not wait for a terminal that nobody closed.
        self._thread = threading.Thread(target=self._run, name="ramet", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as e:  # it is the one's who joins
            self._error = e

    def join(self) -> None:
        """Waits for the end of the work, and raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def stop(self, interrupt: Callable[[], None]) -> None:
        """Ends the work by what makes its read return."""
        interrupt()
        if self._thread is not threading.current_thread():
            self._thread.join()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def is_file(content: object) -> bool:
    return isinstance(content, io.IOBase) or hasattr(content, "read")


def pieces(content: Content) -> Iterator[bytes]:
    """The content in pieces, as httpx sends them."""
    if is_file(content):
        file: Any = content
        while True:
            piece = file.read(CHUNK)
            if not piece:
                return
            yield piece
    else:
        parts: Any = content
        for piece in parts:
            yield piece


class LocalFile:
    """A file of this machine."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    def open(cls, path: "str | os.PathLike[str]", mode: str) -> "LocalFile":
        file: Any = open(path, mode)
        return cls(file)

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def close(self) -> None:
        self._file.close()


class Closable(Protocol):
    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


class Shared(Generic[C]):
    """One object for each key in the process, made at its first use. A child process makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._objects: Dict[object, C] = {}
        atexit.register(self._close)

    def _close(self) -> None:
        with self._lock:
            objects, self._objects = self._objects, {}
        if self._pid == os.getpid():
            for o in objects.values():
                o.close()

    def get(self, key: object, make: Callable[[], C]) -> C:
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._objects = os.getpid(), {}
            if key not in self._objects or self._objects[key].closed:
                self._objects[key] = make()
            return self._objects[key]
