# SPDX-License-Identifier: Apache-2.0
"""snapshot.prepare, snapshot.resume, agent.identity of a copy and agent.warm, on the agent as a plain process.

A copy is told from the VM that goes on by the loss of every connection; here the test closes them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

import procs
from agentpeer import Host, Peer, own_cgroup
from agentrig import AgentRig
from hutch import paths

IDENTITY = {"hostname": "copy", "machine_id": "0" * 32, "realtime_ns": 1, "entropy": bytes(32)}

# A fault of get_user_pages on a page that nobody gives: the process waits where only SIGKILL reaches it.
UNFREEZABLE = textwrap.dedent("""
    import ctypes, fcntl, mmap, os, struct, sys
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(323, os.O_CLOEXEC)  # userfaultfd
    if fd < 0:
        sys.exit(3)
    fcntl.ioctl(fd, 0xc018aa3f, struct.pack("=QQQ", 0xaa, 0, 0))
    m = mmap.mmap(-1, 4096)
    at = ctypes.addressof(ctypes.c_char.from_buffer(m))
    fcntl.ioctl(fd, 0xc020aa00, struct.pack("=QQQQ", at, 4096, 1, 0))
    here = ctypes.create_string_buffer(8)
    local = struct.pack("=QQ", ctypes.addressof(here), 8)
    remote = struct.pack("=QQ", at, 8)
    os.write(1, b"stuck\\n")
    libc.process_vm_readv(os.getpid(), local, 1, remote, 1, 0)
