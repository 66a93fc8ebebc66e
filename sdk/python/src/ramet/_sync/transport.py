# Made from src/ramet/_async/transport.py by tools/generate.py: change that.
"""How calls are made: one client with kept connections, what is tried again and what is not.

A connection is tried twice. A call that was sent is repeated only when that can do no harm: when it reads, or
carries an idempotency key, by which the server knows a repetition.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
from types import TracebackType
from typing import Any, Iterator, Generic, List, Optional, Sequence, Tuple, Type, TypeVar

import httpx

from .. import errors
from .._calls import Call, Raw, Request
from .._codec import as_object, decode, encode
from .._config import LOCAL_NAME, Config
from .._version import __version__
from ._kit import Content, Source, pieces

T = TypeVar("T")

MAX_JSON = 64 << 20
MAX_LINE = 64 << 20
MAX_REST = 64 << 10


def socket_options() -> "List[Tuple[int, int, int]]":
    """No waiting for more to send, and a peer that is gone is noticed: within a minute, or in five when something
    was on its way to it. A shorter time for that would also end an upload that somebody takes slowly."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_KEEPIDLE" if sys.platform != "darwin" else "TCP_KEEPALIVE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 300_000),
    ):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


class Transport:
    """Makes calls of one server."""

    def __init__(
        self, config: Config, *, connect_timeout: float, request_timeout: Optional[float], stream_timeout: float, wake: bool
    ) -> None:
        self.config = config
        self._stream_timeout = stream_timeout
        self._plain = httpx.Timeout(connect=connect_timeout, read=request_timeout, write=None, pool=None)
        self._stream = httpx.Timeout(connect=connect_timeout, read=None, write=None, pool=None)
        headers = {"User-Agent": f"ramet-python/{__version__}"}
        if config.api_key:
            headers["Authorization"] = f"Bearer {config.api_key}"
        if not wake:
            headers["X-Ramet-Wake"] = "never"
        # Without TLS there is nothing to verify; reading the authorities would take longer than a create.
        verify: "ssl.SSLContext | bool" = config.ssl_context() if config.url.startswith("https:") else False
        try:
            transport = httpx.HTTPTransport(
                verify=verify,
                proxy=config.proxy(),
                retries=1,  # of the connection alone
                socket_options=socket_options(),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=20),
            )
        except (ValueError, ImportError) as e:
            raise errors.ConfigurationError(f"the proxy of the environment cannot be used: {e}") from e
        self._http = httpx.Client(transport=transport, headers=headers, trust_env=False)
        self._extensions = {"sni_hostname": LOCAL_NAME} if config.local_certificate else {}

    @property
    def closed(self) -> bool:
        return self._http.is_closed

    def close(self) -> None:
        self._http.close()

    def call(self, call: Call[T], content: Optional[Content] = None) -> T:
        """Makes a call whose answer is one value."""
        response = self._send(call, content, self._plain)
        try:
            body = self._read(response)
            if call.answer is None:
                return None  # type: ignore[return-value]
            if call.answer is str:
                return body.decode(errors="replace")  # type: ignore[return-value]
            value: T = decode(call.answer, json.loads(body))
            return value
        except (errors.DecodeError, ValueError) as e:
            raise errors.ServerError(
                f"{self.config.url} answered {call.operation} with what cannot be read: {e}",
                code="unreadable_answer",
                status=response.status_code,
                request_id=response.headers.get("X-Request-Id", ""),
                hint="is it a Ramet server, of a version that fits this package?",
            ) from e
        finally:
            response.close()

    def open(self, request: Request, content: Optional[Content] = None) -> "Answer":
        """Makes a call whose answer is a stream."""
        response = self._send(request, content, self._stream)
        # Before the answer begins a sandbox may wake or boot, which takes as long as it takes. From here on the
        # server says something every 10 seconds, but in the bytes of files. httpx has no way to say that, but looks
        # here when the body begins.
        if not isinstance(request, Raw):
            timeouts: Any = response.request.extensions["timeout"]
            timeouts["read"] = self._stream_timeout
        return Answer(self, response)

    def upgrade(self, request: Request) -> httpx.Response:
        """Makes a call that turns its connection into another protocol's."""
        return self._send(request, None, self._stream, success=(101,))

    def _send(
        self, request: Request, content: Optional[Content], timeout: httpx.Timeout, success: Sequence[int] = range(200, 300)
    ) -> httpx.Response:
        headers = dict(request.headers)
        body: Any = None
        if request.body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(encode(request.body), allow_nan=False).encode()
        elif content is not None:
            headers["Content-Type"] = request.content_type
            if isinstance(content, str):
                body = content.encode()
            else:
                body = bytes(content) if isinstance(content, (bytes, bytearray, memoryview)) else pieces(content)
        repeatable = content is None and 101 not in success and (request.method == "GET" or "Idempotency-Key" in headers)
        while True:
            out = self._http.build_request(
                request.method,
                self.config.url + request.path,
                params=list(request.params) or None,
                headers=headers,
                content=body,
                timeout=timeout,
                extensions=self._extensions,
            )
            try:
                response = self._http.send(out, stream=True)
            except (httpx.TransportError, ssl.SSLError) as e:
                error = self.failure(e)
                if content is not None and isinstance(error, errors.ConnectionError) and error.may_have_run:
                    error.hint = "the server may have refused it before all of it was sent; look before you repeat it"
                if repeatable and isinstance(error, errors.ConnectionError) and error.may_have_run:
                    repeatable = False  # once
                    continue
                raise error from e
            if response.status_code in success:
                return response
            try:
                raise self._refusal(response)
            finally:
                response.close()

    def _read(self, response: httpx.Response) -> bytes:
        out = bytearray()
        try:
            for chunk in response.iter_bytes():
                out += chunk
                if len(out) > MAX_JSON:
                    raise errors.DecodeError(f"it is longer than {MAX_JSON >> 20} MiB")
        except httpx.TransportError as e:
            raise self.failure(e) from e
        return bytes(out)

    def _refusal(self, response: httpx.Response) -> errors.RametError:
        """The error that an answer outside 2xx is."""
        status = response.status_code
        message = f"{self.config.url} answered {status} {response.reason_phrase}, and not as a Ramet server does"
        code, request_id = "", str(response.headers.get("X-Request-Id", ""))
        try:
            body = as_object(json.loads(self._read(response)))
            if body is not None and isinstance(body.get("error"), str):
                message, code = str(body["error"]), str(body.get("code", ""))
                request_id = str(body.get("request_id") or request_id)
        except ValueError:
            pass  # whatever it is, it is none of ours
        after = response.headers.get("Retry-After", "")
        error = errors.from_answer(status, message, code, request_id, float(after) if after.isdigit() else None)
        if status == 401 and self.config.key_hint and not self.config.api_key:
            error.hint = self.config.key_hint
        return error

    def failure(self, e: Exception) -> errors.RametError:
        """The error of a call that had no answer, or not a whole one."""
        url = self.config.url
        if isinstance(e, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, ssl.SSLError)):
            why = "it took too long" if isinstance(e, httpx.ConnectTimeout) else str(e)
            hint = "start one with 'ramet up', or set RAMET_URL to the server's URL"
            if "CERTIFICATE" in why.upper():
                hint = "set RAMET_CA to the file with the certificate of the authority that signed the server's"
            return errors.ConnectionError(f"no server answers at {url}: {why}", hint=hint)
        if isinstance(e, httpx.ReadTimeout):
            return errors.TimeoutError(f"nothing came from {url} in time", hint="the call may have had an effect: look before you repeat it")
        if isinstance(e, httpx.TimeoutException):
            return errors.TimeoutError(f"{url} took nothing more of what was sent", hint="the call may have had an effect: look before you repeat it")
        if isinstance(e, httpx.UnsupportedProtocol):
            return errors.ConfigurationError(f"{url} is no URL of a server")
        return errors.ConnectionError(
            f"the connection to {url} broke: {e or type(e).__name__}",
            may_have_run=True,
            hint="the call may have had an effect: look before you repeat it",
        )


