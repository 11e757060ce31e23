# SPDX-License-Identifier: Apache-2.0
"""What file calls mean, without I/O: parameters in, records out. Used by the blocking and asyncio file systems."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import errors, wire
from .result import take

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
OnError = Callable[["FileError"], object]


def wire_path(path: Path) -> Union[str, bytes]:
    """A path of the guest for the wire: str where it is UTF-8, else bytes. Surrogate escapes stand for bytes."""
    plain = os.fspath(path)
    if isinstance(plain, str):
        plain = plain.encode("utf-8", "surrogateescape")
    try:
        return plain.decode("utf-8")
    except UnicodeDecodeError:
        return plain


def shown(path: Path) -> str:
    """A path as text."""
    plain = os.fspath(path)
    return plain.decode("utf-8", "surrogateescape") if isinstance(plain, bytes) else plain


def params(who: Mapping[str, Any], **fields: Any) -> Dict[str, Any]:
    """Parameters of a call: fields and the common ones; None is left out."""
    return {k.rstrip("_"): v for k, v in {**fields, **who}.items() if v is not None}


def common(user: Union[str, int, None] = None, root: Optional[Path] = None) -> Dict[str, Any]:
    """The parameters that every file call takes."""
    return {
        "user": str(user) if isinstance(user, int) else user,
        "root": None if root is None else wire_path(root),
    }


def override(own: Mapping[str, Any], given: Mapping[str, Any]) -> Dict[str, Any]:
    """The common parameters: those of a call, else one's own."""
    return {k: own[k] if v is None else v for k, v in common(**given).items()}


def take_common(options: Dict[str, Any]) -> Dict[str, Any]:
    """Take the common parameters out of options."""
    return {k: options.pop(k) for k in ("user", "root") if k in options}


@dataclass(frozen=True)
class FileInfo:
    """One file. path: as it was asked for; in a listing relative to the listed directory.

    type: `file`, `dir`, `link`, `fifo`, `socket`, `char` or `block`. mode: permission bits. size in bytes, blocks of 512
    bytes. Times are nanoseconds since the epoch. target: of a link. Paths are text in which surrogate escapes stand for
    bytes that are not UTF-8, as in the os module; every method takes them back.
    """

    path: str
    type: str
    mode: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0
    nlink: int = 0
    ino: int = 0
    dev: int = 0
    mtime_ns: int = 0
    atime_ns: int = 0
    ctime_ns: int = 0
    blocks: int = 0
    target: Optional[str] = None

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rstrip("/").rsplit("/", 1)[-1]

    @property
    def mtime(self) -> float:
        """Seconds since the epoch of the last change of content."""
        return self.mtime_ns / 1e9

    @property
    def is_file(self) -> bool:
        return self.type == "file"

    @property
    def is_dir(self) -> bool:
        return self.type == "dir"

    @property
    def is_link(self) -> bool:
        return self.type == "link"

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any], path: str = "", type: str = "") -> "FileInfo":
        numbers = ("mode", "uid", "gid", "size", "nlink", "ino", "dev", "mtime_ns", "atime_ns", "ctime_ns", "blocks")
        return cls(
            path=take(fields, "path", str, path),
            type=take(fields, "type", str, type),
            target=None if fields.get("target") is None else take(fields, "target", str, ""),
            **{name: take(fields, name, int, 0) for name in numbers},
        )


@dataclass(frozen=True)
class FileError:
    """What could not be read on the way through a tree."""

    path: str
    errno: int
    errno_name: str

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> "FileError":
        return cls(
            take(fields, "path", str, ""), take(fields, "errno", int, 0), take(fields, "errno_name", str, "")
        )


@dataclass(frozen=True)
class DiskSpace:
    """A file system. available_bytes: free to users other than root."""

    total_bytes: int
    free_bytes: int
    available_bytes: int
    inodes: int
    free_inodes: int
    block_size: int

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> "DiskSpace":
        names = ("total_bytes", "free_bytes", "available_bytes", "inodes", "free_inodes", "block_size")
        return cls(*(take(fields, name, int, 0) for name in names))


class Change(NamedTuple):
    """One change below a watched path.

    kind: `create`, `modify`, `attrib`, `close_write`, `delete`, `move_from`, `move_to` (the halves of a move share a
    cookie), or `overflow`: changes before this one were lost, read the directory anew. path: relative to the watched one.
    """

    kind: str
    path: str = ""
    is_dir: bool = False
    cookie: Optional[int] = None


class Written(NamedTuple):
    """bytes: how many were written; created: the file was not there before; size: of the file after an append."""

    bytes: int
    created: bool
    size: Optional[int] = None

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> "Written":
        size = None if fields.get("size") is None else take(fields, "size", int, 0)
        return cls(take(fields, "bytes", int, 0), take(fields, "created", bool, False), size)


