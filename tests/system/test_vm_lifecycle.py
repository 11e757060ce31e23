# SPDX-License-Identifier: Apache-2.0
"""Real VMs: boot, adoption, memory running out, CIDs, ends that are told. Cases C014, C053, C054, C059, and the plain ones."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import hutch
import images
import procs
from box import FULL, parallel
from brokerrig import BrokerRig

pytestmark = pytest.mark.limit(300)


@pytest.fixture(scope="module")
def rig():
    with BrokerRig(fake=False, templates=images.base_templates()) as rig:
        yield rig


@pytest.fixture(autouse=True)
def alone(rig):
    yield
    rig.client.kill_all()


def create(rig, **options):
    return rig.create(timeout_seconds=120, **options)


def test_boot_says_how_long_each_stage_took(rig):
    with create(rig, name="first") as vm:
        info = vm.info()
        assert info.stages_ms["total"] >= info.stages_ms["hello"] > 0 and info.vmm == "qemu" and info.vmm_version
        assert vm.exec(["hostname"]).stdout.strip() not in ("", "(none)", "localhost")
        assert len(vm.exec(["cat", "/etc/machine-id"]).stdout.strip()) == 32
        assert abs(float(vm.exec(["date", "+%s"]).stdout) - time.time()) < 3


def test_accelerator_is_found_once_and_remembered(rig):
    """auto ends on KVM only where a guest boots on it; the verdict has a reason and is not paid for again."""
    with create(rig) as vm:
        accel = rig.info()["accel"]
        assert accel["verdict"] in ("kvm", "tcg") and accel["reason"] and vm.info().accel == accel["verdict"]
    rig.restart(signal.SIGTERM)
    start = time.monotonic()
    with create(rig):
        assert rig.info()["accel"]["checked_ms"] == accel["checked_ms"]
    assert time.monotonic() - start < 30


def test_c053_memory_running_out_ends_the_command_alone(rig):
    """C053, fault: the kernel kills the agent instead of the command, or commands inherit its protection."""
    with create(rig, memory_mib=128) as vm:
        assert int(vm.exec(["cat", "/proc/1/oom_score_adj"]).stdout) <= -999
        assert int(vm.exec(["cat", "/proc/self/oom_score_adj"]).stdout) >= 0
        for _ in range(2):
            r = vm.exec(["tail", "/dev/zero"], timeout_seconds=120)
            assert (r.exit_code, r.signal, r.timed_out) == (137, 9, False) and r.oom_killed
            assert vm.exec(["echo", "ok"]).stdout == "ok\n"
        # each tail keeps 2 MB until its input ends
        children = 200 if FULL else 80
        many = f"i=0; while [ $i -lt {children} ]; do (head -c 2000000 /dev/zero; sleep 5) | tail -c 2000000 > /dev/null & i=$((i+1)); done; wait"
        vm.exec(many, timeout_seconds=120, check=False)
        assert vm.exec(["echo", "ok"]).stdout == "ok\n"
        assert vm.agent_info()["rss_kib"] <= 2048


def test_c053_other_commands_live_on(rig):
    """C053 kin: another running command, and a fork bomb instead of memory."""
    with create(rig, memory_mib=128) as vm:
        with vm.exec_stream(["cat"], stdin=True) as other:
            vm.exec(["tail", "/dev/zero"], timeout_seconds=120, check=False)
            other.write("still")
            other.close_stdin()
            assert "".join(d for _, d in other) == "still"
        r = vm.exec("f() { f | f & }; f; sleep 2", timeout_seconds=3, pids=64, check=False)
        assert r.started
        vm.commands.kill(r.id)
        assert vm.exec(["echo", "ok"], timeout_seconds=60).stdout == "ok\n"


def test_c054_orphans_are_reaped_by_pid_1(rig):
    """C054 on the real PID 1, with a process limit of 256."""
    with create(rig) as vm:
        parallel(lambda _: vm.exec(["sh", "-c", "sleep 0.1 &"]), range(200 if FULL else 40), 8)
        vm.exec("i=0; while [ $i -lt 500 ]; do (sleep 0.1 &); i=$((i+1)); done", timeout_seconds=120, check=True)
        procs.eventually(lambda: "Z" not in vm.exec("cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | cut -c1").stdout.split(), 20, "no zombie")
        assert vm.exec(["true"], pids=256).exit_code == 0


def test_c059_cids_are_distinct_and_reach_the_right_vm(rig):
    """C059, fault: fixed or racily picked CIDs. Creates at once (20 with HUTCH_TEST_FULL, else 4), then kill and create again."""
    vms = parallel(lambda i: create(rig, name=f"vm{i}"), range(20 if FULL else 4), 4)
    assert len({v.info().cid for v in vms}) == len(vms)
    marks = [v.exec("echo $$ > /tmp/mark; cat /proc/sys/kernel/random/boot_id; hostname").stdout for v in vms]
    assert len(set(marks)) == len(vms)
    for i in range(50 if FULL else 3):
        vms[i % len(vms)].kill()
        vms[i % len(vms)] = create(rig, name=f"vm{i % len(vms)}")
        assert vms[i % len(vms)].exec(["ls", "/tmp/mark"]).exit_code == 1  # never a previous VM


def test_c014_running_vms_are_adopted(rig):
    """C014: three VMs, kill -9 of the broker, start: each is listed and works within 5 s, and is the same one."""
    vms = parallel(lambda i: create(rig, ttl_seconds=300), range(3), 3)
    boots = [v.exec(["cat", "/proc/sys/kernel/random/boot_id"]).stdout for v in vms]
    infos = [v.info() for v in vms]
    rig.kill(signal.SIGKILL)
    start = time.monotonic()
    rig.start()
    assert [v.exec(["cat", "/proc/sys/kernel/random/boot_id"]).stdout for v in vms] == boots
    assert time.monotonic() - start < 5
    assert [v.info().pid for v in vms] == [i.pid for i in infos]
    for v in vms:
        v.kill()
    assert not any(procs.alive(i.pid) for i in infos) and rig.rundirs() == []


def test_c014_kill_during_create(rig):
    before = set(procs.with_text("qemu-system"))

    def attempt():
        with pytest.raises(hutch.HutchError):
            create(rig)

    thread = threading.Thread(target=attempt)
    thread.start()
    procs.eventually(lambda: set(procs.with_text("qemu-system")) - before, 20, "a VMM")
    left = set(procs.with_text("qemu-system")) - before
    rig.kill()
    thread.join()
    rig.start()
    procs.eventually(lambda: not any(map(procs.alive, left)) or {v.pid for v in rig.client.vms()} >= {p for p in left if procs.alive(p)}, 5, "gone or listed")
    procs.eventually(lambda: len(rig.rundirs()) == len(rig.client.vms()), 5, "no directory without a VM")


ENDS = {
    "kill": (lambda vm, info: vm.kill(), "kill"),
    "vmm": (lambda vm, info: os.kill(info.pid, signal.SIGKILL), "signal 9"),
    "poweroff": (lambda vm, info: vm.commands.start("sleep 0.1; echo o > /proc/sysrq-trigger"), "power"),
    "panic": (lambda vm, info: vm.commands.start("sleep 0.1; echo c > /proc/sysrq-trigger"), "panic"),
    "ttl": (lambda vm, info: vm.set_ttl(0.01), "ttl"),
}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_end_of_a_vm_is_told_at_once_and_why(rig, end):
    act, clause = ENDS[end]
    vm = create(rig)
    info = vm.info()
    stream = vm.exec_stream(["sleep", "600"])
    act(vm, info)
    with pytest.raises(hutch.VmDied) as caught:
        stream.wait(20)
    assert clause in caught.value.message.lower(), caught.value
    assert clause in vm.wait(10).reason.lower()
    procs.eventually(lambda: not procs.alive(info.pid) and rig.rundirs() == [], 5, "nothing left")


def test_creates_and_kills_leave_nothing(rig):
    """100 creates and kills with HUTCH_TEST_FULL, else 3: no process, file, socket or byte is left."""
    with create(rig) as vm:
        vm.ping()
    rig.client.close()
    files, fds, rss = rig.files(), procs.fd_count(rig.pid), procs.rss_kib(rig.pid)
    for _ in range(100 if FULL else 3):
        with create(rig) as vm:
            assert vm.exec(["true"]).exit_code == 0
    rig.client.close()
    procs.eventually(lambda: procs.fd_count(rig.pid) <= fds, 5, "descriptors closed")
    assert rig.files() == files and [s for s in procs.descendants(rig.pid) if s.name.startswith("qemu")] == []
    assert procs.rss_kib(rig.pid) - rss < (1024 if not procs.sanitized("hutchd") else 32 << 10)


@pytest.mark.limit(600)
def test_boots_while_both_cores_are_busy(rig):
    """Boots beside other work all come up (50 with HUTCH_TEST_FULL, else 3)."""
    import subprocess

    burners = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() or 2)]
    try:
        for _ in range(50 if FULL else 3):
            with create(rig) as vm:
                assert vm.exec("echo ok").stdout == "ok\n"
    finally:
        for b in burners:
            b.kill()
            b.wait()
