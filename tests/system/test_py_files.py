# SPDX-License-Identifier: Apache-2.0
"""sandbox.filesystem, blocking and asyncio, on the agent as a plain process; and against a peer that lies."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import stat
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pytest

import hutch
from fakepeer import FakePeer, error_frame, event_frame, result_frame
from fsrig import inside, rig, tmp  # noqa: F401: fixtures
from hutch import AsyncClient, AsyncSandbox, Client, Sandbox, archive, wire
from test_cli_cp import HOSTILE, archive as make_archive, make_tree, tree


class InLoop:
    """The asyncio twin with the blocking one's shape, so that one test runs on both."""

    def __init__(self, socket, loop=None, fs=None):
        self.loop = loop or asyncio.new_event_loop()
        self.client = AsyncClient(str(socket))
        self.fs = fs

    def run(self, work):
        return self.loop.run_until_complete(asyncio.wait_for(work, 50))

    def __getattr__(self, name):
        async def call(*args, **options):
            if self.fs is None:
                self.fs = AsyncSandbox("agent", client=self.client).filesystem
            result = getattr(self.fs, name)(*args, **options)
            return await result if asyncio.iscoroutine(result) else result

        def run(*args, **options):
            got = self.run(call(*args, **options))
            if isinstance(got, hutch.AsyncFilesystem):
                twin = InLoop("", self.loop, got)
                twin.client = self.client
                return twin
            return got

        return run

    def collect(self, stream):
        async def main():
            async with stream as s:
                return [x async for x in s]

        return self.run(main())

    def close(self):
        async def main():
            self.client.close()
            await asyncio.sleep(0)

        self.run(main())
        self.loop.close()


@pytest.fixture(params=["blocking", "asyncio"])
def fs(request, rig):  # noqa: F811
    if request.param == "blocking":
        yield rig.sandbox.filesystem
        return
    twin = InLoop(rig.socket)
    yield twin
    twin.close()


def collect(fs, stream):
    if isinstance(fs, InLoop):
        return fs.collect(stream)
    with stream:
        return list(stream)


# Single files


def test_write_read_append(fs, tmp, inside):  # noqa: F811
    p = f"{tmp}/f"
    assert fs.write(p, "h\u00e9llo") == (6, True, None)
    assert fs.read(p) == "h\u00e9llo" and fs.read(p, text=False) == b"h\xc3\xa9llo"
    assert fs.append(p, b" more") == (5, False, 11)
    assert fs.read(p, offset=7, length=2) == "mo"
    assert fs.write(p, bytearray(b"\xff\0")).created is False
    with pytest.raises(hutch.Invalid) as e:
        fs.read(p)
    assert "not UTF-8 at byte 0" in str(e.value) and e.value.path == p
    assert fs.read(p, text=False) == b"\xff\0"
    with pytest.raises(hutch.Exists):
        fs.write(p, "x", if_absent=True)
    with pytest.raises(hutch.WrongState):
        fs.write(p, "x", if_size=5)
    with pytest.raises(hutch.NotFound) as e:
        fs.write(f"{tmp}/no/f", "x")
    assert e.value.errno_name == "ENOENT"
    assert fs.write(f"{tmp}/no/f", "x", parents=True, mode=0o600).created
    assert stat.S_IMODE(inside(f"{tmp}/no/f").stat().st_mode) == 0o600
    fs.write(p, "abcdef")
    fs.write(p, "XY", offset=2)
    assert fs.read(p) == "abXYef"
    with pytest.raises(hutch.Invalid):
        fs.write(p, "x", sha256="0" * 64)
    assert fs.read(p) == "abXYef"


def test_every_kind_of_data(fs, tmp, tmp_path):  # noqa: F811
    data = os.urandom(300001)
    (tmp_path / "in").write_bytes(data)
    r, w = os.pipe()
    writer = threading.Thread(target=lambda: os.fdopen(w, "wb").write(data))
    writer.start()
    sources = {
        "bytes": data, "view": memoryview(data), "file": open(tmp_path / "in", "rb"), "memory": io.BytesIO(data),
        "generator": (data[i : i + 70000] for i in range(0, len(data), 70000)), "pipe": os.fdopen(r, "rb"),
    }
    for name, source in sources.items():
        assert fs.write(f"{tmp}/{name}", source).bytes == len(data), name
        assert fs.read(f"{tmp}/{name}", text=False) == data, name
        if hasattr(source, "close"):
            source.close()
    writer.join()
    assert fs.write(f"{tmp}/empty", b"") == (0, True, None) and fs.read(f"{tmp}/empty") == ""
    for wrong in (None, 5, {"a": 1}, [1]):
        with pytest.raises(TypeError):
            fs.write(f"{tmp}/wrong", wrong)
    assert not fs.exists(f"{tmp}/wrong")
    with pytest.raises(TypeError):
        fs.stat(tmp, usr="nobody")


