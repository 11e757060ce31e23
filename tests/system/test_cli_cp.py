# SPDX-License-Identifier: Apache-2.0
"""hutch cp against a callee that is scripted here, for what no agent does; and against the agent, for what it does."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import socket
import stat
import subprocess
import tarfile
import threading
from pathlib import Path

import procs
import pytest
from brokerrig import BrokerRig
from fakepeer import FakePeer, error_frame, event_frame, result_frame
from hutch import wire
from terminal import hutch

PIECE = 65536


class Guest:
    """Files of a VM that does not exist: what fs.stat, fs.read and fs.tar_out say, and what fs.write and fs.tar_in got."""

    def __init__(self, files=(), tar=b"", error=None, dirs=(), stop_after=None, lose=False):
        self.lose = lose
        self.files = dict(files)
        self.dirs = set(dirs)
        self.tar = tar
        self.error = error
        self.stop_after = stop_after
        self.calls = []
        self.got = {}
        self.waiting = threading.Event()
        self.peer = FakePeer(self.serve)

    def serve(self, peer, _number):
        while (call := peer.call()) is not None:
            self.calls.append(call)
            self.answer(peer, call["method"], call.get("params", {}), call)

    def send_data(self, peer, data):
        for at in range(0, len(data), PIECE):
            peer.send(wire.encode_frame(wire.STDOUT, data[at : at + PIECE]))
            if self.stop_after is not None and at >= self.stop_after:
                self.waiting.set()
                if self.lose:
                    peer.sock.shutdown(socket.SHUT_RDWR)
                peer.until_closed()
                return

    def answer(self, peer, method, params, call):
        path = params.get("path")
        path = path.decode() if isinstance(path, bytes) else path
        if method == "fs.stat":
            if path in self.dirs:
                peer.send(result_frame({"type": "dir", "mode": 0o755, "size": 0}))
            elif path in self.files:
                data = self.files[path]
                peer.send(result_frame({"type": "file", "mode": 0o4751, "size": len(data), "mtime_ns": 1234567890123456789}))
            else:
                peer.send(error_frame("not_found", f"there is no {path}"))
        elif self.error and method == self.error[0]:
            peer.send(error_frame(*self.error[1:]))
            peer.stdin() if not call["end"] else None
        elif method == "fs.read":
            peer.send(event_frame("file", size=len(self.files[path])))
            self.send_data(peer, self.files[path])
            peer.send(result_frame({"bytes": len(self.files[path]), "eof": True}))
        elif method == "fs.tar_out":
            self.send_data(peer, self.tar)
            peer.send(result_frame({"count": 1, "bytes": len(self.tar), "errors": []}))
        elif method in ("fs.write", "fs.tar_in"):
            self.got[method] = peer.stdin()
            peer.send(result_frame({"bytes": len(self.got[method]), "created": True, "count": 1, "skipped": 0}))
        else:
            peer.send(result_frame({}))

    def params(self, method):
        return [c.get("params", {}) for c in self.calls if c["method"] == method]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.peer.close()


def cp(guest, *args, **more):
    argv = hutch("--socket", guest.peer.path, "cp", *args)
    return subprocess.run(argv, capture_output=True, timeout=60, **more)


def archive(*members, end=True):
    """A tar of (name, type, link or content, mode)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape") as t:
        for name, kind, content, *mode in members:
            m = tarfile.TarInfo(name)
            m.type = kind
            m.mode = mode[0] if mode else 0o644
            m.mtime = 1111111111
            if kind == tarfile.REGTYPE:
                m.size = len(content)
            elif content:
                m.linkname = content
            t.addfile(m, io.BytesIO(content) if kind == tarfile.REGTYPE else None)
    return out.getvalue() if end else out.getvalue().rstrip(b"\0")


DIR = (tarfile.DIRTYPE, "", 0o755)


# Files


