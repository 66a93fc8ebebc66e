from __future__ import annotations

from typing import TYPE_CHECKING, AsyncIterator

import pytest

from ramet import AsyncRamet, AsyncSandbox

if TYPE_CHECKING:
    from conftest import Server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncRamet]:
    async with AsyncRamet(server.url, server.key) as c:
        yield c


@pytest.fixture
async def sb(client: AsyncRamet) -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox.create(client=client) as s:
        yield s
