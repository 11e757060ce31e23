# SPDX-License-Identifier: Apache-2.0
"""The kernel's modules: found by name, in the order in which they load, and the index that modprobe reads."""

import fnmatch
import gzip
import lzma
import os
import re
import struct
import subprocess
from pathlib import Path
from typing import Iterator

from common import Refused

# The trailer that the kernel's sign-file appends: struct module_signature (its last field is the signature's length) and a magic.
SIGNATURE_MAGIC = b"~Module signature appended~\n"
SIGNATURE_STRUCT = struct.Struct(">5B3xI")



class Modules:
    """The kernel modules of one kernel, found by name in its /lib/modules/VERSION."""

    def __init__(self, folder: Path):
        self.version = folder.resolve().name
        self.files = {module_name(f.name): f for f in folder.rglob("*.ko*")}
        builtin = folder / "modules.builtin"
        lines = builtin.read_text().split() if builtin.exists() else []
        self.builtin = {module_name(os.path.basename(line)) for line in lines}

    def load_order(self, wanted: list[str]) -> Iterator[tuple[str, bytes]]:
        """Name and content of each module, what it depends on first; what is built into the kernel is left out."""
        done: set[str] = set()

        def visit(name: str) -> Iterator[tuple[str, bytes]]:
            name = module_name(name)
            if name in done or name in self.builtin:
                return
            done.add(name)
            if name not in self.files:
                raise Refused(f"kernel {self.version} has no module {name}")
            data = read_module(self.files[name])
            for needed in dependencies(data):
                yield from visit(needed)
            yield name, data

        for name in wanted:
            yield from visit(name)


def module_name(file_name: str) -> str:
    return file_name.split(".")[0].replace("-", "_")


def read_module(path: Path) -> bytes:
    if path.suffix == ".xz":
        data = lzma.decompress(path.read_bytes())
    elif path.suffix == ".gz":
        data = gzip.decompress(path.read_bytes())
    elif path.suffix == ".zst":
        data = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout
    else:
        data = path.read_bytes()
    return without_signature(data)


def without_signature(data: bytes) -> bytes:
    """Whoever can change a module here can change /init beside it, so checking its RSA signature at every boot buys nothing (10 ms each under TCG)."""
    if not data.endswith(SIGNATURE_MAGIC):
        return data
    end = len(data) - len(SIGNATURE_MAGIC) - SIGNATURE_STRUCT.size
    length = SIGNATURE_STRUCT.unpack_from(data, end)[-1]
    return data[: end - length]


def dependencies(module: bytes) -> list[str]:
    """From the "depends=a,b" string of its .modinfo section (include/linux/module.h, scripts/mod/modpost.c)."""
    start = module.find(b"\0depends=") + len(b"\0depends=")
    if start < len(b"\0depends="):
        return []
    names = module[start : module.index(b"\0", start)].decode()
    return [n for n in names.split(",") if n]


def modinfo(module: bytes) -> list[tuple[str, str]]:
    """Keys and values of an ELF module's .modinfo section."""
    table, = struct.unpack_from("<Q", module, 40)
    size, count, names = struct.unpack_from("<HHH", module, 58)
    rows = [struct.unpack_from("<I20xQQ", module, table + i * size) for i in range(count)]
    for name, offset, length in rows:
        at = rows[names][1] + name
        if module[at : module.index(b"\0", at)] == b".modinfo":
            strings = module[offset : offset + length].decode(errors="replace").split("\0")
            return [(key, value) for key, eq, value in (s.partition("=") for s in strings) if eq]
    return []