def test_file_in(tmp_path):
    data = os.urandom(300000)
    (tmp_path / "f").write_bytes(data)
    os.chmod(tmp_path / "f", 0o4750)
    os.utime(tmp_path / "f", ns=(5, 1700000000123456789))
    with Guest(dirs=["/d"], files={"/old": b"x"}) as g:
        assert cp(g, tmp_path / "f", "vm:/new").returncode == 0
        assert g.got["fs.write"] == data
        assert g.params("fs.write")[-1] == {"path": "/new", "size": 300000, "mode": 0o750}
        assert g.params("fs.utimes")[-1] == {"path": "/new", "mtime_ns": 1700000000123456789}
        assert cp(g, tmp_path / "f", "vm:/d").returncode == 0
        assert g.params("fs.write")[-1]["path"] == "/d/f"
        assert cp(g, "-u", "nobody", tmp_path / "f", "vm:/old").returncode == 0
        assert g.params("fs.write")[-1] == {"path": "/old", "size": 300000, "user": "nobody"}  # its mode stays
        assert cp(g, "--setid", "-p", tmp_path / "f", "vm:/new").returncode == 0
        assert g.params("fs.write")[-1] == {"path": "/new", "size": 300000, "mode": 0o4750, "parents": True}
        r = cp(g, tmp_path / "f", "vm:/nodir/")
        assert r.returncode == 1 and b"no directory" in r.stderr
        r = cp(g, tmp_path / "absent", "vm:/x")
        assert r.returncode == 1 and b"absent" in r.stderr


def test_stdin_in():
    with Guest(dirs=["/d"]) as g:
        assert cp(g, "-", "vm:/new", input=b"typed").returncode == 0
        assert g.got["fs.write"] == b"typed" and g.params("fs.write")[-1] == {"path": "/new"}
        assert cp(g, "-", "vm:/d", input=b"a tar").returncode == 0
        assert g.got["fs.tar_in"] == b"a tar"


def test_error_before_all_was_sent(tmp_path):
    (tmp_path / "f").write_bytes(bytes(50 << 20))
    with Guest(error=("fs.write", "io", "no room")) as g:
        r = cp(g, tmp_path / "f", "vm:/x")
        assert r.returncode == 1 and r.stderr == b"hutch: no room\n"


def test_file_out(tmp_path):
    data = os.urandom(200001)
    with Guest(files={"/d/f": data}) as g:
        assert cp(g, "vm:/d/f", tmp_path / "new").returncode == 0
        st = os.stat(tmp_path / "new")
        assert (tmp_path / "new").read_bytes() == data
        assert stat.S_IMODE(st.st_mode) == 0o751 and st.st_mtime_ns == 1234567890123456789
        assert cp(g, "vm:/d/f", tmp_path).returncode == 0
        assert (tmp_path / "f").read_bytes() == data
        (tmp_path / "old").write_text("before")
        os.chmod(tmp_path / "old", 0o600)
        os.symlink("old", tmp_path / "link")
        os.symlink("nowhere", tmp_path / "dangling")
        assert cp(g, "vm:/d/f", tmp_path / "link").returncode == 0
        assert (tmp_path / "link").is_symlink() and (tmp_path / "old").read_bytes() == data
        assert stat.S_IMODE(os.stat(tmp_path / "old").st_mode) == 0o600
        assert cp(g, "vm:/d/f", tmp_path / "dangling").returncode == 1
        assert cp(g, "vm:/d/f", tmp_path / "no" / "f").returncode == 1
        assert cp(g, "vm:/d/f", "/dev/null").returncode == 0
        assert cp(g, "vm:/d/f", "-").stdout == data
        r = cp(g, "vm:/absent", tmp_path / "x")
        assert r.returncode == 1 and b"/absent" in r.stderr
        assert cp(g, "--setid", "vm:/d/f", tmp_path / "s").returncode == 0
        assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o4751
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dangling", "f", "link", "new", "old", "s"]


def test_holes_stay_holes(tmp_path):
    data = b"head" + bytes(8 << 20) + b"tail" + bytes(1 << 20)
    with Guest(files={"/f": data}) as g:
        assert cp(g, "vm:/f", tmp_path / "f").returncode == 0
    assert (tmp_path / "f").read_bytes() == data
    assert os.stat(tmp_path / "f").st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("how", ["TERM", "INT", "HUP", "lost"])
