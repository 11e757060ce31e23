# SPDX-License-Identifier: Apache-2.0
"""fs.* on the agent as a plain process: reading, writing, names, confinement, and what never blocks (issue: files).

The rig and its fixtures are in fsrig.py.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import time

import pytest

import hutch
import procs
from fscall import Files
from hutch import wire
from fsrig import files, inside, rig, send_all, sha, tmp  # noqa: F401


CYCLE = bytes(range(256))


# Whole files


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 18433, 65528, 65536, 1048577, 67108864])
def test_c078_what_is_written_is_read(files, tmp, size):
    data = (CYCLE * (size // 256 + 1))[:size]
    answer = files.write(f"{tmp}/f", data, size=size, sha256=sha(data))
    assert answer.result == {"bytes": size, "created": True}
    assert files("stat", path=f"{tmp}/f")["size"] == size
    got = files("read", path=f"{tmp}/f")
    assert sha(got.out) == sha(data)
    assert got.result == {"bytes": size, "eof": True}
    assert got.events[0]["size"] == size and got.events[0]["mode"] == 0o644
    assert files("write", data, path=f"{tmp}/f")["created"] is False


def test_c078_a_range_of_a_large_sparse_file(rig, files, tmp, inside):
    size = 1 << 30
    with open(inside(f"{tmp}/big"), "wb") as f:
        f.truncate(size)
        f.seek(size - 4096)
        f.write(b"e" * 4096)
    got = files("read", path=f"{tmp}/big", offset=size - 5000, length=100000)
    assert got.out == b"\0" * 904 + b"e" * 4096
    assert got.result == {"bytes": 5000, "eof": True}
    assert files("read", path=f"{tmp}/big", offset=10, length=10).result == {"bytes": 10, "eof": False}
    assert files("read", path=f"{tmp}/big", offset=size + 1).result == {"bytes": 0, "eof": True}
    assert files("stat", path=f"{tmp}/big")["blocks"] == 8
    assert all(procs.rss_kib(p.pid) < 3000 for p in rig.children()) or procs.sanitized("hutch-agent")


def test_reading_ends_where_it_was_asked_to(files, tmp, inside):
    """A file that grows all the time is read to its size at the opening, and no further."""
    path = inside(f"{tmp}/log")
    path.write_bytes(b"x" * 200000)
    stop = threading.Event()

    def grow():
        with open(path, "ab") as f:
            while not stop.is_set():
                f.write(b"y" * 4096)
                f.flush()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _ in range(20):
            got = files("read", path=f"{tmp}/log")
            assert len(got.out) == got.events[0]["size"] == got["bytes"]
            assert files("read", path=f"{tmp}/log", length=70000)["bytes"] == 70000
            if path.stat().st_size > 64 << 20:
                path.write_bytes(b"x" * 100000)
    finally:
        stop.set()
        thread.join()


def test_files_without_a_size(files):
    assert files.read("/proc/self/stat").startswith(b"%d " % 0) is False
    status = files("read", path="/proc/version")
    assert status.out.startswith(b"Linux version") and status.events[0]["size"] == 0 and status["eof"]
    assert files("read", path="/proc/version", length=5).out == b"Linux"
    assert files.read("/sys/kernel/mm/transparent_hugepage/enabled").strip()


def test_c020_a_full_disk_leaves_the_old_file(rig, files, inside):
    inside("/mnt/t/f").write_bytes(b"old")
    before = files("statfs", path="/mnt/t").result
    for params in ({}, {"size": 16 << 20}):
        with pytest.raises(hutch.IoFailed) as info:
            files.write("/mnt/t/f", (b"n" * 65536 for _ in range(256)), **params)
        assert info.value.errno_name == "ENOSPC" and "/mnt/t/f" in info.value.path
        assert inside("/mnt/t/f").read_bytes() == b"old"
        assert os.listdir(inside("/mnt/t")) == ["f"]
        assert files("statfs", path="/mnt/t").result == before
    assert files.write("/mnt/t/f", b"new").result == {"bytes": 3, "created": False}


def test_c020_a_client_that_vanishes_leaves_the_old_file(rig, files, inside):
    inside("/mnt/t/f").write_bytes(b"old")
    free = files("statfs", path="/mnt/t")["free_bytes"]
    for cut in (0, 100, 65000):
        c = rig.connect()
        data = c.session.call("fs.write", {"path": "/mnt/t/f"}, end=False) + c.session.stdin(b"n" * (1 << 20))
        c.queue(data[: len(data) - cut])
        send_all(c)
        procs.eventually(lambda: files("statfs", path="/mnt/t")["free_bytes"] < free, 10, "bytes arrived")
        c.close()
        procs.eventually(lambda: files("statfs", path="/mnt/t")["free_bytes"] == free, 10, "they are gone")
        assert inside("/mnt/t/f").read_bytes() == b"old"
        assert os.listdir(inside("/mnt/t")) == ["f"]


def test_c030_mode_and_owner(files, tmp, inside):
    path = inside(f"{tmp}/f")
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.chown(path, 1000, 1000)
    files.write(f"{tmp}/f", b"new")
    st = path.stat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, path.read_bytes()) == (0o640, 1000, 1000, b"new")
    files.write(f"{tmp}/plain", b"")
    assert stat.S_IMODE(inside(f"{tmp}/plain").stat().st_mode) == 0o644
    files.write(f"{tmp}/script", b"", mode=0o755)
    assert stat.S_IMODE(inside(f"{tmp}/script").stat().st_mode) == 0o755
    files.write(f"{tmp}/f", b"3", mode=0o4711, uid=3)
    st = path.stat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (0o4711, 3, 1000)


def test_c030_links_to_the_file(files, tmp, inside):
    """A symbolic link is followed; a hard link keeps the old content under its other name."""
    base = inside(tmp)
    (base / "f").write_bytes(b"old")
    (base / "sym").symlink_to("f")
    os.link(base / "f", base / "hard")
    files.write(f"{tmp}/sym", b"new")
    assert (base / "sym").is_symlink() and (base / "f").read_bytes() == b"new"
    assert (base / "hard").read_bytes() == b"old"
    (base / "dangling").symlink_to("made")
    assert files.write(f"{tmp}/dangling", b"m")["created"]
    assert (base / "made").read_bytes() == b"m" and (base / "dangling").is_symlink()
    (base / "loop").symlink_to("loop")
    with pytest.raises(hutch.IoFailed) as info:
        files.write(f"{tmp}/loop", b"")
    assert info.value.errno_name == "ELOOP"


def test_conditions_of_a_write(files, tmp, inside):
    path, target = f"{tmp}/f", inside(f"{tmp}/f")
    assert files.write(path, b"one", if_absent=True)["created"]
    with pytest.raises(hutch.Exists):
        files.write(path, b"two", if_absent=True)
    with pytest.raises(hutch.WrongState):
        files.write(path, b"two", if_size=4)
    with pytest.raises(hutch.WrongState):
        files.write(path, b"two", if_sha256=sha(b"other"))
    for params in ({"size": 4}, {"size": 2}, {"sha256": sha(b"other")}):
        with pytest.raises(hutch.Invalid):
            files.write(path, b"two", **params)
    assert target.read_bytes() == b"one" and os.listdir(target.parent) == ["f"]
    files.write(path, b"two", if_size=3, if_sha256=sha(b"one"), size=3, sha256=sha(b"two"), sync="all")
    assert target.read_bytes() == b"two"
    with pytest.raises(hutch.NotFound):
        files.write(f"{tmp}/none", b"", if_size=0)
    for wrong in (
        {"offset": 1},
        {"truncate": True},
        {"atomic": False, "sha256": sha(b"")},
        {"if_absent": True, "if_size": 1},
        {"mode": 0o10000},
        {"sync": "disk"},
        {"sha256": "x" * 64},
        {"root": "relative"},
    ):
        with pytest.raises(hutch.Invalid):
            files.write(path, b"", **wrong)
    assert target.read_bytes() == b"two"


def test_if_absent_has_one_winner(rig, tmp, inside):
    def race(i):
        with rig.connect() as c:
            try:
                Files(c).write(f"{tmp}/one", b"%d" % i, if_absent=True)
                return i
            except hutch.Exists:
                return None

    results = [None] * 8
    threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, race(i))) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    winners = [r for r in results if r is not None]
    assert len(winners) == 1 and inside(f"{tmp}/one").read_bytes() == b"%d" % winners[0]
    assert os.listdir(inside(tmp)) == ["one"]


def test_writes_in_place(files, tmp, inside):
    path, target = f"{tmp}/f", inside(f"{tmp}/f")
    target.write_bytes(b"0123456789")
    inode = target.stat().st_ino
    files.write(path, b"AB", atomic=False, offset=3)
    assert target.read_bytes() == b"012AB56789"
    files.write(path, b"CD", atomic=False, offset=3, truncate=True)
    assert target.read_bytes() == b"012CD"
    files.write(path, b"E", atomic=False, truncate=False)
    assert target.read_bytes() == b"E12CD"
    files.write(path, b"F", atomic=False)
    assert target.read_bytes() == b"F" and target.stat().st_ino == inode
    assert files.write(f"{tmp}/new", b"n", atomic=False, mode=0o600, uid=7)["created"]
    st = inside(f"{tmp}/new").stat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid) == (0o600, 7)
    files.write("/proc/self/oom_score_adj", b"0", atomic=False)


def test_append(files, rig, tmp, inside):
    assert files("append", b"one\n", path=f"{tmp}/d/log", parents=True).result == {
        "bytes": 4, "size": 4, "created": True}
    assert files("append", b"two\n", path=f"{tmp}/d/log").result == {"bytes": 4, "size": 8, "created": False}
    assert inside(f"{tmp}/d/log").read_bytes() == b"one\ntwo\n"

    def write(i):
        with rig.connect() as c:
            for n in range(50):
                Files(c)("append", b"%d %d\n" % (i, n), path=f"{tmp}/lines")

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    lines = inside(f"{tmp}/lines").read_text().splitlines()
    assert len(lines) == 200 and all([l for l in lines if l.startswith(f"{i} ")] == [f"{i} {n}" for n in range(50)] for i in range(4))


# Names


def test_stat_exists_readlink(files, tmp, inside):
    base = inside(tmp)
    (base / "f").write_bytes(b"12345")
    os.utime(base / "f", ns=(1_500_000_000_123456789, 1_600_000_000_987654321))
    (base / "l").symlink_to("f")
    (base / "gone").symlink_to("nowhere")
    os.mkfifo(base / "p")
    record = files("stat", path=f"{tmp}/f").result
    assert record["type"] == "file" and record["size"] == 5 and record["nlink"] == 1
    assert record["mtime_ns"] == 1_600_000_000_987654321 and record["atime_ns"] == 1_500_000_000_123456789
    assert record["ino"] == (base / "f").stat().st_ino and "target" not in record
    assert files("stat", path=f"{tmp}/l").result == files("stat", path=f"{tmp}/f").result
    link = files("stat", path=f"{tmp}/l", follow=False).result
    assert link["type"] == "link" and link["target"] == "f"
    assert files("stat", path=f"{tmp}/p")["type"] == "fifo"
    assert files("stat", path="/dev/null")["type"] == "char" and files("stat", path="/")["type"] == "dir"
    assert files("readlink", path=f"{tmp}/gone")["target"] == "nowhere"
    assert files("exists", path=f"{tmp}/f").result == {"exists": True, "type": "file"}
    assert files("exists", path=f"{tmp}/gone").result == {"exists": False}
    assert files("exists", path=f"{tmp}/gone", follow=False).result == {"exists": True, "type": "link"}
    assert files("exists", path=f"{tmp}/f/x").result == {"exists": False}
    with pytest.raises(hutch.NotFound) as info:
        files("stat", path=f"{tmp}/none")
    assert info.value.path == f"{tmp}/none" and info.value.errno_name == "ENOENT"
    assert files("stat", path=f"{tmp}/f/x/..".replace("/f/x/..", "/./l/../f").replace("/l/..", ""))["type"] == "file"


def test_names_are_bytes(files, tmp, inside):
    name = os.fsencode(tmp) + b"/\xff\xfe \n\x01caf\xc3\xa9"
    assert files("write", b"x", path=name)["created"]
    assert os.listdir(os.fsencode(str(inside(tmp)))) == [name.rsplit(b"/")[-1]]
    found, _ = files.list(tmp)
    assert list(found) == [name.rsplit(b"/")[-1]]
    assert bytes(files("read", path=name).out) == b"x"
    files("symlink", path=f"{tmp}/l", target=b"\xff")
    assert files("readlink", path=f"{tmp}/l")["target"] == b"\xff"
    with pytest.raises(hutch.Invalid):
        files("stat", path="a\0b")
    for path in ("", "x" * 4096):
        with pytest.raises(hutch.Invalid):
            files("stat", path=path)
    with pytest.raises(hutch.IoFailed) as info:
        files("stat", path="/" + "x" * 300)
    assert info.value.errno_name == "ENAMETOOLONG"


def test_mkdir(files, tmp, inside):
    assert files("mkdir", path=f"{tmp}/a").result == {"created": True}
    assert stat.S_IMODE(inside(f"{tmp}/a").stat().st_mode) == 0o755
    with pytest.raises(hutch.Exists):
        files("mkdir", path=f"{tmp}/a")
    assert files("mkdir", path=f"{tmp}/a", parents=True).result == {"created": False}
    with pytest.raises(hutch.NotFound):
        files("mkdir", path=f"{tmp}/b/c/d")
    assert files("mkdir", path=f"{tmp}/b/c/d/", parents=True, mode=0o1777).result == {"created": True}
    assert stat.S_IMODE(inside(f"{tmp}/b/c/d").stat().st_mode) == 0o1777
    assert stat.S_IMODE(inside(f"{tmp}/b/c").stat().st_mode) == 0o755
    inside(f"{tmp}/f").write_bytes(b"")
    for params in ({}, {"parents": True}):
        with pytest.raises(hutch.Exists):
            files("mkdir", path=f"{tmp}/f", **params)


def test_remove(files, tmp, inside):
    base = inside(tmp)
    (base / "d" / "e").mkdir(parents=True)
    (base / "d" / "e" / "f").write_bytes(b"")
    (base / "outside").mkdir()
    (base / "outside" / "kept").write_bytes(b"")
    (base / "d" / "l").symlink_to("../outside")
    os.mkfifo(base / "d" / "p")
    with pytest.raises(hutch.IoFailed) as info:
        files("remove", path=f"{tmp}/d")
    assert info.value.errno_name == "ENOTEMPTY"
    assert files("remove", path=f"{tmp}/d", recursive=True)["removed"] == 5
    assert not (base / "d").exists() and (base / "outside" / "kept").exists()
    (base / "l").symlink_to("outside")
    assert files("remove", path=f"{tmp}/l", recursive=True)["removed"] == 1
    assert (base / "outside" / "kept").exists()
    with pytest.raises(hutch.NotFound):
        files("remove", path=f"{tmp}/d")
    assert files("remove", path=f"{tmp}/d", missing_ok=True)["removed"] == 0
    assert files("remove", path=f"{tmp}/no/such/dir", missing_ok=True)["removed"] == 0
    for path in ("/", "/mnt/..", "."):
        with pytest.raises(hutch.Invalid):
            files("remove", path=path, recursive=True)
    with pytest.raises(hutch.Invalid):
        files("remove", path=tmp, root=tmp, recursive=True)
    (base / "empty").mkdir()
    assert files("remove", path=f"{tmp}/empty")["removed"] == 1


def test_move_and_links(files, tmp, inside):
    base = inside(tmp)
    (base / "a").write_bytes(b"a")
    (base / "b").write_bytes(b"b")
    with pytest.raises(hutch.Exists) as info:
        files("move", path=f"{tmp}/a", to=f"{tmp}/b", replace=False)
    assert info.value.path == f"{tmp}/b"
    files("move", path=f"{tmp}/a", to=f"{tmp}/b")
    assert os.listdir(base) == ["b"] and (base / "b").read_bytes() == b"a"
    files("move", path=f"{tmp}/b", to=f"{tmp}/new/place", parents=True)
    assert (base / "new" / "place").read_bytes() == b"a"
    with pytest.raises(hutch.IoFailed) as info:
        files("move", path=f"{tmp}/new/place", to="/mnt/t/x")
    assert info.value.errno_name == "EXDEV"
    with pytest.raises(hutch.NotFound):
        files("move", path=f"{tmp}/none", to=f"{tmp}/x")
    files("link", path=f"{tmp}/new/place", to=f"{tmp}/hard")
    assert (base / "hard").stat().st_nlink == 2
    files("symlink", path=f"{tmp}/soft", target="new/place")
    assert (base / "soft").read_bytes() == b"a"
    for method, params in (("symlink", {"target": "x"}), ("link", {"to": f"{tmp}/hard", "path": f"{tmp}/new/place"})):
        with pytest.raises(hutch.Exists):
            files(method, **{"path": f"{tmp}/soft", **params})


def test_attributes(files, tmp, inside):
    base = inside(tmp)
    (base / "d" / "e").mkdir(parents=True)
    (base / "d" / "f").write_bytes(b"")
    (base / "victim").write_bytes(b"")
    (base / "d" / "l").symlink_to("../victim")
    files("chmod", path=f"{tmp}/d", mode=0o700, recursive=True)
    assert all(stat.S_IMODE((base / p).stat().st_mode) == 0o700 for p in ("d", "d/e", "d/f"))
    assert stat.S_IMODE((base / "victim").stat().st_mode) != 0o700
    files("chown", path=f"{tmp}/d", uid=5, recursive=True)
    assert [(base / p).lstat().st_uid for p in ("d", "d/e", "d/f", "d/l", "victim")] == [5, 5, 5, 5, 0]
    files("chown", path=f"{tmp}/d/l", gid=6)
    assert ((base / "victim").stat().st_gid, (base / "d/l").lstat().st_gid) == (6, 0)
    files("chown", path=f"{tmp}/d/l", gid=7, follow=False)
    assert ((base / "victim").stat().st_gid, (base / "d/l").lstat().st_gid) == (6, 7)
    files("chown", path=f"{tmp}/d/f", owner="daemon:daemon")
    assert (base / "d/f").stat().st_uid == 1
    for wrong in ({}, {"owner": "root", "uid": 1}, {"owner": "nobody-of-that-name"}, {"uid": 2**32 - 1}):
        with pytest.raises(hutch.Invalid):
            files("chown", path=f"{tmp}/d/f", **wrong)
    files("utimes", path=f"{tmp}/d/f", mtime_ns=10**18 + 7)
    assert (base / "d/f").stat().st_mtime_ns == 10**18 + 7
    before = (base / "d/f").stat().st_atime_ns
    files("utimes", path=f"{tmp}/d/f", mtime_ns=0)
    assert ((base / "d/f").stat().st_mtime_ns, (base / "d/f").stat().st_atime_ns) == (0, before)
    files("utimes", path=f"{tmp}/d/f")
    assert abs((base / "d/f").stat().st_mtime - time.time()) < 60


def test_list(files, tmp, inside):
    base = inside(tmp)
    (base / "a" / "b" / "c").mkdir(parents=True)
    (base / "a" / "f").write_bytes(b"123")
    (base / "a" / "b" / "l").symlink_to("../f")
    os.mkfifo(base / "a" / "p")
    found, result = files.list(f"{tmp}/a")
    assert set(found) == {"b", "f", "p"} and result == {"count": 3, "errors": [], "error_count": 0}
    assert found["f"]["size"] == 3 and found["b"]["type"] == "dir" and found["p"]["type"] == "fifo"
    found, result = files.list(tmp, depth=0, stat=False)
    assert {p: e["type"] for p, e in found.items()} == {
        "a": "dir", "a/b": "dir", "a/f": "file", "a/p": "fifo", "a/b/c": "dir", "a/b/l": "link"}
    assert all(set(e) == {"path", "type"} for e in found.values())
    order = list(found)
    assert all(order.index(os.path.dirname(p)) < order.index(p) for p in order if "/" in p)
    assert set(files.list(tmp, depth=2)[0]) == {"a", "a/b", "a/f", "a/p"}
    (base / "link").symlink_to("a")
    assert set(files.list(f"{tmp}/link")[0]) == {"b", "f", "p"}
    for path, name in ((f"{tmp}/a/f", "ENOTDIR"), (f"{tmp}/none", "ENOENT")):
        with pytest.raises(hutch.HutchError) as info:
            files.list(path)
        assert info.value.errno_name == name


@pytest.mark.limit(120)
def test_a_directory_of_100000_entries(rig, files, tmp, inside):
    base = inside(tmp)
    for i in range(100_000):
        os.close(os.open(base / f"file{i:06}", os.O_CREAT | os.O_WRONLY))
    with rig.connect() as other:
        found, result = files.list(tmp)
        start = time.monotonic()
        other.call("ping", timeout_seconds=5)
        assert time.monotonic() - start < 1
    assert len(found) == result["count"] == 100_000
    assert rig.rss_kib() < 3000 or procs.sanitized("hutch-agent")
    assert files("remove", path=tmp, recursive=True)["removed"] == 100_001


def test_a_very_deep_tree(files, tmp, inside):
    """Deeper than PATH_MAX can say: made with descriptors, listed and removed by the agent."""
    fd = os.open(inside(tmp), os.O_DIRECTORY)
    for _ in range(600):
        os.mkdir("d" * 20, dir_fd=fd)
        deeper = os.open("d" * 20, os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)
    found, result = files.list(tmp, depth=0, stat=False)
    assert result["count"] == 600 and max(map(len, found)) == 600 * 21 - 1
    assert files("remove", path=f"{tmp}/{'d' * 20}", recursive=True)["removed"] == 600


def test_statfs(files):
    got = files("statfs", path="/mnt/t").result
    assert got["total_bytes"] == 8 << 20 and got["block_size"] == 4096
    assert 0 < got["free_bytes"] <= got["total_bytes"] and got["free_inodes"] <= got["inodes"]


def test_copy(files, tmp, inside):
    base = inside(tmp)
    src = base / "src"
    (src / "d").mkdir(parents=True)
    (src / "d").chmod(0o751)
    (src / "f").write_bytes(b"data")
    os.chown(src / "f", 12, 34)
    (src / "f").chmod(0o4755)
    os.link(src / "f", src / "d" / "same")
    (src / "l").symlink_to("/etc/passwd")
    os.mkfifo(src / "p")
    with open(src / "holes", "wb") as f:
        f.truncate(1 << 20)
        f.seek(1 << 19)
        f.write(b"x" * 4096)
    os.utime(src / "d", ns=(10**18, 10**18 + 5))
    answer = files("copy", path=f"{tmp}/src", to=f"{tmp}/made/dst", recursive=True, parents=True)
    dst = base / "made" / "dst"
    assert answer["count"] == 7 and answer["bytes"] == 4 + 4096
    assert (dst / "f").stat().st_ino == (dst / "d" / "same").stat().st_ino
    st = (dst / "f").stat()
    assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (12, 34, 0o4755)
    assert os.readlink(dst / "l") == "/etc/passwd" and stat.S_ISFIFO((dst / "p").lstat().st_mode)
    assert (dst / "holes").stat().st_blocks == 8 and (dst / "holes").read_bytes() == (src / "holes").read_bytes()
    assert stat.S_IMODE((dst / "d").stat().st_mode) == 0o751 and (dst / "d").stat().st_mtime_ns == 10**18 + 5
    with pytest.raises(hutch.Exists):
        files("copy", path=f"{tmp}/src", to=f"{tmp}/made/dst", recursive=True, replace=False)
    files("copy", path=f"{tmp}/src", to=f"{tmp}/made/dst", recursive=True)
    assert files("copy", path=f"{tmp}/src/f", to=f"{tmp}/one", preserve=False).result == {"bytes": 4, "count": 1}
    assert ((base / "one").stat().st_uid, stat.S_IMODE((base / "one").stat().st_mode)) == (0, 0o755)
    with pytest.raises(hutch.IoFailed) as info:
        files("copy", path=f"{tmp}/src", to=f"{tmp}/x")
    assert info.value.errno_name == "EISDIR"
    for to in ("src/d/inner", "src"):
        with pytest.raises(hutch.Invalid):
            files("copy", path=f"{tmp}/src", to=f"{tmp}/{to}", recursive=True)
    assert files("copy", path="/proc/version", to=f"{tmp}/v")["bytes"] > 10


# Users


def test_users(files, tmp, inside):
    base = inside(tmp)
    base.chmod(0o755)
    (base / "secret").write_bytes(b"s")
    (base / "secret").chmod(0o600)
    (base / "home").mkdir()
    os.chown(base / "home", 1000, 1000)
    for call in (
        lambda: files("read", path=f"{tmp}/secret", user="1000:1000"),
        lambda: files.write(f"{tmp}/secret", b"", user="1000:1000"),
        lambda: files.write(f"{tmp}/secret", b"", user="1000:1000", atomic=False),
        lambda: files.write(f"{tmp}/other", b"", user="1000:1000"),
        lambda: files("remove", path=f"{tmp}/secret", user="1000:1000"),
        lambda: files.write(f"{tmp}/home/x", b"", user="1000:1000", uid=0),
        lambda: files.write("/proc/sys/kernel/hostname", b"x", user="1000:1000", atomic=False),
    ):
        with pytest.raises(hutch.Denied):
            call()
    assert (base / "secret").read_bytes() == b"s"
    files.write(f"{tmp}/home/mine", b"m", user="1000:1001")
    st = (base / "home" / "mine").stat()
    assert (st.st_uid, st.st_gid) == (1000, 1001)
    assert files.read(f"{tmp}/secret") == b"s", "the next call is the agent's own again"
    with pytest.raises(hutch.Invalid):
        files("stat", path="/", user="nobody-of-that-name")
    (base / "home" / "readonly").write_bytes(b"r")
    os.chown(base / "home" / "readonly", 1000, 1000)
    (base / "home" / "readonly").chmod(0o444)
    with pytest.raises(hutch.Denied):
        files.write(f"{tmp}/home/readonly", b"", user="1000")


# Confinement


def test_c018_nothing_leads_out_of_the_root(files, tmp, inside):
    base = inside(tmp)
    ws, out = base / "ws", base / "out"
    ws.mkdir()
    out.mkdir()
    (out / "victim").write_bytes(b"untouched")
    r, root = f"{tmp}/ws", {"root": f"{tmp}/ws"}
    (ws / "n").symlink_to(f"{tmp}/out/victim")
    (ws / "rel").symlink_to("../out/victim")
    (ws / "d").symlink_to(f"{tmp}/out/new")
    (ws / "e").symlink_to("/")
    (ws / "up").symlink_to("..")
    (ws / "real").write_bytes(b"real")
    (ws / "in").symlink_to(f"{tmp}/ws/real")
    (ws / "sub").mkdir()
    (ws / "sub" / "back").symlink_to("../real")
    (ws / "abs").symlink_to(f"{tmp}/ws/sub")
    bad = ["n", "rel", "d", "e/tmp/x", "e", "up/out/victim", "../out/victim", "sub/../../out/victim", "abs/../../out/victim"]
    for path in bad:
        for given in (f"{r}/{path}", path):
            for call in (
                lambda: files.write(given, b"!", **root),
                lambda: files.write(given, b"!", atomic=False, **root),
                lambda: files("append", b"!", path=given, **root),
                lambda: files("read", path=given, **root),
                lambda: files("stat", path=given, **root),
                lambda: files("list", path=given, **root),
                lambda: files("chmod", path=given, mode=0, **root),
                lambda: files("chown", path=given, uid=9, **root),
                lambda: files("utimes", path=given, **root),
                lambda: files("watch", path=given, **root),
                lambda: files("tar_out", path=given, **root),
                lambda: files("tar_in", b"", path=given, **root),
                lambda: files("mkdir", path=f"{given}/x/y", parents=True, **root),
                lambda: files("copy", path="real", to=f"{given}/x", **root),
                lambda: files("move", path=f"{given}/x", to="real2", **root),
            ):
                with pytest.raises(hutch.Denied) as info:
                    call()
                assert info.value.errno_name == "EXDEV", given
    for given in (f"{r}/../etc/passwd", "/etc/passwd", f"{r}x/f", "..", f"{tmp}"):
        with pytest.raises(hutch.Denied):
            files("read", path=given, **root)
    assert (out / "victim").read_bytes() == b"untouched" and os.listdir(out) == ["victim"]
    assert stat.S_IMODE((out / "victim").stat().st_mode) & 0o400 and (out / "victim").stat().st_uid == 0
    for good in ("in", f"{r}/in", "sub/back", "abs/back", "./sub/../in", f"{r}//sub/./back", "abs/../real"):
        assert files.read(good, **root) == b"real"
        files.write(good, b"real", **root)
    assert (ws / "in").is_symlink() and (ws / "abs").is_symlink()
    assert files("stat", path=r, **root)["type"] == "dir" and files("stat", path=".", **root)["type"] == "dir"
    assert files("readlink", path="n", **root)["target"] == f"{tmp}/out/victim"
    assert files("remove", path="n", **root)["removed"] == 1 and (out / "victim").exists()
    assert set(files.list(".", depth=0, **root)[0]) >= {"in", "sub", "sub/back", "e"}


@pytest.mark.limit(120)
def test_c018_races_do_not_lead_out(files, tmp, inside):
    """While a name flips between a directory and a link that leads out, nothing outside is ever reached."""
    base = inside(tmp)
    (base / "ws" / "dir").mkdir(parents=True)
    (base / "out").mkdir()
    (base / "out" / "f").write_bytes(b"secret")
    (base / "ws" / "dir" / "f").write_bytes(b"inside")
    (base / "ws" / "link").symlink_to(f"{tmp}/out")
    stop = threading.Event()
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def flip():
        a, b = os.fsencode(str(base / "ws/dir")), os.fsencode(str(base / "ws/link"))
        while not stop.is_set():
            libc.renameat2(-100, a, -100, b, 2)  # RENAME_EXCHANGE

    thread = threading.Thread(target=flip)
    thread.start()
    seen = set()
    try:
        for i in range(1500):
            name = ("dir/f", "link/f")[i % 2]
            try:
                seen.add(files.read(name, root=f"{tmp}/ws"))
                if i % 3 == 0:
                    files.write(name, b"inside", root=f"{tmp}/ws")
                if i % 50 == 0:
                    files("remove", path=f"{name}x", missing_ok=True, root=f"{tmp}/ws")
            except (hutch.Denied, hutch.NotFound, hutch.IoFailed) as e:
                seen.add(e.errno_name)
    finally:
        stop.set()
        thread.join()
    assert b"inside" in seen and "EXDEV" in seen and b"secret" not in seen
    assert (base / "out" / "f").read_bytes() == b"secret" and os.listdir(base / "out") == ["f"]


# What must not block


def test_c027_special_files(rig, files, tmp, inside):
    base = inside(tmp)
    os.mkfifo(base / "p")
    (base / "d").mkdir()
    os.mkfifo(base / "d" / "q")
    for path in (f"{tmp}/p", "/dev/zero", "/dev/null"):
        for call in (
            lambda: files("read", path=path),
            lambda: files("read", path=path, length=10),
            lambda: files.write(path, b"x"),
            lambda: files.write(path, b"x", atomic=False),
            lambda: files("append", b"x", path=path),
        ):
            start = time.monotonic()
            with pytest.raises(hutch.Invalid, match="not a regular file"):
                call()
            assert time.monotonic() - start < 1
    assert set(files.list(tmp, depth=0)[0]) == {"p", "d", "d/q"}
    assert files("stat", path=f"{tmp}/p")["type"] == "fifo"
    assert files("copy", path=f"{tmp}/d", to=f"{tmp}/e", recursive=True)["count"] == 2
    assert files("remove", path=f"{tmp}/e", recursive=True)["removed"] == 2
    start = time.monotonic()
    assert rig.sandbox.exec(["echo", "ok"]).stdout == "ok\n" and time.monotonic() - start < 1


@pytest.mark.limit(120)
def test_reading_a_file_that_is_cut(rig, tmp, inside):
    """It ends, as short or with an error, and the connection is as good as before."""
    path = inside(f"{tmp}/cut")
    for _ in range(3):
        path.write_bytes(b"x" * (8 << 20))
        with rig.connect() as c:
            c.queue(c.session.call("fs.read", {"path": f"{tmp}/cut"}))
            c.send_some()
            select.select([c], [], [])  # the rest waits for this reader
            path.write_bytes(b"")
            out, end = b"", None
            while end is None:
                select.select([c], [], [])
                for r in c.receive_some():
                    if isinstance(r, wire.Output):
                        out += r.data
                    elif isinstance(r, (wire.Result, wire.Failure)):
                        end = r
            if isinstance(end, wire.Result):
                assert end.fields["eof"] and end.fields["bytes"] == len(out) < 8 << 20
            else:
                assert "cut meanwhile" in str(end) and len(out) < 8 << 20
            assert not out.rstrip(b"\0").strip(b"x")
            c.call("ping")


def test_a_call_that_hangs_stops_nobody(rig, files, tmp, inside):
    """64 readers that do not read: the agent answers others, refuses the 65th, and is free when they have gone."""
    with open(inside(f"{tmp}/big"), "wb") as f:
        f.truncate(16 << 20)
    stalled = []
    for _ in range(64):
        c = rig.connect()
        c.queue(c.session.call("fs.read", {"path": f"{tmp}/big"}))
        assert c.send_some()
        stalled.append(c)

    def refused():
        try:
            files("stat", path="/")
            return False
        except hutch.Busy:
            return True

    # not by calls: one of them might take the place of a reader
    procs.eventually(lambda: len([p for p in rig.children() if p.name == "hutch-fs"]) == 64, 40, "64 workers run")
    assert refused()
    with rig.connect() as other:
        other.call("ping", timeout_seconds=5)
    assert rig.sandbox.exec(["echo", "ok"]).stdout == "ok\n"
    for c in stalled:
        c.close()
    procs.eventually(lambda: not refused(), 10, "a worker is free")
    procs.eventually(lambda: len([p for p in rig.children() if p.name == "hutch-fs"]) <= 2, 20, "the rest have gone")


def test_a_worker_that_dies_costs_its_call_alone(rig, files, tmp, inside):
    with open(inside(f"{tmp}/big"), "wb") as f:
        f.truncate(16 << 20)
    c = rig.connect()
    c.queue(c.session.call("fs.read", {"path": f"{tmp}/big"}))
    assert c.send_some()
    select.select([c], [], [])
    for p in rig.children():
        if p.name == "hutch-fs":
            os.kill(p.pid, 9)
    with pytest.raises(hutch.OutcomeUnknown):
        while True:
            select.select([c], [], [])
            c.receive_some()
    c.close()
    assert files("stat", path="/")["type"] == "dir"
    assert rig.sandbox.exec(["echo", "ok"]).stdout == "ok\n"


# The connection


def test_one_connection_for_all(rig, files, tmp):
    """Calls of all kinds follow each other on one connection, after errors in mid-input too."""
    for i in range(30):
        files.write(f"{tmp}/f", b"x" * (i * 5000))
        with pytest.raises(hutch.NotFound):
            files.write(f"{tmp}/none/f", b"y" * (i * 9000))
        files.connection.call("ping")
        assert len(files.read(f"{tmp}/f")) == i * 5000
        with pytest.raises(hutch.Invalid):
            files("stat")


def test_input_in_the_smallest_pieces(rig, tmp, inside):
    """Frames cut anywhere, empty frames, acknowledgements among them, and a byte at a time."""
    c = rig.connect()
    s = c.session
    data = s.call("fs.write", {"path": f"{tmp}/f"}, end=False)
    for i in range(40):
        data += s.stdin(bytes([i]) * (i % 7)) + s.event({"event": "ack", "stdout": i})
    data += s.stdin(b"", end=True)
    for i in range(len(data)):
        c.queue(data[i : i + 1])
        send_all(c)
    got = []
    while not any(isinstance(r, (hutch.wire.Result, hutch.wire.Failure)) for r in got):
        select.select([c], [], [])
        got += c.receive_some()
    want = b"".join(bytes([i]) * (i % 7) for i in range(40))
    assert got[-1].fields == {"bytes": len(want), "created": True}
    assert inside(f"{tmp}/f").read_bytes() == want
    assert c.call("ping") == {}
    c.close()


def test_a_broken_frame_ends_the_connection_alone(rig, files, tmp, inside):
    c = rig.connect()
    c.queue(c.session.call("fs.write", {"path": f"{tmp}/f"}, end=False) + c.session.stdin(b"abc") + b"\0\0\0\0\x63\0\0\0")
    assert c.send_some()
    with pytest.raises(hutch.HutchError) as info:
        while True:
            select.select([c], [], [])
            for got in c.receive_some():
                if isinstance(got, hutch.wire.Failure):
                    raise got.error
    assert info.value.kind == "protocol"
    c.close()
    assert os.listdir(inside(tmp)) == [] and files("stat", path="/")["type"] == "dir"


def test_nothing_is_left_of_all_this(rig):
    procs.eventually(lambda: len(rig.children()) <= 1, 20, "one idle worker at most")
    procs.eventually(lambda: rig.fd_count() < 20, 10, "descriptors closed")
    assert rig.rss_kib() < 2048 or procs.sanitized("hutch-agent")