def test_data_that_fails_leaves_the_old_file(fs, tmp):  # noqa: F811
    """C020's kin: an iterable raises half way."""

    def broken():
        yield b"x" * 200000
        raise OSError("the disk here is broken")

    fs.write(f"{tmp}/f", "before")
    with pytest.raises(OSError, match="broken"):
        fs.write(f"{tmp}/f", broken())
    assert fs.read(f"{tmp}/f") == "before"
    assert [i.path for i in fs.list(tmp)] == ["f"]


def test_changes_and_looks(fs, tmp):  # noqa: F811
    a, b = f"{tmp}/a", f"{tmp}/b"
    assert fs.mkdir(a) is True and fs.mkdir(f"{a}/x/y", parents=True) and not fs.mkdir(a, parents=True)
    with pytest.raises(hutch.Exists):
        fs.mkdir(a)
    fs.write(f"{a}/f", "12345")
    fs.symlink(f"{a}/l", "f")
    fs.link(f"{a}/f", f"{a}/hard")
    assert fs.readlink(f"{a}/l") == "f"
    info = fs.stat(f"{a}/l")
    assert (info.type, info.size, info.nlink, info.is_file, info.name) == ("file", 5, 2, True, "l")
    info = fs.stat(f"{a}/l", follow=False)
    assert info.is_link and info.target == "f"
    fs.chown(f"{a}/f", uid=12, gid=34)
    fs.chmod(f"{a}/f", 0o4711)
    fs.utimes(f"{a}/f", mtime_ns=1600000000987654321)
    info = fs.stat(f"{a}/f")
    assert (info.mode, info.uid, info.gid, info.mtime_ns) == (0o4711, 12, 34, 1600000000987654321)
    assert abs(info.mtime - 1600000000.98) < 0.01
    copied = fs.copy(a, b, recursive=True)
    assert (copied.count, copied.bytes) == (6, 5)
    assert [(i.path, i.type) for i in fs.list(b, depth=0)] == [("f", "file"), ("hard", "file"), ("l", "link"), ("x", "dir"), ("x/y", "dir")]
    assert [i.path for i in fs.list(b)] == ["f", "hard", "l", "x"] and fs.list(b, stat=False)[0].size == 0
    assert len(collect(fs, fs.scan(b, depth=0))) == 5
    fs.move(f"{b}/f", f"{b}/g")
    with pytest.raises(hutch.Exists):
        fs.move(f"{b}/g", f"{b}/x", replace=False)
    with pytest.raises(hutch.IoFailed) as e:
        fs.remove(b)
    assert e.value.errno_name == "ENOTEMPTY"
    assert fs.remove(b, recursive=True) == 6 and fs.remove(b, missing_ok=True) == 0
    assert not fs.exists(b) and fs.exists(f"{a}/l")
    fs.symlink(f"{a}/dangling", "nowhere")
    assert not fs.exists(f"{a}/dangling") and fs.exists(f"{a}/dangling", follow=False)
    space = fs.statfs(tmp)
    assert space.total_bytes >= space.free_bytes > 0 and space.block_size
    with pytest.raises(hutch.NotFound):
        fs.list(b)


def test_names_are_bytes(fs, tmp):  # noqa: F811
    raw = os.fsencode(tmp) + b"/latin\xe9"
    fs.write(raw, "x")
    [info] = fs.list(tmp)
    assert os.fsencode(info.path) == b"latin\xe9"
    assert fs.read(f"{tmp}/{info.path}") == fs.read(raw) == fs.read(Path(tmp) / info.path) == "x"


