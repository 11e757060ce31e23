# SPDX-License-Identifier: Apache-2.0
"""Forks, snapshots, pauses and pools from Python and the CLI: what is asked of a broker, and what its answers become."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

import hutch
from fakepeer import FakePeer, error_frame, result_frame
from hutch import AsyncClient, AsyncSandbox, Client, Sandbox
from terminal import hutch as cli_words

VM = {"id": "v1", "state": "running", "boot_mode": "fork", "parent": "v0", "layers": 2, "stages": {"total_us": 5000}}
SNAPSHOT = {"name": "s", "template": "base", "bytes": 100 << 20, "own_bytes": 1 << 20, "users": ["v1"], "layers": 1, "verified": True,
            "must_match": {"vmm": "qemu"}, "pause_us": 1500, "created_ms": 1700000000000}
POOL = {"template": "base", "size": 2, "ready": 1, "starting": 1, "taken": 7, "missed": 0, "failed": 0}
ANSWERS = {
    "vm.create": VM, "vm.fork": {"vms": [VM, {**VM, "id": "v2", "name": "k-2"}], "pause_us": 9000, "bytes": 1}, "snapshot.create": SNAPSHOT,
    "snapshot.info": SNAPSHOT, "snapshot.list": {"snapshots": [SNAPSHOT]}, "snapshot.verify": {"bytes": 5 << 20, "duration_us": 3},
    "pool.list": {"pools": [POOL]}, "pool.set": POOL,
}


@pytest.fixture
def peer():
    calls = []

    def script(c, _):
        while (call := c.call()) is not None:
            calls.append((call["method"], call.get("vm"), call.get("params", {})))
            if call.get("vm") == "absent":
                c.send(error_frame("not_found", "there is no VM absent"))
            else:
                c.send(result_frame(ANSWERS.get(call["method"], {})))

    with FakePeer(script) as peer:
        peer.calls = calls
        yield peer


class Blocking:
    def __init__(self, path):
        self.client = Client(path)
        self.create = lambda **o: Sandbox.create(client=self.client, **o)
        self.sandbox = Sandbox("v0", client=self.client)
        self.run = lambda result: result


class InLoop:
    def __init__(self, path):
        loop = asyncio.new_event_loop()
        self.run = lambda work: loop.run_until_complete(asyncio.wait_for(work, 20))
        self.client = AsyncClient(path)
        self.create = lambda **o: AsyncSandbox.create(client=self.client, **o)

        async def make():
            return AsyncSandbox("v0", client=self.client)

        self.sandbox = self.run(make())


@pytest.mark.parametrize("kind", [Blocking, InLoop])
def test_python(peer, kind):
    k = kind(peer.path)
    run, sandbox, client, calls = k.run, k.sandbox, k.client, peer.calls
    run(k.create(ttl_seconds=None, timeout_seconds=None))
    assert calls[-1] == ("vm.create", None, {"template": "base"})
    run(k.create(snapshot="s", secrets=True, ttl_seconds=5, timeout_seconds=None))
    assert calls[-1] == ("vm.create", None, {"snapshot": "s", "secrets": True, "ttl_ms": 5000})
    run(k.create(template="debian", cold=True, ttl_seconds=None, timeout_seconds=7))
    assert calls[-1] == ("vm.create", None, {"template": "debian", "cold": True, "timeout_ms": 7000})
    children = run(sandbox.fork(2, name="k", ttl_seconds=60, metadata={"a": "b"}, timeout_seconds=5, allow_secrets=True))
    assert calls[-1] == ("vm.fork", "v0", {
        "count": 2, "name": "k", "ttl_ms": 60000, "metadata": {"a": "b"}, "timeout_ms": 5000, "allow_secrets": True})
    assert [(c.id, c.name, type(c)) for c in children] == [("v1", None, type(sandbox)), ("v2", "k-2", type(sandbox))]
    run(sandbox.fork(timeout_seconds=None))
    assert calls[-1] == ("vm.fork", "v0", {"count": 1})
    snapshot = run(sandbox.snapshot("s"))
    assert calls[-1] == ("snapshot.create", "v0", {"name": "s"})
    assert (snapshot.name, snapshot.own_bytes, snapshot.users, snapshot.pause_ms, snapshot.must_match["vmm"]) == ("s", 1 << 20, ["v1"], 1.5, "qemu")
    run(sandbox.snapshot("s", allow_secrets=True))
    assert calls[-1][2] == {"name": "s", "allow_secrets": True}
    run(k.create(pause_after_seconds=1.5, park_after_seconds=60, ttl_seconds=None, timeout_seconds=None))
    assert calls[-1] == ("vm.create", None, {"template": "base", "idle": {"pause_after_ms": 1500, "park_after_ms": 60000}})
    run(sandbox.set_idle(park_after_seconds=5))
    assert calls[-1] == ("vm.set_idle", "v0", {"park_after_ms": 5000})
    run(sandbox.set_idle())
    assert calls[-1] == ("vm.set_idle", "v0", {})
    run(sandbox.park())
    assert calls[-1][:2] == ("vm.park", "v0")
    run(sandbox.pause())
    run(sandbox.resume())
    assert [c[:2] for c in calls[-2:]] == [("vm.pause", "v0"), ("vm.resume", "v0")]
    assert run(client.snapshots()) == [snapshot] and run(client.snapshot("s")) == snapshot
    for work, method, params in (
        (lambda: client.delete_snapshot("s"), "snapshot.delete", {"name": "s"}),
        (lambda: client.verify_snapshot("s"), "snapshot.verify", {"name": "s"}),
        (lambda: client.snapshot_template("base", memory_mib=512), "template.snapshot", {"name": "base", "memory_mib": 512}),
        (lambda: client.set_pool("base", 2), "pool.set", {"template": "base", "size": 2}),
    ):
        run(work())
        assert calls[-1] == (method, None, params)
    assert run(client.pools()) == [POOL]
    info = hutch.VmInfo.from_wire(VM)
    asleep = hutch.VmInfo.from_wire({**VM, "idle": {"park_after_ms": 2000}, "asleep": {"by": "idle", "since_ms": 5000}})
    assert (asleep.pause_after_seconds, asleep.park_after_seconds, asleep.asleep_by, asleep.asleep_since) == (None, 2.0, "idle", 5.0)
    assert (info.asleep_by, info.asleep_since, info.park_after_seconds) == (None, None, None)
    assert (info.boot_mode, info.parent, info.layers, info.secrets, info.snapshot, info.stages_ms) == ("fork", "v0", 2, False, None, {"total": 5.0})


def test_a_child_in_a_block_is_ended_with_it(peer):
    with Client(peer.path) as client:
        with Sandbox("v0", client=client).fork()[0]:
            pass
        assert peer.calls[-1][:2] == ("vm.kill", "v1")
        with Sandbox("v0", client=client):
            pass
        assert peer.calls[-1][:2] == ("vm.kill", "v1")


def cli(peer, *args):
    return subprocess.run(cli_words("--socket", peer.path, *args), capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    "args,call,out",
    [
        (["fork", "v0"], ("vm.fork", "v0", {}), "v1\nv2\n"),
        (["fork", "--count", "2", "v0"], ("vm.fork", "v0", {"count": 2}), "v1\nv2\n"),
        (["fork", "-n", "3", "--name", "k", "--ttl", "5m", "--timeout", "9", "--allow-secrets", "v0"],
         ("vm.fork", "v0", {"count": 3, "name": "k", "ttl_ms": 300000, "timeout_ms": 9000, "allow_secrets": True}), "v1\nv2\n"),
        (["pause", "v0"], ("vm.pause", "v0", {}), ""),
        (["resume", "v0"], ("vm.resume", "v0", {}), ""),
        (["park", "v0"], ("vm.park", "v0", {}), ""),
        (["idle", "v0"], ("vm.set_idle", "v0", {}), ""),
        (["idle", "--pause-after", "90", "--park-after", "2h", "v0"],
         ("vm.set_idle", "v0", {"pause_after_ms": 90000, "park_after_ms": 7200000}), ""),
        (["create", "--park-after", "5m"], ("vm.create", None, {"idle": {"park_after_ms": 300000}}), "v1\n"),
        (["create", "--snapshot", "s", "--secrets"], ("vm.create", None, {"snapshot": "s", "secrets": True}), "v1\n"),
        (["create", "--cold"], ("vm.create", None, {"cold": True}), "v1\n"),
        (["snapshot", "create", "v0", "s"], ("snapshot.create", "v0", {"name": "s"}), "s\n"),
        (["snapshot", "create", "--allow-secrets", "v0", "s"], ("snapshot.create", "v0", {"name": "s", "allow_secrets": True}), "s\n"),
        (["snapshot", "list"], ("snapshot.list", None, {}), None),
        (["snapshot", "info", "s"], ("snapshot.info", None, {"name": "s"}), None),
        (["snapshot", "delete", "s"], ("snapshot.delete", None, {"name": "s"}), ""),
        (["snapshot", "verify", "s"], ("snapshot.verify", None, {"name": "s"}), "s fits here; 5.0 MiB read, every digest is right\n"),
        (["template", "snapshot", "--memory", "512", "base"], ("template.snapshot", None, {"name": "base", "memory_mib": 512}), ""),
        (["pool", "set", "base", "2"], ("pool.set", None, {"template": "base", "size": 2}), ""),
        (["pool", "list"], ("pool.list", None, {}), None),
    ],
)
def test_cli(peer, args, call, out):
    r = cli(peer, *args)
    assert r.returncode == 0 and r.stderr == "", r.stderr
    assert peer.calls[-1] == call
    assert out is None or r.stdout == out
    r = cli(peer, "--json", *args)
    assert r.returncode == 0
    for line in r.stdout.splitlines():
        assert isinstance(json.loads(line), dict)


def test_cli_tables_and_failures(peer):
    assert cli(peer, "snapshot", "list").stdout.splitlines()[1].split()[:8] == ["s", "base", "0", "100.0", "MiB", "1.0", "MiB", "1"]
    assert cli(peer, "pool", "list").stdout.split()[-8:] == ["base", "2", "1", "1", "7", "0", "0", "-"]
    r = cli(peer, "pause", "absent", "v0")
    assert r.returncode == 1 and "absent" in r.stderr and peer.calls[-1][:2] == ("vm.pause", "v0")
    before = len(peer.calls)
    for args in (["fork"], ["fork", "a", "b"], ["fork", "-n", "0", "a"], ["snapshot", "create", "v0"], ["snapshot"], ["pool", "set", "base"],
                 ["pool", "set", "base", "-1"], ["pause"], ["park"], ["idle"], ["idle", "a", "b"], ["snapshot", "list", "x"], ["template", "snapshot"]):
        assert cli(peer, *args).returncode == 2, args
    assert len(peer.calls) == before
