# SPDX-License-Identifier: Apache-2.0
"""Forks, snapshots, pauses and pools on real VMs, as the CLI and Python offer them; the broker's own part is test_vm_snapshot.py's."""

from __future__ import annotations

import asyncio
import time

import pytest

import hutch
import images
from box import Box
from brokerrig import BrokerRig
from hutch import AsyncClient, AsyncSandbox, Sandbox

pytestmark = pytest.mark.limit(240)


@pytest.fixture(scope="module")
def rig():
    with BrokerRig(fake=False, templates=images.base_templates()) as rig:
        rig.client.snapshot_template("base")
        yield rig


@pytest.fixture
def box(rig):
    with rig.create(ttl_seconds=3000, timeout_seconds=120) as sandbox:
        yield Box("vm", sandbox, socket=str(rig.socket), slow=10)


def test_a_branch_goes_on_where_its_parent_was(rig, box):
    """A command with state in memory and in a file, followed in the parent and, by its id, in two children."""
    sbx = box.sandbox
    assert sbx.info().boot_mode == "restore"
    sbx.filesystem.write("/tmp/f", "before")
    with sbx.exec_stream("i=0; while read x; do i=$((i + 1)); echo $i $x; done; echo end", stdin=True, id="counter") as s:
        s.write("a\n")
        assert s.read(60).data == "1 a\n"
        r = box.cli("fork", "--count", "2", "--name", "kid", sbx.id)
        assert r.returncode == 0, r.stderr
        kids = [Sandbox.get(id, client=rig.client) for id in r.stdout.decode().split()]
        assert [k.name for k in kids] == ["kid-1", "kid-2"] and all(k.info().parent == sbx.id for k in kids)
        s.write("parent\n")
        assert s.read(60).data == "2 parent\n"
        sbx.filesystem.write("/tmp/f", "parent")
        for kid in kids:
            with kid.attach("counter", owner=True, tail=True) as t:
                t.write(f"{kid.name}\n")
                assert t.read(60).data == f"2 {kid.name}\n"
                t.close_stdin()
                assert t.wait(60).exit_code == 0
            assert kid.filesystem.read("/tmp/f") == "before"
        secrets = {v.exec("cat /proc/sys/kernel/random/uuid /etc/machine-id; hostname", check=True).stdout for v in (sbx, *kids)}
        assert len({line for text in secrets for line in text.split()}) == 9
        s.close_stdin()
        assert [p.data for p in s] == ["end\n"]
    for kid in kids:
        kid.kill()


def test_snapshots(rig, box):
    sbx = box.sandbox
    sbx.filesystem.write("/tmp/f", "kept")
    made = sbx.snapshot("kept")
    assert made.pause_ms and made.memory_mib and [s.name for s in rig.client.snapshots()] == ["kept"]
    with pytest.raises(hutch.Exists):
        sbx.snapshot("kept")
    sbx.filesystem.write("/tmp/f", "changed")
    with Sandbox.create(snapshot="kept", client=rig.client) as again:
        assert again.filesystem.read("/tmp/f") == "kept" and again.info().snapshot == "kept"
        r = box.cli("snapshot", "delete", "kept")
        assert r.returncode == 1 and again.id.encode() in r.stderr
    assert box.cli("snapshot", "verify", "kept").returncode == 0
    assert b"kept" in box.cli("snapshot", "list").stdout
    assert box.cli("snapshot", "delete", "kept").returncode == 0 and rig.client.snapshots() == []
    with pytest.raises(hutch.NotFound):
        Sandbox.create(snapshot="kept", client=rig.client)


def test_pause(box):
    sbx = box.sandbox
    assert box.cli("pause", sbx.id).returncode == 0
    with pytest.raises(hutch.WrongState):
        sbx.exec(["true"])
    assert sbx.info().state == "paused"
    assert box.cli("resume", sbx.id).returncode == 0
    assert sbx.exec(["echo", "on"]).stdout == "on\n"


def test_park_and_idle(rig, box):
    sbx = box.sandbox
    job = sbx.commands.start("while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done")
    assert box.cli("park", sbx.id).returncode == 0
    info = sbx.info()
    assert info.state == "parked" and info.asleep_by == "call" and info.pid is None
    assert b"parked" in box.cli("ls").stdout and b"parked" in box.cli("info", sbx.id).stdout
    r = box.cli("exec", sbx.id, "--", "touch", "/tmp/go")
    assert r.returncode == 0, r.stderr
    assert [p.data for p in sbx.attach(job)] == ["done\n"]
    assert box.cli("idle", "--pause-after", "1", "--park-after", "1h", sbx.id).returncode == 0
    info = sbx.info()
    assert (info.pause_after_seconds, info.park_after_seconds) == (1, 3600)
    deadline = time.monotonic() + 60
    while sbx.info().state != "paused" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sbx.info().asleep_by == "idle" and sbx.exec(["echo", "on"]).stdout == "on\n"
    sbx.set_idle()
    sbx.park()
    assert box.cli("resume", sbx.id).returncode == 0 and sbx.info().state == "running"
    r = box.cli("create", "--park-after", "2h")
    assert r.returncode == 0, r.stderr
    with Sandbox.get(r.stdout.decode().strip(), client=rig.client) as other:
        assert (other.info().pause_after_seconds, other.info().park_after_seconds) == (None, 7200)
        other.kill()
    assert box.cli("idle", "--park-after", "0.1", sbx.id).returncode != 0


def test_pool(rig, box):
    assert box.cli("pool", "set", "base", "1").returncode == 0
    deadline = time.monotonic() + 60
    while not rig.client.pools()[0]["ready"] and time.monotonic() < deadline:
        time.sleep(0.05)
    with rig.create() as taken:
        assert taken.info().boot_mode == "pool" and taken.exec(["echo", "hi"]).stdout == "hi\n"
    assert box.cli("pool", "list").stdout.split()[9:11] == [b"base", b"1"]
    assert box.cli("pool", "set", "base", "0").returncode == 0


def test_asyncio(rig, box):
    async def main():
        async with AsyncClient(box.socket) as client:
            kids = await AsyncSandbox(box.sandbox.id, client=client).fork(3)
            out = await asyncio.gather(*(k.exec("hostname", check=True) for k in kids))
            assert len({r.stdout for r in out}) == 3
            for k in kids:
                async with k:
                    await k.pause()
                    await k.resume()
                    await k.set_idle(park_after_seconds=60)
                    await k.park()
                    await k.ping()

    asyncio.run(asyncio.wait_for(main(), 120))
