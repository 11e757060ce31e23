# SPDX-License-Identifier: Apache-2.0
"""fs.watch on the agent as a plain process (C076 and its kin)."""

from __future__ import annotations

import os
import select
import shutil
import time

import pytest

import hutch
import procs
from fsrig import files, inside, rig, send_all, tmp  # noqa: F401


class Watch:
    """A watch that is read as the test goes: `until` collects changes until one of them satisfies."""

    def __init__(self, connection, path, **params):
        self.connection = connection
        self.changes = []
        self.overflows = 0
        self.result = None
        connection.queue(connection.session.call("fs.watch", {"path": path, **params}, end=False))
        send_all(connection)
        self.watching = False
        self._until(lambda: self.watching, 10)

    def _receive(self, timeout):
        if not select.select([self.connection], [], [], timeout)[0]:
            return
        for got in self.connection.receive_some():
            if isinstance(got, hutch.wire.Failure):
                raise got.error
            if isinstance(got, hutch.wire.Result):
                self.result = got.fields
            elif got.name == "watching":
                self.watching = True
            elif got.name == "overflow":
                self.overflows += 1
            else:
                self.changes += got.fields["changes"]

    def _until(self, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s; changes: {self.changes[-20:]}"
            self._receive(max(deadline - time.monotonic(), 0))

    def has(self, kind, path, **more):
        return any(c["kind"] == kind and c["path"] == path and more.items() <= c.items() for c in self.changes)

    def until(self, kind, path, seconds=10, **more):
        self._until(lambda: self.has(kind, path, **more), seconds)

    def until_over(self, seconds=10):
        self._until(lambda: self.result is not None, seconds)
        return self.result["reason"]

    def stop(self):
        self.connection.queue(self.connection.session.stdin(b"", end=True))
        send_all(self.connection)
        return self.until_over()


@pytest.fixture
def watch(rig):
    open_ones = []

    def start(path, **params):
        connection = rig.connect()
        open_ones.append(connection)
        return Watch(connection, path, **params)

    yield start
    for connection in open_ones:
        connection.close()


def test_kinds(watch, tmp, inside):
    base = inside(tmp)
    (base / "old").write_bytes(b"1")
    w = watch(tmp)
    (base / "new").write_bytes(b"x")
    for kind in ("create", "modify", "close_write"):
        w.until(kind, "new")
    (base / "d").mkdir()
    w.until("create", "d", dir=True)
    (base / "old").chmod(0o600)
    w.until("attrib", "old")
    os.rename(base / "new", base / "newer")
    w.until("move_to", "newer")
    cookies = {c["kind"]: c["cookie"] for c in w.changes if c["kind"].startswith("move")}
    assert cookies["move_from"] == cookies["move_to"] != 0
    (base / "newer").unlink()
    w.until("delete", "newer")
    (base / "d" / "deep").write_bytes(b"")
    (base / "end").write_bytes(b"")
    w.until("create", "end")
    assert not any(c["path"].startswith("d/") for c in w.changes)
    assert w.stop() == "stopped"
    assert w.connection.call("ping") == {}


@pytest.mark.limit(120)
def test_a_file_without_a_name_is_not_told(watch, tmp, inside):
    """A file is written where it has no name yet; only its real name is told, and "#1" may be one."""
    w = watch(tmp)
    for name in ("one", "#1", "#108"):
        with open(inside(f"{tmp}/{name}"), "wb") as f:
            f.write(b"old")
        w.until("close_write", name)
    try:
        unnamed = os.open(inside(tmp), os.O_TMPFILE | os.O_WRONLY)
    except OSError as e:
        pytest.skip(f"this file system makes no file without a name: {e.strerror}")
    os.write(unnamed, b"new")
    os.fchmod(unnamed, 0o644)
    os.close(unnamed)
    os.unlink(inside(f"{tmp}/#108"))
    w.until("delete", "#108")
    assert {c["path"] for c in w.changes} == {"one", "#1", "#108"}, w.changes


def test_c076_50000_files_while_the_client_does_not_read(watch, tmp, inside):
    w = watch(tmp)
    base = inside(tmp)
    for i in range(50_000):
        os.close(os.open(base / f"f{i}", os.O_CREAT | os.O_WRONLY))
    (base / "last").mkdir()
    w._until(lambda: w.overflows or w.has("create", "last"), 30)
    created = sum(c["kind"] == "create" for c in w.changes)
    assert w.overflows or created == 50_001
    (base / "after").write_bytes(b"")
    w.until("create", "after", seconds=30)


def test_c076_files_in_directories_just_made(watch, tmp, inside):
    base = inside(tmp)
    w = watch(tmp, recursive=True)
    for i in range(50):
        os.makedirs(base / f"a{i}/b/c")
        (base / f"a{i}/b/c/f").write_bytes(b"")
        w.until("create", f"a{i}/b/c/f")
    (base / "a0/b/c/later").write_bytes(b"")
    w.until("create", "a0/b/c/later")


def test_what_was_there_is_watched_at_once(watch, tmp, inside):
    base = inside(tmp)
    os.makedirs(base / "x/y/z")
    (base / "link").symlink_to("/mnt")
    w = watch(tmp, recursive=True)
    (base / "x/y/z/f").write_bytes(b"")
    w.until("create", "x/y/z/f")
    assert not any(c["path"].startswith("link/") for c in w.changes)


def test_directories_that_move(watch, tmp, inside):
    base = inside(tmp)
    os.makedirs(base / "in/a/b")
    os.makedirs(base / "elsewhere/c/d")
    w = watch(f"{tmp}/in", recursive=True)
    os.rename(base / "in/a", base / "in/moved")
    w.until("move_to", "moved", dir=True)
    (base / "in/moved/b/f").write_bytes(b"")
    w.until("create", "moved/b/f")
    os.rename(base / "elsewhere/c", base / "in/c")
    w.until("create", "c/d", dir=True)
    (base / "in/c/d/f").write_bytes(b"")
    w.until("create", "c/d/f")
    os.rename(base / "in/moved", base / "elsewhere/gone")
    (base / "in/mark").write_bytes(b"")
    w.until("create", "mark")
    (base / "elsewhere/gone/b/unseen").write_bytes(b"")
    (base / "in/mark2").write_bytes(b"")
    w.until("create", "mark2")
    assert not any("unseen" in c["path"] for c in w.changes)


def test_c076_the_target_goes(watch, tmp, inside):
    base = inside(tmp)
    for act in (shutil.rmtree, lambda p: os.rename(p, base / "other")):
        (base / "d" / "e").mkdir(parents=True)
        w = watch(f"{tmp}/d", recursive=True)
        act(base / "d")
        assert w.until_over() == "removed"
    (base / "f").write_bytes(b"")
    w = watch(f"{tmp}/f")
    (base / "f").write_bytes(b"more")
    w.until("modify", "")
    (base / "f").unlink()
    assert w.until_over() == "removed"
    (base / "g").write_bytes(b"")
    os.link(base / "g", base / "another name")
    w = watch(f"{tmp}/g")
    (base / "g").unlink()
    assert w.until_over() == "removed"
    with pytest.raises(hutch.NotFound):
        watch(f"{tmp}/none")


def test_a_file_system_that_is_unmounted(rig, watch, tmp):
    def run(*argv):
        # nsenter: the agent's mount namespace is not ours
        assert os.spawnvp(os.P_WAIT, "nsenter", ["nsenter", "-t", str(rig.pid), "-m", *argv]) == 0

    run("mount", "-t", "tmpfs", "none", tmp)
    w = watch(tmp)
    run("umount", tmp)
    assert w.until_over() == "unmounted"


def test_within_a_root(watch, tmp, inside):
    base = inside(tmp)
    (base / "ws" / "d").mkdir(parents=True)
    (base / "ws" / "out").symlink_to("/mnt")
    w = watch("d", root=f"{tmp}/ws", recursive=True)
    (base / "ws/d/new").mkdir()
    (base / "ws/d/new/f").write_bytes(b"")
    w.until("create", "new/f")
    with pytest.raises(hutch.Denied):
        watch("out", root=f"{tmp}/ws")


@pytest.mark.limit(120)
def test_c076_1000_watches_leak_nothing(rig, watch, tmp, inside):
    base = inside(tmp)
    (base / "d").mkdir()
    for i in range(1000):
        connection = rig.connect()
        w = Watch(connection, tmp, recursive=True)
        if i % 2:
            assert w.stop() == "stopped"
        connection.close()
    procs.eventually(lambda: len(rig.children()) <= 2, 20, "workers have gone")
    procs.eventually(lambda: rig.fd_count() < 20, 10, "descriptors closed")
    for p in rig.children():
        assert procs.fd_count(p.pid) <= 8
    assert rig.rss_kib() < 2048 or procs.sanitized("hutch-agent")
