# SPDX-License-Identifier: Apache-2.0
"""Writes a tree as an EROFS image (Linux, fs/erofs/erofs_fs.h and Documentation/filesystems/erofs.rst).

Not compressed: under emulation a block that is decompressed costs more than one that is read. All inodes come first, those of one directory
beside each other, each with its extended attributes, link target, small directory or small file behind it; then the blocks of large directories;
then the files, each in one piece. So the agent has all that look-ups need in memory after one read at boot. Written here rather than by
mkfs.erofs because Debian 12's takes neither an archive nor owners that the host's files do not have. The image depends on the tree alone.
"""

import os
import stat
import struct
from dataclasses import dataclass, field
from typing import BinaryIO

from common import Refused
from tree import Entry, Tree

BLOCK = 4096
SUPER_OFFSET, SUPER_SIZE, SUPER_MAGIC = 1024, 128, 0xE0F5E1E2
SLOT = 32  # an inode's number is where it is, in units of this
INODE = struct.Struct("<HHHHQIIIIQII16x")  # struct erofs_inode_extended
XATTR_HEADER = struct.Struct("<IB7x")
XATTR_ENTRY = struct.Struct("<BBH")
DIRENT = struct.Struct("<QHBB")
EXTENDED, PLAIN, INLINE = 1, 0 << 1, 2 << 1  # i_format: version and data layout
COMPAT_MTIME = 2
NO_BLOCKS = 0xFFFFFFFF
SMALL_FILE = 512  # up to this size its content is with its inode
XATTR_PREFIXES = [(b"user.", 1), (b"system.posix_acl_access", 2), (b"system.posix_acl_default", 3), (b"trusted.", 4), (b"security.", 6)]
FILE_TYPES = {stat.S_IFREG: 1, stat.S_IFDIR: 2, stat.S_IFCHR: 3, stat.S_IFBLK: 4, stat.S_IFIFO: 5, stat.S_IFSOCK: 6, stat.S_IFLNK: 7}
COPY = 1 << 20


@dataclass(eq=False)
class Node:
    entry: Entry
    parent: "Node | None"  # a directory's, where .. leads
    children: list[tuple[bytes, "Node"]] = field(default_factory=list)
    names: int = 0
    xattrs: bytes = b""
    size: int = 0
    position: int = 0  # of the inode, in bytes
    block: int = NO_BLOCKS
    inline: bool = False

    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.entry.mode)

    def links(self) -> int:
        return 2 + sum(child.is_directory() for _, child in self.children) if self.is_directory() else self.names

    def head(self) -> int:
        return INODE.size + len(self.xattrs)

    def blocks(self) -> int:
        return self.size // BLOCK if self.inline else -(-self.size // BLOCK)


def collect(tree: Tree) -> list[Node]:
    """All inodes, the root first, then directory by directory."""
    below: dict[bytes, list[bytes]] = {}
    for name in sorted(tree.entries):
        if name:
            below.setdefault(os.path.dirname(name), []).append(name)
    root = Node(tree.entries.get(b"") or Entry(stat.S_IFDIR | 0o755), None)
    nodes, known, todo = [root], {}, [(b"", root)]
    while todo:
        path, folder = todo.pop()
        for name in below.get(path, []):
            entry = tree.entries[name]
            node = known.get(entry)
            if node is None:
                node = Node(entry, folder)
                nodes.append(node)
                if not stat.S_ISDIR(entry.mode):
                    known[entry] = node
            node.names += 1
            folder.children.append((os.path.basename(name), node))
        todo += [(name, node) for (_, node), name in zip(reversed(folder.children), reversed(below.get(path, [])))
                 if node.is_directory()]
    return nodes


def directory(node: Node) -> bytes:
    """Blocks of sorted entries: the fixed parts, then the names."""
    rows = sorted([(b".", node), (b"..", node.parent or node), *node.children], key=lambda row: row[0])
    out, block, used = [], [], 0
    for row in rows:
        need = DIRENT.size + len(row[0])
        if used + need > BLOCK:
            out.append(directory_block(block).ljust(BLOCK, b"\0"))
            block, used = [], 0
        block.append(row)
        used += need
    return b"".join(out) + directory_block(block)


