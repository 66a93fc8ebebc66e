"""Files through E2B's official Python client, sync and async.

Prints one JSON object per operation, and exits with 1 when one did not do what it should.
The server is named by E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL.
"""

import io
import os
import uuid

import e2b
import httpx
from _check import Skip, eventually, has, is_async, knows, main, operation, raises, same, val
from e2b import AsyncSandbox, FileType, Sandbox

try:
    from e2b import FilesystemEventType
except ImportError:
    from e2b.sandbox.filesystem.watch_handle import FilesystemEventType

NotFound = getattr(e2b, "FileNotFoundException", e2b.NotFoundException)
BYTES = bytes(range(256)) * 40


def fresh():
    """A path that is not there yet."""
    return f"/home/user/{uuid.uuid4().hex}"


async def shell(s, command):
    return (await val(s.commands.run(command))).stdout


@operation("files.write, read")
async def write_read(s):
    path = fresh() + ".txt"
    info = await val(s.files.write(path, "h\u00e9llo \u2603\n"))
    same((info.path, info.name, FileType(info.type)), (path, os.path.basename(path), FileType.FILE))
    same(await val(s.files.read(path)), "h\u00e9llo \u2603\n")
    await val(s.files.write(path, "shorter"))
    same(await val(s.files.read(path)), "shorter")
    same(await shell(s, f"stat -c '%U %G %a' {path}"), "user user 644\n")


@operation("files.write, read: bytes")
async def binary(s):
    path = fresh()
    await val(s.files.write(path, BYTES))
    same(bytes(await val(s.files.read(path, format="bytes"))), BYTES)
    await val(s.files.write(path, io.BytesIO(BYTES[::-1])))
    same(bytes(await val(s.files.read(path, format="bytes"))), BYTES[::-1])
    await val(s.files.write(path, ""))
    same(await val(s.files.read(path)), "", "an empty file")


@operation("files.read: stream")
async def stream(s):
    path = fresh()
    await val(s.files.write(path, BYTES * 100))
    got = b""
    chunks = await val(s.files.read(path, format="stream"))
    if is_async(s):
        async for c in chunks:
            got += c
    else:
        for c in chunks:
            got += c
    same(got == BYTES * 100, True, "the content")


@operation("files.write: directories and odd names")
async def names(s):
    base = fresh()
    for name in ("a/b/c.txt", "with space/ \u00fcn\u00ef \u65e5\u672c.txt", "quote'd & $HOME;.txt", "%41+b.txt"):
        path = f"{base}/{name}"
        info = await val(s.files.write(path, name))
        same(info.path, path)
        same(await val(s.files.read(path)), name)
    same(await shell(s, f"stat -c %U {base} {base}/a {base}/a/b"), "user\n" * 3)
    same(await shell(s, f"find {base} -type f | wc -l"), "4\n")


@operation("files.write: anywhere")
async def anywhere(s):
    path = f"/srv/{uuid.uuid4().hex}/file"
    await val(s.files.write(path, "x"))
    same(await shell(s, f"stat -c %U {path} && echo more >> {path} && cat {path}"), "user\nxmore\n")


@operation("files.write: as root")
async def as_root(s):
    path = f"/root/{uuid.uuid4().hex}"
    await val(s.files.write(path, "x", user="root"))
    same(await val(s.files.read(path, user="root")), "x")
    same(await val(s.files.read(os.path.basename(path), user="root")), "x", "relative to root's home")
    r = await val(s.commands.run(f"stat -c %U {path}", user="root"))
    same(r.stdout, "root\n")


@operation("files: relative paths")
async def relative(s):
    name = uuid.uuid4().hex
    info = await val(s.files.write(f"{name}/x.txt", "rel"))
    same(info.path, f"/home/user/{name}/x.txt")
    same(await val(s.files.read(f"~/{name}/x.txt")), "rel")
    same(await shell(s, f"cat {name}/x.txt"), "rel")


@operation("files.write_files")
async def several(s):
    if not hasattr(s.files, "write_files"):
        raise Skip
    base = fresh()
    entries = [{"path": f"{base}/{i}/f.txt", "data": f"content {i}"} for i in range(5)] + [{"path": f"{base}/bin", "data": BYTES}]
    infos = await val(s.files.write_files(entries))
    same([i.path for i in infos], [e["path"] for e in entries])
    for e in entries[:5]:
        same(await val(s.files.read(e["path"])), e["data"])
    same(bytes(await val(s.files.read(f"{base}/bin", format="bytes"))), BYTES)


@operation("files: gzip")
async def gzipped(s):
    knows(s.files.write, "gzip")
    path = fresh()
    text = "again " * 10000
    await val(s.files.write(path, text, gzip=True))
    same(await val(s.files.read(path, gzip=True)) == text, True, "the content")
    same(await shell(s, f"stat -c %s {path}"), "60000\n")


