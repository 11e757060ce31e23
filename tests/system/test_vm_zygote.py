# SPDX-License-Identifier: Apache-2.0
"""VMs that are forked off a zygote's process: what they are, what of one another they share, and what happens when it does not work."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import images
import procs
from box import parallel
from brokerrig import BrokerRig
from hutch import Sandbox

pytestmark = [pytest.mark.limit(240), pytest.mark.slow]

OWN = "cat /proc/sys/kernel/random/uuid /etc/machine-id; hostname; head -c 16 /dev/urandom | md5sum | cut -c-32"


@pytest.fixture(scope="module")
def rig():
    with BrokerRig(fake=False, templates=images.base_templates(), args=["--accel", "tcg"]) as rig:
        yield rig


def forked(sandbox: Sandbox) -> bool:
    return bool(sandbox.info().raw["zygote"])


def test_unlike_twins(rig):
    """Eight at once: random bytes, UUID, machine-id and host name differ in the first call of each."""
    rig.zygote()
    with_each = parallel(lambda _: rig.create(), range(8), 8)
    assert all(map(forked, with_each)) and {s.info().boot_mode for s in with_each} == {"restore"}
    said = [s.exec(OWN, check=True).stdout.split() for s in with_each]
    assert len({word for words in said for word in words}) == 32, said
    now = [float(s.exec("date +%s.%N", check=True).stdout) for s in with_each]
    assert all(abs(t - time.time()) < 60 for t in now)
    for i, s in enumerate(with_each):
        s.filesystem.write("/tmp/mine", str(i))
    assert [s.filesystem.read("/tmp/mine") for s in with_each] == [str(i) for i in range(8)]
    assert all(s.exec("ls /tmp").stdout == "mine\n" for s in with_each)
    info = rig.info()
    assert (info["vms"], info["own_vms"]) == (8, 1)
    rig.clear()


def test_forks_snapshots_and_parking(rig):
    """A fork of a fork of a fork, a VM of its snapshot, and one that was parked: memory, processes and files are what they were."""
    rig.zygote()
    s = rig.create()
    s.filesystem.write("/tmp/f", "0")
    s.exec("dd if=/dev/urandom of=/tmp/big bs=1M count=6 2>/dev/null; md5sum /tmp/big > /tmp/sum", check=True)
    with s.exec_stream("i=0; while read x; do i=$((i + 1)); echo $i $x; done", stdin=True, id="counter") as stream:
        stream.write("a\n")
        assert stream.read(60).data == "1 a\n"
        child = s.fork()[0]
        with child.attach("counter", owner=True, tail=True) as t:
            t.write("child\n")
            assert t.read(60).data == "2 child\n"
        stream.write("parent\n")
        assert stream.read(60).data == "2 parent\n"
    for generation in range(1, 4):
        child = s.fork()[0]
        assert forked(child) and child.info().raw["boot_mode"] == "fork"
        assert child.filesystem.read("/tmp/f") == str(generation - 1)
        child.filesystem.write("/tmp/f", str(generation))
        assert child.exec("md5sum -c /tmp/sum").stdout == "/tmp/big: OK\n"
        s = child
    s.snapshot("kept")
    s.filesystem.write("/tmp/f", "later")
    other = rig.create(snapshot="kept")
    assert forked(other) and other.filesystem.read("/tmp/f") == "3"
    assert other.exec("md5sum -c /tmp/sum").stdout == "/tmp/big: OK\n"
    other.park()
    assert other.exec("md5sum -c /tmp/sum; cat /tmp/f").stdout == "/tmp/big: OK\n3"
    assert s.filesystem.read("/tmp/f") == "later"
    rig.clear()


def test_code_that_changed_is_not_what_runs(rig):
    """A program that its parent wrote over another one, at the same pages: each VM runs its own."""
    rig.zygote()
    s = rig.create()
    s.exec("cp /bin/busybox /tmp/p && cd /tmp && ln -s p true && ln -s p false", check=True)
    kids = s.fork(2)
    kids[0].exec("rm /tmp/p; head -c 1000000 /dev/urandom > /tmp/x; rm /tmp/x; cp /bin/busybox /tmp/p", check=True)
    grandkids = kids[0].fork(2)
    for vm in (s, *kids, *grandkids):
        assert forked(vm)
        for _ in range(3):
            assert vm.exec("/tmp/true && ! /tmp/false && md5sum /bin/busybox /tmp/p | cut -c-32 | uniq | wc -l", check=True).stdout == "1\n"
    rig.clear()


def test_pools_are_filled_from_it(rig):
    rig.zygote()
    rig.client.call("pool.set", {"template": "base", "size": 2})
    procs.eventually(lambda: rig.client.call("pool.list")["pools"][0]["ready"] == 2, 60, "two ready VMs")
    taken = [rig.create() for _ in range(2)]
    assert [s.info().boot_mode for s in taken] == ["pool"] * 2 and all(map(forked, taken))
    said = [s.exec(OWN, check=True).stdout.split() for s in taken]
    assert len({word for words in said for word in words}) == 8, said
    rig.client.call("pool.set", {"template": "base", "size": 0})
    rig.clear()


def test_its_end_ends_nobody(rig):
    """Killed: its forks live on, the next VM is restored, and nothing is left of it."""
    zygote = rig.zygote()
    s = rig.create()
    assert forked(s)
    os.kill(zygote, signal.SIGKILL)
    assert procs.wait_gone(zygote, 10)
    other = rig.create()
    assert not forked(other) and other.exec("echo ok").stdout == "ok\n"
    assert s.exec("echo ok").stdout == "ok\n"
    procs.eventually(lambda: len(rig.rundirs()) == 2, 20, "its run directory is removed")
    rig.clear()


def test_one_that_does_not_answer(rig):
    """Stopped: whoever asks for a VM gets one that is restored, and the zygote is ended."""
    rig.restart(signal.SIGTERM)
    zygote = rig.zygote()
    os.kill(zygote, signal.SIGSTOP)
    s = rig.create(timeout_seconds=60)
    assert not forked(s) and s.exec("echo ok").stdout == "ok\n"
    assert procs.wait_gone(zygote, 10)
    assert "its zygote did not make it" in rig.log_text()
    rig.clear()


def test_a_broker_that_dies(rig):
    """kill -9: forks are adopted with what they ran, the zygote is not."""
    rig.restart(signal.SIGTERM)
    zygote = rig.zygote()
    s = rig.create()
    s.commands.start("sleep 1000", id="long")
    pid = s.info().pid
    rig.restart(signal.SIGKILL)
    s = rig.sandbox(s.id)
    assert s.info().pid == pid and forked(s)
    assert [c.id for c in s.commands.list()] == ["long"]
    assert procs.wait_gone(zygote, 10)
    s.kill()
    assert not procs.alive(pid) and rig.rundirs() == []


def test_none_when_told(rig):
    with BrokerRig(fake=False, templates=images.base_templates(), args=["--accel", "tcg", "--zygotes", "0"]) as plain:
        plain.snapshot_template()
        places = set()
        for _ in range(2):
            s = plain.create()
            assert not forked(s) and s.exec("echo ok").stdout == "ok\n"
            layout = Path(f"/proc/{s.info().pid}/maps").read_text()
            s.kill()
            assert "hutch-vmm.so" in layout
            places.add(next(line.split("-")[0] for line in layout.splitlines() if "hutch-vmm.so" in line))
        assert len(places) == 2
        assert "zygote" not in plain.log_text()


def test_another_snapshot_of_the_template(rig):
    """A VM of a template that was built again is not forked off what was made of the old one."""
    rig.restart(signal.SIGTERM)
    zygote = rig.zygote()
    rig.snapshot_template()
    s = rig.create()
    assert not forked(s) and s.exec("echo ok").stdout == "ok\n"
    assert procs.wait_gone(zygote, 10)
    rig.clear()
