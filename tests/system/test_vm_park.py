# SPDX-License-Identifier: Apache-2.0
"""Parking, waking and idle policies, on real VMs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time

import pytest

import hutch
import images
import procs
from box import FULL, parallel
from brokerrig import BrokerRig

pytestmark = pytest.mark.limit(300)

NAMES = "hostname; cat /etc/machine-id"
RANDOM = "head -c 16 /dev/urandom | od -An -tx1"
COUNTER = "while :; do echo >> /tmp/n; sleep 0.02; done"
MEMORY = 256  # of base, MiB


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    config = tmp_path_factory.mktemp("park") / "hutchd.conf"
    config.write_text(f"max_memory_mib = {3 * MEMORY}\n")
    with BrokerRig(fake=False, templates=images.base_templates(), args=["--config", str(config)]) as rig:
        made = rig.snapshot_template()
        assert made["memory_mib"] == MEMORY
        yield rig


@pytest.fixture(autouse=True)
def alone(rig):
    yield
    rig.client.kill_all()


def create(rig, **options):
    return rig.create(timeout_seconds=120, **options)


def info(vm):
    return vm.client.call("vm.info", vm=vm.id)


def park(vm):
    vm.client.call("vm.park", vm=vm.id, timeout_seconds=120)


def run(vm, script):
    return vm.exec(script, timeout_seconds=120).stdout


def refused(kind, action, *args, **kwargs):
    with pytest.raises(hutch.HutchError) as caught:
        action(*args, **kwargs)
    assert caught.value.kind == kind, caught.value
    return caught.value


def becomes(vm, state, seconds=30):
    procs.eventually(lambda: info(vm)["state"] == state, seconds, state)


def rundir(rig, vm):
    return rig.state / "vm" / vm.id


def disk_kib(folder):
    return sum(p.stat().st_blocks for p in folder.iterdir()) // 2


def vmms(vm):
    """Processes that carry the VM's mark."""
    mark, found = f"HUTCH_VM={vm.id}".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark in f.read().split(b"\0"):
                    found.append(int(pid))
    return found


def test_parked_and_woken(rig):
    """Its process ends, and the next call finds everything as it was; only time, entropy and connections are new."""
    with create(rig, name="p") as vm:
        run(vm, "echo kept > /tmp/f")
        vm.commands.start(COUNTER, id="job", key="once")
        stream = vm.exec_stream("echo on; sleep 100", id="attached")
        assert stream.read(60).data == "on\n"
        names, random = run(vm, NAMES), run(vm, RANDOM)
        before = info(vm)
        park(vm)
        told = refused("outcome_unknown", stream.wait, 10)
        assert "parked" in told.message
        park(vm)  # no error
        parked = info(vm)
        assert parked["state"] == "parked" and parked["asleep"]["by"] == "call" and "pid" not in parked
        assert abs(parked["asleep"]["since_ms"] / 1000 - time.time()) < 30
        assert not procs.alive(before["pid"]) and vmms(vm) == []
        assert [(v.id, v.state) for v in rig.client.vms()] == [(vm.id, "parked")]
        assert vm.set_ttl(3000) > 2900 and info(vm)["state"] == "parked"
        assert run(vm, "cat /tmp/f") == "kept\n"
        woken = info(vm)
        assert woken["state"] == "running" and "asleep" not in woken and woken["pid"] != before["pid"]
        assert woken["agent"]["generation"] == before["agent"]["generation"] + 1
        assert run(vm, NAMES) == names and run(vm, RANDOM) != random
        assert abs(int(run(vm, "date +%s")) - time.time()) < 3
        first = int(run(vm, "wc -l < /tmp/n"))
        procs.eventually(lambda: int(run(vm, "wc -l < /tmp/n")) > first, 20, "its process goes on")
        assert vm.commands.start(COUNTER, id="other", key="once") == "job"
        assert sorted(e.id for e in vm.execs() if e.state == "running") == ["attached", "job"]
        with vm.commands.connect("attached", tail=True) as again:
            vm.commands.kill("attached")
            assert "".join(data for _, data in again) == ""


