# SPDX-License-Identifier: Apache-2.0
"""A broker that dies and starts again: every VM is adopted or gone, never alive and unlisted. Case C014, the plain part."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import threading
import time

import pytest

import hutch
import procs
from brokerrig import BrokerRig


@pytest.fixture
def rig():
    with BrokerRig() as rig:
        yield rig


def never_alive_and_unlisted(rig, pids):
    """Within 5 s every VM that lives is listed and works; every other one is gone with all it had."""
    procs.eventually(lambda: all(v.state == "running" for v in rig.client.vms()), 5, "adoption is over")
    listed = {v.pid: v for v in rig.client.vms() if v.state == "running"}
    for pid in pids:
        if pid in listed:
            assert rig.sandbox(listed[pid].id).exec(["echo", "ok"]).stdout == "ok\n"
        else:
            assert not procs.alive(pid), f"VMM {pid} lives and is not listed"
    assert set(rig.rundirs()) == {v.id for v in listed.values()}


def test_c014_started_while_the_killed_one_still_ends(rig):
    """C014 kin, fault: the kernel frees a killed broker's memory before it closes its socket and lets its locks go."""
    s = rig.create()
    for _ in range(10):
        killed = rig.process
        killed.kill()
        rig.start()
        killed.wait()
        assert s.exec(["echo", "ok"]).stdout == "ok\n"


@pytest.mark.parametrize("end", ["drops who connects", "never answers"])
def test_a_holder_of_the_locks_that_does_not_serve(rig, end):
    """One that is ending is waited for; one that hangs is told."""
    rig.kill()
    rig.socket.unlink()
    with open(f"{rig.socket}.lock", "r+") as lock, socket.socket(socket.AF_UNIX) as listener:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listener.bind(str(rig.socket))
        listener.listen()
        process, ready = rig.spawn_ready()
        try:
            conn, _ = listener.accept()
            if end == "never answers":
                assert process.wait(20) == 1 and "another hutchd holds the socket" in rig.log_text()
            listener.close()
            fcntl.flock(lock, fcntl.LOCK_UN)
            conn.close()
            if end == "drops who connects":
                assert select.select([ready], [], [], 20)[0] and os.read(ready, 1) == b"\n"
                rig.process = process
            else:
                rig.start()
        finally:
            os.close(ready)
    assert rig.create().exec(["echo", "ok"]).stdout == "ok\n"


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_c014_vms_are_adopted(rig, sig):
    """C014, fault: VMMs go on unlisted after the broker's end. Three VMs; also after a clean end, which leaves VMs."""
    sandboxes = [rig.create(name=f"v{i}", ttl_seconds=300, metadata={"i": str(i)}) for i in range(3)]
    for i, s in enumerate(sandboxes):
        s.exec(f"echo {i} > /dev/null")
    infos = [s.info() for s in sandboxes]
    rig.kill(sig)
    for info in infos:
        assert procs.alive(info.pid)
    start = time.monotonic()
    rig.start()
    for before, sandbox in zip(infos, sandboxes):
        after = sandbox.info()
        assert (after.id, after.name, after.pid, after.metadata, after.template) == (
            before.id, before.name, before.pid, before.metadata, before.template)
        assert after.expires_in_seconds <= before.expires_in_seconds
        assert sandbox.exec(["echo", "ok"]).stdout == "ok\n"
    assert time.monotonic() - start < 5
    never_alive_and_unlisted(rig, [i.pid for i in infos])
    with pytest.raises(hutch.Exists):
        rig.create(name="v0")
    for s in sandboxes:
        s.kill()
    procs.eventually(lambda: not rig.fake_processes(), 5, "their processes are gone")


def test_c014_command_survives_the_brokers_death(rig):
    """The agent takes a lost connection for no statement: the exec can be attached after the restart."""
    sandbox = rig.create()
    id = sandbox.commands.start("sleep 1; echo done; exit 9")
    rig.restart()
    r = sandbox.commands.connect(id, stdout_after=0, capture=True).wait(20)
    assert (r.stdout, r.exit_code) == ("done\n", 9)


def test_c014_vm_that_died_meanwhile_is_gone(rig):
    """One VMM is killed while no broker lives: its run directory is removed, the others are adopted."""
    sandboxes = [rig.create() for _ in range(3)]
    pids = [s.info().pid for s in sandboxes]
    rig.kill()
    os.kill(pids[1], signal.SIGKILL)
    assert procs.wait_gone(pids[1], 5)
    rig.start()
    never_alive_and_unlisted(rig, pids)
    assert len(rig.client.vms()) == 2


def test_c014_recycled_pid_is_not_taken_for_a_vm(rig):
    """Never kill a stranger: a record whose pid belongs to another process by now."""
    import json
    import subprocess

    sandbox = rig.create()
    pid = sandbox.info().pid
    rig.kill()
    os.kill(pid, signal.SIGKILL)
    procs.wait_gone(pid, 5)
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        rundir = rig.state / "vm" / sandbox.id
        for name in os.listdir(rundir):
            path = rundir / name
            if path.is_file() and path.stat().st_size < 100000:
                text = path.read_text(errors="replace")
                if str(pid) in text:
                    path.write_text(text.replace(str(pid), str(stranger.pid)))
        assert json.loads((rundir / "record.json").read_text())
        rig.start()
        assert rig.client.vms() == [] and rig.rundirs() == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("stage", ["spawned", "qmp", "booting"])
