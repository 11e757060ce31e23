# SPDX-License-Identifier: Apache-2.0
"""The broker's own socket and files: path lengths, stale sockets, two brokers, modes. Cases C019, C032, C068."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import hutch
import procs
from box import FULL
from brokerrig import BrokerRig


@pytest.mark.parametrize("length", [90, 107, 108, 150, 230])
def test_c019_deep_state_directory_and_long_name(tmp_path, length):
    """C019, fault: with a deep state directory the per-VM socket passes 107 bytes; created but unreachable."""
    state = tmp_path
    while len(str(state)) < length:
        left = length - len(str(state)) - 1
        state = state / ("d" * (left if left <= 100 else 60))
    assert len(str(state)) == length
    with BrokerRig(state=state) as rig:
        with rig.create(name="n" * 100) as sandbox:
            assert sandbox.exec(["echo", "ok"]).stdout == "ok\n"
            assert rig.sandbox("n" * 100).id == sandbox.id


@pytest.mark.parametrize("length", [106, 107, 108, 140])
def test_c019_broker_socket_at_the_limit(tmp_path, length):
    """C019: 107 bytes work; 108 and more work too, or are refused at once with the limit and the path named."""
    directory = tmp_path / "d"
    path = Path(str(directory) + "/" + "s" * (length - len(str(directory)) - 1))
    assert len(str(path)) == length
    rig = BrokerRig(socket=path, start=False)
    try:
        rig.start()
    except AssertionError:
        log = rig.log_text()
        assert length > 107 and "107" in log and str(path) in log, log
        return
    with rig:
        with rig.create() as sandbox:
            assert sandbox.exec("echo ok").stdout == "ok\n"


def test_c032_restart_after_a_crash(tmp_path):
    """C032, fault: after kill -9 the socket file stays and the daemon will not start. Serves within 2 s."""
    with BrokerRig() as rig:
        for _ in range(5):
            rig.kill(signal.SIGKILL)
            assert rig.socket.exists()
            start = time.monotonic()
            rig.start()
            assert time.monotonic() - start < 2
            rig.client.ping()


def test_c032_second_broker_while_the_first_lives():
    """C032, fault: the naive cure deletes a live daemon's socket. Refused with a clear text; the first still answers."""
    with BrokerRig() as rig:
        inode = rig.socket.stat().st_ino
        second = rig.spawn()
        assert second.wait(10) not in (0, None) and second.returncode > 0
        text = rig.log_text()
        assert str(rig.socket) in text or str(rig.state) in text
        assert rig.socket.stat().st_ino == inode
        rig.client.close()
        rig.client.ping()
        # another socket, same state: the VMs belong to one broker
        other = BrokerRig(dir=None, state=rig.state, start=False)
        process = other.spawn()
        assert process.wait(10) != 0
        assert str(rig.state) in other.log_text()
        # another state, same socket
        other = BrokerRig(socket=rig.socket, start=False)
        process = other.spawn()
        assert process.wait(10) != 0
        assert rig.socket.stat().st_ino == inode
        rig.client.close()
        rig.client.ping()


@pytest.mark.parametrize("kind", ["file", "directory", "symlink", "fifo"])
def test_c032_what_is_no_socket_is_left_alone(kind, tmp_path):
    """C032: a regular file (directory, link, pipe) at the path is refused and untouched."""
    rig = BrokerRig(start=False)
    target = tmp_path / "precious"
    target.write_text("precious")
    {"file": lambda: rig.socket.write_text("precious"), "directory": rig.socket.mkdir, "symlink": lambda: rig.socket.symlink_to(target),
     "fifo": lambda: os.mkfifo(rig.socket)}[kind]()
    before = rig.socket.lstat()
    process = rig.spawn()
    assert process.wait(10) != 0
    assert str(rig.socket) in rig.log_text()
    after = rig.socket.lstat()
    assert (before.st_ino, before.st_mtime_ns, before.st_mode) == (after.st_ino, after.st_mtime_ns, after.st_mode)
    assert target.read_text() == "precious"


def test_c032_two_brokers_at_the_same_instant_on_a_stale_socket():
    """C032: exactly one serves. 50 times (10 unless HUTCH_TEST_FULL: each takes some 0.3 s)."""
    rig = BrokerRig()
    rig.kill(signal.SIGKILL)
    for _ in range(50 if FULL else 10):
        pair = [rig.spawn_ready(), rig.spawn_ready()]
        ready = [bool(select.select([fd], [], [], 10)[0] and os.read(fd, 1)) for _, fd in pair]
        for _, fd in pair:
            os.close(fd)
        assert sorted(ready) == [False, True], rig.log_text()[-2000:]
        winner, loser = (pair[0][0], pair[1][0]) if ready[0] else (pair[1][0], pair[0][0])
        assert loser.wait(10) > 0 and winner.poll() is None
        rig.client.close()
        assert rig.info()["pid"] == winner.pid
        rig.process = winner
        rig.kill(signal.SIGKILL)
    rig.start()
    rig.close()


def test_c032_clean_end_removes_the_socket():
    rig = BrokerRig()
    rig.client.close()
    rig.kill(signal.SIGTERM)
    assert not rig.socket.exists()


