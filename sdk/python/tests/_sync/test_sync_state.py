# Made from tests/_async/test_state.py by tools/generate.py: change that.
from __future__ import annotations

import uuid

import pytest

from conftest import Server
from ramet import (
    Ramet,
    Sandbox,
    ConflictError,
    EgressPolicy,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
)

from wire import Proxy

from .tools import collect, first

pytestmark = pytest.mark.anyio


def test_create_with_everything(client: Ramet) -> None:
    with Sandbox.create(
        "default", env={"A": "b"}, metadata={"k": "v"}, memory_mb=512, vcpus=1, disk_mb=8192, egress=True,
        egress_policy=EgressPolicy(allow=["Example.com:443"]), idle_timeout=0, max_lifetime=3600, persistent=True, client=client,
    ) as sb:  # fmt: skip
        i = sb.info
        assert (i.status, i.template, i.metadata, i.memory_mb, i.vcpus, i.disk_mb) == ("running", "default", {"k": "v"}, 512, 1, 8192)
        assert (i.egress_policy.allow, i.idle_timeout_s, i.max_lifetime_s, i.persistent) == (["example.com:443"], 0, 3600, True)
        assert i.timings_ms and "total" in i.timings_ms and i.created_at.tzinfo is not None
        assert (sb.run_code("import os; os.environ['A']")).text == "'b'"
        assert sb.is_running()
    assert not sb.is_running()


def test_connect_and_list(client: Ramet) -> None:
    test = uuid.uuid4().hex
    made = [Sandbox.create(metadata={"test": test, "n": str(n)}, client=client) for n in range(3)]
    there = Sandbox.connect(made[0].id, client=client)
    assert there.info == made[0].refresh()
    found = collect(Sandbox.list(metadata={"test": test}, client=client))
    assert [i.id for i in found] == [s.id for s in reversed(made)]
    assert [i.id for i in collect(Sandbox.list(metadata={"test": test, "n": "1"}, client=client))] == [made[1].id]
    assert len(collect(Sandbox.list(metadata={"test": test}, limit=2, client=client))) == 2
    for s in made:
        s.delete()
    assert collect(Sandbox.list(metadata={"test": test}, client=client)) == []
    assert len(collect(Sandbox.list(metadata={"test": test}, status="any", client=client))) == 3


def test_ids_that_are_none(client: Ramet) -> None:
    for id in ("sbx_" + "0" * 32, "nope", "..", "../keys", "a b/ü"):
        with pytest.raises(NotFoundError):
            Sandbox.connect(id, client=client)
    with pytest.raises(ValueError):
        Sandbox.connect("", client=client)


def test_the_same_idempotency_key_makes_one_sandbox(client: Ramet) -> None:
    key = uuid.uuid4().hex
    a = Sandbox.create(idempotency_key=key, client=client)
    b = Sandbox.create(idempotency_key=key, client=client)
    assert a.id == b.id
    with pytest.raises(ConflictError) as caught:
        Sandbox.create(idempotency_key=key, vcpus=1, client=client)
    assert caught.value.code == "idempotency_key_reused" and "choose another idempotency_key" in str(caught.value).lower()
    a.delete()


def test_an_isolation_can_be_required(client: Ramet) -> None:
    with Sandbox.create(isolation="emulated", client=client) as sb:
        assert sb.info.isolation == "emulated"
        point = sb.checkpoints.create("here")
        with sb.checkpoints.spawn(point, isolation="emulated") as other:
            assert other.info.isolation == "emulated"
        with pytest.raises(InvalidRequestError) as caught:
            sb.checkpoints.spawn(point, isolation="gvisor")
        assert caught.value.code == "isolation_unavailable"
    with pytest.raises(InvalidRequestError) as caught:
        Sandbox.create(isolation="kvm", client=client)
    assert caught.value.code == "isolation_unavailable" and "is emulated, not kvm" in str(caught.value)
    with pytest.raises(InvalidRequestError) as caught:
        Sandbox.create(isolation="vm", client=client)
    assert caught.value.code == "invalid_isolation"


def test_update_and_egress(sb: Sandbox) -> None:
    i = sb.update(idle_timeout=60, max_lifetime=7200, metadata={"a": "1", "b": "2"})
    assert (i.idle_timeout_s, i.max_lifetime_s, i.metadata) == (60, 7200, {"a": "1", "b": "2"})
    assert (sb.update(metadata={"a": None})).metadata == {"b": "2"} and sb.info.metadata == {"b": "2"}
    i = sb.set_egress(deny=["*.example.com"], order="allow_first")
    assert i.egress and i.egress_policy.deny == ["*.example.com"] and i.egress_policy.order == "allow_first"
    assert (sb.set_egress(False)).egress is False
    with pytest.raises(InvalidRequestError):
        sb.set_egress(allow=["http://x"])


def test_fork_merge_and_diff(sb: Sandbox, client: Ramet) -> None:
    sb.files.write("both", "1")
    one, two = sb.fork(2)
    assert one.info.parent == sb.id and two.files.read("both") == "1"
    one.files.write("both", "2")
    one.files.write("new", "3")
    lineage = sb.lineage()
    assert {sb.id, one.id, two.id} <= {s.id for s in lineage.sandboxes}
    assert (sb.merge_into(one)).id == sb.id
    assert sb.files.read("both") == "2" and sb.files.read("new") == "3"
    with pytest.raises(NotFoundError):
        one.files.read("both")
    with pytest.raises(InvalidRequestError):
        sb.merge_into(sb.id)
    with pytest.raises(InvalidRequestError):
        sb.fork(33)
    two.delete()


