"""Servers that misbehave, and wires that break."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Callable, List, Optional, Type
from urllib.parse import urlsplit

LIMIT = 30.0  # seconds; bounds every wait of a test


class Listener:
    """Serves connections one by one, each in a thread."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: List[socket.socket] = []
        self._threads: List[threading.Thread] = []
        self.connections = 0
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self._open.append(conn)
            t = threading.Thread(target=self._run, args=(conn,), daemon=True)
            self._threads.append(t)
            t.start()

    def _run(self, conn: socket.socket) -> None:
        try:
            self._serve(conn)
        except OSError:
            pass  # cut
        finally:
            conn.close()

    def cut(self) -> None:
        """Breaks all connections."""
        with self._lock:
            conns, self._open = self._open, []
        for c in conns:
            try:
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already

    def close(self) -> None:
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        self._accepting.join(LIMIT)
        self.cut()
        for t in self._threads:
            t.join(LIMIT)

    def __enter__(self) -> "Listener":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


class Proxy(Listener):
    """A wire to a server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._upstream = (parts.hostname or "", parts.port or 0)
        super().__init__(self._wire)

    def __enter__(self) -> "Proxy":
        return self

    def _wire(self, conn: socket.socket) -> None:
        with socket.create_connection(self._upstream) as up:
            back = threading.Thread(target=self._copy, args=(up, conn), daemon=True)
            back.start()
            self._copy(conn, up)
            back.join(LIMIT)

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                target.sendall(data)
        except OSError:
            pass
        for s in (source, target):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Scripted(Listener):
    """Answers each request with the next of its answers: a function that is given the connection and the request."""

    def __init__(self, *answers: Callable[[socket.socket, bytes], None]) -> None:
        self.requests: List[bytes] = []
        self._answers = list(answers)
        super().__init__(self._answer)

    def __enter__(self) -> "Scripted":
        return self

    def _answer(self, conn: socket.socket) -> None:
        while True:
            request = read_request(conn)
            if not request:
                return
            self.requests.append(request)
            if not self._answers:
                return
            answer = self._answers.pop(0)
            answer(conn, request)

    def header(self, n: int, name: str) -> str:
        """A header of the nth request, "" when it has none."""
        for line in self.requests[n].split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return ""


def read_request(conn: socket.socket) -> bytes:
    """A request with its body, which must have a Content-Length; b"" at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = conn.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        more = conn.recv(65536)
        if not more:
            return b""
        body += more
    return head + b"\r\n\r\n" + body


def hang_up(conn: socket.socket, _: bytes) -> None:
    """Closes the connection without an answer."""
    conn.shutdown(socket.SHUT_RDWR)


def answer(status: str, body: bytes, kind: str = "application/json", extra: str = "") -> Callable[[socket.socket, bytes], None]:
    """An ordinary answer."""

    def send(conn: socket.socket, _: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        conn.sendall(head.encode() + body)

    return send


class Chunks:
    """Sends an answer bit by bit."""

    def __init__(self, conn: socket.socket) -> None:
        self._conn = conn
        conn.sendall(b"HTTP/1.1 200 OK\r\nX-Run-Id: run_x\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")

    def send(self, data: bytes) -> None:
        self._conn.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        self._conn.sendall(b"0\r\n\r\n")


class BlackHole:
    """An address at which nothing answers: a listener whose queue is full drops what comes."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self._fill: List[socket.socket] = []
        for _ in range(8):  # one or two are taken into the queue, and the rest stays without an answer
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(self._listener.getsockname())
            self._fill.append(s)

    def open(self) -> socket.socket:
        """Empties the queue: from here on it answers."""
        self._listener.settimeout(0.2)
        for s in self._fill:
            s.close()
        self._fill.clear()
        try:
            while True:
                self._listener.accept()[0].close()
        except OSError:  # it is empty
            pass
        self._listener.settimeout(LIMIT)
        return self._listener

    def __enter__(self) -> "BlackHole":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        for s in [*self._fill, self._listener]:
            s.close()
