# Made from tests/_async/conftest.py by tools/generate.py: change that.
from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

import pytest

from ramet import Ramet, Sandbox

if TYPE_CHECKING:
    from conftest import Server


@pytest.fixture
def client(server: Server) -> Iterator[Ramet]:
    with Ramet(server.url, server.key) as c:
        yield c


@pytest.fixture
def sb(client: Ramet) -> Iterator[Sandbox]:
    with Sandbox.create(client=client) as s:
        yield s
