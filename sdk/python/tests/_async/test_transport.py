from __future__ import annotations

import json
import socket
import threading
import time
from typing import Callable

import pytest

import ramet
from conftest import Server
from ramet._generated import operations
from ramet import AsyncRamet, AsyncSandbox, AuthenticationError, InvalidRequestError, QuotaError, ServerError, UnavailableError
from wire import LIMIT, BlackHole, Chunks, Proxy, Scripted, answer, hang_up, read_request

from .tools import collect

pytestmark = pytest.mark.anyio

SANDBOX = {
    "id": "sbx_x", "state": "ready", "status": "running", "template": "t", "template_hash": "h", "memory_mb": 1, "vcpus": 1, "disk_mb": 1, "on_idle": "hibernate",
    "egress": True, "egress_policy": {}, "metadata": {}, "isolation": "kvm", "region": "r", "node": "n", "idle_timeout_s": 0, "max_lifetime_s": 0,
    "persistent": False, "origin": "create", "created_at": "2026-01-02T03:04:05.123456789Z", "updated_at": "2026-01-02T03:04:05+01:00",
    "from_a_later_version": {"x": 1},
}  # fmt: skip
RECORD = answer("200 OK", json.dumps(SANDBOX).encode())
EXIT = b'{"type":"exit","data":0,"seq":1,"ts":1}\n'
OUT = b'{"type":"stdout","data":"a\\n","seq":0,"ts":1}\n'


async def test_a_black_hole_is_given_up_after_two_tries() -> None:
    with BlackHole() as hole:
        async with AsyncRamet(hole.url, "k", connect_timeout=0.4) as client:
            begin = time.monotonic()
            with pytest.raises(ramet.ConnectionError, match="no server answers at .*ramet up") as caught:
                await client.info()
            took = time.monotonic() - begin
    assert caught.value.may_have_run is False and isinstance(caught.value, ConnectionError)
    assert 0.8 <= took < 8


async def test_the_second_try_of_a_connection_may_succeed() -> None:
    with BlackHole() as hole:

        def serve() -> None:
            time.sleep(2.7)  # the first try is over after 2.5 seconds
            conn, _ = hole.open().accept()
            with conn:
                read_request(conn)
                RECORD(conn, b"")

        t = threading.Thread(target=serve, daemon=True)
        t.start()
        async with AsyncRamet(hole.url, "k") as client:
            begin = time.monotonic()
            sb = await AsyncSandbox.connect("sbx_x", client=client)
            assert sb.id == "sbx_x" and time.monotonic() - begin > 2.5
        t.join(LIMIT)


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    async with AsyncRamet(f"http://127.0.0.1:{port}", "k") as client:
        with pytest.raises(ramet.ConnectionError, match="RAMET_URL") as caught:
            await AsyncSandbox.create(client=client)
    assert caught.value.may_have_run is False and caught.value.status is None


async def test_what_may_have_run_is_not_repeated() -> None:
    with Scripted(RECORD, hang_up, hang_up) as server:
        async with AsyncRamet(server.url, "k") as client:
            sb = await AsyncSandbox.connect("sbx_x", client=client)
            with pytest.raises(ramet.ConnectionError, match="look before you repeat") as caught:
                await sb.run_code("1")
            assert caught.value.may_have_run is True
            with pytest.raises(ramet.ConnectionError):
                await sb.files.write("x", "1")
    assert [r.split(b" ")[0] for r in server.requests] == [b"GET", b"POST", b"PUT"]


async def test_a_create_is_repeated_once_under_one_key() -> None:
    with Scripted(hang_up, RECORD, hang_up, hang_up, RECORD) as server:
        async with AsyncRamet(server.url, "k") as client:
            assert (await AsyncSandbox.create(client=client)).id == "sbx_x"
            assert len(server.requests) == 2
            with pytest.raises(ramet.ConnectionError):
                await AsyncSandbox.create(client=client)
            assert len(server.requests) == 4
    keys = [server.header(n, "Idempotency-Key") for n in range(4)]
    assert keys[0] == keys[1] != keys[2] == keys[3] and keys[0]


async def test_what_only_reads_is_repeated_once() -> None:
    with Scripted(hang_up, RECORD) as server:
        async with AsyncRamet(server.url, "k") as client:
            assert (await AsyncSandbox.connect("sbx_x", client=client)).info.created_at.microsecond == 123456
    assert len(server.requests) == 2


def run(script: Callable[[Chunks], None]) -> Callable[[socket.socket, bytes], None]:
    def send(conn: socket.socket, _: bytes) -> None:
        script(Chunks(conn))

    return send


async def test_a_silent_stream_is_dead_and_one_with_keep_alives_is_not() -> None:
    dead = threading.Event()

    def alive(out: Chunks) -> None:
        for _ in range(10):
            time.sleep(0.2)
            out.send(b"\n")
        out.send(EXIT)
        out.end()

    def silent(out: Chunks) -> None:
        out.send(OUT)
        dead.wait(LIMIT)

    with Scripted(RECORD, run(alive), run(silent)) as server:
        async with AsyncRamet(server.url, "k", stream_timeout=1) as client:
            sb = await AsyncSandbox.connect("sbx_x", client=client)
            begin = time.monotonic()
            assert (await sb.run_code("1")).ok and time.monotonic() - begin > 1.9
            with pytest.raises(ramet.TimeoutError, match="nothing came from") as caught:
                await sb.run_code("1")
            assert isinstance(caught.value, TimeoutError) and caught.value.may_have_run
        dead.set()