def test_broken_off_leaves_the_old_file(tmp_path, how):
    (tmp_path / "f").write_text("before")
    with Guest(files={"/f": bytes(1 << 20)}, stop_after=300000, lose=how == "lost") as g:
        p = subprocess.Popen(hutch("--socket", g.peer.path, "cp", "vm:/f", tmp_path / "f"), stderr=subprocess.PIPE)
        assert g.waiting.wait(20)
        if how == "lost":
            assert p.wait(20) == 1
        else:
            p.send_signal(getattr(signal, "SIG" + how))
            assert p.wait(20) == 128 + getattr(signal, "SIG" + how)
        p.stderr.close()
    assert (tmp_path / "f").read_text() == "before"
    assert [x.name for x in tmp_path.iterdir()] == ["f"]


def test_usage(tmp_path):
    with Guest() as g:
        for args in ((), ("a",), ("a", "b"), ("x:/a", "y:/b"), ("-", "-"), ("./x:a", "/y:b"), ("a", "b", "c"), ("--nosuch", "a", "v:/b")):
            assert cp(g, *args).returncode == 2, args
        assert g.calls == []


# Trees out


def tree(path):
    """Everything below path: kind, mode, content or target, mtime."""
    found = {}
    for p in sorted(path.rglob("*")):
        st = p.lstat()
        what = os.readlink(p) if p.is_symlink() else hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else ""
        found[os.fsencode(p.relative_to(path))] = (stat.S_IFMT(st.st_mode), 0 if p.is_symlink() else stat.S_IMODE(st.st_mode), what, st.st_mtime_ns)
    return found


def test_tree_out(tmp_path):
    long = "n" * 200 + "/" + "m" * 180
    tar = archive(
        ("./", *DIR), ("./sub/", tarfile.DIRTYPE, "", 0o700), ("./sub/f", tarfile.REGTYPE, b"text", 0o4755), ("./l", tarfile.SYMTYPE, "/etc/passwd"),
        ("./h", tarfile.LNKTYPE, "./sub/f"), ("./" + long, tarfile.REGTYPE, b"deep"), ("./caf\u00e9", tarfile.REGTYPE, b"utf8"),
        ("./latin\udce9", tarfile.REGTYPE, b"latin"), ("./p", tarfile.FIFOTYPE, ""), ("./dev", tarfile.CHRTYPE, ""), ("./ro/", tarfile.DIRTYPE, "", 0o555), ("./ro/x", tarfile.REGTYPE, b"x"),
    )
    with Guest(dirs=["/t"], tar=tar) as g:
        r = cp(g, "vm:/t", tmp_path / "new")
        assert r.returncode == 0, r.stderr
        assert b"1 sockets or devices were left out" in r.stderr
        new = tmp_path / "new"
        assert stat.S_IMODE(new.stat().st_mode) == 0o755 and new.stat().st_mtime == 1111111111
        assert (new / "sub/f").read_bytes() == b"text" and stat.S_IMODE((new / "sub/f").stat().st_mode) == 0o755
        assert stat.S_IMODE((new / "sub").stat().st_mode) == 0o700 and (new / "sub").stat().st_mtime == 1111111111
        assert (new / "h").stat().st_ino == (new / "sub/f").stat().st_ino
        assert os.readlink(new / "l") == "/etc/passwd"
        assert (new / long).read_bytes() == b"deep" and (new / "ro/x").read_bytes() == b"x"
        names = set(os.listdir(os.fsencode(new)))
        assert {b"caf\xc3\xa9", b"latin\xe9", b"p"} <= names and b"dev" not in names
        (tmp_path / "there").mkdir()
        assert cp(g, "vm:/t", tmp_path / "there").returncode == 0
        assert (tmp_path / "there/t/sub/f").exists()
        assert cp(g, "vm:/t/.", tmp_path / "there").returncode == 1  # stat of /t/. is not scripted
        assert cp(g, "vm:/t", "-").stdout == tar
        (tmp_path / "file").write_text("x")
        assert cp(g, "vm:/t", tmp_path / "file").returncode == 1
    os.chmod(new / "ro", 0o755)


