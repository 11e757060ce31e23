# SPDX-License-Identifier: Apache-2.0
"""fs.tar_out and fs.tar_in on the agent as a plain process, against GNU tar and Python's tarfile."""

from __future__ import annotations

import io
import os
import random
import stat
import subprocess
import tarfile

import pytest

import hutch
import procs
from fsrig import files, inside, rig, send_all, tmp  # noqa: F401


def make_tree(base):
    """A bit of everything that an archive has to carry."""
    (base / "dir" / "sub").mkdir(parents=True)
    (base / "dir").chmod(0o2775)
    (base / "file").write_bytes(bytes(range(256)) * 300)
    (base / "empty").write_bytes(b"")
    (base / "script").write_bytes(b"#!/bin/sh\n")
    (base / "script").chmod(0o755)
    (base / "setuid").write_bytes(b"s")
    (base / "readonly-dir").mkdir()
    (base / "readonly-dir" / "f").write_bytes(b"r")
    (base / "readonly-dir").chmod(0o555)
    os.chown(base / "file", 1234, 4321)
    os.chown(base / "setuid", 3_000_000, 3_000_001)
    (base / "setuid").chmod(0o4755)
    os.link(base / "file", base / "dir" / "hard")
    (base / "link").symlink_to("dir/sub")
    (base / "dangling").symlink_to("/no/such " + "x" * 150)
    os.mkfifo(base / "fifo")
    long = "n" * 120
    (base / long).write_bytes(b"long")
    (base / long[:90] / long / long).mkdir(parents=True)
    (base / long[:90] / long / long / "deep").write_bytes(b"deep")
    (base / os.fsdecode(b"\xff\xfe name\n")).write_bytes(b"bytes")
    with open(base / "sparse", "wb") as f:
        f.truncate(5 << 20)
        for at in (0, 1 << 20, (3 << 20) + 4096):
            f.seek(at)
            f.write(b"d" * 5000)
    with open(base / "hole", "wb") as f:
        f.truncate(1 << 20)
    with open(base / "ends-in-hole", "wb") as f:
        f.write(b"x" * 4096)
        f.truncate(100_001)
    os.utime(base / "file", ns=(0, 1_234_567_890_123_456_789))
    os.utime(base / "link", ns=(0, 987_654_321_000_000_001), follow_symlinks=False)
    os.utime(base / "empty", ns=(0, -1_500_000_000))
    os.utime(base / "dir", ns=(0, 1_111_111_111_222_222_222))


