from __future__ import annotations

import socket

import pytest

from conftest import Server
from ramet import AsyncSandbox, ConflictError, NotFoundError

from .tools import first

pytestmark = pytest.mark.anyio

# A server on the loopback address: it tells its port, and sends back what it gets, upper case, and "end" at the end.
ECHO = """
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
while data := c.recv(65536): c.sendall(data.upper())
c.sendall(b"end")
"""


async def test_connect_to_a_port(sb: AsyncSandbox) -> None:
    server = await sb.commands.run(["python3", "-c", ECHO], background=True)
    async with server.events() as events:
        line = (await first(events, 1))[0]
    port = int(getattr(line, "text"))
    assert port in await sb.ports.list()
    async with sb.ports.connect(port) as c:
        for data in (b"hello", b"x" * 70_000):
            await c.send(data)
            back = b""
            while len(back) < len(data):
                back += await c.receive()
            assert back == data.upper()
        await c.send_eof()
        assert await c.receive() == b"end"
        assert await c.receive() == b"" and await c.receive() == b""
    assert (await server.wait()).ok
    await c.close()


async def test_a_port_on_which_nothing_listens(sb: AsyncSandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    with pytest.raises(ConflictError) as caught:
        await sb.ports.connect(port)
    assert caught.value.code == "port_closed"


async def test_previews(sb: AsyncSandbox, server: Server) -> None:
    host = await sb.get_host(3000)
    assert host == f"3000-i{sb.id[4:]}.localhost:{server.url.rsplit(':', 1)[1]}"
    assert await sb.preview_url(3000) == f"http://{host}"
    with pytest.raises(ValueError):
        await sb.get_host(70_000)


async def test_watch(sb: AsyncSandbox) -> None:
    await sb.files.mkdir("d")
    async with sb.files.watch("d", recursive=True, info=True) as watch:
        await sb.files.write("d/new", "1")
        await sb.files.mkdir("d/sub")
        await sb.files.write("d/sub/x", "22")
        await sb.files.remove("d/new")
        seen: "list[tuple[str | None, str | None]]" = []
        async for event in watch:
            assert event.type == "change"
            seen.append((event.path, event.change))
            if event.path == "sub/x" and event.info:
                assert event.info.path == "/root/d/sub/x"
            if ("new", "remove") in seen and ("sub/x", "create") in seen:
                break
    assert ("sub", "create") in seen
    assert await first(watch, 1) == []
    with pytest.raises(NotFoundError):
        await sb.files.watch("nope")


async def test_attributes_of_files(sb: AsyncSandbox) -> None:
    info = await sb.files.write("x", "1", attributes={"origin": "a=b"})
    assert info.attributes == {"origin": "a=b"} and (await sb.files.stat("x")).attributes == {"origin": "a=b"}
