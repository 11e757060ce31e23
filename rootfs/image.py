# SPDX-License-Identifier: Apache-2.0
"""Trees for root disks: from Debian packages and a manifest's [disk], or from a root file system that somebody has.

No maintainer script and no other program of the image is run. The few things that such scripts would have done are said in the manifest (links,
copies, concatenations) or done here: the loader's cache, modprobe's index, Python's byte code.
"""

import concurrent.futures
import dataclasses
import fnmatch
import importlib.util
import os
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import _bootstrap_external
from pathlib import Path
from typing import Any

from common import Refused
from kmodules import Shelf
from ldcache import CONFIG, add_cache
from tree import Entry, Tree, from_file, mine_are_root, uncompressed

HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost\n"


@dataclass(frozen=True)
class Disk:
    """[disk] of a template.toml."""

    install: list[str] = field(default_factory=list)
    leave_out: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    byte_code: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    copy: dict[str, str] = field(default_factory=dict)
    concatenate: dict[str, str] = field(default_factory=dict)
    rights: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, raw: dict[str, Any]) -> "Disk":
        if unknown := raw.keys() - cls.__dataclass_fields__.keys():
            raise Refused(f"[disk]: unknown key {', '.join(sorted(unknown))}")
        return cls(**raw)


def regular(data: bytes, mode: int = 0o644) -> Entry:
    return Entry(stat.S_IFREG | mode, data=data)


def bytes_path(path: str) -> bytes:
    return os.fsencode(path).strip(b"/")


def need(tree: Tree, path: str) -> Entry:
    entry = tree.find(path)
    if not entry or not stat.S_ISREG(entry.mode):
        raise Refused(f"{path}: no such file in the image")
    return entry


def debian_tree(disk: Disk, debs: list[Path], work: Path) -> Tree:
    tree = Tree()
    for path, target in disk.links.items():
        tree.add(path, Entry(stat.S_IFLNK | 0o777, data=os.fsencode(target)))
        if "/" not in path.strip("/"):  # to a directory, then, that has to be there first
            tree.add(target, Entry(stat.S_IFDIR | 0o755))
    left_out = [p.strip("/") for p in disk.leave_out]
    for deb in debs:
        archive = work / f"{deb.name}.tar"
        with archive.open("wb") as out:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, stdout=out, stderr=subprocess.PIPE)
        tree.add_tar(archive, lambda path: not any(fnmatch.fnmatchcase(os.fsdecode(path), p) for p in left_out))
    for path, source in disk.copy.items():
        tree.place(bytes_path(path), dataclasses.replace(need(tree, source)))
    for path, pattern in disk.concatenate.items():
        found = sorted(p for p in tree.entries if fnmatch.fnmatchcase(os.fsdecode(p), pattern.strip("/")))
        if not found:
            raise Refused(f"{pattern}: no such file in the image")
        tree.place(bytes_path(path), regular(b"".join(tree.entries[p].content() for p in found)))
    return tree


def add_files(tree: Tree, files: Path, directories: dict[str, str], rights: dict[str, str]) -> None:
    """A manifest's files/ and [directories], and what [disk.rights] says of files."""
    for source in sorted(files.rglob("*")):
        if source.is_file():
            mode = 0o755 if source.stat().st_mode & 0o100 else 0o644
            tree.place(bytes_path(str(source.relative_to(files))), from_file(source, mode))
    for path, text in directories.items():
        mode, uid, gid = parse_rights(text)
        tree.place(bytes_path(path), Entry(stat.S_IFDIR | mode, uid, gid))
    for path, text in rights.items():
        mode, uid, gid = parse_rights(text)
        entry = need(tree, path)
        entry.mode, entry.uid, entry.gid = stat.S_IFREG | mode, uid, gid


def parse_rights(text: str) -> tuple[int, int, int]:
    """0755, or 0755 UID:GID."""
    mode, _, owner = text.partition(" ")
    uid, _, gid = owner.partition(":")
    return int(mode, 8), int(uid or 0), int(gid or 0)


def add_modules(tree: Tree, shelf: Shelf, version: str) -> None:
    for path, data in shelf.files():
        tree.place(bytes_path(f"lib/modules/{version}/{path}"), regular(data))


def compile_one(path: str, source: bytes, mtime: int) -> bytes | None:
    """As py_compile writes it; None for what is no Python of this version (lib2to3's test data, say)."""
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):
        return None
    return bytes(_bootstrap_external._code_to_timestamp_pyc(code, mtime, len(source)))


def add_byte_code(tree: Tree, patterns: list[str], say: Any) -> None:
    """Compiled, never run. Only by the same version of Python, whose byte code it is."""
    ours = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if not tree.find(f"/usr/lib/{ours}"):
        say(f"Python's byte code is left out: the image's is not this {ours}, so its programs start slower")
        return
    patterns = [p.strip("/") + "/*.py" for p in patterns]
    sources = sorted(p for p, e in tree.entries.items()
                     if stat.S_ISREG(e.mode) and any(fnmatch.fnmatchcase(os.fsdecode(p), w) for w in patterns))
    with concurrent.futures.ProcessPoolExecutor() as pool:
        paths = [os.fsdecode(p) for p in sources]
        done = pool.map(compile_one, ["/" + p for p in paths], [tree.entries[p].content() for p in sources],
                        [tree.entries[p].mtime for p in sources], chunksize=32)
        for path, compiled in zip(paths, done):
            if compiled:
                tree.add(importlib.util.cache_from_source(path, optimization=""), regular(compiled))


def finish(tree: Tree, disk: Disk, say: Any) -> None:
    if disk.byte_code:
        add_byte_code(tree, disk.byte_code, say)
    if CONFIG in tree.entries:
        add_cache(tree)


def tree_from(source: Path, work: Path) -> Tree:
    """A directory, or a tar archive as `docker export` gives, perhaps compressed."""
    tree = Tree()
    if source.is_dir():
        tree.add_directory(source, mine_are_root)
    else:
        tree.add_tar(uncompressed(source, work))
    if b"oci-layout" in tree.entries or b"manifest.json" in tree.entries and b"repositories" in tree.entries:
        raise Refused(f"{source} is an image with its layers, as docker save gives; wanted is what docker export gives")
    if not any(tree.entries):
        raise Refused(f"{source}: there is nothing in it")
    hosts = tree.find("/etc/hosts")
    if not hosts or hosts.length() == 0:  # docker export leaves it empty
        tree.place(b"etc/hosts", regular(HOSTS.encode()))
    return tree


def has_modprobe(tree: Tree) -> bool:
    return any(tree.find(path) for path in ("/sbin/modprobe", "/usr/sbin/modprobe"))