def test_the_nth_park_costs_what_the_second_did(rig):
    """One layer of its own, whatever it wrote in between; a fork of it stands on that."""
    with create(rig) as vm:
        sizes = []
        for i in range(4):
            run(vm, f"echo {i} >> /tmp/line; head -c 4000000 /dev/urandom > /tmp/noise")
            park(vm)
            sizes.append(disk_kib(rundir(rig, vm) / "image"))
            assert sorted(p.name for p in (rundir(rig, vm) / "image").iterdir()) == ["device", "extents-0", "layer-0", "manifest.json", "memory"]
        assert run(vm, "cat /tmp/line").split() == ["0", "1", "2", "3"]
        assert sizes[3] < sizes[1] * 1.3, sizes
        (child,) = vm.fork()
        assert run(child, "cat /tmp/line").split() == ["0", "1", "2", "3"] and info(child)["layers"] == 2
        child.kill()
        assert info(vm)["layers"] == 0 and not list(rundir(rig, vm).glob("vmm.pid.[0-3]"))


def test_one_that_was_booted(rig):
    with create(rig, cold=True) as vm:
        run(vm, "echo 1 > /tmp/f")
        for _ in range(2):
            park(vm)
            assert run(vm, "cat /tmp/f") == "1\n"
        assert info(vm)["boot_mode"] == "cold"


def test_many_calls_wake_it_once(rig):
    with create(rig) as vm:
        generation = info(vm)["agent"]["generation"]
        park(vm)
        said = parallel(lambda i: vm.exec(["cat"], stdin=f"{i}" * 70000, timeout_seconds=120).stdout[:1], range(8), 8)
        assert said == [str(i) for i in range(8)]
        assert info(vm)["agent"]["generation"] == generation + 1 and len(vmms(vm)) == 1


def test_what_else_wakes(rig):
    with create(rig) as vm:
        for method, params, after in (("ping", {}, "running"), ("vm.fork", {}, "running"), ("vm.resume", {}, "running"),
                                      ("snapshot.create", {"name": "s"}, "running"), ("vm.pause", {}, "paused")):
            park(vm)
            made = rig.client.call(method, params, vm=vm.id, timeout_seconds=120)
            assert info(vm)["state"] == after, method
            for child in made.get("vms", []):
                rig.sandbox(child["id"]).kill()
        assert "resume" in refused("state", run, vm, "true").message
        park(vm)  # and with that nobody has to resume it
        assert run(vm, "echo ok") == "ok\n"
        rig.client.call("snapshot.delete", {"name": "s"})


def test_ends_while_it_is_parked(rig):
    vm, other = create(rig), create(rig)
    for v in (vm, other):
        park(v)
    threading.Timer(0.2, other.kill).start()
    assert "killed" in other.wait(20).reason
    vm.set_ttl(1)
    assert "ttl" in vm.wait(20).reason
    procs.eventually(lambda: rig.rundirs() == [], 10, "nothing is left")


def test_what_it_needs_is_kept(rig):
    with create(rig) as vm:
        rig.client.call("snapshot.create", {"name": "mine"}, vm=vm.id, timeout_seconds=120)
    made = rig.client.call("vm.create", {"snapshot": "mine", "timeout_ms": 120000}, timeout_seconds=180)
    vm = rig.sandbox(made["id"])
    park(vm)
    assert vm.id in refused("state", rig.client.call, "snapshot.delete", {"name": "mine"}).message
    refused("state", rig.client.call, "template.remove", {"name": "base"})
    assert run(vm, "echo ok") == "ok\n"
    vm.kill()
    rig.client.call("snapshot.delete", {"name": "mine"})