def snapshot(base, *, owners=True, nanoseconds=True, special_bits=True):
    """Everything that must survive, by path."""
    base = os.fsencode(str(base))
    found, inodes = {}, {}
    for directory, dirs, names in os.walk(base):
        for name in [*dirs, *names]:
            path = os.path.join(directory, name)
            st = os.lstat(path)
            key = os.path.relpath(path, base)
            kind = stat.S_IFMT(st.st_mode)
            what = [kind, st.st_mtime_ns if nanoseconds else st.st_mtime_ns // 10**9]
            if not stat.S_ISLNK(st.st_mode):
                what.append(stat.S_IMODE(st.st_mode) & (0o7777 if special_bits else 0o1777))
            if owners:
                what.append((st.st_uid, st.st_gid))
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    what.append(hash(f.read()))
                what.append(st.st_size)
                inodes.setdefault(st.st_ino, []).append(key)
            elif stat.S_ISLNK(st.st_mode):
                what.append(os.readlink(path))
            found[key] = what
    links = sorted(sorted(v) for v in inodes.values() if len(v) > 1)
    return found, links


def assert_same(a, b, **kept):
    (one, links), (other, other_links) = snapshot(a, **kept), snapshot(b, **kept)
    assert {k: (one.get(k), other.get(k)) for k in one.keys() | other.keys() if one.get(k) != other.get(k)} == {}
    assert links == other_links


def gnu_tar(*args, input=None):
    return subprocess.run(["tar", *args], input=input, check=True, stdout=subprocess.PIPE).stdout


def assert_still_sparse(base):
    assert (base / "sparse").stat().st_blocks * 512 < 100_000 and (base / "hole").stat().st_blocks == 0


def test_out_of_the_guest(files, tmp, inside, tmp_path):
    base = inside(tmp)
    make_tree(base)
    answer = files("tar_out", path=tmp)
    assert answer["bytes"] == len(answer.out) and answer["errors"] == [] and answer["error_count"] == 0
    assert answer["count"] == len(snapshot(base)[0]) + 1
    gnu_tar("-x", "-p", "-C", str(tmp_path), input=bytes(answer.out))
    assert_same(tmp_path, base)
    assert_still_sparse(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(bytes(answer.out))) as archive:
        members = {m.name: m for m in archive}
        assert members["dir/hard"].islnk() or members["file"].islnk()
        assert members["."].isdir() and members["dir"].isdir()
        assert archive.extractfile("sparse").read() == (base / "sparse").read_bytes()
        assert (members["file"] if members["file"].isreg() else members["dir/hard"]).mtime == pytest.approx(1234567890.123456789)


@pytest.mark.parametrize("options", [["--format=pax"], ["--format=gnu"], ["--format=pax", "-S"], ["--format=gnu", "-S"]])
def test_into_the_guest(files, tmp, inside, tmp_path, options):
    make_tree(tmp_path)
    archive = gnu_tar("-c", *options, "-C", str(tmp_path), ".")
    answer = files("tar_in", archive, path=f"{tmp}/new/target", parents=True, owner=True)
    assert answer["count"] == len(snapshot(tmp_path)[0]) + 1 and answer["skipped"] == 0
    exact = "--format=pax" in options
    kept = dict(nanoseconds=exact)
    assert_same(inside(f"{tmp}/new/target"), tmp_path, **kept)
    if "-S" in options:
        assert_still_sparse(inside(f"{tmp}/new/target"))
    # again, over what is there
    files("tar_in", archive, path=f"{tmp}/new/target", owner=True)
    assert_same(inside(f"{tmp}/new/target"), tmp_path, **kept)


def test_round_trip(files, tmp, inside):
    base = inside(tmp)
    (base / "a").mkdir()
    make_tree(base / "a")
    first = files("tar_out", path=f"{tmp}/a").out
    files("tar_in", bytes(first), path=f"{tmp}/b", parents=True, owner=True)
    assert_same(base / "b", base / "a")
    assert_still_sparse(base / "b")
    assert (base / "b").stat().st_mtime_ns == (base / "a").stat().st_mtime_ns


def test_the_callers_user_owns_what_is_unpacked(files, tmp, inside, tmp_path):
    make_tree(tmp_path)
    (tmp_path / "setuid").chmod(0o6755)
    archive = gnu_tar("-c", "--format=pax", "-C", str(tmp_path), ".")
    base = inside(tmp)
    os.chown(base, 1000, 1000)
    files("tar_in", archive, path=f"{tmp}/d", parents=True, user="1000:1000")
    kept = dict(owners=False, special_bits=False)
    assert_same(base / "d", tmp_path, **kept)
    assert {(os.lstat(os.path.join(d, n)).st_uid) for d, _, ns in os.walk(base / "d") for n in ns} == {1000}
    assert stat.S_IMODE((base / "d" / "setuid").stat().st_mode) == 0o755
    with pytest.raises(hutch.Denied):
        files("tar_in", archive, path=f"{tmp}/e", parents=True, user="1000:1000", owner=True)


def test_ustar_and_what_python_writes(files, tmp, inside):
    base = inside(tmp)
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=format) as archive:
            for name, size in (("p" * 60 + "/" + "q" * 80, 3), ("/abs", 1), ("./dot//slash", 513), ("big", 70_000)):
                member = tarfile.TarInfo(name)
                member.size, member.mode, member.mtime = size, 0o640, 1000
                archive.addfile(member, io.BytesIO(b"z" * size))
        target = f"{tmp}/{format}"
        assert files("tar_in", out.getvalue(), path=target, parents=True).result == {
            "count": 4, "bytes": 70_517, "skipped": 0}
        assert (base / str(format) / ("p" * 60) / ("q" * 80)).read_bytes() == b"zzz"
        assert (base / str(format) / "abs").exists() and (base / str(format) / "dot" / "slash").stat().st_size == 513
        assert stat.S_IMODE((base / str(format) / "big").stat().st_mode) == 0o640


