from __future__ import annotations

import io
import tarfile
import tracemalloc
from pathlib import Path
from typing import Iterator

import pytest

from ramet import AsyncSandbox, ConflictError, InvalidRequestError, NotFoundError

from .tools import collect

pytestmark = pytest.mark.anyio


async def test_read_and_write(sb: AsyncSandbox) -> None:
    text, data = "héllo\r\n\u2028", bytes(range(256))
    info = await sb.files.write("a/b.txt", text)
    assert (info.path, info.size, info.type) == ("/root/a/b.txt", len(text.encode()), "file")
    assert await sb.files.read("a/b.txt") == text
    await sb.files.write("/root/a/c", data, mode=0o600)
    assert await sb.files.read("a/c", "bytes") == data
    async with await sb.files.read("a/c", "stream") as stream:
        assert b"".join(await collect(stream)) == data
    with pytest.raises(UnicodeDecodeError):
        await sb.files.read("a/c")
    assert (await sb.files.stat("a/c")).mode == "0600"


async def test_what_can_be_written(sb: AsyncSandbox) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a"
        yield b"b"

    for data in (b"ab", bytearray(b"ab"), memoryview(b"ab"), "ab", io.BytesIO(b"ab"), pieces(), [b"a", b"b"]):
        await sb.files.write("x", data)
        assert await sb.files.read("x") == "ab"
    await sb.files.write("x", b"")
    assert await sb.files.read("x", "bytes") == b""
    written = await sb.files.write_many([("m/1", "one"), ("m/2", b"two")])
    assert [w.path for w in written] == ["/root/m/1", "/root/m/2"] and await sb.files.read("m/2") == "two"


async def test_an_upload_that_breaks_off_leaves_what_was_there(sb: AsyncSandbox) -> None:
    await sb.files.write("x", "old")

    def pieces() -> Iterator[bytes]:
        yield b"new" * 100_000
        raise KeyError("no more")

    with pytest.raises(KeyError):
        await sb.files.write("x", pieces())
    assert await sb.files.read("x") == "old"


async def test_directories(sb: AsyncSandbox) -> None:
    await sb.files.mkdir("d/e")
    await sb.files.mkdir("d/e")
    with pytest.raises(ConflictError):
        await sb.files.mkdir("d/e", parents=False)
    await sb.files.write("d/e/f", "1")
    assert [f.path for f in await sb.files.list("d", depth=2)] == ["/root/d/e", "/root/d/e/f"]
    assert await sb.files.exists("d/e/f") and not await sb.files.exists("d/x") and not await sb.files.exists("no/x")
    assert (await sb.files.rename("d/e/f", "d/g")).path == "/root/d/g"
    await sb.files.write("d/h", "2")
    with pytest.raises(ConflictError):
        await sb.files.rename("d/h", "d/g")
    await sb.files.rename("d/h", "d/g", overwrite=True)
    assert await sb.files.read("d/g") == "2"
    with pytest.raises(ConflictError):
        await sb.files.remove("d")
    await sb.files.remove("d", recursive=True)
    assert not await sb.files.exists("d")


async def test_what_goes_wrong_has_its_own_error(sb: AsyncSandbox) -> None:
    with pytest.raises(NotFoundError, match="relative paths start|Relative paths start") as caught:
        await sb.files.read("nope")
    assert caught.value.code == "file_not_found"
    with pytest.raises(NotFoundError):
        await sb.files.read("nope", "stream")
    await sb.files.mkdir("d")
    with pytest.raises(ConflictError):
        await sb.files.read("d")
    with pytest.raises(NotFoundError):
        await sb.files.write("no/such/x", "1", parents=False)
    with pytest.raises(NotFoundError):
        await sb.files.remove("nope")
    with pytest.raises(InvalidRequestError):
        await sb.files.write("x", "1", mode="rw-")


async def test_upload_and_download_take_no_memory(sb: AsyncSandbox, tmp_path: Path) -> None:
    size = 48 << 20
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as f:
        f.truncate(size)
        f.write(b"\xffend")
    source.chmod(0o640)
    tracemalloc.start()
    try:
        assert (await sb.files.upload(source, "big")).mode == "0640"
        assert await sb.files.download("big", target) == size
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(NotFoundError):
        await sb.files.download("nope", tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source", "target"]


async def test_archives(sb: AsyncSandbox) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        member = tarfile.TarInfo("in/x")
        member.size = 2
        t.addfile(member, io.BytesIO(b"hi"))
    extracted = await sb.files.write_archive("there", tar.getvalue())
    assert extracted.files >= 1 and await sb.files.read("there/in/x") == "hi"
    async with await sb.files.read_archive("there") as stream:
        data = b"".join(await collect(stream))
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        assert [m.name.endswith("in/x") for m in t if m.isfile()] == [True]


async def test_closing_a_stream_early(sb: AsyncSandbox) -> None:
    await sb.files.write("big", b"x" * (16 << 20))
    async with await sb.files.read("big", "stream") as stream:
        async for piece in stream:
            assert piece
            break
    assert await sb.files.read("big", "bytes") == b"x" * (16 << 20)
