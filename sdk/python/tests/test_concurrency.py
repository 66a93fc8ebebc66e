"""What has no synchronous twin, and the shared client."""

from __future__ import annotations

import asyncio
import threading
from typing import List

import pytest

from conftest import Server
from ramet import AsyncRamet, AsyncSandbox, Ramet, Sandbox, Stdout

pytestmark = pytest.mark.anyio


async def test_cancelling_a_task_interrupts_its_code(server: Server) -> None:
    async with AsyncRamet(server.url, server.key) as client, AsyncSandbox.create(client=client) as sb:
        began = asyncio.Event()
        task = asyncio.create_task(
            sb.run_code("print('on', flush=True)\nimport time; time.sleep(60)", on_stdout=lambda _: began.set())
        )
        await asyncio.wait_for(began.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await sb.run_code("1", timeout=30)).text == "1"


async def test_many_at_once(server: Server) -> None:
    async with AsyncRamet(server.url, server.key) as client:

        async def one(n: int) -> str:
            async with AsyncSandbox.create(client=client) as sb:
                r = await asyncio.gather(*(sb.commands.run(f"echo {n}.{i}", check=True) for i in range(4)))
                return "".join(x.stdout for x in r)

        got = await asyncio.gather(*(one(n) for n in range(8)))
    assert got == [f"{n}.0\n{n}.1\n{n}.2\n{n}.3\n" for n in range(8)]


async def test_a_stream_is_closed_by_another_task(server: Server) -> None:
    async with AsyncRamet(server.url, server.key) as client, AsyncSandbox.create(client=client) as sb:
        stream = sb.run_code_stream("print('on', flush=True)\nimport time; time.sleep(60)")
        began = asyncio.Event()

        async def read() -> int:
            n = 0
            async for event in stream:
                n += isinstance(event, Stdout)
                if n:
                    began.set()
            return n

        task = asyncio.create_task(read())
        await asyncio.wait_for(began.wait(), 30)
        await stream.close()
        assert await asyncio.wait_for(task, 30) == 1


def test_a_stream_is_closed_by_another_thread(server: Server) -> None:
    with Ramet(server.url, server.key) as client, Sandbox.create(client=client) as sb:
        stream = sb.run_code_stream("print('on', flush=True)\nimport time; time.sleep(60)")
        began = threading.Event()
        seen: List[str] = []

        def read() -> None:
            for event in stream:
                if isinstance(event, Stdout):
                    seen.append(event.text)
                    began.set()
            seen.append("end")

        t = threading.Thread(target=read, daemon=True)
        t.start()
        assert began.wait(30)
        stream.close()
        t.join(30)
        assert seen == ["on\n", "end"]


def test_one_client_is_used_by_threads(server: Server) -> None:
    with Ramet(server.url, server.key) as client, Sandbox.create(client=client) as sb:
        out: List[str] = []
        threads = [threading.Thread(target=lambda n=n: out.append(sb.commands.run(f"echo {n}").stdout)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert sorted(out) == [f"{n}\n" for n in range(8)]


def test_the_shared_client(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_URL", server.url)
    monkeypatch.setenv("RAMET_API_KEY", server.key)
    with Sandbox.create() as a, Sandbox.connect(a.id) as b:
        assert a.client is b.client is Ramet.shared() and a.id == b.id
    monkeypatch.setenv("RAMET_API_KEY", server.admin_key)
    assert Ramet.shared() is not a.client
    Ramet.shared().close()
    a.client.close()
    assert a.client.closed and not Ramet.shared().closed
    Ramet.shared().close()


async def test_the_shared_client_of_a_loop(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_URL", server.url)
    monkeypatch.setenv("RAMET_API_KEY", server.key)
    async with AsyncSandbox.create() as a:
        b = await AsyncSandbox.connect(a.id)
        assert a.client is b.client is AsyncRamet.shared()
    await a.client.close()