""")


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="hutch-snap-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def host(folder):
    host = Host(folder / "host.sock")
    yield host
    host.close()


@pytest.fixture
def rig(host):
    with own_cgroup() as cgroup:
        if not cgroup:
            pytest.skip("no cgroup2 directory can be made here")
        with AgentRig(args=["--dial", str(host.path), "--cgroup", str(cgroup)]) as rig:
            rig.cgroup = cgroup
            rig.hello = host.accept()
            rig.hello.ask("agent.identity", {**IDENTITY, "generation": 7})
            yield rig


def eventually(condition) -> None:
    procs.eventually(condition, 10)


def peer(rig) -> Peer:
    return Peer(paths.connect(str(rig.socket)))


def counting(rig, folder):
    """A command that writes a line per round; returns a function that tells how many there are."""
    file = folder / "count"
    rig.client.call("exec.start", {"shell": f"while :; do echo x >> {file}; sleep 0.005; done", "detach": True}, id="count")

    def lines() -> int:
        return file.stat().st_size // 2 if file.exists() else 0

    eventually(lambda: lines() > 3)
    return lines


def test_held_until_resumed(rig, folder):
    lines, broker, other = counting(rig, folder), peer(rig), peer(rig)
    prepared = broker.ask("snapshot.prepare")
    assert prepared["generation"] == 7 and prepared["frozen_us"] < 1000000
    before = lines()
    other.send("ping")
    late = Peer.__new__(Peer)  # its connection is not even accepted: no HELLO comes
    late.sock, late.frames = paths.connect(str(rig.socket)), []
    assert other.silent(0.1) and late.silent(0.05)
    assert lines() == before
    assert broker.refused("exec.list") == "state"
    assert broker.refused("snapshot.prepare") == "state"
    assert broker.refused("agent.identity", {**IDENTITY, "generation": 7}) == "state"
    assert broker.refused("snapshot.resume", {"generation": 6}) == "state"
    broker.ask("ping")
    broker.ask("snapshot.resume", {"generation": 7, "realtime_ns": 1})
    assert other.answer() == ("result", {})
    Peer(late.sock).ask("ping")
    eventually(lambda: lines() > before)
    broker.ask("snapshot.resume", {"generation": 7})
    assert [e["id"] for e in broker.ask("exec.list")["execs"]] == ["count"]
    broker.close()  # of no meaning any more
    rig.hello.ask("ping")


def test_timers_stand_still(rig):
    """Timeout, drain and the wait of a call: what was left of each is left after the pause."""
    run, left, wait, broker = peer(rig), peer(rig), peer(rig), peer(rig)
    start = time.monotonic()
    run.send("exec.start", {"argv": ["sleep", "60"], "timeout_ms": 250}, id="timed")
    left.send("exec.start", {"shell": "sleep 60 & exit 0", "drain_ms": 250, "notify": True}, id="drained")
    broker.ask("exec.start", {"argv": ["sleep", "60"], "detach": True}, id="long")
    wait.send("exec.wait", {"timeout_ms": 250}, id="long")
    left.frame()
    broker.ask("snapshot.prepare")
    assert run.silent(0.4) and left.silent(0) and wait.silent(0)
    held = time.monotonic() - start
    broker.ask("snapshot.resume", {"generation": 7})
    answers = [p.answer() for p in (run, wait, left)]
    assert answers[0][1]["timed_out"] and answers[1][1]["kind"] == "timeout" and answers[2][1]["exit_code"] == 0
    assert 0.05 < time.monotonic() - start - held < 5


def test_broker_that_dies_in_the_pause(rig, host, folder):
    """Its successor, told by the hello, has it go on; what was attached goes on as well."""
    lines, broker, attached = counting(rig, folder), peer(rig), peer(rig)
    attached.send("exec.start", {"argv": ["cat"]}, end=False, id="cat")
    attached.sock.sendall(b"\0\0\0\2\x10\0\0\0a\n")
    assert attached.frame().payload == b"a\n"
    broker.ask("snapshot.prepare")
    before = lines()
    broker.close()
    hello = host.accept()
    assert hello.hello["held"] and hello.hello["generation"] == 7
    assert rig.hello.closed()
    assert hello.refused("exec.start", {"argv": ["true"]}) == "state"
    hello.close()
    hello = host.accept()
    assert hello.hello["held"] and lines() == before
    hello.ask("snapshot.resume", {"generation": 7})
    attached.sock.sendall(b"\0\0\0\2\x10\1\0\0b\n")
    assert attached.frame().payload == b"b\n" and attached.answer()[1]["exit_code"] == 0
    eventually(lambda: lines() > before)


def test_copy(rig, host, folder):
    """Connections from before end; execs live on, without keys, and can be attached; nothing runs before the identity."""
    lines, broker, old, attached = counting(rig, folder), peer(rig), peer(rig), peer(rig)
    attached.send("exec.start", {"argv": ["cat"]}, end=False, id="cat", key="k")
    attached.sock.sendall(b"\0\0\0\2\x10\0\0\0a\n")
    assert attached.frame().payload == b"a\n"
    broker.ask("snapshot.prepare")
    before = lines()
    broker.close()
    attached.close()
    hello = host.accept()
    assert hello.ask("agent.warm") == {"failed": 0}
    assert lines() == before
    assert hello.ask("agent.identity", {**IDENTITY, "generation": 8}) == {"generation": 8}
    assert old.closed()
    eventually(lambda: lines() > before)
    execs = hello.ask("exec.list")["execs"]
    assert [(e["id"], e["attached"]) for e in execs] == [("count", 0), ("cat", 0)]
    again = peer(rig)
    assert again.hello["generation"] == 8 and "held" not in again.hello
    again.send("exec.attach", {"owner": True, "tail": True}, end=False, id="cat")
    again.sock.sendall(b"\0\0\0\2\x10\1\0\0b\n")
    while (frame := again.frame()).type != 17:
        pass
    assert frame.payload == b"b\n" and again.answer()[1]["exit_code"] == 0
    assert again.ask("exec.start", {"argv": ["true"]}, key="k", id="other")["id"] == "other"


def test_the_same_vm_keeps_its_keys(rig, host):
    """It was parked: a call that is repeated with its key finds its exec, and does not run twice."""
    broker = peer(rig)
    assert not broker.ask("agent.info")["busy"]
    broker.ask("exec.start", {"argv": ["sleep", "60"], "detach": True}, id="e", key="k")
    assert broker.ask("agent.info")["busy"]
    broker.ask("snapshot.prepare")
    broker.close()
    hello = host.accept()
    hello.ask("agent.identity", {**IDENTITY, "generation": 8, "keep_keys": True})
    assert hello.ask("exec.start", {"argv": ["sleep", "60"], "detach": True}, id="f", key="k")["id"] == "e"
    assert [e["id"] for e in hello.ask("exec.list")["execs"]] == ["e"]
    hello.ask("exec.start", {"shell": "sleep 60 >/dev/null 2>&1 &"}, id="left")
    hello.ask("exec.kill", id="e")
    info = hello.ask("agent.info")
    assert info["execs"] == 0 and info["busy"]
    hello.ask("exec.kill", id="left")
    eventually(lambda: not hello.ask("agent.info")["busy"])


@pytest.mark.parametrize("end", ["timeout", "lost"])
def test_command_that_cannot_be_frozen(rig, end):
    stuck, broker = peer(rig), peer(rig)
    stuck.send("exec.start", {"argv": [sys.executable, "-c", UNFREEZABLE]}, id="stuck")
    if stuck.frame().payload != b"stuck\n":
        pytest.skip("no userfaultfd here")
    eventually(lambda: any(c.state == "D" for c in rig.children()))
    if end == "timeout":
        broker.send("snapshot.prepare", {"timeout_ms": 50})
        how, error = broker.answer()
        assert how == "error" and error["kind"] == "timeout" and '"stuck"' in error["message"]
    else:
        broker.send("snapshot.prepare")
        assert broker.silent(0.05)
        broker.close()
    rig.hello.ask("exec.kill", id="stuck")
    assert stuck.answer()[1]["signal"] == 9
    again = peer(rig)
    again.ask("snapshot.prepare")
    again.ask("snapshot.resume", {"generation": 7})
    assert rig.client.call("exec.start", {"argv": ["true"]})["exit_code"] == 0


@pytest.mark.parametrize("when", ["open", "held"])
def test_warm_leaves_no_trace(rig, host, when):
    broker = peer(rig)
    if when == "held":
        broker.ask("snapshot.prepare")
    assert broker.ask("agent.info")["execs"] == 0
    assert broker.ask("agent.warm") == {"failed": 0}
    assert broker.ask("agent.warm") == {"failed": 0}
    assert not [p.name for p in Path("/tmp").iterdir() if p.name.startswith(".hutch")]
    assert broker.ask("agent.info")["execs"] == 0
    if when == "held":
        broker.ask("snapshot.resume", {"generation": 7})
    assert broker.ask("exec.list")["execs"] == []
    assert broker.ask("exec.start", {"shell": "cat /proc/self/cgroup"})["id"] == "e1"
    assert sorted(p.name for p in rig.cgroup.iterdir() if p.is_dir()) == ["agent", "exec"]


def test_without_a_host_or_cgroups(folder):
    with AgentRig() as rig:
        assert peer(rig).refused("snapshot.prepare") == "unsupported"
    host = Host(folder / "host.sock")
    with AgentRig(args=["--dial", str(host.path)]) as rig:
        broker = peer(rig)
        assert broker.ask("snapshot.prepare")["generation"] == 0
        broker.ask("snapshot.resume", {"generation": 0})
    host.close()
