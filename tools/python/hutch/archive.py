# SPDX-License-Identifier: Apache-2.0
"""Trees of this machine as tar archives (POSIX.1-2001 pax, as wire.md has them), without I/O on the wire.

`pack` makes an archive piece by piece while it is sent. `Unpacker` takes one piece by piece while it arrives.

How unpacking stays inside: an archive comes from a guest, so it is hostile. Each name is checked, and the way to it is walked
from the target's descriptor, one component at a time, with links refused; a member takes the place of what has its
name and is never written through it. Headers and maps are bounded, so that memory is as well. Python's tarfile bounds neither,
and its safe filter is missing in older releases.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tarfile
from typing import Any, Dict, Generator, Iterator, List, NamedTuple, Optional, Tuple

from . import errors
from .feed import PIECE, Feeder
from .files import Copied, FileError, OnError

BLOCK = 512
MAX_EXTENDED = 1 << 20  # bytes of a pax header or a GNU long name
MAX_PARTS = 65536  # of a sparse file
HOLE = 4096

Part = Tuple[int, int]


# Packing


def holes_of(fd: int, st: os.stat_result) -> Optional[List[Part]]:
    """(offset, length) of the data of a file that has holes, a last one of length 0 at its end; None: send it whole."""
    if st.st_blocks * 512 >= st.st_size:
        return None
    parts: List[Part] = []
    at = 0
    try:
        while at < st.st_size and len(parts) < MAX_PARTS:
            try:
                start = os.lseek(fd, at, os.SEEK_DATA)
            except OSError as e:
                if e.errno == errno.ENXIO:
                    break
                raise
            at = min(os.lseek(fd, start, os.SEEK_HOLE), st.st_size)
            if start < at:
                parts.append((start, at - start))
    except OSError:  # this file system does not tell
        return None
    finally:
        os.lseek(fd, 0, os.SEEK_SET)
    if len(parts) >= MAX_PARTS or parts == [(0, st.st_size)]:
        return None
    if not parts or sum(parts[-1]) < st.st_size:
        parts.append((st.st_size, 0))
    return parts


def _padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


def header(
    name: str, st: os.stat_result, type: bytes, *, setid: bool = False, mode: Optional[int] = None, size: int = 0,
    target: str = "", **pax: str,
) -> bytes:
    """A member's headers. Owners are 0, as they mean nothing on the other side."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = type, size, target
    info.mode = stat.S_IMODE(st.st_mode) & (0o7777 if setid else 0o1777) if mode is None else mode
    if st.st_mtime_ns >= 0:
        pax["mtime"] = "%d.%09d" % divmod(st.st_mtime_ns, 10**9)
    info.mtime = max(st.st_mtime_ns // 10**9, 0)
    info.pax_headers = pax
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def sparse_header(
    name: str, st: os.stat_result, parts: List[Part], *, setid: bool = False, mode: Optional[int] = None
) -> bytes:
    """Headers and map of a sparse file, GNU.sparse 1.0; the data of its parts follows, then padding."""
    text = "".join([f"{len(parts)}\n"] + [f"{at}\n{length}\n" for at, length in parts]).encode()
    text += _padding(len(text))
    pax = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": name, "GNU.sparse.realsize": str(st.st_size)}
    return header(name, st, tarfile.REGTYPE, setid=setid, mode=mode, size=len(text) + sum(n for _, n in parts), **pax) + text


class Packer:
    """Iterate over it for the archive of a directory: its contents, below "./".

    What cannot be read is left out and told in `errors`; a file that is cut meanwhile is filled up with zeros and told as well.
    Sockets and devices are left out and counted in `skipped`.
    """

    def __init__(self, path: str, *, setid: bool = False) -> None:
        self.errors: List[FileError] = []
        self.skipped = 0
        self._setid = setid
        self._links: Dict[Tuple[int, int], str] = {}
        self._top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._top >= 0:
            os.close(self._top)
            self._top = -1

    def __iter__(self) -> Iterator[bytes]:
        """Pieces of 64 KiB or more, but the last."""
        out = bytearray()
        for piece in self._tree():
            out += piece
            if len(out) >= PIECE:
                yield bytes(out)
                out.clear()
        yield bytes(out) + bytes(2 * BLOCK)

    def report(self, what: str, on_error: Optional[OnError]) -> None:
        """Hand what could not be read to on_error; without it, raise IoFailed that names the first."""
        for error in self.errors:
            if on_error is None:
                raise errors.IoFailed(
                    f"{what}: cannot read {error.path} ({error.errno_name}), {len(self.errors)} in all",
                    errno=error.errno, path=error.path,
                )
            on_error(error)

    def _failed(self, name: str, e: OSError) -> None:
        number = e.errno or 0
        self.errors.append(FileError(name, number, errno.errorcode.get(number, "")))

    def _tree(self) -> Iterator[bytes]:
        # A stack rather than recursion: a tree may be deeper than Python's.
        st = os.fstat(self._top)
        stack = [(self._top, "", self._names(self._top, "."))]
        self._top = -1
        try:
            yield header("./", st, tarfile.DIRTYPE, setid=self._setid)
            while stack:
                fd, prefix, names = stack[-1]
                if not names:
                    os.close(fd)
                    stack.pop()
                    continue
                base = names.pop()
                name = prefix + base
                try:
                    st = os.stat(base, dir_fd=fd, follow_symlinks=False)
                    if stat.S_ISDIR(st.st_mode):
                        below = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                        stack.append((below, name + "/", self._names(below, name)))
                        yield header("./" + name + "/", os.fstat(below), tarfile.DIRTYPE, setid=self._setid)
                    else:
                        yield from self._member(fd, base, name, st)
                except OSError as e:
                    self._failed(name, e)
        finally:
            for fd, _, _ in stack:
                os.close(fd)

    def _names(self, fd: int, name: str) -> List[str]:
        try:
            return sorted(os.listdir(fd), reverse=True)
        except OSError as e:
            self._failed(name, e)
            return []

    def _member(self, dir_fd: int, base: str, name: str, st: os.stat_result) -> Iterator[bytes]:
        path = "./" + name
        if stat.S_ISLNK(st.st_mode):
            target = os.readlink(base, dir_fd=dir_fd)
            yield header(path, st, tarfile.SYMTYPE, target=target, setid=self._setid)
        elif stat.S_ISFIFO(st.st_mode):
            yield header(path, st, tarfile.FIFOTYPE, setid=self._setid)
        elif stat.S_ISREG(st.st_mode):
            first = self._links.setdefault((st.st_dev, st.st_ino), path) if st.st_nlink > 1 else path
            if first != path:
                yield header(path, st, tarfile.LNKTYPE, target=first, setid=self._setid)
                return
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            try:
                fd = os.open(base, flags, dir_fd=dir_fd)
            except OSError:
                self._links.pop((st.st_dev, st.st_ino), None)
                raise
            try:
                yield from self._file(fd, path, name)
            finally:
                os.close(fd)
        else:
            self.skipped += 1

    def _file(self, fd: int, path: str, name: str) -> Iterator[bytes]:
        st = os.fstat(fd)
        parts = holes_of(fd, st)
        if parts is None:
            yield header(path, st, tarfile.REGTYPE, size=st.st_size, setid=self._setid)
            parts = [(0, st.st_size)]
        else:
            yield sparse_header(path, st, parts, setid=self._setid)
        for at, length in parts:
            yield from self._range(fd, name, at, length)
        yield _padding(sum(n for _, n in parts))

    def _range(self, fd: int, name: str, at: int, length: int) -> Iterator[bytes]:
        end, gone = at + length, False
        while at < end:
            want = min(end - at, PIECE)
            data = b""
            if not gone:
                try:
                    data = os.pread(fd, want, at)
                except OSError as e:
                    gone = True
                    self._failed(name, e)
                else:
                    if not data:
                        gone = True
                        self._failed(name, OSError(errno.EIO, ""))
            data = data or bytes(want)
            at += len(data)
            yield data


class PackFeeder(Feeder):
    """A Packer's archive as input of a call."""

    def __init__(self, packer: Packer) -> None:
        super().__init__()
        self._packer = packer
        self._pieces = iter(packer)
        self._current = memoryview(b"")

    def next(self) -> Optional[bytes]:
        if not self._current:
            piece = next(self._pieces, None)
            if piece is None:
                return None
            self._current = memoryview(piece)
        out, self._current = self._current[:PIECE], self._current[PIECE:]
        return bytes(out)

    def close(self) -> None:
        self._pieces.close()  # type: ignore[attr-defined]
        self._packer.close()


class OneFileFeeder(Feeder):
    """An archive of one sparse file."""

    def __init__(self, fd: int, name: str, st: os.stat_result, parts: List[Part], mode: int) -> None:
        super().__init__()
        self._pieces = self._archive(fd, name, st, parts, mode)

    @staticmethod
    def _archive(fd: int, name: str, st: os.stat_result, parts: List[Part], mode: int) -> Iterator[bytes]:
        yield sparse_header(name, st, parts, mode=mode)
        for at, length in parts:
            end = at + length
            while at < end:
                data = os.pread(fd, min(end - at, PIECE), at)
                if not data:
                    raise errors.IoFailed(f"{name} became shorter while it was read", errno=errno.EIO, path=name)
                at += len(data)
                yield data
        yield _padding(sum(n for _, n in parts)) + bytes(2 * BLOCK)

    def next(self) -> Optional[bytes]:
        return next(self._pieces, None)


# Files that are written here


class LocalFile:
    """A file of this machine that is replaced as a whole, or not at all; runs of zeros become holes.

    path may be one that does not exist, a file, or a link to one; what is no regular file (a fifo, /dev/null) is
    written itself. size: bytes so far.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._temp: Optional[str] = None
        self._mode: Optional[int] = None
        self.size = 0
        try:
            st = os.stat(self._path)
        except FileNotFoundError:
            if os.path.islink(path):
                raise FileNotFoundError(errno.ENOENT, "the link leads nowhere", path) from None
        else:
            self._mode = stat.S_IMODE(st.st_mode)
            if not stat.S_ISREG(st.st_mode):
                self._fd = os.open(self._path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
                return
        temp = os.path.join(os.path.dirname(self._path), f".hutch.{secrets.token_hex(8)}")
        self._fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._temp = temp

    def write(self, data: bytes) -> None:
        if self._temp is None:
            _write_all(self._fd, data)
        else:
            _write_sparse(self._fd, self.size, data)
        self.size += len(data)

    def commit(self, mode: int, mtime_ns: Optional[int]) -> None:
        """All came: take the file's place. mode: of a new file; one that was there keeps its own."""
        if self._temp is not None:
            os.ftruncate(self._fd, self.size)
            os.fchmod(self._fd, mode if self._mode is None else self._mode)
            if mtime_ns is not None:
                os.utime(self._fd, ns=(mtime_ns, mtime_ns))
        fd, self._fd = self._fd, -1
        os.close(fd)
        if self._temp is not None:
            os.rename(self._temp, self._path)
            self._temp = None

    def close(self) -> None:
        """Take back what was not committed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._temp is not None:
            os.unlink(self._temp)
            self._temp = None


def _write_all(fd: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _write_sparse(fd: int, at: int, data: bytes) -> None:
    """Write data, which belongs at offset `at`, where the file is now; pieces of zeros are skipped."""
    zeros = bytes(HOLE)
    if zeros not in data:
        _write_all(fd, data)
        return
    view = memoryview(data)
    start = 0  # of what is not written yet
    here = -at % HOLE
    while here + HOLE <= len(view):
        if view[here : here + HOLE] == zeros:
            _write_all(fd, view[start:here])
            os.lseek(fd, HOLE, os.SEEK_CUR)
            start = here + HOLE
        here += HOLE
    _write_all(fd, view[start:])


# Unpacking


class Member(NamedTuple):
    """What a member's headers say."""

    name: str
    type: bytes
    mode: int
    mtime_ns: int
    size: int
    target: str
    parts: Optional[Dict[str, str]]  # GNU.sparse fields


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # base 256
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    text = field.split(b"\0", 1)[0].strip() or b"0"
    if not all(0x30 <= c <= 0x37 for c in text):
        raise _bad("a number that is none")
    return int(text, 8)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _bad(what: str) -> errors.ProtocolError:
    return errors.ProtocolError(f"the archive from the VM has {what}")


def _nanoseconds(text: str) -> int:
    whole, _, part = text.partition(".")
    try:
        ns = int(whole[:20]) * 10**9 + int((part + "0" * 9)[:9])
    except ValueError:
        raise _bad("a time that is none") from None
    return _time(ns)


def _time(ns: int) -> int:
    if not -(1 << 63) <= ns < 1 << 63:
        raise _bad("a time that is none")
    return ns


_KEYS = {b"path", b"linkpath", b"size", b"mtime"} | {b"GNU.sparse." + k for k in (b"major", b"minor", b"name", b"realsize")}


def _pax_records(data: bytes) -> Dict[str, str]:
    """`LENGTH KEY=VALUE\\n`, one after the other; only what means something here is kept."""
    found: Dict[str, str] = {}
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 20)
        if space <= at or not data[at:space].isdigit():
            raise _bad("a pax header that is none")
        length = int(data[at:space])
        record = data[space + 1 : at + length]
        key, equals, value = record.partition(b"=")
        if at + length > len(data) or not equals or not value.endswith(b"\n"):
            raise _bad("a pax header that is none")
        if key in _KEYS:
            found[key.decode()] = value[:-1].decode("utf-8", "surrogateescape")
        at += length
    return found