OUT = "../out"
HOSTILE = {
    "dotdot": [("../evil", tarfile.REGTYPE, b"x")],
    "inner dotdot": [("a/../../evil", tarfile.REGTYPE, b"x")],
    "absolute": [("/{tmp}/evil", tarfile.REGTYPE, b"x")],
    "link then through it": [("l", tarfile.SYMTYPE, "{tmp}"), ("l/evil", tarfile.REGTYPE, b"x")],
    "relative link then through it": [("l", tarfile.SYMTYPE, ".."), ("l/evil", tarfile.REGTYPE, b"x")],
    "two links": [("a", tarfile.SYMTYPE, "."), ("a/b", tarfile.SYMTYPE, ".."), ("a/b/evil", tarfile.REGTYPE, b"x")],
    "dir member over a link": [("l", tarfile.SYMTYPE, ".."), ("l/", *DIR), ("l/evil", tarfile.REGTYPE, b"x")],
    "dir below a link": [("l", tarfile.SYMTYPE, ".."), ("l/evil/", *DIR)],
    "link below a link": [("l", tarfile.SYMTYPE, ".."), ("l/evil", tarfile.SYMTYPE, "x")],
    "hard link outside": [("evil", tarfile.LNKTYPE, "../secret")],
    "hard link absolute": [("evil", tarfile.LNKTYPE, "{tmp}/secret")],
    "hard link through a link": [("l", tarfile.SYMTYPE, ".."), ("evil", tarfile.LNKTYPE, "l/secret")],
    "hard link, then data": [("l", tarfile.SYMTYPE, "../secret"), ("h", tarfile.LNKTYPE, "l"), ("h", tarfile.REGTYPE, b"overwritten")],
    "file over a link": [("l", tarfile.SYMTYPE, "../secret"), ("l", tarfile.REGTYPE, b"overwritten")],
    "empty name": [("", tarfile.REGTYPE, b"x")],
    "device": [("evil", tarfile.BLKTYPE, "")],
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("target", ["new", "there"])
def test_c018_an_archive_cannot_escape(tmp_path, name, target):
    """C018, host side. Whatever the guest sends, nothing outside of the target is read, made or changed."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "secret").write_text("secret")
    if target == "there":
        (base / "there").mkdir()
    members = [(n.replace("{tmp}", str(base).lstrip("/")) if n.startswith("/") else n, k, c.replace("{tmp}", str(base)) if isinstance(c, str) else c) for n, k, c, *_ in HOSTILE[name]]
    before = os.stat(base / "secret")
    with Guest(dirs=["/t"], tar=archive(*members)) as g:
        r = cp(g, "vm:/t", base / target)
    escaped = {p.name for p in base.iterdir()} - {"secret", target}
    assert not escaped and not (tmp_path / "evil").exists()
    after = os.stat(base / "secret")
    assert (base / "secret").read_text() == "secret" and (before.st_ino, before.st_nlink, before.st_mtime_ns) == (after.st_ino, after.st_nlink, after.st_mtime_ns)
    top = base / "there" / "t" if target == "there" else base / "new"
    for p in top.rglob("*"):
        assert not stat.S_ISBLK(p.lstat().st_mode)
        if p.is_file() and not p.is_symlink():
            assert p.stat().st_ino != before.st_ino
    if name not in ("device", "file over a link", "hard link, then data", "dir member over a link"):
        assert r.returncode == 1, r.stderr


def test_links_of_ours_are_not_followed(tmp_path):
    """A link in the target that was here before the archive: what it leads to is ours."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "t" / "t").mkdir(parents=True)
    os.symlink(tmp_path / "mine", tmp_path / "t" / "t" / "d")
    with Guest(dirs=["/t"], tar=archive(("./d/f", tarfile.REGTYPE, b"x"))) as g:
        assert cp(g, "vm:/t", tmp_path / "t").returncode == 1
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"no archive" * 200, bytes(1024), archive(("./a", tarfile.REGTYPE, bytes(5000)))[:3000]], ids=["none", "garbage", "empty", "cut"])
def test_archives_that_are_none(tmp_path, data):
    with Guest(dirs=["/t"], tar=data) as g:
        r = cp(g, "vm:/t", tmp_path / "new")
    assert r.returncode in ((0,) if data == bytes(1024) else (1,)), r.stderr
    assert r.returncode == 0 or r.stderr.startswith(b"hutch: ")