def directory_block(rows: list[tuple[bytes, Node]]) -> bytes:
    at, heads = DIRENT.size * len(rows), []
    for name, node in rows:
        heads.append(DIRENT.pack(node.position // SLOT, at, FILE_TYPES[stat.S_IFMT(node.entry.mode)], 0))
        at += len(name)
    return b"".join(heads) + b"".join(name for name, _ in rows)


def pack_xattrs(entry: Entry, path_for_error: str) -> bytes:
    packed = b""
    for name, value in sorted(entry.xattrs.items()):
        found = next(((p, i) for p, i in XATTR_PREFIXES if name.startswith(p)), None)
        if not found:
            raise Refused(f"{path_for_error}: extended attribute {os.fsdecode(name)} is of an unknown kind")
        rest = name[len(found[0]):]
        row = XATTR_ENTRY.pack(len(rest), found[1], len(value)) + rest + value
        packed += row + b"\0" * (-len(row) % 4)
    return XATTR_HEADER.pack(0, 0) + packed if packed else b""


def lay_out(nodes: list[Node]) -> int:
    """Gives each inode its place, and each file its blocks; returns the number of blocks in all."""
    at = SUPER_OFFSET + SUPER_SIZE
    for node in nodes:
        node.xattrs = pack_xattrs(node.entry, "an entry")
        node.size = len(directory(node)) if node.is_directory() else node.entry.length()
        end = node.size % BLOCK
        small = node.size <= SMALL_FILE or not stat.S_ISREG(node.entry.mode)
        node.inline = bool(end) and small and node.head() + end <= BLOCK
        whole = node.head() + (end if node.inline else 0)
        if at % BLOCK + whole > BLOCK and whole <= BLOCK:
            at = -(-at // BLOCK) * BLOCK
        node.position = at
        at = -(-(at + whole) // SLOT) * SLOT
    block = -(-at // BLOCK)
    for node in sorted(nodes, key=lambda node: not node.is_directory()):
        if node.blocks():
            node.block = block
            block += node.blocks()
    if block >= NO_BLOCKS:
        raise Refused("the image would be larger than 16 TiB")
    return block


def device_number(major: int, minor: int) -> int:
    """new_encode_dev of Linux, include/linux/kdev_t.h."""
    return (minor & 0xFF) | major << 8 | (minor & ~0xFF) << 12


def inode(node: Node, number: int) -> bytes:
    e = node.entry
    special = stat.S_ISCHR(e.mode) or stat.S_ISBLK(e.mode)
    words = (len(node.xattrs) - XATTR_HEADER.size) // 4 + 1 if node.xattrs else 0
    return INODE.pack(EXTENDED | (INLINE if node.inline else PLAIN), words, e.mode, 0, node.size,
                      device_number(*e.device) if special else node.block, number, e.uid, e.gid, e.mtime, 0,
                      node.links()) + node.xattrs


def superblock(nodes: list[Node], blocks: int) -> bytes:
    head = struct.pack("<IIIBBHQQIIII", SUPER_MAGIC, 0, COMPAT_MTIME, 12, 0, nodes[0].position // SLOT, len(nodes), 0, 0, blocks, 0, 0)
    return head.ljust(SUPER_SIZE, b"\0")


def copy_content(entry: Entry, size: int, out: BinaryIO) -> None:
    """The first size bytes, in pieces."""
    if not entry.source:
        out.write(entry.data[:size])
        return
    with entry.source.open("rb") as f:
        f.seek(entry.offset)
        while size:
            piece = f.read(min(size, COPY))
            if not piece:
                raise Refused(f"{entry.source} became shorter while it was read")
            out.write(piece)
            size -= len(piece)


def write_erofs(tree: Tree, out: BinaryIO) -> None:
    nodes = collect(tree)
    blocks = lay_out(nodes)
    start = out.tell()
    out.seek(start + SUPER_OFFSET)
    out.write(superblock(nodes, blocks))
    for number, node in enumerate(nodes, start=1):
        data = directory(node) if node.is_directory() else None
        whole = node.size // BLOCK * BLOCK if node.inline else node.size
        out.seek(start + node.position)
        out.write(inode(node, number))
        if node.inline:
            out.write(data[whole:] if data is not None else end_of(node.entry, whole))
        if whole:
            out.seek(start + node.block * BLOCK)
            if data is not None:
                out.write(data[:whole])
            else:
                copy_content(node.entry, whole, out)
    out.truncate(start + blocks * BLOCK)


def end_of(entry: Entry, skip: int) -> bytes:
    if not entry.source:
        return entry.data[skip:]
    rest = Entry(entry.mode, source=entry.source, offset=entry.offset + skip, size=entry.size - skip)
    return rest.content()