def _parts_of(name: str) -> List[str]:
    """The components of a member's name; ["."] stands for the directory itself."""
    parts = [p for p in name.split("/") if p not in ("", ".")]
    if not name or name.startswith("/") or ".." in parts or "\0" in name:
        raise errors.Denied(f"the archive from the VM names a place outside of the target: {name!r}", errno=errno.EXDEV, path=name)
    return parts


# What the unpacking generator asks for: exactly n bytes, or with `some`, between 1 and n.
_Ask = Tuple[int, bool]
_Steps = Generator[_Ask, bytes, Any]


class Unpacker:
    """Unpacks an archive below a directory of this machine, which is made if it is not there.

    feed(data) with each piece, then finish(). links: "all" keeps symbolic links as they are, "inside" leaves out those that
    lead out of the target. Without setid, setuid and setgid bits are dropped. Owners are ours; devices and sockets are
    left out. Modes and times of directories are set by finish().
    """

    def __init__(self, target: str, *, setid: bool = False, links: str = "all") -> None:
        if links not in ("all", "inside"):
            raise errors.Invalid(f'links must be "all" or "inside", not {links!r}')
        try:
            os.mkdir(target, 0o700)
            self._made = True
        except FileExistsError:
            self._made = False
        self.count = self.bytes = self.skipped = 0
        self._mask = 0o7777 if setid else 0o1777
        self._links = links
        self._top = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._way: List[Tuple[str, int]] = []  # open directories on the way to the last member
        self._dirs: Dict[Tuple[str, ...], Tuple[int, int]] = {}  # mode and time, to be set at the end
        self._open: Optional[Tuple[int, int, str]] = None  # (descriptor, its directory's, name) of a file that is being written
        self._buffer = bytearray()
        self._steps: _Steps = self._archive()
        self._ask: Optional[_Ask] = next(self._steps)

    @property
    def copied(self) -> Copied:
        return Copied(self.count, self.bytes, self.skipped)

    def feed(self, data: bytes) -> None:
        """The next piece of the archive. Raises Denied, ProtocolError, OSError; then close()."""
        self._buffer += data
        at = 0
        held = len(self._buffer)
        try:
            while self._ask is not None:
                want, some = self._ask
                have = held - at
                if have < want and not (some and have):
                    break
                n = min(want, have)
                piece = bytes(self._buffer[at : at + n])
                at += n
                self._ask = self._steps.send(piece)
        except StopIteration:
            self._ask = None
        if self._ask is None:
            at = held  # what follows the archive's end means nothing
        del self._buffer[:at]

    def finish(self) -> None:
        """All came. Raises ProtocolError when the archive had not ended."""
        if self._ask is not None:
            raise _bad("no end")
        for parts in sorted(self._dirs, key=len, reverse=True):
            mode, mtime_ns = self._dirs[parts]
            fd = self._walk(list(parts))
            os.utime(fd, ns=(mtime_ns, mtime_ns))
            os.chmod(fd, mode)
        self.close()

    def close(self) -> None:
        """Let go; a file that was being written is taken back."""
        self._steps.close()
        self._ask = None
        if self._open is not None:
            fd, dir_fd, name = self._open
            self._open = None
            os.close(fd)
            os.unlink(name, dir_fd=dir_fd)
        while self._way:
            os.close(self._way.pop()[1])
        if self._top >= 0:
            os.close(self._top)
            self._top = -1

    # headers

    def _archive(self) -> _Steps:
        pax: Dict[str, str] = {}
        everywhere: Dict[str, str] = {}
        while True:
            block = yield BLOCK, False
            if not any(block):
                yield BLOCK, False
                return
            self._check_sum(block)
            kind, size = block[156:157], _number(block[124:136])
            if kind in (b"x", b"g", b"L", b"K"):
                text = yield from self._extended(size)
                if kind in (b"x", b"g"):
                    (pax if kind == b"x" else everywhere).update(_pax_records(text))
                else:
                    pax["path" if kind == b"L" else "linkpath"] = _text(text)
                continue
            member = self._member(block, kind, size, {**everywhere, **pax})
            pax = {}
            yield from self._take(member)

    @staticmethod
    def _check_sum(block: bytes) -> None:
        if sum(block[:148]) + sum(block[156:]) + 8 * 0x20 != _number(block[148:156]):
            raise _bad("a damaged header")

    @staticmethod
    def _extended(size: int) -> _Steps:
        if size > MAX_EXTENDED:
            raise errors.TooLarge(f"the archive from the VM has a header of {size} bytes, at most {MAX_EXTENDED} are allowed")
        text = yield size + -size % BLOCK, False
        return text[:size]

    def _member(self, block: bytes, kind: bytes, size: int, pax: Dict[str, str]) -> Member:
        name, prefix = _text(block[:100]), _text(block[345:500])
        if block[257:263] == b"ustar\0" and prefix:
            name = prefix + "/" + name
        sparse = {k: v for k, v in pax.items() if k.startswith("GNU.sparse.")}
        name = sparse.get("GNU.sparse.name", pax.get("path", name))
        if "size" in pax:
            size = self._decimal(pax["size"])
        if kind in (b"\0", b"7"):
            kind = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
        mtime_ns = _nanoseconds(pax["mtime"]) if "mtime" in pax else _time(_number(block[136:148]) * 10**9)
        return Member(
            name, kind, _number(block[100:108]) & self._mask, mtime_ns, size,
            pax.get("linkpath", _text(block[157:257])), sparse or None,
        )

    @staticmethod
    def _decimal(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise _bad("a number that is none")
        return int(text)

    # members

    def _take(self, m: Member) -> _Steps:
        parts = _parts_of(m.name)
        if m.type == tarfile.REGTYPE and parts:
            yield from self._file(parts, m)
            return
        left = m.size + -m.size % BLOCK if m.type not in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE) else 0
        if m.type == tarfile.DIRTYPE:
            self._directory(parts, m)
        elif not parts:
            raise _bad("a member without a name")
        elif m.type == tarfile.SYMTYPE:
            self._symlink(parts, m)
        elif m.type == tarfile.LNKTYPE:
            self._hard_link(parts, m)
        elif m.type == tarfile.FIFOTYPE:
            self._replace(parts, lambda fd, name: os.mkfifo(name, 0o600, dir_fd=fd))
            self._set(parts, m)
        else:
            self.skipped += 1
        while left > 0:
            left -= len((yield left, True))

    def _walk(self, parts: List[str]) -> int:
        """A descriptor of the directory, made where it is missing; good until the next call."""
        way = self._way
        same = 0
        while same < min(len(way), len(parts)) and way[same][0] == parts[same]:
            same += 1
        while len(way) > same:
            os.close(way.pop()[1])
        for name in parts[same:]:
            fd = way[-1][1] if way else self._top
            way.append((name, self._enter(fd, name, parts)))
        return way[-1][1] if way else self._top

    @staticmethod
    def _enter(fd: int, name: str, parts: List[str]) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name, flags, dir_fd=fd)
        except FileNotFoundError:
            os.mkdir(name, 0o755, dir_fd=fd)
            return os.open(name, flags, dir_fd=fd)
        except OSError as e:
            if e.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            path = "/".join(parts)
            raise errors.Denied(
                f"the way to {path} leads over something that is no directory", errno=e.errno, path=path
            ) from None

    def _replace(self, parts: List[str], make: Any) -> None:
        """make(directory's descriptor, name) a thing in the place of what is there."""
        fd = self._walk(parts[:-1])
        try:
            make(fd, parts[-1])
        except FileExistsError:
            os.unlink(parts[-1], dir_fd=fd)
            make(fd, parts[-1])
        self.count += 1

    def _set(self, parts: List[str], m: Member) -> None:
        fd = self._walk(parts[:-1])
        if m.type != tarfile.SYMTYPE:
            os.chmod(parts[-1], m.mode, dir_fd=fd)
        os.utime(parts[-1], ns=(m.mtime_ns, m.mtime_ns), dir_fd=fd, follow_symlinks=False)

    def _directory(self, parts: List[str], m: Member) -> None:
        if parts:
            above = self._walk(parts[:-1])
            try:
                os.mkdir(parts[-1], 0o700, dir_fd=above)
                self.count += 1
            except FileExistsError:
                pass
            self._walk(parts)
        elif not self._made:
            return
        self._dirs[tuple(parts)] = (m.mode, m.mtime_ns)

    def _symlink(self, parts: List[str], m: Member) -> None:
        if "\0" in m.target:
            raise _bad("a link that is none")
        if self._links == "inside" and self._leads_out(parts, m.target):
            self.skipped += 1
            return
        self._replace(parts, lambda fd, name: os.symlink(m.target, name, dir_fd=fd))
        self._set(parts, m)

    @staticmethod
    def _leads_out(parts: List[str], target: str) -> bool:
        """Steps up are fine at its start only, where they go through directories and not through other links."""
        steps = [p for p in target.split("/") if p not in ("", ".")]
        up = 0
        while up < len(steps) and steps[up] == "..":
            up += 1
        return not target or target.startswith("/") or up > len(parts) - 1 or ".." in steps[up:]

    def _hard_link(self, parts: List[str], m: Member) -> None:
        to = _parts_of(m.target)
        if not to:
            raise _bad("a hard link to nothing")
        source = os.dup(self._walk(to[:-1]))
        try:
            try:
                st = os.stat(to[-1], dir_fd=source, follow_symlinks=False)
            except FileNotFoundError:
                raise _bad("a hard link to what is not there") from None
            if stat.S_ISDIR(st.st_mode):
                raise _bad("a hard link to a directory")
            if to != parts:
                self._replace(
                    parts,
                    lambda fd, name: os.link(to[-1], name, src_dir_fd=source, dst_dir_fd=fd, follow_symlinks=False),
                )
        finally:
            os.close(source)

    def _create(self, fd: int, name: str) -> Tuple[int, str]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name, flags, 0o600, dir_fd=fd), name
        except FileExistsError:
            temp = f".hutch.{secrets.token_hex(8)}"
            return os.open(temp, flags, 0o600, dir_fd=fd), temp

    def _file(self, parts: List[str], m: Member) -> _Steps:
        dir_fd = self._walk(parts[:-1])
        fd, name = self._create(dir_fd, parts[-1])
        self._open = (fd, dir_fd, name)
        if m.parts:
            yield from self._sparse_data(fd, m)
        else:
            yield from self._data(fd, m.size)
            self.bytes += m.size
        yield from self._skip(-m.size % BLOCK)
        os.fchmod(fd, m.mode)
        os.utime(fd, ns=(m.mtime_ns, m.mtime_ns))
        if name != parts[-1]:
            os.rename(name, parts[-1], src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        self._open = None
        os.close(fd)
        self.count += 1

    @staticmethod
    def _data(fd: int, left: int) -> _Steps:
        while left > 0:
            data = yield min(left, 1 << 20), True
            _write_all(fd, data)
            left -= len(data)

    @staticmethod
    def _skip(n: int) -> _Steps:
        if n:
            yield n, False

    def _sparse_data(self, fd: int, m: Member) -> _Steps:
        sparse = m.parts or {}
        if (sparse.get("GNU.sparse.major"), sparse.get("GNU.sparse.minor")) != ("1", "0"):
            raise _bad("a sparse file of an unknown kind")
        size = self._decimal(sparse.get("GNU.sparse.realsize", ""))
        numbers, used = [], 0
        text = b""
        count = 1
        while len(numbers) < count:
            cut = text.find(b"\n")
            if cut < 0:
                if len(text) > 20 or used >= m.size:
                    raise _bad("a damaged sparse map")
                text += yield BLOCK, False
                used += BLOCK
                continue
            numbers.append(self._decimal(text[:cut].decode("ascii", "replace")))
            text = text[cut + 1 :]
            if len(numbers) == 1:
                if numbers[0] > MAX_PARTS:
                    raise errors.TooLarge(f"{m.name} has {numbers[0]} parts, at most {MAX_PARTS} are allowed", path=m.name)
                count += 2 * numbers[0]
        end = 0
        for at, length in zip(numbers[1::2], numbers[2::2]):
            used += length
            if at < end or at + length > size or used > m.size:
                raise _bad("a damaged sparse map")
            end = at + length
            os.lseek(fd, at, os.SEEK_SET)
            yield from self._data(fd, length)
            self.bytes += length
        yield from self._skip_data(m.size - used)
        os.ftruncate(fd, size)

    @staticmethod
    def _skip_data(left: int) -> _Steps:
        while left > 0:
            left -= len((yield left, True))