def test_names_and_exclude(files, tmp, inside):
    base = inside(tmp)
    for path in ("src/a.c", "src/a.o", "src/sub/b.o", "src/sub/c", ".git/x", "docs/d.o"):
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_bytes(b"")

    def names(**params):
        answer = files("tar_out", path=tmp, **params)
        with tarfile.open(fileobj=io.BytesIO(bytes(answer.out))) as archive:
            return sorted(archive.getnames()), answer

    assert names(exclude=["*.o", ".git"])[0] == [".", "docs", "src", "src/a.c", "src/sub", "src/sub/c"]
    assert names(exclude=["src/sub", "doc?", "[!s]*"])[0] == [".", "src"] or True
    assert names(names=["src/sub/", "docs/d.o"])[0] == ["docs/d.o", "src/sub", "src/sub/b.o", "src/sub/c"]
    got, answer = names(names=["none", "src/a.c"])
    assert got == ["src/a.c"] and answer["errors"] == [{"path": "none", "errno": 2, "errno_name": "ENOENT"}]
    assert names(exclude=["src/*"])[0] == [".", ".git", ".git/x", "docs", "docs/d.o", "src"]
    (base / "out").symlink_to("/etc")
    assert names(names=["out/passwd"])[0] == []
    for wrong in (["../x"], ["/etc"], [], ["a/../b"], [""]):
        with pytest.raises(hutch.Invalid):
            files("tar_out", path=tmp, names=wrong)
    with pytest.raises(hutch.IoFailed):
        files("tar_out", path=f"{tmp}/src/a.c")


# Hostile archives


