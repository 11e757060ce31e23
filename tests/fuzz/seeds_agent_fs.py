#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_tar and fuzz_msg_fs: archives of each kind, and a call of each method."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

import msgpack

SEEDS = Path(__file__).resolve().parent / "seeds"

METHODS = {
    0: {"path": "/a", "follow": False},
    1: {"path": "/a", "user": "app", "root": "/"},
    2: {"path": b"/\xff"},
    3: {"path": "/"},
    4: {"path": "/", "depth": 0, "stat": False},
    5: {"path": "/a", "offset": 1, "length": 2},
    6: {"path": "/", "names": ["a", "b/c"], "exclude": ["*.o"]},
    7: {"path": "/", "recursive": True},
    8: {"path": "/a", "mode": 0o644, "uid": 1, "gid": 2, "parents": True, "size": 3, "sha256": "0" * 64, "sync": "all"},
    9: {"path": "/a", "mode": 0o600, "parents": True, "size": 1, "sync": "file"},
    10: {"path": "/a", "mode": 0o1777, "parents": True},
    11: {"path": "/a", "recursive": True, "missing_ok": True},
    12: {"path": "/a", "to": "/b", "replace": False, "parents": True},
    13: {"path": "/a", "to": "/b", "recursive": True, "preserve": False},
    14: {"path": "/a", "target": "b"},
    15: {"path": "/a", "to": "/b"},
    16: {"path": "/a", "mode": 0, "recursive": True},
    17: {"path": "/a", "owner": "root:root", "follow": False},
    18: {"path": "/a", "mtime_ns": 10**18, "atime_ns": 0},
    19: {"path": "/a", "parents": True, "owner": True, "replace": False},
    20: {"path": "a", "type": "link", "mode": 511, "uid": 0, "gid": 0, "size": 1, "nlink": 1, "ino": 5, "dev": 6,
         "mtime_ns": 7, "atime_ns": 8, "ctime_ns": 9, "blocks": 0, "target": "b"},
}


def archives():
    members = [("f", tarfile.REGTYPE, "", b"data"), ("d", tarfile.DIRTYPE, "", b""), ("l", tarfile.SYMTYPE, "f", b""),
               ("h", tarfile.LNKTYPE, "f", b""), ("p" * 160, tarfile.REGTYPE, "", b""),
               ("s", tarfile.SYMTYPE, "q" * 160, b""), ("fifo", tarfile.FIFOTYPE, "", b"")]
    for name, format in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=format) as archive:
            for path, kind, link, data in members[: 4 if format == tarfile.USTAR_FORMAT else None]:
                member = tarfile.TarInfo(path)
                member.type, member.linkname, member.size, member.mtime = kind, link, len(data), 1.5
                if format == tarfile.USTAR_FORMAT:
                    member.mtime = 1
                archive.addfile(member, io.BytesIO(data))
        yield name, out.getvalue()
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/s", "wb") as f:
            for at in range(0, 6 << 16, 1 << 16):
                f.seek(at)
                f.write(b"x")
            f.truncate(2 << 20)
        for format in ("gnu", "pax"):
            made = subprocess.run(["tar", "-c", "-S", "-b1", f"--format={format}", "-C", d, "s"], check=True, capture_output=True)
            yield f"sparse-{format}", made.stdout


def main():
    for target in ("tar", "msg_fs"):
        (SEEDS / target).mkdir(parents=True, exist_ok=True)
    for name, data in archives():
        trimmed = data.rstrip(b"\0")
        trimmed += b"\0" * (-len(trimmed) % 512 + 1024)
        (SEEDS / "tar" / name).write_bytes(b"\x40" + trimmed)
    for method, params in METHODS.items():
        (SEEDS / "msg_fs" / f"{method:02}").write_bytes(bytes([method]) + msgpack.packb(params))


if __name__ == "__main__":
    main()
