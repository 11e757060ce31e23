# SPDX-License-Identifier: Apache-2.0
"""A root file system before it is an image: entries by path, put there from directories, tar archives and Debian packages.

Nothing is ever unpacked onto the host, so owners, modes, device nodes and names are what the archive says whoever runs this, and no link in an
archive can lead out of it. Content stays where it is (a file, a part of an archive) until the image is written.
"""

import bz2
import gzip
import lzma
import os
import shutil
import stat
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Callable, Iterator

from common import Refused

MAX_LINKS = 40  # followed on the way to one path, as in Linux
MAX_SPARSE = 1 << 30  # of a file with holes, which is held in memory
XATTR = "SCHILY.xattr."  # how GNU tar, star, bsdtar and docker name extended attributes in a pax header


@dataclass(eq=False)
class Entry:
    """One inode; under several names it is a file with hard links."""

    mode: int
    uid: int = 0
    gid: int = 0
    data: bytes = b""  # of a small regular file, and a symbolic link's target
    source: Path | None = None  # a regular file's content, unless data is given: size bytes at offset
    offset: int = 0
    size: int = 0
    device: tuple[int, int] = (0, 0)
    mtime: int = 0
    xattrs: dict[bytes, bytes] = field(default_factory=dict)

    def length(self) -> int:
        return self.size if self.source else len(self.data)

    def content(self) -> bytes:
        if not self.source:
            return self.data
        with self.source.open("rb") as f:
            f.seek(self.offset)
            data = f.read(self.size)
        if len(data) != self.size:
            raise Refused(f"{self.source} became shorter while it was read")
        return data


def from_file(path: Path, mode: int, mtime: int = 0) -> Entry:
    return Entry(stat.S_IFREG | mode, source=path, size=path.stat().st_size, mtime=mtime)


@dataclass
class Tree:
    """By path without the leading slash; b"" is the root itself, where it is known."""

    entries: dict[bytes, Entry] = field(default_factory=dict)

    def add(self, path: bytes | str, entry: Entry) -> None:
        """Exactly there; missing directories on the way are made."""
        name = os.fsencode(path).strip(b"/")
        parent = os.path.dirname(name)
        if parent and parent not in self.entries:
            self.add(parent, Entry(stat.S_IFDIR | 0o755))
        self.entries[name] = entry

    def find(self, path: bytes | str) -> Entry | None:
        """Through symbolic links, the last one too."""
        return self.entries.get(self.follow(os.fsencode(path)))

    def follow(self, path: bytes) -> bytes:
        """The path with no symbolic link in it, seen from the root and never above it. What it names need not exist."""
        done, todo, links = b"", path.split(b"/"), 0
        while todo:
            part = todo.pop(0)
            if part in (b"", b"."):
                continue
            if part == b"..":
                done = os.path.dirname(done)
                continue
            here = os.path.join(done, part)
            entry = self.entries.get(here)
            if entry and stat.S_ISLNK(entry.mode):
                links += 1
                if links > MAX_LINKS:
                    raise Refused(f"{os.fsdecode(path)}: a loop of symbolic links")
                if entry.data.startswith(b"/"):
                    done = b""
                todo[:0] = entry.data.split(b"/")
            else:
                done = here
        return done

    def place(self, path: bytes, entry: Entry) -> None:
        """As an extractor does: through links to directories, over what is there, and a link to a directory serves as that directory."""
        parent, name = os.path.split(path.rstrip(b"/"))
        parent = self.follow(parent)
        if name in (b"", b".", b".."):
            self.entries[self.follow(path)] = entry
            return
        if len(name) > 255:
            raise Refused(f"{os.fsdecode(path[:80])}...: a name of {len(name)} bytes; 255 are the most")
        full = os.path.join(parent, name)
        for above in parents(full):
            if above in self.entries and not stat.S_ISDIR(self.entries[above].mode):
                raise Refused(f"{os.fsdecode(path)}: {os.fsdecode(above)} is not a directory")
        old = self.entries.get(full)
        if old and stat.S_ISDIR(entry.mode) and stat.S_ISLNK(old.mode):
            target = self.find(full)
            if target and stat.S_ISDIR(target.mode):
                return
        if old and stat.S_ISDIR(old.mode) and not stat.S_ISDIR(entry.mode):
            self.remove_below(full)
        self.add(full, entry)

    def remove_below(self, folder: bytes) -> None:
        for name in [n for n in self.entries if n.startswith(folder + b"/")]:
            del self.entries[name]

    def add_directory(self, root: Path, owner: Callable[[os.stat_result], tuple[int, int]]) -> None:
        seen: dict[tuple[int, int], Entry] = {}
        top = os.fsencode(root)
        self.entries.setdefault(b"", read_entry(top, owner, seen))
        for folder, folders, files in os.walk(top, onerror=refuse_unreadable):
            folders.sort()
            for name in folders + files:
                path = os.path.join(folder, name)
                self.add(os.path.relpath(path, top), read_entry(path, owner, seen))

    def add_tar(self, archive: Path, wanted: Callable[[bytes], bool] = lambda path: True) -> None:
        """An archive that is not compressed; it must stay where it is until the image is written."""
        size = archive.stat().st_size
        try:
            with tarfile.open(archive, "r:", encoding="utf-8", errors="surrogateescape") as tar:
                for member in tar:
                    path = os.path.normpath(b"/" + os.fsencode(member.name)).lstrip(b"/")
                    if wanted(path):
                        self.place(path, self.read_member(archive, size, tar, member))
        except tarfile.TarError as e:
            raise Refused(f"{archive}: not a whole tar archive: {e}") from e

    def read_member(self, archive: Path, archive_size: int, tar: tarfile.TarFile, m: tarfile.TarInfo) -> Entry:
        if m.islnk():
            target = self.entries.get(self.hard_link_target(os.fsencode(m.linkname)))
            if not target or stat.S_ISDIR(target.mode):
                raise Refused(f"{archive}: {m.name} is a link to {m.linkname}, which is not there")
            return target
        if m.offset_data + (0 if m.sparse else m.size if m.isreg() else 0) > archive_size:
            raise Refused(f"{archive}: cut off within {m.name}")
        kinds = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK, tarfile.CHRTYPE: stat.S_IFCHR,
                 tarfile.BLKTYPE: stat.S_IFBLK, tarfile.FIFOTYPE: stat.S_IFIFO}
        kind = stat.S_IFREG if m.isreg() else kinds.get(m.type)
        if kind is None:
            raise Refused(f"{archive}: {m.name} is of an unknown kind, {m.type!r}")
        entry = Entry(kind | (m.mode & 0o7777), m.uid, m.gid, mtime=max(0, int(m.mtime)), xattrs=read_xattrs(m))
        if kind == stat.S_IFREG and m.sparse:
            if m.size > MAX_SPARSE:
                raise Refused(f"{archive}: {m.name} is a sparse file of {m.size >> 20} MiB, more than {MAX_SPARSE >> 20}")
            entry.data = tar.extractfile(m).read()
        elif kind == stat.S_IFREG:
            entry.source, entry.offset, entry.size = archive, m.offset_data, m.size
        elif kind == stat.S_IFLNK:
            entry.data = os.fsencode(m.linkname)
        elif kind in (stat.S_IFCHR, stat.S_IFBLK):
            entry.device = m.devmajor, m.devminor
        if not fits(entry):
            raise Refused(f"{archive}: {m.name}: an owner, a time, a device number or a link that Linux cannot have")
        return entry

    def hard_link_target(self, path: bytes) -> bytes:
        parent, name = os.path.split(os.path.normpath(b"/" + path))
        return os.path.join(self.follow(parent), name)

    def own(self, path: str, uid: int, gid: int) -> None:
        name = os.fsencode(path).strip(b"/")
        if name not in self.entries:
            raise Refused(f"--own {path}: not in the image")
        self.entries[name].uid, self.entries[name].gid = uid, gid


