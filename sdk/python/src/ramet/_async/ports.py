"""TCP ports of a sandbox."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from types import TracebackType
from typing import Any, List, Optional, Tuple, Type

import httpx

from .. import errors
from .._calls import Request, path_part
from .._generated import operations as op
from ._kit import entering
from .transport import AsyncTransport

# The WebSocket protocol, RFC 6455.
MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, BINARY, CLOSE, PING, PONG = 0, 2, 8, 9, 10
MAX_FRAME = 16 << 20
READ_SIZE = 64 << 10


class AsyncPortConnection:
    """A TCP connection to a port of a sandbox. It has one reader and one writer."""

    def __init__(self, transport: AsyncTransport, response: httpx.Response) -> None:
        self._transport = transport
        self._response = response
        self._stream: Any = response.extensions["network_stream"]
        self._buffer = b""
        self._ended = False
        self._closed = False

    async def receive(self) -> bytes:
        """What comes next; ``b""`` when the other side sends no more."""
        while not self._ended:
            kind, payload = await self._frame()
            if kind in (BINARY, CONTINUATION):
                if payload:
                    return payload
                self._ended = True  # an empty message says that no more comes
            elif kind == PING:
                await self._send(PONG, payload)
            elif kind == CLOSE:
                self._ended = True
                code = struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else 1000
                if code not in (1000, 1001):
                    reason = payload[2:].decode(errors="replace") or "connection_reset"
                    raise errors.ConnectionError(f"the connection to the port broke: {reason}", may_have_run=True)
        return b""

    async def send(self, data: bytes) -> None:
        """Sends bytes."""
        for start in range(0, len(data), MAX_FRAME):
            await self._send(BINARY, data[start : start + MAX_FRAME])

    async def send_eof(self) -> None:
        """Says that nothing more will be sent; what the other side sends still comes."""
        await self._send(BINARY, b"")

    async def close(self) -> None:
        """Ends the connection."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._send(CLOSE, struct.pack("!H", 1000))
        except errors.RametError:
            pass  # it is gone already
        await self._response.aclose()

    async def __aenter__(self) -> "AsyncPortConnection":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def _frame(self) -> Tuple[int, bytes]:
        first, second = await self._exactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self._exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._exactly(8))
        if second & 0x80 or first & 0x70 or size > MAX_FRAME:
            raise errors.ServerError(f"{self._transport.config.url} sent no WebSocket frame", code="unreadable_answer")
        return first & 0x0F, await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        parts = [self._buffer]
        have = len(self._buffer)
        while have < size:
            try:
                data: bytes = await self._stream.read(READ_SIZE)
            except Exception as e:  # httpcore's, which httpx does not translate here
                raise errors.cut(self._transport.config.url) from e
            if not data:
                raise errors.cut(self._transport.config.url)
            parts.append(data)
            have += len(data)
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    async def _send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
        mask = os.urandom(4)
        try:
            await self._stream.write(head + mask + masked(payload, mask))
        except Exception as e:  # httpcore's, which httpx does not translate here
            raise errors.cut(self._transport.config.url) from e


def masked(payload: bytes, mask: bytes) -> bytes:
    """The payload with the mask on it, which hides it from caches in between."""
    size = len(payload)
    whole = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")


class AsyncPorts:
    """Ports of one sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def list(self) -> List[int]:
        """The TCP ports that something listens on."""
        return (await self._transport.call(op.list_ports(self._sandbox))).ports

    @entering
    async def connect(self, port: int) -> AsyncPortConnection:
        """Connects to a TCP port, also of a service that only listens on the sandbox's loopback address. Where nothing
        listens it is a ConflictError with the code ``port_closed``."""
        key = base64.b64encode(os.urandom(16)).decode()
        request = Request(
            "connectPort",
            "GET",
            f"/v1/sandboxes/{path_part(self._sandbox)}/ports/{int(port)}/connect",
            None,
            headers={"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key},
        )
        response = await self._transport.upgrade(request)
        want = base64.b64encode(hashlib.sha1((key + MAGIC).encode()).digest()).decode()
        if response.headers.get("Sec-WebSocket-Accept") != want:
            await response.aclose()
            raise errors.ServerError(f"{self._transport.config.url} did not open the WebSocket", code="unreadable_answer")
        return AsyncPortConnection(self._transport, response)
