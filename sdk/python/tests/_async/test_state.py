from __future__ import annotations

import uuid

import pytest

from conftest import Server
from ramet import (
    AsyncRamet,
    AsyncSandbox,
    ConflictError,
    EgressPolicy,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
)

from wire import Proxy

from .tools import collect, first

pytestmark = pytest.mark.anyio


async def test_create_with_everything(client: AsyncRamet) -> None:
    async with AsyncSandbox.create(
        "default", env={"A": "b"}, metadata={"k": "v"}, memory_mb=512, vcpus=1, disk_mb=8192, egress=True,
        egress_policy=EgressPolicy(allow=["Example.com:443"]), idle_timeout=0, max_lifetime=3600, persistent=True, client=client,
    ) as sb:  # fmt: skip
        i = sb.info
        assert (i.status, i.template, i.metadata, i.memory_mb, i.vcpus, i.disk_mb) == ("running", "default", {"k": "v"}, 512, 1, 8192)
        assert (i.egress_policy.allow, i.idle_timeout_s, i.max_lifetime_s, i.persistent) == (["example.com:443"], 0, 3600, True)
        assert i.timings_ms and "total" in i.timings_ms and i.created_at.tzinfo is not None
        assert (await sb.run_code("import os; os.environ['A']")).text == "'b'"
        assert await sb.is_running()
    assert not await sb.is_running()


async def test_connect_and_list(client: AsyncRamet) -> None:
    test = uuid.uuid4().hex
    made = [await AsyncSandbox.create(metadata={"test": test, "n": str(n)}, client=client) for n in range(3)]
    there = await AsyncSandbox.connect(made[0].id, client=client)
    assert there.info == await made[0].refresh()
    found = await collect(AsyncSandbox.list(metadata={"test": test}, client=client))
    assert [i.id for i in found] == [s.id for s in reversed(made)]
    assert [i.id for i in await collect(AsyncSandbox.list(metadata={"test": test, "n": "1"}, client=client))] == [made[1].id]
    assert len(await collect(AsyncSandbox.list(metadata={"test": test}, limit=2, client=client))) == 2
    for s in made:
        await s.delete()
    assert await collect(AsyncSandbox.list(metadata={"test": test}, client=client)) == []
    assert len(await collect(AsyncSandbox.list(metadata={"test": test}, status="any", client=client))) == 3


async def test_ids_that_are_none(client: AsyncRamet) -> None:
    for id in ("sbx_" + "0" * 32, "nope", "..", "../keys", "a b/ü"):
        with pytest.raises(NotFoundError):
            await AsyncSandbox.connect(id, client=client)
    with pytest.raises(ValueError):
        await AsyncSandbox.connect("", client=client)


async def test_the_same_idempotency_key_makes_one_sandbox(client: AsyncRamet) -> None:
    key = uuid.uuid4().hex
    a = await AsyncSandbox.create(idempotency_key=key, client=client)
    b = await AsyncSandbox.create(idempotency_key=key, client=client)
    assert a.id == b.id
    with pytest.raises(ConflictError) as caught:
        await AsyncSandbox.create(idempotency_key=key, vcpus=1, client=client)
    assert caught.value.code == "idempotency_key_reused" and "choose another idempotency_key" in str(caught.value).lower()
    await a.delete()


async def test_an_isolation_can_be_required(client: AsyncRamet) -> None:
    async with AsyncSandbox.create(isolation="emulated", client=client) as sb:
        assert sb.info.isolation == "emulated"
        point = await sb.checkpoints.create("here")
        async with sb.checkpoints.spawn(point, isolation="emulated") as other:
            assert other.info.isolation == "emulated"
        with pytest.raises(InvalidRequestError) as caught:
            await sb.checkpoints.spawn(point, isolation="gvisor")
        assert caught.value.code == "isolation_unavailable"
    with pytest.raises(InvalidRequestError) as caught:
        await AsyncSandbox.create(isolation="kvm", client=client)
    assert caught.value.code == "isolation_unavailable" and "is emulated, not kvm" in str(caught.value)
    with pytest.raises(InvalidRequestError) as caught:
        await AsyncSandbox.create(isolation="vm", client=client)
    assert caught.value.code == "invalid_isolation"


async def test_update_and_egress(sb: AsyncSandbox) -> None:
    i = await sb.update(idle_timeout=60, max_lifetime=7200, metadata={"a": "1", "b": "2"})
    assert (i.idle_timeout_s, i.max_lifetime_s, i.metadata) == (60, 7200, {"a": "1", "b": "2"})
    assert (await sb.update(metadata={"a": None})).metadata == {"b": "2"} and sb.info.metadata == {"b": "2"}
    i = await sb.set_egress(deny=["*.example.com"], order="allow_first")
    assert i.egress and i.egress_policy.deny == ["*.example.com"] and i.egress_policy.order == "allow_first"
    assert (await sb.set_egress(False)).egress is False
    with pytest.raises(InvalidRequestError):
        await sb.set_egress(allow=["http://x"])


async def test_fork_merge_and_diff(sb: AsyncSandbox, client: AsyncRamet) -> None:
    await sb.files.write("both", "1")
    one, two = await sb.fork(2)
    assert one.info.parent == sb.id and await two.files.read("both") == "1"
    await one.files.write("both", "2")
    await one.files.write("new", "3")
    lineage = await sb.lineage()
    assert {sb.id, one.id, two.id} <= {s.id for s in lineage.sandboxes}
    assert (await sb.merge_into(one)).id == sb.id
    assert await sb.files.read("both") == "2" and await sb.files.read("new") == "3"
    with pytest.raises(NotFoundError):
        await one.files.read("both")
    with pytest.raises(InvalidRequestError):
        await sb.merge_into(sb.id)
    with pytest.raises(InvalidRequestError):
        await sb.fork(33)
    await two.delete()