@operation("files.write: octet stream")
async def octets(s):
    knows(s.files.write, "use_octet_stream")
    path = fresh()
    await val(s.files.write(path, BYTES, use_octet_stream=True))
    same(bytes(await val(s.files.read(path, format="bytes"))), BYTES)


@operation("files: metadata")
async def metadata(s):
    knows(s.files.write, "metadata")
    path = fresh()
    info = await val(s.files.write(path, "x", metadata={"Author": "me", "run-id": "7"}))
    same(info.metadata, {"author": "me", "run-id": "7"})
    same((await val(s.files.get_info(path))).metadata, {"author": "me", "run-id": "7"})
    moved = await val(s.files.rename(path, path + ".2"))
    same(moved.metadata, {"author": "me", "run-id": "7"}, "of a moved file")
    same((await val(s.files.get_info("/etc/passwd"))).metadata, None)


@operation("files.read: errors")
async def read_errors(s):
    async with raises(NotFound) as seen:
        await val(s.files.read("/no/such/file"))
    has(str(seen[0]), "/no/such/file")
    async with raises(e2b.InvalidArgumentException):
        await val(s.files.read("/etc"))
    async with raises(e2b.InvalidArgumentException):
        await val(s.files.write("/etc", "x"))


@operation("files: unknown user")
async def unknown_user(s):
    async with raises(e2b.AuthenticationException):
        await val(s.files.read("/etc/passwd", user="nobody-of-that-name"))
    async with raises(e2b.AuthenticationException):
        await val(s.files.list("/etc", user="nobody-of-that-name"))


@operation("files.list")
async def listing(s):
    base = fresh()
    for name in ("b.txt", "a.txt", "d/e.txt", "d/f/g.txt"):
        await val(s.files.write(f"{base}/{name}", "12345"))
    entries = sorted(await val(s.files.list(base)), key=lambda e: e.path)
    same([(e.name, e.type, e.path) for e in entries], [
        ("a.txt", FileType.FILE, f"{base}/a.txt"), ("b.txt", FileType.FILE, f"{base}/b.txt"), ("d", FileType.DIR, f"{base}/d"),
    ])
    same((entries[0].size, entries[0].owner, entries[0].permissions), (5, "user", "-rw-r--r--"))
    async with raises(NotFound):
        await val(s.files.list(base + "/none"))
    async with raises(e2b.InvalidArgumentException):
        await val(s.files.list(base + "/a.txt"))


@operation("files.list: depth")
async def depth(s):
    base = fresh()
    await val(s.files.write(f"{base}/1/2/3/file", "x"))
    for n, want in ((1, 1), (2, 2), (3, 3), (4, 4), (10, 4)):
        same(len(await val(s.files.list(base, depth=n))), want, f"depth {n}")
    async with raises(e2b.InvalidArgumentException):
        await val(s.files.list(base, depth=0))


@operation("files.exists")
async def exists(s):
    same(await val(s.files.exists("/etc/passwd")), True)
    same(await val(s.files.exists("/etc")), True)
    same(await val(s.files.exists("/etc/none")), False)


@operation("files.get_info")
async def get_info(s):
    base = fresh()
    await val(s.files.write(f"{base}/file", "123"))
    await shell(s, f"cd {base} && chmod 750 file && ln -s file link && ln -s nowhere broken")
    i = await val(s.files.get_info(f"{base}/file"))
    same((i.name, i.type, i.path, i.size, i.mode, i.permissions, i.owner, i.group), (
        "file", FileType.FILE, f"{base}/file", 3, 0o750, "-rwxr-x---", "user", "user"))
    if abs(i.modified_time.timestamp() - float(await shell(s, "date +%s"))) > 60:
        raise AssertionError(f"modified {i.modified_time}")
    d = await val(s.files.get_info(base))
    same((d.type, d.permissions, d.symlink_target), (FileType.DIR, "drwxr-xr-x", None))
    l = await val(s.files.get_info(f"{base}/link"))
    same((l.path, l.symlink_target), (f"{base}/link", f"{base}/file"))
    if l.type not in (FileType.FILE, getattr(FileType, "SYMLINK", None)):
        raise AssertionError(f"a link has the type {l.type}")
    async with raises(NotFound):
        await val(s.files.get_info(f"{base}/none"))


@operation("files.make_dir")
async def make_dir(s):
    path = fresh() + "/x/y"
    same(await val(s.files.make_dir(path)), True)
    same(await val(s.files.make_dir(path)), False, "again")
    same(await shell(s, f"stat -c '%U %F' {path}"), "user directory\n")


@operation("files.rename")
async def rename(s):
    a, b = fresh(), fresh()
    await val(s.files.write(a, "a"))
    info = await val(s.files.rename(a, b))
    same((info.path, info.name), (b, os.path.basename(b)))
    same((await val(s.files.exists(a)), await val(s.files.read(b))), (False, "a"))
    async with raises(NotFound):
        await val(s.files.rename(a, b))


