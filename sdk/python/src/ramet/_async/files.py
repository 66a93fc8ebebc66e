"""Files of a sandbox. Large ones are streamed: memory does not grow with them."""

from __future__ import annotations

import os
import uuid
from typing import Iterable, List, Literal, Mapping, Optional, Tuple, Union, overload

from .. import errors
from .._calls import Lines, Raw
from .._generated import models as m
from .._generated import operations as op
from ._kit import Content, LocalFile, Source, entering
from .transport import AsyncHolder, AsyncStream, AsyncTransport

Mode = Union[int, str]
"""Permission bits: 0o644, or as chmod takes them, "0644"."""

LocalPath = Union[str, "os.PathLike[str]"]


def octal(mode: Optional[Mode]) -> Optional[str]:
    return f"{mode:04o}" if isinstance(mode, int) else mode


class AsyncFiles:
    """Files of one sandbox. Paths are the guest's; relative ones start at the home directory of ``user`` (root)."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    @overload
    async def read(self, path: str, format: Literal["text"] = "text", *, user: Optional[str] = None) -> str: ...

    @overload
    async def read(self, path: str, format: Literal["bytes"], *, user: Optional[str] = None) -> bytes: ...

    @overload
    async def read(self, path: str, format: Literal["stream"], *, user: Optional[str] = None) -> AsyncStream[bytes]: ...

    async def read(
        self, path: str, format: Literal["text", "bytes", "stream"] = "text", *, user: Optional[str] = None
    ) -> Union[str, bytes, AsyncStream[bytes]]:
        """Reads a file: as text in UTF-8, as bytes, or as a stream of pieces, which is to be read or closed."""
        call = op.read_file(self._sandbox, path=path, user=user)
        if format == "stream":
            return await self._stream(call)
        content = await self._whole(call)
        return content if format == "bytes" else content.decode()

    async def _whole(self, call: Raw) -> bytes:
        out = bytearray()
        async with await self._stream(call) as stream:
            async for piece in stream:
                out += piece
        return bytes(out)

    async def _stream(self, call: Raw) -> AsyncStream[bytes]:
        """A stream whose answer is there: what is wrong with the call is known."""
        holder = AsyncHolder()
        source = self._pieces(call, holder)
        await source.__anext__()  # an empty piece, when the answer is there
        return AsyncStream(source, holder)

    async def _pieces(self, call: Raw, holder: AsyncHolder) -> Source[bytes]:
        answer = await holder.take(await self._transport.open(call))
        try:
            yield b""
            async for piece in answer.chunks():
                yield piece
        finally:
            await answer.close()

    async def write(
        self,
        path: str,
        data: Content,
        *,
        mode: Optional[Mode] = None,
        parents: bool = True,
        attributes: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
    ) -> m.FileInfo:
        """Writes a file, which is replaced as a whole at the end or not at all. Missing directories are made,
        unless ``parents`` is False. ``attributes`` are extended attributes, without the ``user.`` in front of their names."""
        named = None if attributes is None else [f"{k}={v}" for k, v in attributes.items()]
        call = op.write_file(self._sandbox, path=path, mode=octal(mode), parents=parents, user=user, attribute=named)
        return await self._transport.call(call, data)

    async def write_many(
        self, files: Iterable[Tuple[str, Content]], *, mode: Optional[Mode] = None, user: Optional[str] = None
    ) -> List[m.FileInfo]:
        """Writes several files, one after the other."""
        return [await self.write(path, data, mode=mode, user=user) for path, data in files]

    async def list(self, path: str = ".", depth: int = 1, *, user: Optional[str] = None) -> List[m.FileInfo]:
        """Lists a directory, ``depth`` levels deep. More than 20000 entries are an error: list parts of it then."""
        found = await self._transport.call(op.list_files(self._sandbox, path=path, depth=depth, user=user))
        if found.truncated:
            raise errors.InvalidRequestError(
                f"{path} has more than {len(found.files)} entries, which is all that a list can show",
                code="list_truncated",
                hint="list its directories one by one, or use commands.run with find",
            )
        return found.files

    async def stat(self, path: str, *, follow: bool = True, user: Optional[str] = None) -> m.FileInfo:
        """What a path is; with ``follow`` what a symbolic link points to."""
        return await self._transport.call(op.stat_file(self._sandbox, path=path, follow=follow, user=user))

    async def exists(self, path: str, *, user: Optional[str] = None) -> bool:
        """Whether there is something. A symbolic link to nothing is something."""
        try:
            await self.stat(path, follow=False, user=user)
        except errors.NotFoundError as e:
            if e.code != "file_not_found":
                raise
            return False
        return True

    async def mkdir(
        self, path: str, *, mode: Optional[Mode] = None, parents: bool = True, user: Optional[str] = None
    ) -> m.FileInfo:
        """Makes a directory, with those above it. With ``parents`` one that is there is no error."""
        body = m.MakeDirectory(path=path, mode=octal(mode), parents=parents, user=user)
        return await self._transport.call(op.make_directory(self._sandbox, body))

    async def rename(self, source: str, target: str, *, overwrite: bool = False, user: Optional[str] = None) -> m.FileInfo:
        """Moves or renames."""
        body = m.MoveFile(from_=source, to=target, overwrite=overwrite, user=user)
        return await self._transport.call(op.move_file(self._sandbox, body))

    async def remove(self, path: str, *, recursive: bool = False, user: Optional[str] = None) -> None:
        """Removes a file or an empty directory; with ``recursive`` all that is in it too."""
        await self._transport.call(op.remove_file(self._sandbox, path=path, recursive=recursive, user=user))

    async def set_attributes(
        self,
        path: str,
        *,
        mode: Optional[Mode] = None,
        owner: Optional[str] = None,
        group: Optional[str] = None,
        user: Optional[str] = None,
    ) -> m.FileInfo:
        """Changes mode, owner or group."""
        body = m.FileAttributes(path=path, mode=octal(mode), owner=owner, group=group, user=user)
        return await self._transport.call(op.set_file_attributes(self._sandbox, body))

    @entering
    async def watch(
        self, path: str, *, recursive: bool = False, info: bool = False, user: Optional[str] = None
    ) -> AsyncStream[m.FileEvent]:
        """What changes in a directory, until the stream is closed: whatever changes after this has returned is told. Events have the type
        ``change`` (with ``path``, relative to the directory, ``change``, and with ``info`` what it is), or ``overflow``: there
        were more than could be told, list the directory again."""
        call = op.watch_files(self._sandbox, path=path, recursive=recursive, info=info, user=user)
        holder = AsyncHolder()
        source = self._changes(call, holder)
        await source.__anext__()  # it has started
        return AsyncStream(source, holder)

    async def _changes(self, call: Lines[m.FileEvent], holder: AsyncHolder) -> Source[m.FileEvent]:
        answer = await holder.take(await self._transport.open(call))
        try:
            async for line in answer.objects():
                event = answer.decode(m.FileEvent, line)
                if event.type == "stream_error":
                    raise errors.from_stream(event.error or "the watch has ended", event.code or "")
                if event.type in ("started", "change", "overflow"):
                    yield event
        finally:
            await answer.close()

    async def upload(self, local: LocalPath, remote: str, *, parents: bool = True, user: Optional[str] = None) -> m.FileInfo:
        """Copies a file of this machine into the sandbox, with its permission bits."""
        mode = os.stat(local).st_mode & 0o777
        with open(local, "rb") as file:
            return await self.write(remote, file, mode=mode, parents=parents, user=user)

    async def download(self, remote: str, local: LocalPath, *, user: Optional[str] = None) -> int:
        """Copies a file of the sandbox to this machine, whole or not at all; returns its size in bytes."""
        target = os.fspath(local)
        part = f"{target}.{uuid.uuid4().hex}.part"
        size = 0
        async with await self.read(remote, "stream", user=user) as stream:
            file = await LocalFile.open(part, "xb")
            try:
                try:
                    async for piece in stream:
                        await file.write(piece)
                        size += len(piece)
                finally:
                    await file.close()
                os.replace(part, target)
            except BaseException:
                os.unlink(part)
                raise
        return size

    async def read_archive(self, path: str, *, user: Optional[str] = None) -> AsyncStream[bytes]:
        """A file or directory as a tar, in pieces."""
        return await self._stream(op.read_archive(self._sandbox, path=path, user=user))

    async def write_archive(self, path: str, tar: Content, *, user: Optional[str] = None) -> m.Extracted:
        """Unpacks a tar into a directory, which is made when it is missing."""
        return await self._transport.call(op.write_archive(self._sandbox, path=path, user=user), tar)