def test_users_and_roots(fs, tmp):  # noqa: F811
    fs.write(f"{tmp}/secret", "s", mode=0o600)
    fs.mkdir(f"{tmp}/jail")
    fs.chown(f"{tmp}/jail", uid=4242, gid=4242)
    fs.symlink(f"{tmp}/jail/out", "../secret")
    with pytest.raises(hutch.Denied):
        fs.read(f"{tmp}/secret", user="4242:4242")
    with pytest.raises(hutch.Denied) as e:
        fs.read("out", root=f"{tmp}/jail")
    assert e.value.errno_name == "EXDEV"
    jail = fs.using(user=4242, root=f"{tmp}/jail")
    jail.write("mine", "x")
    assert jail.stat("mine").uid == 4242
    with pytest.raises(hutch.Denied):
        jail.read("../secret")
    with pytest.raises(hutch.Denied):
        jail.using(root=tmp).read("secret")
    assert jail.read("secret", root=tmp, user=0) == "s"


def test_read_stream_takes_as_much_as_is_wanted(fs, tmp, inside):  # noqa: F811
    with open(inside(f"{tmp}/f"), "wb") as f:
        f.truncate(1 << 40)  # what is not asked for is not sent
    stream = fs.read_stream(f"{tmp}/f")
    assert stream.info.size == 1 << 40 and stream.info.is_file

    async def some():
        async for piece in stream:
            return piece

    piece = fs.run(some()) if isinstance(fs, InLoop) else next(iter(stream))
    assert piece and not any(piece)
    stream.close()
    assert b"".join(collect(fs, fs.read_stream(f"{tmp}/f", offset=5, length=100000))) == bytes(100000)
    with pytest.raises(hutch.NotFound):
        fs.read_stream(f"{tmp}/none")


def test_watch(rig, tmp, inside):  # noqa: F811
    fs = rig.sandbox.filesystem  # noqa: F811
    with fs.watch(tmp, recursive=True) as w:
        with pytest.raises(hutch.Timeout):
            w.read(0.01)
        inside(f"{tmp}/d").mkdir()
        assert w.read(10)[:3] == ("create", "d", True)
        inside(f"{tmp}/d/f").touch()
        seen = [w.read(10)]
        assert seen[0][:3] == ("create", "d/f", False)
        inside(f"{tmp}/d/f").rename(inside(f"{tmp}/d/g"))
        while seen[-1].kind != "move_to":
            seen.append(w.read(10))
        assert seen[-1].path == "d/g" and seen[-1].cookie == seen[-2].cookie
        threading.Timer(0.05, w.stop).start()
        assert [c.path for c in w] == [] and w.reason == "stopped"
    with fs.watch(f"{tmp}/d/g") as w:
        inside(f"{tmp}/d/g").unlink()
        list(w)
        assert w.reason == "removed"


def test_watch_asyncio(rig, tmp, inside):  # noqa: F811
    async def main():
        async with AsyncClient(str(rig.socket)) as client:
            async with await AsyncSandbox("agent", client=client).filesystem.watch(tmp) as w:
                with pytest.raises(hutch.Timeout):
                    await w.read(0.01)
                inside(f"{tmp}/f").mkdir()
                assert (await w.read(10))[:3] == ("create", "f", True)
                await w.stop()
                assert [c async for c in w] == [] and w.reason == "stopped"

    asyncio.run(asyncio.wait_for(main(), 30))


# Copies of single files