@operation("files.remove")
async def remove(s):
    base = fresh()
    await val(s.files.write(f"{base}/a/b", "x"))
    await val(s.files.remove(f"{base}/a/b"))
    same(await val(s.files.exists(f"{base}/a/b")), False)
    await val(s.files.remove(base))
    same(await val(s.files.exists(base)), False)
    await val(s.files.remove(base))


class Watch:
    """A watch of either client."""

    @classmethod
    async def open(cls, s, path, **options):
        w = cls()
        w.events = []
        if is_async(s):
            w.handle = await s.files.watch_dir(path, on_event=w.events.append, **options)
        else:
            w.handle = s.files.watch_dir(path, **options)
        w.s = s
        return w

    async def saw(self, kind, name):
        def look():
            if not is_async(self.s):
                self.events.extend(self.handle.get_new_events())
            return next((e for e in self.events if e.type == kind and e.name == name), None)

        return await eventually(f"{kind} of {name}, but {self.events!r:.300}", look)


@operation("files.watch_dir")
async def watch(s):
    base = fresh()
    await val(s.files.make_dir(base))
    w = await Watch.open(s, base)
    await val(s.files.write(f"{base}/new", "x"))
    await shell(s, f"cd {base} && echo 1 > made && echo 2 >> made && chmod 600 made && mv made moved && rm moved")
    await w.saw(FilesystemEventType.CREATE, "made")
    await w.saw(FilesystemEventType.WRITE, "made")
    await w.saw(FilesystemEventType.CHMOD, "made")
    await w.saw(FilesystemEventType.RENAME, "made")
    await w.saw(FilesystemEventType.CREATE, "moved")
    await w.saw(FilesystemEventType.REMOVE, "moved")
    await val(w.handle.stop())


@operation("files.watch_dir: recursive")
async def watch_recursive(s):
    base = fresh()
    await val(s.files.make_dir(base + "/old"))
    w = await Watch.open(s, base, recursive=True)
    await shell(s, f"echo 1 > {base}/old/a; mkdir -p {base}/n/m && echo 1 > {base}/n/m/b")
    await w.saw(FilesystemEventType.CREATE, "old/a")
    await w.saw(FilesystemEventType.CREATE, "n")
    await w.saw(FilesystemEventType.CREATE, "n/m/b")
    await val(w.handle.stop())


@operation("files.watch_dir: entries")
async def watch_entries(s):
    knows(s.files.watch_dir, "include_entry")
    base = fresh()
    await val(s.files.make_dir(base))
    w = await Watch.open(s, base, include_entry=True)
    await shell(s, f"echo 12345 > {base}/made")
    e = await w.saw(FilesystemEventType.WRITE, "made")
    same((e.entry.path, e.entry.name, e.entry.owner), (f"{base}/made", "made", "user"))
    await val(w.handle.stop())


@operation("files.watch_dir: errors")
async def watch_errors(s):
    for path, kind in (("/no/such/dir", NotFound), ("/etc/passwd", e2b.InvalidArgumentException)):
        async with raises(kind):
            await Watch.open(s, path)


@operation("download_url, upload_url")
async def urls(s):
    path = fresh() + "/signed file.txt"
    with httpx.Client() as c:
        up = c.post(await val(s.upload_url(path)), files={"file": ("name", b"by url")})
        same(up.status_code, 200, up.text)
        same(await val(s.files.read(path)), "by url")
        url = await val(s.download_url(path))
        same(c.get(url).text, "by url")
        part = c.get(url, headers={"Range": "bytes=3-"})
        same((part.status_code, part.text), (206, "url"))
        same(c.get(url.replace("signature=v1_", "signature=v1_A")).status_code, 401, "a wrong signature")
        same(c.get(await val(s.upload_url(path))).status_code, 401, "reading with a URL for writing")


@operation("download_url: expiration")
async def expiration(s):
    path = fresh()
    await val(s.files.write(path, "x"))
    with httpx.Client() as c:
        same(c.get(await val(s.download_url(path, use_signature_expiration=60))).text, "x")
        same(c.get(await val(s.download_url(path, use_signature_expiration=-60))).status_code, 401)


@operation("files: 48 MiB there and back")
async def large(s):
    path = fresh()
    content = os.urandom(1 << 20) * 48
    await val(s.files.write(path, io.BytesIO(content), request_timeout=110))
    got = await val(s.files.read(path, format="bytes", request_timeout=110))
    same(bytes(got) == content, True, "the content")


@operation("files.write: full disk")
async def full(s):
    size = int(await shell(s, "df --output=avail -B1 /home/user | tail -1"))
    await val(s.commands.run(f"fallocate -l {size - (3 << 20)} /home/user/fill", user="root"))
    try:
        async with raises(e2b.NotEnoughSpaceException):
            await val(s.files.write(fresh(), b"x" * (16 << 20)))
    finally:
        await val(s.commands.run("rm /home/user/fill", user="root"))
    await val(s.files.write(fresh(), "there is room again"))


@operation("is_running")
async def is_running(s):
    same(await val(s.is_running()), True)


main(Sandbox, AsyncSandbox, template="base", timeout=300)