async def test_hibernate_and_wake(sb: AsyncSandbox, client: AsyncRamet, server: Server) -> None:
    await sb.files.write("x", "1")
    assert (await sb.hibernate()).status == "hibernated" and await sb.is_running()
    async with AsyncRamet(server.url, server.key, wake=False) as quiet:
        with pytest.raises(ConflictError, match="[Ww]ake") as caught:
            await (await AsyncSandbox.connect(sb.id, client=quiet)).files.read("x")
        assert caught.value.code == "sandbox_hibernated"
    assert (await sb.wake()).status == "running" and await sb.files.read("x") == "1"


async def test_checkpoints(sb: AsyncSandbox, client: AsyncRamet) -> None:
    await sb.files.write("x", "1")
    point = await sb.checkpoints.create("first")
    assert (point.name, point.kind, point.sandbox) == ("first", "full", sb.id)
    await sb.files.write("x", "2")
    assert (await sb.checkpoints.restore(point)).id == sb.id and await sb.files.read("x") == "1"
    async with sb.checkpoints.spawn(point, metadata={"from": "first"}) as other:
        assert other.id != sb.id and other.info.checkpoint == point.id and await other.files.read("x") == "1"
    other = await AsyncSandbox.create(checkpoint=point, client=client)
    await other.delete()
    disk = await sb.checkpoints.create(kind="disk")
    assert [c.id for c in await collect(sb.checkpoints.list())] == [disk.id, point.id]
    assert point.id in [c.id for c in await collect(client.checkpoints.list())]
    assert (await client.checkpoints.get(point.id)).name == "first"
    await sb.checkpoints.delete(point)
    await client.checkpoints.delete(disk.id)
    assert await collect(sb.checkpoints.list()) == []
    with pytest.raises(NotFoundError):
        await sb.checkpoints.restore(point)
    with pytest.raises(ConflictError):
        await sb.checkpoints.create("twice")
        await sb.checkpoints.create("twice")


async def test_spaces(client: AsyncRamet) -> None:
    sb = await AsyncSandbox.create(persistent=True, idle_timeout=1, client=client)
    await sb.files.write("x", "1")
    # The end of the sandbox is an event, and so is the Space.
    async with sb.events() as events:
        async for event in events:
            if event.type == "space_made":
                break
    spaces = [s for s in await collect(client.spaces.list()) if s.sandbox == sb.id]
    assert len(spaces) == 1 and (await client.spaces.get(spaces[0].id)).id == spaces[0].id
    async with client.spaces.resume(spaces[0], idle_timeout=0) as again:
        assert again.info.space == spaces[0].id and await again.files.read("x") == "1"
    with pytest.raises(NotFoundError):
        await client.spaces.resume(spaces[0])
    with pytest.raises(NotFoundError):
        await client.spaces.delete(spaces[0].id)


async def test_metrics_and_console(sb: AsyncSandbox) -> None:
    m = await sb.metrics()
    assert m.memory_total_bytes == 1 << 30 and m.host.pss_bytes > 0
    assert "Linux version" in await sb.console()


async def test_events_go_on_over_a_break(proxy: Proxy, server: Server, client: AsyncRamet) -> None:
    sb = await AsyncSandbox.create(client=client)
    seen: "list[str]" = []
    async with AsyncRamet(proxy.url, server.key) as there:
        async with there.events(sandbox=sb.id) as events:
            async for event in events:
                seen.append(event.type)
                if event.type == "running":
                    proxy.cut()
                    await sb.update(metadata={"a": "1"})
                elif event.type == "updated":
                    await sb.delete()
                elif event.type == "stopped":
                    break
    assert seen == ["creating", "running", "updated", "stopping", "stopped"]
    assert proxy.connections >= 2
    stored = await collect(client.events(sandbox=sb.id, follow=False))
    assert [e.type for e in stored] == seen
    assert [e.type for e in await collect(client.events(sandbox=sb.id, since=stored[1].id, follow=False))] == seen[2:]
    assert [e.type for e in await collect(sb.events(since=stored[-1].time, follow=False))] in ([], ["stopped"])
    assert [e.type for e in await first(sb.events(), 2)] == ["creating", "running"]


async def test_the_server(client: AsyncRamet, server: Server) -> None:
    info = await client.info()
    assert (info.driver, info.auth, info.pid) == ("fake", True, server.pid)
    assert (await client.capacity()).machines >= 0 and (await client.usage()).templates
    assert [t.name for t in await client.templates.list()][:1] == ["default"]
    steps: "list[object]" = []
    assert (await client.templates.build("other", on_progress=lambda e: steps.append(e.step))).name == "other"
    await client.templates.delete("other")
    with pytest.raises(NotFoundError):
        await client.templates.delete("other")
    key = await client.keys.create("mine")
    assert key.key and key.id in [k.id for k in await client.keys.list()]
    await client.keys.delete(key.id)
    assert [p.name for p in await client.projects.list()] == ["default"]
    assert (await client.projects.get("default")).name == "default"
    with pytest.raises(PermissionDeniedError):
        await client.projects.set("default", max_sandboxes=1)
    async with AsyncRamet(server.url, server.admin_key) as admin:
        assert (await admin.projects.set("small", max_sandboxes=1)).max_sandboxes == 1