def sparse(path, size=64 << 20):
    with open(path, "wb") as f:
        f.write(b"head")
        f.seek(size // 2)
        f.write(b"middle")
        f.truncate(size)


def test_upload_and_download(fs, tmp, inside, tmp_path):  # noqa: F811
    data = os.urandom(200001)
    local, back = tmp_path / "f", tmp_path / "back"
    local.write_bytes(data)
    os.chmod(local, 0o4751)
    os.utime(local, ns=(1, 1600000000987654321))
    assert fs.upload(local, f"{tmp}/new") == len(data)
    st = inside(f"{tmp}/new").stat()
    assert stat.S_IMODE(st.st_mode) == 0o751 and st.st_mtime_ns == 1600000000987654321
    fs.chmod(f"{tmp}/new", 0o600)
    fs.upload(str(local), f"{tmp}/new")
    assert fs.stat(f"{tmp}/new").mode == 0o600
    fs.upload(local, f"{tmp}/")
    assert inside(f"{tmp}/f").read_bytes() == data
    fs.upload(io.BytesIO(data[5:]), f"{tmp}/sub/g", parents=True, mode=0o640)
    assert inside(f"{tmp}/sub/g").read_bytes() == data[5:] and fs.stat(f"{tmp}/sub/g").mode == 0o640
    assert fs.download(f"{tmp}/new", back) == len(data)
    assert back.read_bytes() == data and back.stat().st_mtime_ns == 1600000000987654321 and stat.S_IMODE(back.stat().st_mode) == 0o600
    os.chmod(back, 0o644)
    os.symlink("back", tmp_path / "link")
    fs.download(f"{tmp}/new", tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and stat.S_IMODE(back.stat().st_mode) == 0o644
    fs.download(f"{tmp}/sub/g", tmp_path)
    assert (tmp_path / "g").read_bytes() == data[5:]
    into = io.BytesIO()
    assert fs.download(f"{tmp}/new", into) == len(data) and into.getvalue() == data
    fs.download(f"{tmp}/new", "/dev/null")
    for wrong, kind in ((f"{tmp}/none", hutch.NotFound), (tmp, hutch.IoFailed)):
        with pytest.raises(kind):
            fs.download(wrong, back)
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(OSError):
            fs.upload(wrong, f"{tmp}/x")
    assert back.read_bytes() == data
    assert sorted(os.listdir(tmp_path)) == ["back", "f", "g", "link"] and not fs.exists(f"{tmp}/x")


def test_a_sparse_file_stays_sparse(fs, tmp, inside, tmp_path):  # noqa: F811
    sparse(tmp_path / "s")
    os.utime(tmp_path / "s", ns=(1, 1600000000987654321))
    os.chmod(tmp_path / "s", 0o640)
    want = (tmp_path / "s").read_bytes()
    for mode in (0o640, 0o711):  # a new file; one that is there keeps its own mode and owner
        assert fs.upload(tmp_path / "s", f"{tmp}/s") == len(want)
        st = inside(f"{tmp}/s").stat()
        assert inside(f"{tmp}/s").read_bytes() == want and st.st_blocks * 512 < 1 << 20
        assert (stat.S_IMODE(st.st_mode), st.st_mtime_ns) == (mode, 1600000000987654321)
        fs.chmod(f"{tmp}/s", 0o711)
        fs.chown(f"{tmp}/s", uid=12, gid=13)
    assert (fs.stat(f"{tmp}/s").uid, fs.stat(f"{tmp}/s").gid) in ((12, 13),)
    for mode in (0o711, 0o600):
        assert fs.download(f"{tmp}/s", tmp_path / "back") == len(want)
        st = (tmp_path / "back").stat()
        assert (tmp_path / "back").read_bytes() == want and st.st_blocks * 512 < 1 << 20
        assert (stat.S_IMODE(st.st_mode), st.st_mtime_ns) == (mode, 1600000000987654321)
        os.chmod(tmp_path / "back", 0o600)
    assert sorted(os.listdir(tmp_path)) == ["back", "s"] and [i.path for i in fs.list(tmp)] == ["s"]
    # far larger than the disk
    with open(tmp_path / "s", "wb") as f:
        f.truncate(1 << 42)
    assert fs.upload(tmp_path / "s", f"{tmp}/s") == 1 << 42
    assert fs.download(f"{tmp}/s", tmp_path / "back") == 1 << 42
    assert (tmp_path / "back").stat().st_blocks == 0


# Trees


def test_tree_round_trip(fs, tmp, inside, tmp_path):  # noqa: F811
    make_tree(tmp_path / "src")
    src, remote, back = tmp_path / "src", f"{tmp}/tree", tmp_path / "back"
    want = {p.relative_to(src) for p in src.rglob("*")}
    copied = fs.upload_dir(src, remote)
    assert (copied.count, copied.skipped) == (len(want) + 1, 0)
    os.chmod(src / "hard", 0o755)  # as it was sent: without setuid
    assert tree(src) == tree(inside(remote))
    assert inside(f"{remote}/hard").stat().st_nlink == 2
    copied = fs.download_dir(remote, back)
    assert copied.count == len(want) and tree(src) == tree(back)
    assert (back / "hard").stat().st_ino == (back / "d/f").stat().st_ino
    assert (back / "sparse").stat().st_blocks * 512 < 1 << 20 and (back / "all hole").stat().st_blocks == 0
    assert back.stat().st_mtime_ns == src.stat().st_mtime_ns and stat.S_IMODE(back.stat().st_mode) == stat.S_IMODE(src.stat().st_mode)
    os.chmod(src / "ro", 0o755)
    os.chmod(back / "ro", 0o755)
    # again, over what is there
    fs.upload_dir(src, remote)
    fs.download_dir(remote, back)
    assert tree(src) == tree(back) and not list(back.rglob(".hutch*"))
    with pytest.raises(hutch.Exists):
        fs.upload_dir(src, remote, replace=False)
    with pytest.raises(hutch.NotFound):
        fs.upload_dir(src, f"{tmp}/no/such")
    assert fs.upload_dir(src / "d", f"{tmp}/no/such", parents=True).count == 2
    fs.download_dir(remote, tmp_path / "some", names=["d", "soft"], exclude=["*f"])
    assert sorted(os.listdir(tmp_path / "some")) == ["d", "soft"] and not os.listdir(tmp_path / "some/d")
    fs.upload_dir(src, f"{tmp}/setid", setid=True)
    assert fs.stat(f"{tmp}/setid/hard").mode == 0o755
    fs.symlink(f"{remote}/up", "../x")
    fs.symlink(f"{remote}/d/down", "../soft")
    r = fs.download_dir(remote, tmp_path / "inside", links="inside")
    names = set(os.listdir(tmp_path / "inside"))
    assert r.skipped == 2 and "up" not in names and "longsoft" not in names and {"soft", "dangling"} <= names
    assert os.readlink(tmp_path / "inside/d/down") == "../soft"


def test_a_user_gets_what_they_may(fs, tmp, inside, tmp_path):  # noqa: F811
    (tmp_path / "src").mkdir()
    (tmp_path / "src/f").write_text("x")
    fs.mkdir(f"{tmp}/home")
    fs.chown(f"{tmp}/home", uid=4242, gid=4242)
    fs.upload_dir(tmp_path / "src", f"{tmp}/home/t", user=4242)
    assert fs.stat(f"{tmp}/home/t/f").uid == 4242
    with pytest.raises(hutch.Denied):
        fs.upload_dir(tmp_path / "src", f"{tmp}/t", user=4242)
    fs.write(f"{tmp}/home/t/secret", "s", mode=0o600)
    with pytest.raises(hutch.IoFailed) as e:
        fs.download_dir(f"{tmp}/home/t", tmp_path / "out", user=4242)
    assert "secret" in str(e.value) and e.value.errno_name == "EACCES"
    seen = []
    fs.download_dir(f"{tmp}/home/t", tmp_path / "out2", user=4242, on_error=seen.append)
    assert [s.errno_name for s in seen] == ["EACCES"] and os.listdir(tmp_path / "out2") == ["f"]


# What a guest may send


def send_tar(data, error=None):
    def script(peer, _number):
        while peer.call() is not None:
            for at in range(0, len(data), 65536):
                peer.send(wire.encode_frame(wire.STDOUT, data[at : at + 65536]))
            peer.send(error or result_frame({"count": 1, "bytes": len(data), "errors": []}))

    return FakePeer(script)


def download(data, target, **options):
    with send_tar(data) as peer, Client(peer.path) as client:
        return Sandbox("v", client=client).filesystem.download_dir("/t", target, **options)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("there", [False, True])
def test_c018_an_archive_cannot_escape(tmp_path, name, there):
    """C018 in Python: whatever the guest sends, nothing outside of the target is read, made or changed."""
    base = tmp_path / "base"
    base.mkdir()
    (base / "secret").write_text("secret")
    if there:
        (base / "t").mkdir()
    members = [
        (n.replace("{tmp}", str(base).lstrip("/")) if n.startswith("/") else n, k, c.replace("{tmp}", str(base)) if isinstance(c, str) else c)
        for n, k, c, *_ in HOSTILE[name]
    ]
    before = os.stat(base / "secret")
    escapes = name not in ("device", "file over a link", "hard link, then data")
    try:
        download(make_archive(*members), base / "t")
        assert not escapes
    except hutch.HutchError as e:
        assert escapes and e.kind in ("denied", "protocol"), e
    after = os.stat(base / "secret")
    assert {p.name for p in base.iterdir()} == {"secret", "t"} and not (tmp_path / "evil").exists()
    assert (base / "secret").read_text() == "secret"
    assert (before.st_ino, before.st_nlink, before.st_mtime_ns) == (after.st_ino, after.st_nlink, after.st_mtime_ns)
    for p in (base / "t").rglob("*"):
        assert not stat.S_ISBLK(p.lstat().st_mode) and not p.name.startswith(".hutch")


def test_links_of_ours_are_not_followed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "t").mkdir()
    os.symlink(tmp_path / "mine", tmp_path / "t" / "d")
    with pytest.raises(hutch.Denied):
        download(make_archive(("./d/f", tarfile.REGTYPE, b"x")), tmp_path / "t")
    assert os.listdir(tmp_path / "mine") == []


GOOD = make_archive(("./a", tarfile.REGTYPE, bytes(range(256)) * 20), ("./l", tarfile.SYMTYPE, "a"), ("./d/", tarfile.DIRTYPE, "", 0o700))


@pytest.mark.parametrize(
    "data",
    [b"", b"no archive" * 200, GOOD[:3000], GOOD[:6656], GOOD[:148] + b"9" + GOOD[149:]],
    ids=["none", "garbage", "cut", "no end", "sum"],
)
def test_archives_that_are_none(tmp_path, data):
    with pytest.raises(hutch.ProtocolError):
        download(data, tmp_path / "t")
    assert "a" not in os.listdir(tmp_path / "t") or data == GOOD[:6656]


def pax(records, name="f", size=0):
    body = b"".join(b"%d %s" % (len(r) + 1 + len(str(len(r) + 3)), r) for r in records)
    h = tarfile.TarInfo("x")
    h.type, h.size = tarfile.XHDTYPE, len(body)
    f = tarfile.TarInfo(name)
    f.size = size
    return h.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512) + f.tobuf(tarfile.USTAR_FORMAT)