def fits(entry: Entry) -> bool:
    major, minor = entry.device
    return (max(entry.uid, entry.gid) < (1 << 32) - 1 and min(entry.uid, entry.gid, major, minor) >= 0 and entry.mtime < 1 << 40
            and major < 1 << 12 and minor < 1 << 20 and (not stat.S_ISLNK(entry.mode) or 0 < len(entry.data) < 4096))


def parents(path: bytes) -> Iterator[bytes]:
    while path := os.path.dirname(path):
        yield path


def refuse_unreadable(error: OSError) -> None:
    raise error


def all_root(st: os.stat_result) -> tuple[int, int]:
    return 0, 0


def as_seen(st: os.stat_result) -> tuple[int, int]:
    return st.st_uid, st.st_gid


def mine_are_root(st: os.stat_result) -> tuple[int, int]:
    """What belongs to whoever runs this belongs to root in the image; other owners stay."""
    return 0 if st.st_uid == os.geteuid() else st.st_uid, 0 if st.st_gid == os.getegid() else st.st_gid


def read_entry(path: bytes, owner: Callable[[os.stat_result], tuple[int, int]], seen: dict[tuple[int, int], Entry]) -> Entry:
    st = os.lstat(path)
    if (st.st_dev, st.st_ino) in seen:
        return seen[st.st_dev, st.st_ino]
    entry = Entry(st.st_mode, *owner(st), mtime=max(0, int(st.st_mtime)))
    if stat.S_ISREG(st.st_mode):
        if not os.access(path, os.R_OK):
            raise Refused(f"{os.fsdecode(path)}: cannot be read")
        entry.source, entry.size = Path(os.fsdecode(path)), st.st_size
    elif stat.S_ISLNK(st.st_mode):
        entry.data = os.readlink(path)
    elif stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
        entry.device = os.major(st.st_rdev), os.minor(st.st_rdev)
    elif not stat.S_ISDIR(st.st_mode) and not stat.S_ISFIFO(st.st_mode):
        raise Refused(f"{os.fsdecode(path)}: a socket cannot be in an image")
    if not stat.S_ISLNK(st.st_mode):
        entry.xattrs = read_file_capabilities(path)
    if st.st_nlink > 1 and not stat.S_ISDIR(st.st_mode):
        seen[st.st_dev, st.st_ino] = entry
    return entry


def read_file_capabilities(path: bytes) -> dict[bytes, bytes]:
    """Of the extended attributes on a host only these say something about the file itself."""
    try:
        return {b"security.capability": os.getxattr(path, b"security.capability")}
    except OSError:
        return {}


def read_xattrs(member: tarfile.TarInfo) -> dict[bytes, bytes]:
    return {key.removeprefix(XATTR).encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape")
            for key, value in member.pax_headers.items() if key.startswith(XATTR)}


MAGICS: list[tuple[bytes, Callable[[Path], BinaryIO]]] = [
    (b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open)]


def uncompressed(archive: Path, work: Path) -> Path:
    """The archive itself, or what it holds as a file in work."""
    with archive.open("rb") as f:
        head = f.read(6)
    out = work / "archive.tar"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        if not shutil.which("zstd"):
            raise Refused(f"{archive} is compressed by zstd, a program that is not here: install zstd")
        subprocess.run(["zstd", "-dqf", archive, "-o", out], check=True, stderr=subprocess.PIPE)
        return out
    for magic, opener in MAGICS:
        if head.startswith(magic):
            with opener(archive) as packed, out.open("wb") as f:
                shutil.copyfileobj(packed, f, 1 << 20)
            return out
    return archive