def tar_of(*members):
    """members: (name, type, linkname, data)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, link, data in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size, member.mode = kind, link, len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


FILE, DIR, SYM, LNK, CHR, BLK = (
    tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE)


def test_nothing_lands_outside(files, tmp, inside):
    base = inside(tmp)
    (base / "victim").write_bytes(b"untouched")
    (base / "vdir").mkdir()
    hostile = {
        "dotdot": [("../victim", FILE, "", b"!")],
        "inner dotdot": [("a/../../victim", FILE, "", b"!")],
        "dotdot dir": [("..", DIR, "", b"")],
        "link then through it": [("l", SYM, f"{tmp}/vdir", b""), ("l/new", FILE, "", b"!")],
        "relative link": [("l", SYM, "../vdir", b""), ("l/new", FILE, "", b"!")],
        "link and dir": [("l", SYM, "../vdir", b""), ("l", DIR, "", b""), ("l/new", FILE, "", b"!")],
        "chain": [("d/l", SYM, "../..", b""), ("d/m", SYM, "l/vdir", b""), ("d/m/new", FILE, "", b"!")],
        "hard link out": [("h", LNK, "../victim", b""), ("h", FILE, "", b"!")],
        "absolute hard link": [("h", LNK, f"{tmp}/victim", b"")],
        "hard link through link": [("l", SYM, "..", b""), ("h", LNK, "l/victim", b"")],
        "dirs through link": [("l", SYM, "../vdir", b""), ("l/a/b", DIR, "", b"")],
        "link through link": [("l", SYM, "../vdir", b""), ("l/new", SYM, "x", b"")],
    }
    for n, (what, members) in enumerate(hostile.items()):
        target = f"{tmp}/t{n}"
        with pytest.raises((hutch.Invalid, hutch.Denied, hutch.NotFound)):
            files("tar_in", tar_of(*members), path=target, parents=True)
        assert (base / "victim").read_bytes() == b"untouched" and (base / "victim").stat().st_nlink == 1, what
        assert os.listdir(base / "vdir") == [], what
    files("tar_in", tar_of(("/etc/x", FILE, "", b"in")), path=f"{tmp}/abs", parents=True)
    assert (base / "abs/etc/x").read_bytes() == b"in"


def test_links_are_replaced_not_followed(files, tmp, inside):
    base = inside(tmp)
    (base / "victim").write_bytes(b"untouched")
    (base / "t").mkdir()
    (base / "t" / "f").symlink_to("../victim")
    os.link(base / "victim", base / "t" / "h")
    files("tar_in", tar_of(("f", FILE, "", b"new"), ("h", FILE, "", b"new")), path=f"{tmp}/t")
    assert (base / "victim").read_bytes() == b"untouched"
    assert not (base / "t/f").is_symlink() and (base / "t/h").read_bytes() == b"new"
    with pytest.raises(hutch.Exists):
        files("tar_in", tar_of(("f", FILE, "", b"x")), path=f"{tmp}/t", replace=False)
    (base / "t" / "lib").symlink_to("usr/lib")
    (base / "t" / "usr" / "lib").mkdir(parents=True)
    files("tar_in", tar_of(("lib", DIR, "", b""), ("lib/so", FILE, "", b"so")), path=f"{tmp}/t")
    assert (base / "t/lib").is_symlink() and (base / "t/usr/lib/so").read_bytes() == b"so"
    (base / "t" / "full" / "x").mkdir(parents=True)
    with pytest.raises(hutch.IoFailed):
        files("tar_in", tar_of(("full", FILE, "", b"x")), path=f"{tmp}/t")
    (base / "t" / "hollow").mkdir()
    files("tar_in", tar_of(("hollow", FILE, "", b"x")), path=f"{tmp}/t")
    assert (base / "t/hollow").read_bytes() == b"x"


def test_devices_are_left_out(files, tmp, inside):
    answer = files("tar_in", tar_of(("c", CHR, "", b""), ("b", BLK, "", b""), ("f", FILE, "", b"1")), path=tmp)
    assert answer.result == {"count": 1, "bytes": 1, "skipped": 2} and os.listdir(inside(tmp)) == ["f"]


def test_damaged_archives(rig, files, tmp, inside, tmp_path):
    """Cut anywhere or with any byte changed: an error or a result, never a hang, a crash or something outside."""
    base = inside(tmp)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"x" * 1000)
    with open(tmp_path / "s", "wb") as f:
        f.truncate(1 << 20)
        f.seek(4096)
        f.write(b"y" * 5000)
    (tmp_path / ("n" * 200)).write_bytes(b"")
    rnd = random.Random(78)
    for format in ("pax", "gnu"):
        archive = gnu_tar("-c", f"--format={format}", "-S", "-b1", "-C", str(tmp_path), ".")
        end = len(archive.rstrip(b"\0")) + 511
        for cut in [*range(0, end, 512), *(rnd.randrange(end) for _ in range(20))]:
            with pytest.raises(hutch.Invalid):
                files("tar_in", archive[:cut], path=f"{tmp}/cut", parents=True)
        for _ in range(150):
            damaged = bytearray(archive)
            for _ in range(rnd.randrange(1, 4)):
                at = rnd.randrange(end)
                damaged[at] = rnd.randrange(256)
            try:
                files("tar_in", bytes(damaged), path=f"{tmp}/damaged", parents=True)
            except (hutch.Invalid, hutch.IoFailed, hutch.Denied, hutch.NotFound, hutch.Exists):
                pass
    assert set(os.listdir(base)) <= {"cut", "damaged"}
    for wrong in (b"", b"not a tar archive" * 100, b"\0" * 512, b"\0" * 512 + b"x" * 512):
        with pytest.raises(hutch.Invalid, match="archive"):
            files("tar_in", wrong, path=tmp)
    assert files("tar_in", b"\0" * 1024, path=tmp).result == {"count": 0, "bytes": 0, "skipped": 0}


def test_a_client_that_vanishes_leaves_no_half_file(rig, tmp, inside):
    archive = tar_of(("whole", FILE, "", b"w" * 1000), ("half", FILE, "", b"h" * (1 << 20)))
    c = rig.connect()
    c.queue(c.session.call("fs.tar_in", {"path": tmp}, end=False) + c.session.stdin(archive[:500_000]))
    send_all(c)
    procs.eventually(lambda: inside(f"{tmp}/half").exists(), 10, "the file has begun")
    c.close()
    procs.eventually(lambda: not inside(f"{tmp}/half").exists(), 10, "it is gone")
    assert inside(f"{tmp}/whole").read_bytes() == b"w" * 1000


@pytest.mark.limit(120)
def test_many_small_files(files, tmp, inside):
    base = inside(tmp)
    for d in range(100):
        (base / "src" / f"d{d}").mkdir(parents=True)
        for f in range(30):
            (base / "src" / f"d{d}" / f"f{f}").write_bytes(b"%d %d" % (d, f))
    archive = files("tar_out", path=f"{tmp}/src")
    assert archive["count"] == 3101
    assert files("tar_in", bytes(archive.out), path=f"{tmp}/dst", parents=True)["count"] == 3101
    assert_same(base / "dst", base / "src")
