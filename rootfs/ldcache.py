# SPDX-License-Identifier: Apache-2.0
"""/etc/ld.so.cache for a tree, as ldconfig in it would write it (glibc, elf/cache.c, sysdeps/generic/dl-cache.h): x86-64, glibc 2.32 or newer.

Without it programs start all the same, but the dynamic loader looks for each library in every directory it knows.
"""

import fnmatch
import functools
import os
import re
import stat
import struct
from typing import Iterator

from tree import Entry, Tree

CACHE = "etc/ld.so.cache"
CONFIG = b"etc/ld.so.conf"
DIRECTORIES = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib"]
HEADER = struct.Struct("<20sIIB3xI12x")  # struct cache_file_new
ROW = struct.Struct("<iIIIQ")  # struct file_entry_new
MAGIC = b"glibc-ld.so.cache1.1"
LITTLE_ENDIAN, LIBC6_X86_64 = 2, 0x0303
PT_LOAD, PT_DYNAMIC, DT_STRTAB, DT_SONAME = 1, 2, 5, 14


def soname(library: bytes) -> str | None:
    """DT_SONAME of a 64-bit x86 shared library; None for anything else."""
    if library[:6] != b"\x7fELF\x02\x01" or len(library) < 64 or struct.unpack_from("<HH", library, 16) != (3, 62):
        return None
    table, = struct.unpack_from("<Q", library, 32)
    size, count = struct.unpack_from("<HH", library, 54)
    try:
        segments = [struct.unpack_from("<I4xQQ8xQ", library, table + i * size) for i in range(count)]
        offset, length = next((o, n) for kind, o, _, n in segments if kind == PT_DYNAMIC)
        tags = dict(struct.iter_unpack("<QQ", library[offset : offset + length]))
        strings = next(tags[DT_STRTAB] - a + o for kind, o, a, n in segments if kind == PT_LOAD and a <= tags[DT_STRTAB] < a + n)
        at = strings + tags[DT_SONAME]
        return os.fsdecode(library[at : library.index(b"\0", at)])
    except (StopIteration, KeyError, struct.error, ValueError):
        return None


def configured(tree: Tree, path: bytes, depth: int = 0) -> Iterator[str]:
    """The directories that ld.so.conf and what it includes name."""
    entry = tree.find(path)
    if not entry or not stat.S_ISREG(entry.mode) or depth > 8:
        return
    for line in entry.content().decode(errors="replace").splitlines():
        words = line.partition("#")[0].split()
        if words and words[0] == "include":
            for pattern in words[1:]:
                pattern = os.path.join("/", os.path.dirname(os.fsdecode(path)), pattern).lstrip("/")
                for name in sorted(fnmatch.filter(map(os.fsdecode, tree.entries), pattern)):
                    yield from configured(tree, os.fsencode(name), depth + 1)
        elif words:
            yield words[0]


def libraries(tree: Tree) -> Iterator[tuple[str, str]]:
    """Name and path of each library that has its own name as a file or a link."""
    below: dict[bytes, list[bytes]] = {}
    for path in tree.entries:
        below.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    seen = set()
    for folder in [*configured(tree, CONFIG), *DIRECTORIES]:
        real = tree.follow(os.fsencode(folder))
        for name in sorted(map(os.fsdecode, below.get(real, []))):
            if name in seen or not re.match(r"(lib.*|ld-.*)\.so(\.|$)", name):
                continue
            entry = tree.find(os.path.join(real, os.fsencode(name)))
            if entry and stat.S_ISREG(entry.mode) and soname(entry.content()) == name:
                seen.add(name)
                yield name, f"{folder}/{name}"


def compare(a: str, b: str) -> int:
    """glibc's _dl_cache_libcmp: runs of digits by their value, and behind all else."""
    i = j = 0
    while i < len(a):
        if a[i].isdigit():
            if j >= len(b) or not b[j].isdigit():
                return 1
            x, y = re.match(r"\d+", a[i:])[0], re.match(r"\d+", b[j:])[0]
            if int(x) != int(y):
                return int(x) - int(y)
            i, j = i + len(x), j + len(y)
        elif j < len(b) and b[j].isdigit():
            return -1
        elif j >= len(b) or a[i] != b[j]:
            return ord(a[i]) - (ord(b[j]) if j < len(b) else 0)
        else:
            i, j = i + 1, j + 1
    return -1 if j < len(b) else 0


def add_cache(tree: Tree) -> None:
    found = sorted(libraries(tree), key=functools.cmp_to_key(lambda a, b: compare(b[0], a[0])))
    strings, rows = b"", b""
    base = HEADER.size + ROW.size * len(found)
    for name, path in found:
        rows += ROW.pack(LIBC6_X86_64, base + len(strings), base + len(strings) + len(name) + 1, 0, 0)
        strings += os.fsencode(name) + b"\0" + os.fsencode(path) + b"\0"
    data = HEADER.pack(MAGIC, len(found), len(strings), LITTLE_ENDIAN, 0) + rows + strings
    tree.add(CACHE, Entry(stat.S_IFREG | 0o644, data=data))