def test_c014_kill_during_create(rig, stage):
    """C014: the broker is killed in the middle of a create; the half-made VM is ended by the next one."""
    rig.behave({"spawned": "no_qmp", "qmp": "qmp_hang", "booting": "never_ready"}[stage])

    def create():
        with pytest.raises(hutch.HutchError):
            rig.create(timeout_seconds=30)

    thread = threading.Thread(target=create)
    thread.start()
    procs.eventually(lambda: rig.fake_processes(), 10, "a VMM")
    rig.kill()
    thread.join()
    left = rig.fake_processes()
    rig.start()
    procs.eventually(lambda: not any(map(procs.alive, left)), 5, "the half-made VM ended")
    never_alive_and_unlisted(rig, left)
    assert rig.client.vms() == []
    rig.behave()
    with rig.create() as s:
        assert s.exec("echo ok").stdout == "ok\n"


def test_c014_kill_at_any_instant_of_create(rig):
    """C014: killed after each of many delays; whatever there is afterwards is listed and works, or is gone."""
    for i in range(12):
        thread = threading.Thread(target=lambda: _try_create(rig))
        thread.start()
        time.sleep(0.012 * i)  # the instant is the test's input, not something that is waited for
        seen = rig.fake_processes()
        rig.kill()
        thread.join()
        rig.client.close()
        seen = set(seen) | set(rig.fake_processes())
        rig.start()
        vmms = [p for p in seen if procs.command_line(p).startswith("/usr/bin/python3")]
        procs.eventually(lambda: {p for p in vmms if procs.alive(p)} <= {v.pid for v in rig.client.vms()}, 5, "unlisted VMs end")
        never_alive_and_unlisted(rig, vmms)
        rig.client.kill_all()


def _try_create(rig):
    try:
        rig.create(timeout_seconds=10)
    except hutch.HutchError:
        pass


def test_c014_broken_records(rig):
    """A record that no broker can read: the VM is ended and its directory removed; what is no VM's is left alone."""
    sandbox = rig.create()
    pid = sandbox.info().pid
    rig.kill()
    for name, text in (("record.json", "{"), ("record.json", "[]"), ("record.json", "")):
        (rig.state / "vm" / sandbox.id / name).write_text(text)
    (rig.state / "vm" / "not-a-uuid").mkdir()
    rig.start()
    procs.eventually(lambda: not procs.alive(pid), 5, "VM of the broken record")
    assert rig.client.vms() == []
    procs.eventually(lambda: rig.rundirs() == ["not-a-uuid"], 5, "its directory removed")
    (rig.state / "vm" / "not-a-uuid").rmdir()
    with rig.create() as s:
        s.ping()


def test_ttl_runs_on_while_no_broker_lives(rig):
    """TTL survives the broker: it counts from ready, also while nobody is there to enforce it."""
    sandbox = rig.create(ttl_seconds=2)
    pid = sandbox.info().pid
    start = time.monotonic()
    rig.kill()
    time.sleep(0.5)
    rig.start()
    assert procs.wait_gone(pid, 6)
    assert 1.5 < time.monotonic() - start < 4
    procs.eventually(lambda: rig.client.vms() == [], 2, "its burial")


def test_lost_launcher_is_replaced_or_told(rig):
    """The launcher dies: VMs live on; the broker goes on, or ends by itself to be started again, and adopts them."""
    sandbox = rig.create()
    (launcher,) = rig.launchers()
    os.kill(launcher, signal.SIGKILL)
    _created_or_restarted(rig)
    assert sandbox.exec("echo ok").stdout == "ok\n"


def test_launcher_lost_during_a_start(rig):
    """A VM that the dying launcher was to start: its creation fails, and the broker does not live on without one."""
    sandbox = rig.create()
    (launcher,) = rig.launchers()
    os.kill(launcher, signal.SIGSTOP)
    killer = threading.Thread(target=_kill_when_two_vms, args=(rig, launcher))
    killer.start()
    try:
        _created_or_restarted(rig)
    finally:
        killer.join()
    assert sandbox.exec("echo ok").stdout == "ok\n"


def _kill_when_two_vms(rig, launcher):
    try:
        procs.eventually(lambda: len(rig.client.vms()) == 2, 5, "the VM to be listed")
    finally:
        os.kill(launcher, signal.SIGKILL)


def _created_or_restarted(rig):
    try:
        with rig.create() as other:
            assert other.exec("echo ok").stdout == "ok\n"
    except hutch.HutchError as e:
        assert e.kind in ("start_failed", "internal", "not_dispatched", "outcome_unknown"), e
        assert rig.process.wait(10) != 0
        rig.start()


def test_clients_of_a_dying_broker_are_told(rig):
    sandbox = rig.create()
    stream = sandbox.exec_stream(["sleep", "60"])
    rig.kill()
    with pytest.raises(hutch.OutcomeUnknown):
        stream.wait(5)
    with pytest.raises(hutch.BrokerUnavailable):
        sandbox.ping()
    rig.start()
    sandbox.ping()
