"""The server that the tests talk to: the real HTTP API on machines that are processes of this host."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import pytest

from wire import Proxy

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Server:
    url: str
    key: str
    admin_key: str
    pid: int


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server whose streams say something every 200 ms. It ends with its standard input."""
    with subprocess.Popen(
        [ROOT / "scripts" / "fake-server", "--keep-alive", "200ms"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        try:
            line = process.stdout.readline()
            assert line, "the server did not start"
            info: Any = json.loads(line)
            yield Server(**info)
        finally:
            process.stdin.close()
            assert process.wait(timeout=60) == 0


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """The server behind a wire that counts connections and cuts them."""
    with Proxy(server.url) as p:
        yield p


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