class Index:
    """The .bin files of /lib/modules/VERSION, which modprobe maps: a trie of keys, written from the leaves up (kmod, libkmod-index.h)."""

    MAGIC, VERSION = 0xB007F457, 0x00020001
    PREFIX, VALUES, CHILDS = 0x80000000, 0x40000000, 0x20000000

    def __init__(self) -> None:
        self.values: dict[str, list[tuple[int, str]]] = {}

    def add(self, key: str, value: str, priority: int) -> None:
        self.values.setdefault(key, []).append((priority, value))

    def pack(self) -> bytes:
        out = bytearray(struct.pack(">III", self.MAGIC, self.VERSION, 0))
        root = self.pack_node(sorted(key.encode() for key in self.values), 0, out)
        struct.pack_into(">I", out, 8, root)
        return bytes(out)

    def pack_node(self, keys: list[bytes], depth: int, out: bytearray) -> int:
        """The node of all these keys, which are alike in their first depth bytes; returns its offset and flags."""
        prefix = os.path.commonprefix([k[depth:] for k in keys]) if keys else b""
        depth += len(prefix)
        below: dict[int, list[bytes]] = {}
        for key in keys:
            if len(key) > depth:
                below.setdefault(key[depth], []).append(key)
        children = {char: self.pack_node(some, depth + 1, out) for char, some in sorted(below.items())}
        offset = len(out)
        if prefix:
            out += prefix + b"\0"
            offset |= self.PREFIX
        if children:
            first, last = min(children), max(children)
            out += bytes([first, last]) + b"".join(struct.pack(">I", children.get(c, 0)) for c in range(first, last + 1))
            offset |= self.CHILDS
        if keys and len(keys[0]) == depth:
            values = sorted(self.values[keys[0].decode()])
            out += struct.pack(">I", len(values))
            for priority, value in values:
                out += struct.pack(">I", priority) + value.encode() + b"\0"
            offset |= self.VALUES
        return offset


def normalize_alias(alias: str) -> str:
    """- and _ are one, but not within [] (kmod, alias_normalize)."""
    return "".join(p if p.startswith("[") else p.replace("-", "_") for p in re.split(r"(\[[^]]*\])", alias))


class Shelf:
    """Part of a kernel's modules for /lib/modules/VERSION of an image, as depmod would leave it."""

    def __init__(self, modules: Modules, folder: Path, patterns: list[str]):
        """patterns: of paths below /lib/modules/VERSION/kernel, where * takes / too. Whatever is needed comes along."""
        self.folder = folder
        paths = {name: str(path.relative_to(folder / "kernel")) for name, path in modules.files.items()}
        wanted = []
        for pattern in patterns:
            found = sorted(name for name, path in paths.items() if fnmatch.fnmatchcase(path, pattern))
            if not found:
                raise Refused(f"kernel {modules.version} has no module {pattern}")
            wanted += found
        self.content = dict(modules.load_order(wanted))
        self.paths = {name: "kernel/" + os.path.splitext(paths[name])[0].removesuffix(".ko") + ".ko" for name in self.content}
        self.builtin = sorted(modules.builtin)

    def needs(self, name: str) -> list[str]:
        """All modules that must be there before this one, the one to load first last."""
        order: list[str] = []

        def visit(one: str) -> None:
            for needed in dependencies(self.content[one]):
                needed = module_name(needed)
                if needed in self.content and needed not in order:
                    visit(needed)
                    order.append(needed)

        visit(name)
        return order[::-1]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Path below /lib/modules/VERSION and content, of modules and of what modprobe reads."""
        deps, aliases, builtin = Index(), Index(), Index()
        soft, nodes = [], []
        for priority, name in enumerate(sorted(self.content)):
            yield self.paths[name], self.content[name]
            deps.add(name, f"{self.paths[name]}:" + "".join(f" {self.paths[n]}" for n in self.needs(name)), priority)
            info = modinfo(self.content[name])
            for key, value in info:
                if key == "alias":
                    aliases.add(normalize_alias(value), name, priority)
                elif key == "softdep":
                    soft.append(f"softdep {name} {value}\n")
            if node := device_node([value for key, value in info if key == "alias"]):
                nodes.append(f"{name} {node}\n")
        for name in self.builtin:
            builtin.add(name, "", 0)
        yield "modules.dep.bin", deps.pack()
        yield "modules.alias.bin", aliases.pack()
        yield "modules.builtin.bin", builtin.pack()
        yield "modules.softdep", "".join(soft).encode()
        yield "modules.devname", "".join(nodes).encode()


def device_node(aliases: list[str]) -> str | None:
    """NAME TYPE MAJOR:MINOR, of a module that is loaded when somebody opens its node."""
    names = [a.removeprefix("devname:") for a in aliases if a.startswith("devname:")]
    numbers = [re.fullmatch(r"(char|block)-major-(\d+)-(\d+)", a) for a in aliases]
    number = next(filter(None, numbers), None)
    return f"{names[0]} {number[1][0]}{number[2]}:{number[3]}" if names and number else None