def test_its_memory_is_for_others_meanwhile(rig):
    vms = [create(rig) for _ in range(3)]
    refused("busy", create, rig)
    park(vms[0])
    fourth = create(rig)
    told = refused("busy", run, vms[0], "true")
    assert told.retryable and "max_memory_mib" in told.message and info(vms[0])["state"] == "parked"
    fourth.kill()
    assert run(vms[0], "echo ok") == "ok\n"


def test_a_park_that_fails_leaves_it_running(rig):
    """While it is stopped its memory turns out not to be written."""
    with create(rig) as vm:
        pid, job, ctl = info(vm)["pid"], vm.exec_stream(["cat"], stdin=True), rundir(rig, vm) / "ctl"
        os.rename(ctl, ctl.with_name("away"))
        told = refused("io", park, vm)
        assert "captured" in told.message, told
        job.write("still there")
        job.close_stdin()
        assert "".join(data for _, data in job) == "still there"
        assert info(vm)["pid"] == pid and not (rundir(rig, vm) / "capture").exists()
        os.rename(ctl.with_name("away"), ctl)
        park(vm)
        assert run(vm, "echo ok") == "ok\n"


def test_a_wake_that_fails_leaves_it_parked(rig):
    with create(rig) as vm:
        run(vm, "echo kept > /tmp/f")
        park(vm)
        image = rundir(rig, vm) / "image"
        os.rename(image / "device", image / "away")
        for _ in range(2):
            told = refused("invalid", run, vm, "true")
            assert "device" in told.message and info(vm)["state"] == "parked"
        manifest = (image / "manifest.json").read_text()
        os.rename(image / "away", image / "device")
        (image / "manifest.json").write_text(json.dumps({**json.loads(manifest), "vmm": "qemu 1.0"}))
        assert "vmm was" in refused("unsupported", run, vm, "true").message
        (image / "manifest.json").write_text(manifest)
        device = (image / "device").read_bytes()
        (image / "device").write_bytes(device[: len(device) // 2])
        refused("start_failed", run, vm, "true")
        assert info(vm)["state"] == "parked" and vmms(vm) == []
        (image / "device").write_bytes(device)
        assert run(vm, "cat /tmp/f") == "kept\n"


def test_parked_vms_outlive_the_broker(rig):
    vm, late = create(rig, name="stays"), create(rig)
    names = run(vm, NAMES)
    for v in (vm, late):
        park(v)
    late.set_ttl(0.5)
    rig.kill()
    time.sleep(0.6)  # its time passes while no broker lives
    rig.start()
    assert [(v.id, v.name, v.state) for v in rig.client.vms()] == [(vm.id, "stays", "parked")]
    assert rig.rundirs() == [vm.id]
    assert run(vm, NAMES) == names and len(vmms(vm)) == 1


def rewrite_record(rig, vm, **changes):
    path = rundir(rig, vm) / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_broker_that_dies_at_each_step(rig):
    """The record and the files as they are at each step; what is left is one VM, parked, and it wakes."""
    with create(rig) as vm:
        run(vm, "echo parked > /tmp/f")
        park(vm)
        image, capture = rundir(rig, vm) / "image", rundir(rig, vm) / "capture"

        def died(change):
            rig.kill()
            change()
            rig.start()
            assert info(vm)["state"] == "parked" and vmms(vm) == [] and not capture.exists()
            assert run(vm, "cat /tmp/f") == "parked\n" and len(vmms(vm)) == 1
            park(vm)

        def half_removed():
            os.rename(image, capture)
            image.mkdir(0o700)
            os.link(capture / "memory", image / "memory")
            rewrite_record(rig, vm, step="parking")

        died(lambda: rewrite_record(rig, vm, step="parking"))
        died(half_removed)
        died(lambda: rewrite_record(rig, vm, step="waking", start=json.loads((rundir(rig, vm) / "record.json").read_text())["start"] + 1))
        run(vm, "echo later > /tmp/f")

        def alive_beside_a_capture():
            shutil.copytree(image, capture, copy_function=os.link)
            rewrite_record(rig, vm, step="parking")

        pid = info(vm)["pid"]
        died(alive_beside_a_capture)
        assert not procs.alive(pid)
        assert run(vm, "cat /tmp/f") == "parked\n"
        pid = info(vm)["pid"]
        died(lambda: rewrite_record(rig, vm, step="waking"))
        assert not procs.alive(pid)


@pytest.mark.parametrize("after_ms", range(0, 400, 20) if FULL else [5, 60])
@pytest.mark.parametrize("what", ["park", "wake"])
def test_c040_kill_of_the_broker_around_it(rig, what, after_ms):
    """C040: kill -9 at any instant of it: never lost, never two of it, and its process goes on."""
    with create(rig) as vm:
        vm.commands.start(COUNTER, id="job")
        run(vm, "while [ ! -s /tmp/n ]; do sleep 0.02; done")
        if what == "wake":
            park(vm)

        def attempt():
            with contextlib.suppress(hutch.HutchError, OSError):
                park(vm) if what == "park" else run(vm, "true")

        thread = threading.Thread(target=attempt)
        thread.start()
        time.sleep(after_ms / 1000)  # what is tested is any instant of it
        rig.kill()
        thread.join()
        rig.start()
        assert info(vm)["state"] in ("running", "parked") and len(vmms(vm)) <= 1
        first = int(run(vm, "wc -l < /tmp/n"))
        procs.eventually(lambda: int(run(vm, "wc -l < /tmp/n")) > first, 20, "its process goes on")
        assert len(vmms(vm)) == 1 and not (rundir(rig, vm) / "capture").exists()
        park(vm)
        assert int(run(vm, "wc -l < /tmp/n")) > first


def test_idle_policy(rig):
    """Paused, then parked, when nothing runs and nobody calls; each goes on by itself at the next call."""
    made = rig.client.call("vm.create", {"idle": {"pause_after_ms": 1000, "park_after_ms": 4000}, "timeout_ms": 120000}, timeout_seconds=180)
    vm = rig.sandbox(made["id"])
    assert made["idle"] == {"pause_after_ms": 1000, "park_after_ms": 4000}
    becomes(vm, "paused")
    asleep = info(vm)["asleep"]
    assert asleep["by"] == "idle" and abs(asleep["since_ms"] / 1000 - time.time()) < 20
    assert run(vm, "echo ok") == "ok\n"
    becomes(vm, "parked")
    assert info(vm)["asleep"]["by"] == "idle"
    procs.eventually(lambda: vmms(vm) == [], 20, "its VMM ends")
    assert run(vm, "echo ok") == "ok\n"
    becomes(vm, "paused")
    rig.restart()
    assert info(vm)["state"] == "paused" and info(vm)["idle"] == made["idle"]
    becomes(vm, "parked")
    rig.client.call("vm.set_idle", {}, vm=vm.id)
    assert run(vm, "echo ok") == "ok\n" and "idle" not in info(vm)


def test_what_is_not_idle(rig):
    """A detached command, one that an ended command left behind, an open call; then none of them."""
    with create(rig) as vm:
        run(vm, "(while [ ! -e /tmp/go ]; do sleep 0.1; done) > /dev/null 2>&1 &")
        stream = vm.exec_stream(["cat"], stdin=True)
        vm.commands.start("while [ ! -e /tmp/go ]; do sleep 0.1; done", id="job")
        rig.client.call("vm.set_idle", {"pause_after_ms": 1000}, vm=vm.id)
        until = time.monotonic() + 2.5  # two and a half times of its time
        while time.monotonic() < until:
            assert info(vm)["state"] == "running"
            time.sleep(0.1)
        stream.close_stdin()
        assert stream.wait(60).exit_code == 0
        run(vm, "touch /tmp/go")
        becomes(vm, "paused")
        rig.client.call("vm.pause", vm=vm.id)  # now somebody wants it so
        refused("state", run, vm, "true")
        rig.client.call("vm.resume", vm=vm.id)
        assert run(vm, "echo ok") == "ok\n"