class Answer:
    """An answer that comes bit by bit. It is used by one reader."""

    def __init__(self, transport: Transport, response: httpx.Response) -> None:
        self._transport = transport
        self._response = response
        self._bytes: Optional[Iterator[bytes]] = None
        self._aborted = False

    @property
    def run_id(self) -> str:
        return str(self._response.headers.get("X-Run-Id", ""))

    def chunks(self) -> Iterator[bytes]:
        """The bytes, as they come."""
        if self._bytes is None:
            self._bytes = self._response.iter_bytes()
        try:
            for chunk in self._bytes:
                yield chunk
        except (httpx.TransportError, httpx.StreamError, OSError) as e:
            if self._aborted or not isinstance(e, httpx.TransportError):
                raise errors.cut(self._transport.config.url) from e
            raise self._transport.failure(e) from e

    def text_lines(self) -> Iterator[bytes]:
        """Line after line, the empty ones that keep the stream alive too."""
        pending: "list[bytes]" = []
        size = 0
        for chunk in self.chunks():
            start = 0
            end = chunk.find(b"\n")
            while end >= 0:
                pending.append(chunk[start:end])
                yield b"".join(pending)
                pending.clear()
                size, start = 0, end + 1
                end = chunk.find(b"\n", start)
            pending.append(chunk[start:])
            size += len(chunk) - start
            if size > MAX_LINE:
                raise errors.DecodeError(f"a line of the stream is longer than {MAX_LINE >> 20} MiB")

    def objects(self) -> Iterator[Any]:
        """The JSON objects of a stream of lines. Its end is an error: whoever reads stops at the last event."""
        for line in self.text_lines():
            if not line.strip():
                continue
            try:
                value: Any = json.loads(line)
            except ValueError:
                raise errors.ServerError(f"{self._transport.config.url} sent a line that is no JSON", code="unreadable_answer") from None
            if as_object(value) is None:
                raise errors.ServerError(f"{self._transport.config.url} sent a line that is no object", code="unreadable_answer")
            yield value
        raise errors.cut(self._transport.config.url)

    def decode(self, kind: Type[T], value: Any) -> T:
        """Reads an object of the stream as a model."""
        try:
            out: T = decode(kind, value)
            return out
        except errors.DecodeError as e:
            raise errors.ServerError(f"{self._transport.config.url} sent what cannot be read: {e}", code="unreadable_answer") from e

    def finish(self) -> None:
        """Reads the end behind the last event, so that the connection can be used again."""
        size = 0
        try:
            for chunk in self.chunks():
                size += len(chunk)
                if size > MAX_REST:
                    break
        except errors.RametError:
            pass  # all that was wanted is there
        self.close()

    def close(self) -> None:
        self._response.close()

    def abort(self) -> None:
        """Breaks the connection off, also under a reader that waits."""
        if self._response.is_closed:
            return  # the connection may be another call's already
        self._aborted = True
        stream: Any = self._response.extensions.get("network_stream")
        sock: Any = stream.get_extra_info("socket") if stream is not None else None
        if sock is None:
            return
        try:
            # Not SSLSocket's own, which would take its state from under the reader.
            socket.socket.shutdown(sock, socket.SHUT_RDWR) if isinstance(sock, socket.socket) else sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already


