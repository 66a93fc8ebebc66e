# Made from tests/_async/test_files.py by tools/generate.py: change that.
from __future__ import annotations

import io
import tarfile
import tracemalloc
from pathlib import Path
from typing import Iterator

import pytest

from ramet import Sandbox, ConflictError, InvalidRequestError, NotFoundError

from .tools import collect

pytestmark = pytest.mark.anyio


def test_read_and_write(sb: Sandbox) -> None:
    text, data = "héllo\r\n\u2028", bytes(range(256))
    info = sb.files.write("a/b.txt", text)
    assert (info.path, info.size, info.type) == ("/root/a/b.txt", len(text.encode()), "file")
    assert sb.files.read("a/b.txt") == text
    sb.files.write("/root/a/c", data, mode=0o600)
    assert sb.files.read("a/c", "bytes") == data
    with sb.files.read("a/c", "stream") as stream:
        assert b"".join(collect(stream)) == data
    with pytest.raises(UnicodeDecodeError):
        sb.files.read("a/c")
    assert (sb.files.stat("a/c")).mode == "0600"


def test_what_can_be_written(sb: Sandbox) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a"
        yield b"b"

    for data in (b"ab", bytearray(b"ab"), memoryview(b"ab"), "ab", io.BytesIO(b"ab"), pieces(), [b"a", b"b"]):
        sb.files.write("x", data)
        assert sb.files.read("x") == "ab"
    sb.files.write("x", b"")
    assert sb.files.read("x", "bytes") == b""
    written = sb.files.write_many([("m/1", "one"), ("m/2", b"two")])
    assert [w.path for w in written] == ["/root/m/1", "/root/m/2"] and sb.files.read("m/2") == "two"


def test_an_upload_that_breaks_off_leaves_what_was_there(sb: Sandbox) -> None:
    sb.files.write("x", "old")

    def pieces() -> Iterator[bytes]:
        yield b"new" * 100_000
        raise KeyError("no more")

    with pytest.raises(KeyError):
        sb.files.write("x", pieces())
    assert sb.files.read("x") == "old"


def test_directories(sb: Sandbox) -> None:
    sb.files.mkdir("d/e")
    sb.files.mkdir("d/e")
    with pytest.raises(ConflictError):
        sb.files.mkdir("d/e", parents=False)
    sb.files.write("d/e/f", "1")
    assert [f.path for f in sb.files.list("d", depth=2)] == ["/root/d/e", "/root/d/e/f"]
    assert sb.files.exists("d/e/f") and not sb.files.exists("d/x") and not sb.files.exists("no/x")
    assert (sb.files.rename("d/e/f", "d/g")).path == "/root/d/g"
    sb.files.write("d/h", "2")
    with pytest.raises(ConflictError):
        sb.files.rename("d/h", "d/g")
    sb.files.rename("d/h", "d/g", overwrite=True)
    assert sb.files.read("d/g") == "2"
    with pytest.raises(ConflictError):
        sb.files.remove("d")
    sb.files.remove("d", recursive=True)
    assert not sb.files.exists("d")


def test_what_goes_wrong_has_its_own_error(sb: Sandbox) -> None:
    with pytest.raises(NotFoundError, match="relative paths start|Relative paths start") as caught:
        sb.files.read("nope")
    assert caught.value.code == "file_not_found"
    with pytest.raises(NotFoundError):
        sb.files.read("nope", "stream")
    sb.files.mkdir("d")
    with pytest.raises(ConflictError):
        sb.files.read("d")
    with pytest.raises(NotFoundError):
        sb.files.write("no/such/x", "1", parents=False)
    with pytest.raises(NotFoundError):
        sb.files.remove("nope")
    with pytest.raises(InvalidRequestError):
        sb.files.write("x", "1", mode="rw-")


def test_upload_and_download_take_no_memory(sb: Sandbox, tmp_path: Path) -> None:
    size = 48 << 20
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as f:
        f.truncate(size)
        f.write(b"\xffend")
    source.chmod(0o640)
    tracemalloc.start()
    try:
        assert (sb.files.upload(source, "big")).mode == "0640"
        assert sb.files.download("big", target) == size
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(NotFoundError):
        sb.files.download("nope", tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source", "target"]


def test_archives(sb: Sandbox) -> None:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        member = tarfile.TarInfo("in/x")
        member.size = 2
        t.addfile(member, io.BytesIO(b"hi"))
    extracted = sb.files.write_archive("there", tar.getvalue())
    assert extracted.files >= 1 and sb.files.read("there/in/x") == "hi"
    with sb.files.read_archive("there") as stream:
        data = b"".join(collect(stream))
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        assert [m.name.endswith("in/x") for m in t if m.isfile()] == [True]


def test_closing_a_stream_early(sb: Sandbox) -> None:
    sb.files.write("big", b"x" * (16 << 20))
    with sb.files.read("big", "stream") as stream:
        for piece in stream:
            assert piece
            break
    assert sb.files.read("big", "bytes") == b"x" * (16 << 20)