# Trees in


def make_tree(root):
    root.mkdir()
    (root / "d").mkdir(mode=0o750)
    (root / "d" / "f").write_bytes(os.urandom(100000))
    os.chmod(root / "d" / "f", 0o6755)
    os.link(root / "d" / "f", root / "hard")
    os.symlink("d/f", root / "soft")
    os.symlink("/x/" + "y" * 150, root / "longsoft")
    os.symlink("nowhere", root / "dangling")
    long = root / ("n" * 200) / ("m" * 200)
    long.mkdir(parents=True)
    (long / "deep").write_text("deep")
    (root / os.fsdecode(b"latin\xe9")).write_text("l")
    (root / "with\nnewline and \x1b").write_text("n")
    (root / "empty").write_text("")
    (root / "ro").mkdir()
    (root / "ro" / "x").write_text("x")
    os.chmod(root / "ro", 0o555)
    os.mkfifo(root / "fifo")
    with open(root / "sparse", "wb") as f:
        f.write(b"head")
        f.seek(5 << 20)
        f.write(b"middle")
        f.truncate(9 << 20)
    with open(root / "all hole", "wb") as f:
        f.truncate(3 << 20)
    with open(root / "hole first", "wb") as f:
        f.seek(1 << 20)
        f.write(b"end")
    for p in root.rglob("*"):
        os.utime(p, ns=(1, 1600000000987654321), follow_symlinks=False)


def test_tree_in(tmp_path, monkeypatch):
    make_tree(tmp_path / "src")
    listening = socket.socket(socket.AF_UNIX)
    with monkeypatch.context() as here:  # the path is too long for a socket's
        here.chdir(tmp_path / "src")
        listening.bind("sock")
    with Guest(dirs=["/d"]) as g:
        r = cp(g, tmp_path / "src", "vm:/d")
        assert r.returncode == 0 and b"1 sockets or devices" in r.stderr
        assert g.params("fs.tar_in")[-1] == {"path": "/d"}
        tar = g.got["fs.tar_in"]
        assert len(tar) < 2 << 20  # holes are not sent
        (tmp_path / "out").mkdir()
        made = subprocess.run(["tar", "xpf", "-", "-C", tmp_path / "out"], input=tar, capture_output=True)
        assert made.returncode == 0 and made.stderr == b"", made.stderr
        os.unlink(tmp_path / "src" / "sock")
        os.chmod(tmp_path / "src/hard", 0o755)  # as it was sent: without setuid
        os.utime(tmp_path / "src", ns=(1, os.stat(tmp_path / "out/src").st_mtime_ns))
        assert tree(tmp_path / "src") == tree(tmp_path / "out/src")
        assert os.stat(tmp_path / "out/src/hard").st_nlink == 2
        assert os.stat(tmp_path / "out/src/sparse").st_blocks * 512 < 1 << 20
        # The names of members, by where it goes.
        assert cp(g, tmp_path / "src", "vm:/new").returncode == 0
        assert g.params("fs.tar_in")[-1] == {"path": "/"}
        assert tarfile.open(fileobj=io.BytesIO(g.got["fs.tar_in"])).getnames()[0] == "new"
        assert cp(g, str(tmp_path / "src") + "/.", "vm:/d").returncode == 0
        assert tarfile.open(fileobj=io.BytesIO(g.got["fs.tar_in"])).getnames()[0] == "."


