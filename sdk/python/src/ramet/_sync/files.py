# Made from src/ramet/_async/files.py by tools/generate.py: change that.
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
from .transport import Holder, Stream, Transport

Mode = Union[int, str]
"""Permission bits: 0o644, or as chmod takes them, "0644"."""

LocalPath = Union[str, "os.PathLike[str]"]


def octal(mode: Optional[Mode]) -> Optional[str]:
    return f"{mode:04o}" if isinstance(mode, int) else mode


class Files:
    """Files of one sandbox. Paths are the guest's; relative ones start at the home directory of ``user`` (root)."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    @overload
    def read(self, path: str, format: Literal["text"] = "text", *, user: Optional[str] = None) -> str: ...

    @overload
    def read(self, path: str, format: Literal["bytes"], *, user: Optional[str] = None) -> bytes: ...

    @overload
    def read(self, path: str, format: Literal["stream"], *, user: Optional[str] = None) -> Stream[bytes]: ...

    def read(
        self, path: str, format: Literal["text", "bytes", "stream"] = "text", *, user: Optional[str] = None
    ) -> Union[str, bytes, Stream[bytes]]:
        """Reads a file: as text in UTF-8, as bytes, or as a stream of pieces, which is to be read or closed."""
        call = op.read_file(self._sandbox, path=path, user=user)
        if format == "stream":
            return self._stream(call)
        content = self._whole(call)
        return content if format == "bytes" else content.decode()

    def _whole(self, call: Raw) -> bytes:
        out = bytearray()
        with self._stream(call) as stream:
            for piece in stream:
                out += piece
        return bytes(out)

    def _stream(self, call: Raw) -> Stream[bytes]:
        """A stream whose answer is there: what is wrong with the call is known."""
        holder = Holder()
        source = self._pieces(call, holder)
        source.__next__()  # an empty piece, when the answer is there
        return Stream(source, holder)

    def _pieces(self, call: Raw, holder: Holder) -> Source[bytes]:
        answer = holder.take(self._transport.open(call))
        try:
            yield b""
            for piece in answer.chunks():
                yield piece
        finally:
            answer.close()

    def write(
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
        return self._transport.call(call, data)

    def write_many(
        self, files: Iterable[Tuple[str, Content]], *, mode: Optional[Mode] = None, user: Optional[str] = None
    ) -> List[m.FileInfo]:
        """Writes several files, one after the other."""
        return [self.write(path, data, mode=mode, user=user) for path, data in files]

    def list(self, path: str = ".", depth: int = 1, *, user: Optional[str] = None) -> List[m.FileInfo]:
        """Lists a directory, ``depth`` levels deep. More than 20000 entries are an error: list parts of it then."""
        found = self._transport.call(op.list_files(self._sandbox, path=path, depth=depth, user=user))
        if found.truncated:
            raise errors.InvalidRequestError(
                f"{path} has more than {len(found.files)} entries, which is all that a list can show",
                code="list_truncated",
                hint="list its directories one by one, or use commands.run with find",
            )
        return found.files

    def stat(self, path: str, *, follow: bool = True, user: Optional[str] = None) -> m.FileInfo:
        """What a path is; with ``follow`` what a symbolic link points to."""
        return self._transport.call(op.stat_file(self._sandbox, path=path, follow=follow, user=user))

    def exists(self, path: str, *, user: Optional[str] = None) -> bool:
        """Whether there is something. A symbolic link to nothing is something."""
        try:
            self.stat(path, follow=False, user=user)
        except errors.NotFoundError as e:
            if e.code != "file_not_found":
                raise
            return False
        return True

    def mkdir(
        self, path: str, *, mode: Optional[Mode] = None, parents: bool = True, user: Optional[str] = None
    ) -> m.FileInfo:
        """Makes a directory, with those above it. With ``parents`` one that is there is no error."""
        body = m.MakeDirectory(path=path, mode=octal(mode), parents=parents, user=user)
        return self._transport.call(op.make_directory(self._sandbox, body))

    def rename(self, source: str, target: str, *, overwrite: bool = False, user: Optional[str] = None) -> m.FileInfo:
        """Moves or renames."""
        body = m.MoveFile(from_=source, to=target, overwrite=overwrite, user=user)
        return self._transport.call(op.move_file(self._sandbox, body))

    def remove(self, path: str, *, recursive: bool = False, user: Optional[str] = None) -> None:
        """Removes a file or an empty directory; with ``recursive`` all that is in it too."""
        self._transport.call(op.remove_file(self._sandbox, path=path, recursive=recursive, user=user))

    def set_attributes(
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
        return self._transport.call(op.set_file_attributes(self._sandbox, body))

    @entering
    def watch(
        self, path: str, *, recursive: bool = False, info: bool = False, user: Optional[str] = None
    ) -> Stream[m.FileEvent]:
        """What changes in a directory, until the stream is closed: whatever changes after this has returned is told. Events have the type
        ``change`` (with ``path``, relative to the directory, ``change``, and with ``info`` what it is), or ``overflow``: there
        were more than could be told, list the directory again."""
        call = op.watch_files(self._sandbox, path=path, recursive=recursive, info=info, user=user)
        holder = Holder()
        source = self._changes(call, holder)
        source.__next__()  # it has started
        return Stream(source, holder)

    def _changes(self, call: Lines[m.FileEvent], holder: Holder) -> Source[m.FileEvent]:
        answer = holder.take(self._transport.open(call))
        try:
            for line in answer.objects():
                event = answer.decode(m.FileEvent, line)
                if event.type == "stream_error":
                    raise errors.from_stream(event.error or "the watch has ended", event.code or "")
                if event.type in ("started", "change", "overflow"):
                    yield event
        finally:
            answer.close()

    def upload(self, local: LocalPath, remote: str, *, parents: bool = True, user: Optional[str] = None) -> m.FileInfo:
        """Copies a file of this machine into the sandbox, with its permission bits."""
        mode = os.stat(local).st_mode & 0o777
        with open(local, "rb") as file:
            return self.write(remote, file, mode=mode, parents=parents, user=user)

    def download(self, remote: str, local: LocalPath, *, user: Optional[str] = None) -> int:
        """Copies a file of the sandbox to this machine, whole or not at all; returns its size in bytes."""
        target = os.fspath(local)
        part = f"{target}.{uuid.uuid4().hex}.part"
        size = 0
        with self.read(remote, "stream", user=user) as stream:
            file = LocalFile.open(part, "xb")
            try:
                try:
                    for piece in stream:
                        file.write(piece)
                        size += len(piece)
                finally:
                    file.close()
                os.replace(part, target)
            except BaseException:
                os.unlink(part)
                raise
        return size

    def read_archive(self, path: str, *, user: Optional[str] = None) -> Stream[bytes]:
        """A file or directory as a tar, in pieces."""
        return self._stream(op.read_archive(self._sandbox, path=path, user=user))

    def write_archive(self, path: str, tar: Content, *, user: Optional[str] = None) -> m.Extracted:
        """Unpacks a tar into a directory, which is made when it is missing."""
        return self._transport.call(op.write_archive(self._sandbox, path=path, user=user), tar)