class Copied(NamedTuple):
    """count: of files, directories and links made; bytes: of data. skipped: devices and sockets that were left out."""

    count: int
    bytes: int
    skipped: int = 0

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> "Copied":
        return cls(take(fields, "count", int, 0), take(fields, "bytes", int, 0), take(fields, "skipped", int, 0))


class Request(NamedTuple):
    """A call: method without its family, parameters, what its RESULT means, and whether doing it twice does no harm."""

    method: str
    params: Dict[str, Any]
    parse: Callable[[Dict[str, Any]], Any]
    again: bool = True


def _nothing(fields: Dict[str, Any]) -> None:
    return None


def stat(who: Mapping[str, Any], path: Path, *, follow: bool = True) -> Request:
    p = params(who, path=wire_path(path), follow=follow)
    return Request("stat", p, lambda f: FileInfo.from_wire(f, shown(path)))


def exists(who: Mapping[str, Any], path: Path, *, follow: bool = True) -> Request:
    return Request("exists", params(who, path=wire_path(path), follow=follow), lambda f: take(f, "exists", bool, False))


def readlink(who: Mapping[str, Any], path: Path) -> Request:
    return Request("readlink", params(who, path=wire_path(path)), lambda f: take(f, "target", str, ""))


def statfs(who: Mapping[str, Any], path: Path = "/") -> Request:
    return Request("statfs", params(who, path=wire_path(path)), DiskSpace.from_wire)


def list_(who: Mapping[str, Any], path: Path, *, depth: int = 1, stat: bool = True) -> Request:
    return Request("list", params(who, path=wire_path(path), depth=depth, stat=stat), _nothing)


def read(who: Mapping[str, Any], path: Path, *, offset: int = 0, length: Optional[int] = None) -> Request:
    return Request("read", params(who, path=wire_path(path), offset=offset or None, length=length), _nothing)


def watch(who: Mapping[str, Any], path: Path, *, recursive: bool = False) -> Request:
    return Request("watch", params(who, path=wire_path(path), recursive=recursive or None), _nothing)


def write(
    who: Mapping[str, Any],
    path: Path,
    *,
    mode: Optional[int] = None,
    uid: Optional[int] = None,
    gid: Optional[int] = None,
    parents: bool = False,
    atomic: bool = True,
    offset: Optional[int] = None,
    truncate: Optional[bool] = None,
    if_absent: bool = False,
    if_size: Optional[int] = None,
    if_sha256: Optional[str] = None,
    sha256: Optional[str] = None,
    size: Optional[int] = None,
    sync: Optional[str] = None,
) -> Request:
    """An offset or truncate is a write in place."""
    if offset is not None or truncate is not None:
        atomic = False
    p = params(
        who, path=wire_path(path), mode=mode, uid=uid, gid=gid, parents=parents or None, atomic=None if atomic else False,
        offset=offset, truncate=truncate, if_absent=if_absent or None, if_size=if_size, if_sha256=if_sha256,
        sha256=sha256, size=size, sync=sync,
    )
    return Request("write", p, Written.from_wire, False)


def append(
    who: Mapping[str, Any], path: Path, *, mode: Optional[int] = None, parents: bool = False, sync: Optional[str] = None,
    size: Optional[int] = None,
) -> Request:
    p = params(who, path=wire_path(path), mode=mode, parents=parents or None, sync=sync, size=size)
    return Request("append", p, Written.from_wire, False)


def mkdir(who: Mapping[str, Any], path: Path, *, mode: Optional[int] = None, parents: bool = False) -> Request:
    p = params(who, path=wire_path(path), mode=mode, parents=parents or None)
    return Request("mkdir", p, lambda f: take(f, "created", bool, False), parents)


def remove(who: Mapping[str, Any], path: Path, *, recursive: bool = False, missing_ok: bool = False) -> Request:
    p = params(who, path=wire_path(path), recursive=recursive or None, missing_ok=missing_ok or None)
    return Request("remove", p, lambda f: take(f, "removed", int, 0), missing_ok)


def move(who: Mapping[str, Any], path: Path, to: Path, *, replace: bool = True, parents: bool = False) -> Request:
    p = params(who, path=wire_path(path), to=wire_path(to), replace=replace, parents=parents or None)
    return Request("move", p, _nothing, False)


def copy(
    who: Mapping[str, Any], path: Path, to: Path, *, recursive: bool = False, preserve: bool = True, replace: bool = True,
    parents: bool = False,
) -> Request:
    p = params(
        who, path=wire_path(path), to=wire_path(to), recursive=recursive or None, preserve=preserve, replace=replace,
        parents=parents or None,
    )
    return Request("copy", p, Copied.from_wire, replace)


def symlink(who: Mapping[str, Any], path: Path, target: Path) -> Request:
    return Request("symlink", params(who, path=wire_path(path), target=wire_path(target)), _nothing, False)


