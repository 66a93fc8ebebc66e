# Made from tests/_async/test_ports.py by tools/generate.py: change that.
from __future__ import annotations

import socket

import pytest

from conftest import Server
from ramet import Sandbox, ConflictError, NotFoundError

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


def test_connect_to_a_port(sb: Sandbox) -> None:
    server = sb.commands.run(["python3", "-c", ECHO], background=True)
    with server.events() as events:
        line = (first(events, 1))[0]
    port = int(getattr(line, "text"))
    assert port in sb.ports.list()
    with sb.ports.connect(port) as c:
        for data in (b"hello", b"x" * 70_000):
            c.send(data)
            back = b""
            while len(back) < len(data):
                back += c.receive()
            assert back == data.upper()
        c.send_eof()
        assert c.receive() == b"end"
        assert c.receive() == b"" and c.receive() == b""
    assert (server.wait()).ok
    c.close()


def test_a_port_on_which_nothing_listens(sb: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    with pytest.raises(ConflictError) as caught:
        sb.ports.connect(port)
    assert caught.value.code == "port_closed"


def test_previews(sb: Sandbox, server: Server) -> None:
    host = sb.get_host(3000)
    assert host == f"3000-i{sb.id[4:]}.localhost:{server.url.rsplit(':', 1)[1]}"
    assert sb.preview_url(3000) == f"http://{host}"
    with pytest.raises(ValueError):
        sb.get_host(70_000)


def test_watch(sb: Sandbox) -> None:
    sb.files.mkdir("d")
    with sb.files.watch("d", recursive=True, info=True) as watch:
        sb.files.write("d/new", "1")
        sb.files.mkdir("d/sub")
        sb.files.write("d/sub/x", "22")
        sb.files.remove("d/new")
        seen: "list[tuple[str | None, str | None]]" = []
        for event in watch:
            assert event.type == "change"
            seen.append((event.path, event.change))
            if event.path == "sub/x" and event.info:
                assert event.info.path == "/root/d/sub/x"
            if ("new", "remove") in seen and ("sub/x", "create") in seen:
                break
    assert ("sub", "create") in seen
    assert first(watch, 1) == []
    with pytest.raises(NotFoundError):
        sb.files.watch("nope")


def test_attributes_of_files(sb: Sandbox) -> None:
    info = sb.files.write("x", "1", attributes={"origin": "a=b"})
    assert info.attributes == {"origin": "a=b"} and (sb.files.stat("x")).attributes == {"origin": "a=b"}