class Holder:
    """Where the source of a stream leaves the answer that it reads, for whoever ends the stream."""

    def __init__(self) -> None:
        self.answer: Optional[Answer] = None
        self.closed = False

    def take(self, answer: Answer) -> Answer:
        """Leaves an answer here, unless the stream was ended while it was asked for."""
        self.answer = answer
        if self.closed:
            answer.close()
            raise errors.ConnectionError("the stream was closed", may_have_run=True)
        return answer


class Stream(Generic[T]):
    """What comes, one after the other. It has one reader; ``close``, or the end of a ``with`` block, ends it."""

    def __init__(self, source: Source[T], holder: Holder) -> None:
        self._source = source
        self._holder = holder

    def __iter__(self) -> "Stream[T]":
        return self

    def __next__(self) -> T:
        if self._holder.closed:
            raise StopIteration
        try:
            return self._source.__next__()
        except errors.ConnectionError:
            if self._holder.closed:
                raise StopIteration from None
            raise

    def close(self) -> None:
        """Ends the stream, also while somebody waits for what comes next."""
        self._holder.closed = True
        if self._holder.answer is not None:
            self._holder.answer.abort()
        try:
            self._source.close()
        except (RuntimeError, ValueError):
            pass  # somebody waits, whose read ends now

    def __enter__(self) -> "Stream[T]":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()