def link(who: Mapping[str, Any], path: Path, to: Path) -> Request:
    return Request("link", params(who, path=wire_path(path), to=wire_path(to)), _nothing, False)


def chmod(who: Mapping[str, Any], path: Path, mode: int, *, recursive: bool = False) -> Request:
    return Request("chmod", params(who, path=wire_path(path), mode=mode, recursive=recursive or None), _nothing)


def chown(
    who: Mapping[str, Any], path: Path, *, uid: Optional[int] = None, gid: Optional[int] = None, owner: Optional[str] = None,
    follow: bool = True, recursive: bool = False,
) -> Request:
    p = params(who, path=wire_path(path), uid=uid, gid=gid, owner=owner, follow=follow, recursive=recursive or None)
    return Request("chown", p, _nothing)


def utimes(
    who: Mapping[str, Any], path: Path, *, mtime_ns: Optional[int] = None, atime_ns: Optional[int] = None, follow: bool = True
) -> Request:
    p = params(who, path=wire_path(path), mtime_ns=mtime_ns, atime_ns=atime_ns, follow=follow)
    return Request("utimes", p, _nothing)


def tar_in(who: Mapping[str, Any], path: Path, *, parents: bool = False, replace: bool = True) -> Request:
    p = params(who, path=wire_path(path), parents=parents or None, replace=None if replace else False)
    return Request("tar_in", p, Copied.from_wire, False)


def tar_out(
    who: Mapping[str, Any], path: Path, *, names: Optional[Sequence[Path]] = None, exclude: Optional[Sequence[Path]] = None
) -> Request:
    p = params(
        who, path=wire_path(path), names=None if names is None else [wire_path(n) for n in names],
        exclude=None if exclude is None else [wire_path(e) for e in exclude],
    )
    return Request("tar_out", p, Copied.from_wire)


def content(data: Any) -> Tuple[Any, Optional[int]]:
    """What is to be sent, a str as its bytes; and how many bytes that is, where it is certain before it is read."""
    if data is None or isinstance(data, (int, dict)):
        raise TypeError(f"data must be bytes, str, a file or an iterable of them, not {type(data).__name__}")
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogateescape")
    if isinstance(data, memoryview):
        return data, data.nbytes
    return data, len(data) if isinstance(data, (bytes, bytearray)) else None


def decoded(data: bytes, path: Path) -> str:
    """Text of a file; a file that is none is refused rather than changed."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise errors.Invalid(
            f"{shown(path)} is not UTF-8 at byte {e.start}: read it with text=False", path=shown(path)
        ) from None


def entries(event: wire.Event) -> List[FileInfo]:
    """The records of an `entries` event of fs.list."""
    if event.name != "entries":
        return []
    return [FileInfo.from_wire(e) for e in take(event.fields, "entries", list, [])]


def changes(event: wire.Event) -> List[Change]:
    """What an event of fs.watch tells."""
    if event.name == "overflow":
        return [Change("overflow")]
    if event.name != "changes":
        return []
    return [
        Change(
            take(c, "kind", str, ""), take(c, "path", str, ""), take(c, "dir", bool, False),
            None if c.get("cookie") is None else take(c, "cookie", int, 0),
        )
        for c in take(event.fields, "changes", list, [])
    ]


def report(fields: Mapping[str, Any], what: str, on_error: Optional[OnError]) -> None:
    """Hand what could not be read to on_error; without it, raise IoFailed that names the first."""
    found = [FileError.from_wire(e) for e in take(fields, "errors", list, [])]
    if not found:
        return
    if on_error is not None:
        for error in found:
            on_error(error)
        return
    count = take(fields, "error_count", int, len(found))
    first = found[0]
    more = f" and {count - 1} more" if count > 1 else ""
    raise errors.IoFailed(
        f"{what}: cannot read {first.path} ({first.errno_name}){more}",
        errno=first.errno or None, errno_name=first.errno_name or None, path=first.path,
    )


def remote_name(local: Path, remote: Path) -> Path:
    """Where a file goes: into remote when that ends with a slash."""
    text = shown(remote)
    return text + os.path.basename(shown(local)) if text.endswith("/") else remote


def split(path: Path) -> Tuple[Path, str]:
    """The directory of a file, and its name there."""
    above, slash, name = shown(path).rpartition("/")
    return above or slash or ".", name


def above(path: Path) -> Optional[Path]:
    """The directory that path lies in; None where there is none to ask about."""
    directory, name = split(shown(path).rstrip("/"))
    return directory if name and directory != "." else None


def beside(path: Path) -> str:
    """A name that nobody has, in the directory of path."""
    above, slash, _ = shown(path).rpartition("/")
    return f"{above}{slash}.hutch.{secrets.token_hex(8)}"