def test_round_trip_through_both_ends(tmp_path):
    """What tarout makes, tarin reads."""
    make_tree(tmp_path / "src")
    with Guest(dirs=["/d", "/t"]) as g:
        assert cp(g, str(tmp_path / "src") + "/.", "vm:/d").returncode == 0
        g.tar = g.got["fs.tar_in"]
        r = cp(g, "vm:/t", tmp_path / "back")
        assert r.returncode == 0, r.stderr
    os.chmod(tmp_path / "src/hard", 0o755)
    assert tree(tmp_path / "src") == tree(tmp_path / "back")
    assert os.stat(tmp_path / "back/sparse").st_blocks * 512 < 1 << 20
    assert os.stat(tmp_path / "back/all hole").st_blocks == 0


# With the agent


@pytest.fixture(scope="module")
def rig():
    with BrokerRig() as rig:
        yield rig


def test_with_the_agent(rig, tmp_path):
    sandbox = rig.create()
    env = {**os.environ, "HUTCH_SOCKET": str(rig.socket)}
    remote = tmp_path / "guest"
    remote.mkdir()

    def run(*args):
        return subprocess.run(hutch("cp", *args), env=env, capture_output=True, timeout=60)

    data = os.urandom(3 << 20)
    (tmp_path / "f").write_bytes(data)
    r = run(tmp_path / "f", f"{sandbox.id}:{remote}")
    assert r.returncode == 0, r.stderr
    assert (remote / "f").read_bytes() == data and (remote / "f").stat().st_mtime_ns == (tmp_path / "f").stat().st_mtime_ns
    assert run(f"{sandbox.id}:{remote}/f", tmp_path / "g").returncode == 0
    assert (tmp_path / "g").read_bytes() == data
    make_tree(tmp_path / "src")
    r = run(tmp_path / "src", f"{sandbox.id}:{remote}/tree")
    assert r.returncode == 0, r.stderr
    os.chmod(tmp_path / "src/hard", 0o755)
    assert tree(tmp_path / "src") == tree(remote / "tree")
    r = run(f"{sandbox.id}:{remote}/tree", tmp_path / "back")
    assert r.returncode == 0, r.stderr
    assert tree(tmp_path / "src") == tree(tmp_path / "back")
    # A file that would take minutes: its holes are not sent. (A VMM, and so the agent here, may write no file above 128 GiB.)
    with open(tmp_path / "huge", "wb") as f:
        f.write(b"head")
        f.seek(1 << 35)
        f.write(b"tail")
        f.truncate(3 << 34)
    os.chmod(tmp_path / "huge", 0o640)
    os.utime(tmp_path / "huge", ns=(1, 1600000000987654321))
    for copy, mode in ((remote / "huge", 0o640), (remote / "huge", 0o711), (tmp_path / "back.huge", 0o711), (tmp_path / "back.huge", 0o600)):
        pair = (tmp_path / "huge", f"{sandbox.id}:{copy}") if copy.parent == remote else (f"{sandbox.id}:{remote}/huge", copy)
        r = run(*pair)
        assert r.returncode == 0 and r.stderr == b"", r.stderr
        st = copy.stat()
        assert (st.st_size, stat.S_IMODE(st.st_mode), st.st_mtime_ns) == (3 << 34, mode, 1600000000987654321)
        assert st.st_blocks * 512 < 1 << 20
        with open(copy, "rb") as f:
            assert f.read(6) == b"head\0\0" and f.seek(1 << 35) and f.read(6) == b"tail\0\0"
        os.chmod(copy, 0o711 if mode == 0o640 else 0o600)
        if copy.parent == remote:
            os.chmod(copy, 0o711)  # what is there keeps its mode
    os.symlink("huge", remote / "link")
    (tmp_path / "small").write_bytes(b"x")
    with open(tmp_path / "small", "ab") as f:
        f.truncate(1 << 20)
    assert run(tmp_path / "small", f"{sandbox.id}:{remote}/link").returncode == 0  # a link is followed, as ever
    assert (remote / "link").is_symlink() and (remote / "huge").stat().st_size == 1 << 20
    assert not [p for where in (tmp_path, remote) for p in where.glob(".hutch*")]
    sandbox.kill()
    r = run(tmp_path / "f", f"{sandbox.id}:/x")
    assert r.returncode == 1
