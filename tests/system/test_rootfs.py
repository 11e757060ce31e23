# SPDX-License-Identifier: Apache-2.0
"""rootfs/: what the image builder makes, byte for byte, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import images
import procs
import pytest
import roots

ROOTFS = procs.ROOT / "rootfs"
sys.path.insert(0, str(ROOTFS))
from common import Refused
from erofs import write_erofs
from image import tree_from
from kmodules import Index


def build(out: Path, **env: str) -> subprocess.CompletedProcess:
    argv = [ROOTFS / "build", "--agent", images.static_agent(), "--out", out]
    return subprocess.run(argv, env=dict(os.environ, **env), capture_output=True, text=True, timeout=300)


def mkinitramfs(out: Path, *args: object) -> subprocess.CompletedProcess:
    return subprocess.run([ROOTFS / "mkinitramfs", "--out", out, *map(str, args)], capture_output=True, text=True, timeout=60)


def listing(archive: Path) -> dict[str, tuple[str, int, int]]:
    """name -> (ls-style mode, uid, gid), as cpio(1) reads it: it shares no code with what wrote the archive."""
    with archive.open("rb") as f:
        out = subprocess.run(["cpio", "-itvn", "--quiet"], stdin=f, capture_output=True, text=True, check=True).stdout
    rows = (line.split(None, 8) for line in out.splitlines())
    return {r[8].split(" -> ")[0]: (r[0], int(r[2]), int(r[3])) for r in rows}


@pytest.fixture(scope="module")
def base() -> Path:
    return images.base_templates() / "base"


def test_same_inputs_give_the_same_bytes(base, tmp_path):
    old = os.umask(0o077)
    try:
        made = build(tmp_path / "deep" / "other", TZ="Asia/Tokyo", LC_ALL="C", PYTHONHASHSEED="7")
    finally:
        os.umask(old)
    assert made.returncode == 0, made.stderr
    names = sorted(p.name for p in base.iterdir())
    assert names == sorted(p.name for p in (tmp_path / "deep" / "other").iterdir())
    for name in names:
        assert (base / name).read_bytes() == (tmp_path / "deep" / "other" / name).read_bytes(), name
        assert (tmp_path / "deep" / "other" / name).stat().st_mode & 0o777 == 0o644


def test_template_json_tells_the_truth(base):
    told = json.loads((base / "template.json").read_text())
    assert told["name"] == "base" and told["kernel"] == "vmlinux" and told["initramfs"] == "initramfs.cpio"
    assert told["memory_mib"] >= 64 and told["vcpus"] >= 1 and len(told["cmdline"]) < 512
    assert set(told["files"]) == {"vmlinux", "initramfs.cpio"}
    for name, file in told["files"].items():
        data = (base / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
    assert told["bytes"] == sum(f["bytes"] for f in told["files"].values())
    assert told["packages"]["linux-image-" + told["kernel_version"]] and told["packages"]["busybox"]


def test_the_same_by_another_name(base, tmp_path):
    mine = images.build_template("mine", tmp_path, "--like", "base", "--disk-mib", 16)
    told, like = (json.loads((folder / "template.json").read_text()) for folder in (mine, base))
    assert (told["name"], told["disk_mib"]) == ("mine", 16) and "disk_mib" not in like
    assert told["cmdline"] == like["cmdline"] and told["files"]["vmlinux"] == like["files"]["vmlinux"]


def test_base_is_a_usable_root(base):
    files = listing(base / "initramfs.cpio")
    assert files["init"] == ("-rwxr-xr-x", 0, 0)
    assert files["bin/busybox"] == ("-rwxr-xr-x", 0, 0)
    assert files["bin/sh"][0].startswith("l") and files["usr/bin/env"][0].startswith("l")
    assert files["tmp"][0] == "drwxrwxrwt" and files["root"][0] == "drwx------"
    assert files["home/app"] == ("drwxr-xr-x", 1000, 1000)
    assert {"etc/passwd", "etc/group", "etc/hosts", "etc/profile"} <= files.keys()


def test_modules_are_listed_after_what_they_need(base):
    with (base / "initramfs.cpio").open("rb") as f:
        text = subprocess.run(["cpio", "-i", "--quiet", "--to-stdout", "lib/modules/hutch.modules"], stdin=f,
                              capture_output=True, text=True, check=True).stdout
    version = json.loads((base / "template.json").read_text())["kernel_version"]
    order = [Path(line).stem for line in text.splitlines()]
    assert all(line.startswith(f"/lib/modules/{version}/") for line in text.splitlines())
    assert order.index("virtio_ring") < order.index("virtio") < order.index("vmw_vsock_virtio_transport")
    assert order.index("vsock") < order.index("vmw_vsock_virtio_transport_common") < order.index("vmw_vsock_virtio_transport")
    assert "virtio_mmio" in order and len(order) == len(set(order))
    assert {f"lib/modules/{version}/{name}.ko" for name in order} <= listing(base / "initramfs.cpio").keys()


def test_kernel_is_an_elf_with_a_pvh_entry(base):
    notes = subprocess.run(["readelf", "-nW", base / "vmlinux"], capture_output=True, text=True, check=True).stdout
    assert "Xen" in notes and "0x00000012" in notes


def test_initramfs_of_nothing_but_init(tmp_path):
    out = tmp_path / "only.cpio"
    made = mkinitramfs(out, "--agent", images.static_agent())
    assert made.returncode == 0, made.stderr
    assert listing(out) == {"init": ("-rwxr-xr-x", 0, 0)}


def test_initramfs_keeps_modes_and_takes_any_name(tmp_path):
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "plain").write_bytes(b"x" * 5)
    (root / "a" / "suid").write_bytes(b"")
    (root / "a" / "suid").chmod(0o4755)
    os.symlink("plain", root / "a" / "link")
    (Path(os.fsencode(root).decode()) / "a" / os.fsdecode(b"\xff name")).write_bytes(b"")
    out = tmp_path / "x.cpio"
    made = mkinitramfs(out, "--root", root, "--own", "/a/plain=7:8")
    assert made.returncode == 0, made.stderr
    names = b"".join(out.read_bytes().partition(b"a/\xff name\0")[1:2])
    assert names == b"a/\xff name\0"
    back = tmp_path / "back"
    back.mkdir()
    with out.open("rb") as f:
        subprocess.run(["cpio", "-id", "--quiet", "--no-preserve-owner"], cwd=back, stdin=f, check=True)
    assert (back / "a" / "plain").read_bytes() == b"xxxxx" and os.readlink(back / "a" / "link") == "plain"
    assert (back / "a" / "suid").stat().st_mode & 0o7777 == 0o4755


@pytest.mark.parametrize("args, said", [
    (["--agent", "/bin/ls"], "dynamically"),
    (["--agent", "/etc/passwd"], "not a 64-bit ELF"),
    (["--root", "/nonexistent"], "not a directory"),
    (["--own", "/nothing=1:1"], "not in the image"),
    (["--modules-from", "/usr/lib", "--module", "no_such"], "no module no_such"),
])
def test_initramfs_refuses_by_name_and_leaves_nothing(tmp_path, args, said):
    made = mkinitramfs(tmp_path / "x.cpio", *args)
    assert made.returncode == 1 and said in made.stderr and "Traceback" not in made.stderr
    assert list(tmp_path.iterdir()) == []


def bzimage(payload_length: int) -> bytes:
    """Just the fields of the setup header that say where the payload is, which is all zeros."""
    image = bytearray(4096)
    image[0x202:0x208] = b"HdrS\x0f\x02"
    struct.pack_into("<II", image, 0x248, 0, payload_length)
    return bytes(image)


@pytest.mark.parametrize("image, said", [
    pytest.param(b"", "not a bzImage", id="empty"),
    pytest.param(bzimage(64), "compressed in an unknown way", id="unknown"),
    pytest.param(bzimage(1 << 30), "cut off", id="cut"),
])
def test_kernel_refuses_by_name(tmp_path, image, said):
    (tmp_path / "vmlinuz").write_bytes(image)
    made = subprocess.run([ROOTFS / "mkkernel", tmp_path / "vmlinuz", tmp_path / "out"], capture_output=True, text=True)
    assert made.returncode == 1 and said in made.stderr and not (tmp_path / "out").exists()


def test_a_template_is_replaced_whole_or_not_at_all(base, tmp_path):
    out = tmp_path / "base"
    shutil.copytree(base, out)
    (out / "vmlinux").write_bytes(b"old")
    argv = [ROOTFS / "build", "--agent", images.static_agent(), "--out", out]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as p:
        assert any("unpacking" in line for line in iter(p.stderr.readline, ""))
        p.send_signal(signal.SIGTERM)
        p.communicate()
        assert p.returncode == 128 + signal.SIGTERM
    assert (out / "vmlinux").read_bytes() == b"old" and list(tmp_path.iterdir()) == [out]
    assert build(out).returncode == 0
    assert (out / "vmlinux").read_bytes() == (base / "vmlinux").read_bytes() and list(tmp_path.iterdir()) == [out]


def test_build_does_not_replace_what_is_no_template(tmp_path):
    (tmp_path / "precious").write_text("data")
    made = build(tmp_path)
    assert made.returncode == 1 and "not a template" in made.stderr
    assert (tmp_path / "precious").read_text() == "data"


def erofs(source: Path, work: Path) -> bytes:
    with (work / "image").open("w+b") as out:
        write_erofs(tree_from(source, work), out)
    return (work / "image").read_bytes()


def test_a_root_disk_depends_on_the_archive_alone(base, tmp_path):
    """Compressed or not, and whoever builds it; nothing is unpacked, so that the owners cannot get lost."""
    plain, packed = roots.write(tmp_path / "root.tar"), roots.write(tmp_path / "root.tar.xz", "w:xz")
    image = erofs(plain, tmp_path)
    assert len(image) % 4096 == 0 and image[1024:1028] == b"\xe2\xe1\xf5\xe0"
    assert erofs(packed, tmp_path) == image


def archive(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as tar:
        for info in members:
            roots.add(tar, info)
    return path


def test_archives_that_cannot_be_a_root_are_refused_by_name(base, tmp_path):
    whole = roots.write(tmp_path / "root.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: whole.index(roots.content(70000)) + 5000])
    (tmp_path / "text.tar").write_text("no archive " * 1000)
    (tmp_path / "nothing").mkdir()
    dangling = archive(tmp_path / "dangling.tar", roots.member("a", tarfile.LNKTYPE, linkname="b"))
    loop = archive(tmp_path / "loop.tar", roots.member("a", tarfile.SYMTYPE, linkname="a"), roots.member("a/b"))
    below = archive(tmp_path / "below.tar", roots.member("a"), roots.member("a/b"))
    saved = archive(tmp_path / "saved.tar", roots.member("manifest.json"), roots.member("repositories"))
    huge = archive(tmp_path / "huge.tar", roots.member("a", uid=1 << 33))
    long = archive(tmp_path / "long.tar", roots.member("n" * 256))
    for source, said in [(huge, "a: an owner"), (long, "256 bytes"),
                         (tmp_path / "cut.tar", "cut off within data/70000"), (tmp_path / "text.tar", "not a whole tar archive"),
                         (tmp_path / "nothing", "nothing in it"), (dangling, "a is a link to b, which is not there"),
                         (loop, "loop of symbolic links"), (below, "a is not a directory"), (saved, "docker export")]:
        with pytest.raises(Refused, match=said):
            tree_from(source, tmp_path)


def test_a_directory_of_mine_is_roots_in_the_image(tmp_path):
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "sub" / "file").write_text("x")
    os.link(tmp_path / "root" / "sub" / "file", tmp_path / "root" / "twin")
    tree = tree_from(tmp_path / "root", tmp_path)
    assert tree.entries[b"sub/file"] is tree.entries[b"twin"] and tree.entries[b"twin"].uid == 0
    assert tree.entries[b"etc/hosts"].data.startswith(b"127.0.0.1")


def look_up(index: bytes, key: bytes) -> list[bytes]:
    """As libkmod does it, for a key without wildcards."""
    at, = struct.unpack_from(">I", index, 8)
    while True:
        flags, at = at & 0xF0000000, at & 0x0FFFFFFF
        if flags & 0x80000000:
            end = index.index(b"\0", at)
            if not key.startswith(index[at:end]):
                return []
            key, at = key[end - at:], end + 1
        first, last = index[at:at + 2] if flags & 0x20000000 else (1, 0)
        values = at + (2 + 4 * (last - first + 1) if flags & 0x20000000 else 0)
        if not key:
            count, = struct.unpack_from(">I", index, values) if flags & 0x40000000 else (0,)
            found = []
            for _ in range(count):
                end = index.index(b"\0", values + 8)
                found.append(index[values + 8:end])
                values = end + 1 - 4
            return found
        at, = struct.unpack_from(">I", index, at + 2 + 4 * (key[0] - first)) if first <= key[0] <= last else (0,)
        if not at:
            return []
        key = key[1:]


def test_index_of_modules_is_what_modprobe_looks_up():
    index = Index()
    rows = [("loop", "a"), ("lo", "b"), ("overlay", "c"), ("loop", "d"), ("x", "e"), ("overlays", "f")]
    for priority, (key, value) in enumerate(rows):
        index.add(key, value, priority)
    packed = index.pack()
    for key in {key for key, _ in rows}:
        assert look_up(packed, key.encode()) == [v.encode() for k, v in rows if k == key]
    assert look_up(packed, b"over") == look_up(packed, b"loo") == look_up(packed, b"z") == look_up(packed, b"loops") == []
    assert look_up(Index().pack(), b"x") == []