async def test_what_comes_before_a_stream_begins_may_take_long() -> None:
    def slow(conn: socket.socket, _: bytes) -> None:
        time.sleep(1.5)
        out = Chunks(conn)
        out.send(EXIT)
        out.end()

    with Scripted(RECORD, slow) as server:
        async with AsyncRamet(server.url, "k", stream_timeout=0.5) as client:
            assert (await (await AsyncSandbox.connect("sbx_x", client=client)).run_code("1")).ok


@pytest.mark.parametrize("whole", [True, False])
async def test_a_stream_without_an_end_was_cut(whole: bool) -> None:
    def cut(conn: socket.socket, _: bytes) -> None:
        out = Chunks(conn)
        out.send(OUT + (b"" if whole else EXIT[:10]))
        if whole:
            out.end()
        conn.shutdown(socket.SHUT_RDWR)

    with Scripted(RECORD, cut) as server:
        async with AsyncRamet(server.url, "k") as client:
            sb = await AsyncSandbox.connect("sbx_x", client=client)
            seen: "list[str]" = []
            with pytest.raises(ramet.ConnectionError) as caught:
                await sb.run_code("1", on_stdout=seen.append)
    assert caught.value.may_have_run and seen == ["a\n"]


async def test_lines_arrive_in_any_pieces() -> None:
    whole = b"\n" + OUT * 3 + b"\n\n" + EXIT

    def bits(out: Chunks) -> None:
        for i in range(len(whole)):
            out.send(whole[i : i + 1])
        out.end()

    with Scripted(RECORD, run(bits), run(lambda out: out.send(b"nonsense\n"))) as server:
        async with AsyncRamet(server.url, "k") as client:
            sb = await AsyncSandbox.connect("sbx_x", client=client)
            assert (await sb.run_code("1")).stdout == "a\na\na\n"
            with pytest.raises(ServerError, match="no JSON"):
                await sb.run_code("1")


async def test_one_connection_serves_many_calls(proxy: Proxy, server: Server) -> None:
    async with AsyncRamet(proxy.url, server.key) as client:
        async with AsyncSandbox.create(client=client) as sb:
            for _ in range(5):
                assert (await sb.run_code("1")).ok
                assert (await sb.commands.run("true")).ok
            await sb.files.write("x", "1")
            assert await sb.files.read("x") == "1"
            answer = await client.transport.open(operations.read_file(sb.id, path="x"))
            sock = answer._response.extensions["network_stream"].get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            await answer.finish()
    assert proxy.connections == 1


async def test_wrong_and_missing_keys(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAMET_API_KEY", raising=False)
    for key, code in (("wrong", "invalid_api_key"), (None, "missing_api_key")):
        async with AsyncRamet(server.url, key) as client:
            with pytest.raises(AuthenticationError, match="RAMET_API_KEY") as caught:
                await client.info()
            assert (caught.value.status, caught.value.code) == (401, code)


async def test_refusals_are_typed() -> None:
    def refusal(status: str, code: str, extra: str = "") -> Callable[[socket.socket, bytes], None]:
        return answer(status, json.dumps({"error": "no.", "code": code, "request_id": "r1"}).encode(), extra=extra)

    with Scripted(
        refusal("429 Too Many Requests", "quota_memory", "Retry-After: 7\r\n"),
        refusal("503 Service Unavailable", "host_memory_full", "Retry-After: 1\r\n"),
        refusal("501 Not Implemented", "x"),
        refusal("507 Insufficient Storage", "no_space"),
        answer("502 Bad Gateway", b"<html>", "text/html"),
        answer("302 Found", b"", extra="Location: http://127.0.0.1:1/\r\n"),
        answer("200 OK", b'{"version": 1}'),
    ) as server:
        async with AsyncRamet(server.url, "k") as client:
            with pytest.raises(QuotaError, match=r"^no\. Delete sandboxes .* \[quota_memory, 429, request r1\]$") as quota:
                await client.info()
            assert quota.value.retry_after == 7 and quota.value.hint
            with pytest.raises(UnavailableError, match="memory_mb"):
                await client.info()
            with pytest.raises(ramet.UnsupportedError):
                await client.info()
            with pytest.raises(ramet.NoSpaceError):
                await client.info()
            with pytest.raises(ServerError, match="502 Bad Gateway, and not as a Ramet server does"):
                await client.info()
            with pytest.raises(InvalidRequestError, match="302 Found, and not as"):
                await client.info()
            with pytest.raises(ServerError, match="Info.version: a str was expected"):
                await client.info()
    assert len(server.requests) == 7


async def test_request_timeout() -> None:
    over = threading.Event()

    def hold(conn: socket.socket, _: bytes) -> None:
        over.wait(LIMIT)

    with Scripted(hold) as server:
        async with AsyncRamet(server.url, "k", request_timeout=0.3) as client:
            with pytest.raises(ramet.TimeoutError):
                await client.info()
        over.set()
    assert len(server.requests) == 1