class ModeWatcher:
    """Looks at every file below some directories whenever the kernel tells of a change, and keeps the widest mode seen."""

    def __init__(self, *roots: Path) -> None:
        self.roots = roots
        self.seen = {}
        self._stop = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(5)

    def _look(self):
        watched = []
        for root in self.roots:
            for base, dirs, files in os.walk(root):
                watched.append(base)
                for name in [".", *dirs, *files]:
                    path = os.path.normpath(os.path.join(base, name))
                    try:
                        st = os.lstat(path)
                    except OSError:
                        continue
                    kind = "dir" if stat.S_ISDIR(st.st_mode) else "socket" if stat.S_ISSOCK(st.st_mode) else "file"
                    if not stat.S_ISLNK(st.st_mode):
                        key = (path, kind)
                        self.seen[key] = self.seen.get(key, 0) | stat.S_IMODE(st.st_mode)
        return watched

    def _run(self):
        fd = procs._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        known = set()
        try:
            while True:
                for directory in self._look():
                    if directory not in known:
                        procs._libc.inotify_add_watch(fd, os.fsencode(directory), 0x100 | 0x80 | 0x4 | 0x200)
                        known.add(directory)
                self._ready.set()
                ready = select.select([fd, self._stop[0]], [], [])[0]
                if self._stop[0] in ready:
                    self._look()
                    return
                os.read(fd, 1 << 16)
        finally:
            os.close(fd)

    def stop(self):
        os.write(self._stop[1], b"x")
        self._thread.join(10)
        return self.seen


def test_c068_modes_are_never_wider_than_the_owner(tmp_path):
    """C068, fault: the control socket is made with default permissions. Under umask 000, watched the whole time.

    The API socket 0600 in a 0700 directory, per-VM sockets and files the same, at no instant wider.
    """
    base = tmp_path / "base"
    base.mkdir(mode=0o700)
    rig = BrokerRig(dir=base, umask=0, start=False)
    rig.socket.parent.rmdir()
    rig.socket = base / "made" / "sock" / "hutchd.sock"
    rig.client = hutch.Client(str(rig.socket))
    watcher = ModeWatcher(base)
    rig.start()
    for _ in range(3):
        with rig.create() as sandbox:
            sandbox.exec("true")
    rig.client.close()
    rig.kill(signal.SIGTERM)
    seen = watcher.stop()
    sockets = {p: m for (p, kind), m in seen.items() if kind == "socket" and "/fake/" not in p}
    assert any(p == str(rig.socket) for p in sockets) and len(sockets) >= 4, sockets
    ours = [(p, kind, m) for (p, kind), m in seen.items()
            if p.startswith((str(rig.state), str(base / "made"))) and "/templates" not in p]
    wide = [(p, oct(m)) for p, kind, m in ours if m & ~(0o700 if kind == "dir" else 0o600)]
    assert not wide, wide


def test_c068_directory_that_others_may_write_to_is_refused(tmp_path):
    """C068 kin: where anybody could replace the socket or the state, the broker does not start."""
    if os.geteuid() != 0:
        pytest.fail("needs root to give the directory to somebody else")
    rig = BrokerRig(start=False)
    os.chown(rig.state, 4242, 4242)
    process = rig.spawn()
    assert process.wait(10) != 0
    assert str(rig.state) in rig.log_text()


CONNECT_AS = """
import os, socket, sys
os.setgid(4242); os.setgroups([]); os.setuid(4242)
s = socket.socket(socket.AF_UNIX)
s.settimeout(5)
try:
    s.connect(sys.argv[1])
except PermissionError:
    print("refused"); sys.exit()
data = b""
try:
    s.sendall(bytes.fromhex(sys.argv[2]))
except BrokenPipeError:
    pass
try:
    while True:
        got = s.recv(4096)
        if not got: break
        data += got
except ConnectionResetError:
    pass
print("dropped", len(data), b"RESULT" in data)
"""


def test_c068_another_user_is_refused(tmp_path):
    """C068: a connection of another uid is refused by the socket's mode, and dropped by the broker if it gets that far."""
    from hutch import wire

    hello = wire.encode_frame(wire.HELLO, wire.encode_map({"proto": 1, "role": "client", "name": "x"}))
    ping = wire.encode_frame(wire.CALL, wire.encode_map({"method": "broker.info"}), wire.END)

    def attempt(rig):
        run = subprocess.run([sys.executable, "-c", CONNECT_AS, str(rig.socket), (hello + ping).hex()], capture_output=True, text=True, timeout=20)
        assert run.returncode == 0, run.stderr
        return run.stdout.split()

    with BrokerRig() as rig:
        assert attempt(rig) == ["refused"]
        # doors opened by hand: the peer's uid, taken from the kernel, still decides
        for path in (rig.dir, rig.socket.parent):
            path.chmod(0o755)
        rig.socket.chmod(0o666)
        word, size, result = attempt(rig)
        assert word == "dropped" and int(size) < 300
        rig.client.close()
        rig.client.ping()


def test_slow_and_silent_clients_hold_up_nobody():
    """A hundred connections that say nothing, or stop in the middle of a frame."""
    with BrokerRig() as rig:
        idle = []
        for i in range(100):
            s = socket.socket(socket.AF_UNIX)
            s.connect(str(rig.socket))
            s.send(b"\0" * (i % 8))
            idle.append(s)
        start = time.monotonic()
        with rig.create() as sandbox:
            assert sandbox.exec("echo ok").stdout == "ok\n"
        assert time.monotonic() - start < 5
        for s in idle:
            s.close()