SPARSE = [b"GNU.sparse.major=1\n", b"GNU.sparse.minor=0\n", b"GNU.sparse.name=f\n", b"GNU.sparse.realsize=100\n"]


def big(kind, size):
    h = tarfile.TarInfo("x")
    h.type, h.size = kind, size
    return h.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "data",
    [
        big(tarfile.XHDTYPE, 1 << 40), big(tarfile.XGLTYPE, 1 << 30), big(tarfile.GNUTYPE_LONGNAME, 1 << 33),
        pax([b"path=x\n", b"path=y\n"]).replace(b" path=y", b"_path=y"), pax([b"size=-1\n"]), pax([b"size=1e3\n"]), pax([b"mtime=never\n"]), pax([b"mtime=" + b"9" * 30 + b"\n"]), pax([b"path=a\0b\n"]),
        pax(SPARSE, size=512) + b"99999999\n".ljust(512, b"\0"), pax(SPARSE, size=512) + b"1\n50\n60\n".ljust(512, b"\0"),
        pax(SPARSE, size=512) + b"2\n50\n1\n40\n1\n".ljust(512, b"\0"), pax(SPARSE, size=512) + b"x" * 512, pax(SPARSE, size=0),
        pax(SPARSE, size=512) + b"1\n0\n50\n".ljust(512, b"\0"),
        pax([b"GNU.sparse.major=0\n", b"GNU.sparse.name=f\n"]), pax([b"GNU.sparse.major=1\n", b"GNU.sparse.minor=0\n"]),
    ],
)
def test_headers_that_lie(tmp_path, data):
    """A guest's claims are checked before anything is kept or made for them."""
    with pytest.raises((hutch.ProtocolError, hutch.TooLarge, hutch.Denied)):
        download(data + bytes(4096), tmp_path / "t")
    assert os.listdir(tmp_path / "t") == []


