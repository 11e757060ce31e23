# SPDX-License-Identifier: Apache-2.0
"""A small root file system as a tar archive, with one of everything that an image has to carry over."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

import images

# Around the block of 4096 bytes and what the image keeps beside an inode.
SIZES = [0, 1, 512, 513, 4095, 4096, 4097, 4608, 70000]
MANY = 400  # names in one directory: several blocks of it


def content(size: int) -> bytes:
    return hashlib.shake_128(str(size).encode()).digest(size)


# busybox shows no extended attribute.
NOTE = r"""
#include <sys/xattr.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char value[64];
	ssize_t n = argc == 3 ? getxattr(argv[1], argv[2], value, sizeof(value)) : -1;

	return n > 0 && write(1, value, n) == n ? 0 : 1;
}
"""


def note() -> bytes:
    """The program that prints attribute argv[2] of file argv[1]."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "note"
        subprocess.run(["musl-gcc", "-static", "-Os", "-s", "-o", out, "-x", "c", "-"], input=NOTE.encode(), check=True)
        return out.read_bytes()


def busybox() -> bytes:
    with (images.base_templates() / "base" / "initramfs.cpio").open("rb") as f:
        return subprocess.run(["cpio", "-i", "--quiet", "--to-stdout", "bin/busybox"], stdin=f, stdout=subprocess.PIPE, check=True).stdout


def member(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, uid: int = 0, gid: int = 0, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.uid, info.gid, info.mtime = kind, mode, uid, gid, 1_000_000_000
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def add(tar: tarfile.TarFile, info: tarfile.TarInfo, data: bytes = b"") -> None:
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def write(path: Path, mode: str = "w") -> Path:
    """The archive, of the form docker export gives: names without a leading slash, /etc/hosts empty."""
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:
        add(tar, member("usr/bin/", tarfile.DIRTYPE, 0o755))
        add(tar, member("bin", tarfile.SYMTYPE, 0o777, linkname="usr/bin"))
        add(tar, member("bin/busybox", mode=0o755), busybox())  # through the link
        for applet in ("sh", "cat", "dd", "df", "grep", "ls", "readlink", "sha256sum", "stat"):
            add(tar, member(f"usr/bin/{applet}", tarfile.SYMTYPE, 0o777, linkname="busybox"))
        add(tar, member("usr/bin/note", mode=0o755), note())
        add(tar, member("etc/hosts"))
        add(tar, member("etc/owned", mode=0o4750, uid=1234, gid=70000), b"mine\n")
        add(tar, member("etc/again", tarfile.LNKTYPE, linkname="etc/owned"))
        add(tar, member("srv/drop/", tarfile.DIRTYPE, 0o1777, uid=5, gid=6))
        add(tar, member("srv/pipe", tarfile.FIFOTYPE, 0o600))
        add(tar, member("srv/zero", tarfile.CHRTYPE, 0o666, devmajor=1, devminor=5))
        add(tar, member("srv/capable", mode=0o755, pax_headers={"SCHILY.xattr.trusted.note": "kept"}), b"x")
        add(tar, member("srv/../../../outside"), b"not outside\n")
        for size in SIZES:
            add(tar, member(f"data/{size}"), content(size))
        for i in range(MANY):
            add(tar, member(f"many/a-name-of-some-length-{i:04}"))
        add(tar, member("many/" + "n" * 255), b"long\n")
        add(tar, member("data/replaced"), b"old")
        add(tar, member("data/replaced"), b"new\n")
    return path