def test_hibernate_and_wake(sb: Sandbox, client: Ramet, server: Server) -> None:
    sb.files.write("x", "1")
    assert (sb.hibernate()).status == "hibernated" and sb.is_running()
    with Ramet(server.url, server.key, wake=False) as quiet:
        with pytest.raises(ConflictError, match="[Ww]ake") as caught:
            (Sandbox.connect(sb.id, client=quiet)).files.read("x")
        assert caught.value.code == "sandbox_hibernated"
    assert (sb.wake()).status == "running" and sb.files.read("x") == "1"


def test_checkpoints(sb: Sandbox, client: Ramet) -> None:
    sb.files.write("x", "1")
    point = sb.checkpoints.create("first")
    assert (point.name, point.kind, point.sandbox) == ("first", "full", sb.id)
    sb.files.write("x", "2")
    assert (sb.checkpoints.restore(point)).id == sb.id and sb.files.read("x") == "1"
    with sb.checkpoints.spawn(point, metadata={"from": "first"}) as other:
        assert other.id != sb.id and other.info.checkpoint == point.id and other.files.read("x") == "1"
    other = Sandbox.create(checkpoint=point, client=client)
    other.delete()
    disk = sb.checkpoints.create(kind="disk")
    assert [c.id for c in collect(sb.checkpoints.list())] == [disk.id, point.id]
    assert point.id in [c.id for c in collect(client.checkpoints.list())]
    assert (client.checkpoints.get(point.id)).name == "first"
    sb.checkpoints.delete(point)
    client.checkpoints.delete(disk.id)
    assert collect(sb.checkpoints.list()) == []
    with pytest.raises(NotFoundError):
        sb.checkpoints.restore(point)
    with pytest.raises(ConflictError):
        sb.checkpoints.create("twice")
        sb.checkpoints.create("twice")


def test_spaces(client: Ramet) -> None:
    sb = Sandbox.create(persistent=True, idle_timeout=1, client=client)
    sb.files.write("x", "1")
    # The end of the sandbox is an event, and so is the Space.
    with sb.events() as events:
        for event in events:
            if event.type == "space_made":
                break
    spaces = [s for s in collect(client.spaces.list()) if s.sandbox == sb.id]
    assert len(spaces) == 1 and (client.spaces.get(spaces[0].id)).id == spaces[0].id
    with client.spaces.resume(spaces[0], idle_timeout=0) as again:
        assert again.info.space == spaces[0].id and again.files.read("x") == "1"
    with pytest.raises(NotFoundError):
        client.spaces.resume(spaces[0])
    with pytest.raises(NotFoundError):
        client.spaces.delete(spaces[0].id)


def test_metrics_and_console(sb: Sandbox) -> None:
    m = sb.metrics()
    assert m.memory_total_bytes == 1 << 30 and m.host.pss_bytes > 0
    assert "Linux version" in sb.console()


def test_events_go_on_over_a_break(proxy: Proxy, server: Server, client: Ramet) -> None:
    sb = Sandbox.create(client=client)
    seen: "list[str]" = []
    with Ramet(proxy.url, server.key) as there:
        with there.events(sandbox=sb.id) as events:
            for event in events:
                seen.append(event.type)
                if event.type == "running":
                    proxy.cut()
                    sb.update(metadata={"a": "1"})
                elif event.type == "updated":
                    sb.delete()
                elif event.type == "stopped":
                    break
    assert seen == ["creating", "running", "updated", "stopping", "stopped"]
    assert proxy.connections >= 2
    stored = collect(client.events(sandbox=sb.id, follow=False))
    assert [e.type for e in stored] == seen
    assert [e.type for e in collect(client.events(sandbox=sb.id, since=stored[1].id, follow=False))] == seen[2:]
    assert [e.type for e in collect(sb.events(since=stored[-1].time, follow=False))] in ([], ["stopped"])
    assert [e.type for e in first(sb.events(), 2)] == ["creating", "running"]


def test_the_server(client: Ramet, server: Server) -> None:
    info = client.info()
    assert (info.driver, info.auth, info.pid) == ("fake", True, server.pid)
    assert (client.capacity()).machines >= 0 and (client.usage()).templates
    assert [t.name for t in client.templates.list()][:1] == ["default"]
    steps: "list[object]" = []
    assert (client.templates.build("other", on_progress=lambda e: steps.append(e.step))).name == "other"
    client.templates.delete("other")
    with pytest.raises(NotFoundError):
        client.templates.delete("other")
    key = client.keys.create("mine")
    assert key.key and key.id in [k.id for k in client.keys.list()]
    client.keys.delete(key.id)
    assert [p.name for p in client.projects.list()] == ["default"]
    assert (client.projects.get("default")).name == "default"
    with pytest.raises(PermissionDeniedError):
        client.projects.set("default", max_sandboxes=1)
    with Ramet(server.url, server.admin_key) as admin:
        assert (admin.projects.set("small", max_sandboxes=1)).max_sandboxes == 1