def test_every_cut_of_an_archive_gives_the_same(tmp_path):
    make_tree(tmp_path / "src")
    whole = b"".join(archive.Packer(str(tmp_path / "src")))
    for n, step in enumerate((1, 511, 4097, 1 << 30)):
        if step == 1 and len(whole) > 1 << 20:
            continue
        unpacker = archive.Unpacker(str(tmp_path / str(n)))
        for at in range(0, len(whole), step):
            unpacker.feed(whole[at : at + step])
        unpacker.finish()
        os.chmod(tmp_path / "src/hard", 0o755)
        assert tree(tmp_path / "src") == tree(tmp_path / str(n))


@pytest.mark.parametrize("fmt", ["pax", "gnu", "ustar"])
def test_archives_of_gnu_tar_can_be_read(tmp_path, fmt):
    src = tmp_path / "src"
    make_tree(src)
    os.chmod(src / "hard", 0o755)
    more = ["--sparse"] if fmt == "pax" else []
    if fmt == "ustar":
        subprocess.run(["rm", "-rf", src / ("n" * 200), src / "longsoft"], check=True)
    data = subprocess.run(["tar", f"--format={fmt}", *more, "-C", src, "-cf", "-", "."], check=True, capture_output=True).stdout
    download(data, tmp_path / "t")
    got, want = tree(tmp_path / "t"), tree(src)
    if fmt != "pax":  # whole seconds
        want = {k: (*v[:3], v[3] // 10**9 * 10**9) for k, v in want.items()}
    assert got == want


def test_a_lost_connection_leaves_no_half_file(tmp_path):
    def script(peer, _number):
        call = peer.call()
        if call["method"] == "fs.stat":
            peer.send(result_frame({"type": "file", "size": 10, "blocks": 8}))
            if (call := peer.call()) is None:
                return
        if call["method"] == "fs.read":
            peer.send(event_frame("file", size=1 << 20), wire.encode_frame(wire.STDOUT, bytes(1000)))
        else:
            peer.send(wire.encode_frame(wire.STDOUT, GOOD[:2000]))

    (tmp_path / "f").write_text("before")
    with FakePeer(script) as peer, Client(peer.path) as client:
        fs = Sandbox("v", client=client).filesystem  # noqa: F811
        with pytest.raises(hutch.OutcomeUnknown):
            fs.download("/f", tmp_path / "f")
        with pytest.raises(hutch.OutcomeUnknown):
            fs.download_dir("/f", tmp_path / "t")
    assert (tmp_path / "f").read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["f", "t"] and os.listdir(tmp_path / "t") == []


def test_an_error_before_all_was_sent(tmp_path):
    (tmp_path / "big").write_bytes(bytes(20 << 20))

    def script(peer, _number):
        while (call := peer.call()) is not None:
            if call["method"] == "fs.stat":
                peer.send(error_frame("not_found", "no"))
            else:
                peer.send(error_frame("io", "no room", errno=28, path="/x"))
                peer.stdin()

    with FakePeer(script) as peer, Client(peer.path) as client:
        fs = Sandbox("v", client=client).filesystem  # noqa: F811
        for work in (lambda: fs.upload(tmp_path / "big", "/x"), lambda: fs.write("/x", bytes(20 << 20))):
            with pytest.raises(hutch.IoFailed) as e:
                work()
            assert (e.value.errno_name, e.value.path) == ("ENOSPC", "/x")
        assert peer.accepted == 1


def test_cancelled_task_frees_everything(rig, tmp, inside, tmp_path):  # noqa: F811
    async def main():
        async with AsyncClient(str(rig.socket)) as client:
            fs = AsyncSandbox("agent", client=client).filesystem  # noqa: F811

            async def endless():
                while True:
                    yield bytes(65536)
                    await asyncio.sleep(0.001)

            task = asyncio.ensure_future(fs.write(f"{tmp}/f", endless()))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            deadline = time.monotonic() + 10
            while os.listdir(inside(tmp)) and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            assert await fs.list(tmp) == []

    asyncio.run(asyncio.wait_for(main(), 30))


def test_memory_stays_constant(rig, tmp, inside, tmp_path):  # noqa: F811
    """48 MiB in and out through iterators and files, with little memory."""
    script = f"""
import resource, sys, hashlib
sys.path.insert(0, {str(Path(hutch.__file__).parents[1])!r})
from hutch import Client, Sandbox
fs = Sandbox("agent", client=Client({str(rig.socket)!r})).filesystem
fs.write({tmp!r} + "/warm", b"x")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
piece = bytes(range(256)) * 256
fs.write({tmp!r} + "/f", (piece for _ in range(768)))
h = hashlib.sha256()
with fs.read_stream({tmp!r} + "/f") as s:
    for p in s:
        h.update(p)
fs.download({tmp!r} + "/f", {str(tmp_path / "f")!r})
fs.upload({str(tmp_path / "f")!r}, {tmp!r} + "/g")
print(h.hexdigest(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    out = subprocess.run(["/usr/bin/python3", "-c", script], capture_output=True, text=True, timeout=50)
    assert out.returncode == 0, out.stderr
    digest, grew = out.stdout.split()
    want = hashlib.sha256(bytes(range(256)) * 256 * 768).hexdigest()
    assert digest == want == hashlib.sha256(inside(f"{tmp}/g").read_bytes()).hexdigest()
    assert int(grew) < 8 << 10, f"{grew} KiB"
