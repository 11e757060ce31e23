# SPDX-License-Identifier: Apache-2.0
"""One file between this machine and a VM, without I/O on the wire. Used by the blocking and asyncio file systems.

A file with holes travels as an archive of one member, in both directions: its holes are then not sent.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat as _stat
from typing import IO, Any, Dict, Generator, List, Mapping, NamedTuple, Optional

from . import archive, errors, files, wire
from .feed import Feeder, FileFeeder, feeder
from .files import FileInfo, Path

WORTHWHILE = 1 << 20  # bytes of holes


class Step(NamedTuple):
    """A call that an upload needs next, and its input."""

    request: files.Request
    source: Optional[Feeder] = None


# Is sent what each step's call returns, or its HutchError is thrown in; returns the file's size.
Steps = Generator[Step, Any, int]


class Upload:
    """A file of this machine on its way to `remote`; used in a `with` block."""

    def __init__(self, local: Path, remote: Path, who: Mapping[str, Any], parents: bool, mode: Optional[int]) -> None:
        self._path = files.shown(local)
        self._remote = files.remote_name(self._path, remote)
        self._who = who
        self._parents = parents
        self._mode = mode
        self._file: IO[bytes] = open(self._path, "rb")
        self._st = os.fstat(self._file.fileno())

    def __enter__(self) -> "Upload":
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def steps(self) -> Steps:
        there: Optional[FileInfo] = None
        try:
            there = yield Step(files.stat(self._who, self._remote, follow=False))
        except errors.NotFound:
            pass
        parts = archive.holes_of(self._file.fileno(), self._st) if _stat.S_ISREG(self._st.st_mode) else None
        if parts and (there is None or there.is_file):
            return (yield from self._sparse(parts, there))
        return (yield from self._plain(there))

    def _new_mode(self) -> int:
        return self._st.st_mode & 0o777 if self._mode is None else self._mode

    def _plain(self, there: Optional[FileInfo]) -> Steps:
        regular = _stat.S_ISREG(self._st.st_mode)
        source = FileFeeder(self._file) if regular else feeder(self._file)
        request = files.write(
            self._who, self._remote, mode=self._mode if there or not regular else self._new_mode(), parents=self._parents,
            size=self._st.st_size if regular else None,
        )
        written = yield Step(request, source)
        if regular and self._st.st_mtime_ns >= 0:
            yield Step(files.utimes(self._who, self._remote, mtime_ns=self._st.st_mtime_ns))
        return int(written.bytes)

    def _sparse(self, parts: List[archive.Part], there: Optional[FileInfo]) -> Steps:
        """Beside remote; then it takes remote's place."""
        temp = files.beside(self._remote)
        above, name = files.split(temp)
        mode = self._new_mode() if there is None or self._mode is not None else there.mode
        source = archive.OneFileFeeder(self._file.fileno(), name, self._st, parts, mode & 0o777)
        yield Step(files.tar_in(self._who, above, parents=self._parents), source)
        try:
            if there is not None and self._who.get("user") is None:
                yield Step(files.chown(self._who, temp, uid=there.uid, gid=there.gid))
                yield Step(files.chmod(self._who, temp, mode))
            yield Step(files.move(self._who, temp, self._remote))
        except errors.HutchError:
            yield Step(files.remove(self._who, temp, missing_ok=True))
            raise
        return self._st.st_size


def has_holes(info: FileInfo) -> bool:
    """info is a file that is worth sending without its holes."""
    return info.is_file and info.size - info.blocks * 512 >= WORTHWHILE


class Taker:
    """Writes a file that arrives; used in a `with` block: without finish() nothing is changed here."""

    def __enter__(self) -> "Taker":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def take(self, received: wire.Received) -> None:
        raise NotImplementedError

    def finish(self) -> int:
        """All came: take the file's place. Returns its size."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def local_name(local: Path, remote: Path) -> str:
    """The file itself, or its name in the directory local."""
    path = files.shown(local)
    if not os.path.isdir(path):
        return path
    return os.path.join(path, os.path.basename(files.shown(remote).rstrip("/")))


class TakeFile(Taker):
    """The answer of fs.read."""

    def __init__(self, local: Path, remote: Path) -> None:
        self._file = archive.LocalFile(local_name(local, remote))
        self._info: Dict[str, Any] = {}

    def take(self, received: wire.Received) -> None:
        if isinstance(received, wire.Output):
            self._file.write(received.data)
        elif isinstance(received, wire.Event) and received.name == "file":
            self._info = received.fields

    def finish(self) -> int:
        info = FileInfo.from_wire(self._info)
        self._file.commit(info.mode & 0o777, info.mtime_ns)
        return self._file.size

    def close(self) -> None:
        self._file.close()


class TakeSparse(Taker):
    """The answer of fs.tar_out for one file: unpacked in a directory beside its place."""

    def __init__(self, local: Path, remote: Path) -> None:
        self._path = os.path.realpath(local_name(local, remote))
        self._name = files.split(remote)[1]
        self._mode: Optional[int] = None
        try:
            st = os.stat(self._path)
        except FileNotFoundError:
            pass
        else:
            self._mode = _stat.S_IMODE(st.st_mode)
            if not _stat.S_ISREG(st.st_mode):
                raise FileExistsError(errno.EEXIST, "this is no regular file", self._path)
        self._dir = os.path.join(os.path.dirname(self._path), f".hutch.{secrets.token_hex(8)}")
        self._unpacker = archive.Unpacker(self._dir)

    def take(self, received: wire.Received) -> None:
        if isinstance(received, wire.Output):
            self._unpacker.feed(received.data)

    def finish(self) -> int:
        self._unpacker.finish()
        came = os.path.join(self._dir, self._name)
        try:
            st = os.lstat(came)
        except FileNotFoundError:
            st = None
        if st is None or not _stat.S_ISREG(st.st_mode):
            raise errors.NotFound(f"{self._name} vanished while it was read", errno=errno.ENOENT, path=self._name)
        os.chmod(came, st.st_mode & 0o777 if self._mode is None else self._mode)
        os.rename(came, self._path)
        return st.st_size

    def close(self) -> None:
        self._unpacker.close()
        shutil.rmtree(self._dir, ignore_errors=True)
