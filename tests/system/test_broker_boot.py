# SPDX-License-Identifier: Apache-2.0
"""Boots that go wrong, and handshakes that are slow or strange, with the fake VMM. Cases C021, C044, C047."""

from __future__ import annotations

import hashlib
import json
import threading
import time

import pytest

import hutch
import procs
from box import parallel
from brokerrig import BrokerRig


@pytest.fixture(scope="module")
def rig():
    with BrokerRig() as rig:
        yield rig


@pytest.fixture(autouse=True)
def nothing_left(rig):
    rig.behave()
    rig.client.kill_all()
    yield
    rig.client.kill_all()
    procs.eventually(lambda: not rig.fake_processes(), 5, "no fake VMM or agent")
    assert rig.rundirs() == []


FAILURES = {
    "exit": ({"mode": "exit"}, "refusing to start, as scripted"),
    "no_qmp": ({"mode": "no_qmp"}, ""),
    "qmp_hang": ({"mode": "qmp_hang"}, ""),
    "qmp_error": ({"mode": "qmp_error"}, "refused as scripted"),
    "qmp_garbage": ({"mode": "qmp_garbage"}, ""),
    "never_ready": ({"mode": "never_ready", "console": "line one\nlast words\n"}, "last words"),
    "panic": ({"mode": "panic"}, "Kernel panic - not syncing: as scripted"),
    "poweroff": ({"mode": "poweroff"}, ""),
}


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "wrapped"])
@pytest.mark.parametrize("failure", sorted(FAILURES))
def test_c047_failed_boot_leaves_nothing(rig, failure, wrapped):
    """C047, fault: an error between spawn and ready leaves the VMM alive; with a wrapper the kill hits the wrapper only.

    The create fails within its deadline with what the VMM or the console said, no process, socket or directory is left
    (checked by the fixture as well), and the next create of the same name succeeds.
    """
    behaviour, text = FAILURES[failure]
    rig.behave(wrapped=wrapped, **behaviour)
    start = time.monotonic()
    with pytest.raises(hutch.HutchError) as caught:
        rig.create(name="same", timeout_seconds=2)
    assert time.monotonic() - start < 2 + 2.5
    assert caught.value.kind in ("boot_failed", "start_failed", "timeout", "vm_died"), caught.value
    assert text in caught.value.message, caught.value.message
    assert not rig.fake_processes() and rig.rundirs() == []
    rig.behave(wrapped=wrapped)
    with rig.create(name="same") as sandbox:
        assert sandbox.exec("echo ok").stdout == "ok\n"
    procs.eventually(lambda: not rig.fake_processes(), 5, "no VMM, wrapper or agent")


def test_a_boot_that_hangs_is_started_again(rig):
    """The watchdog: a guest that sleeps and has not said hello gets another VMM, in the same VM, within the same create."""
    rig.behave("never_ready")
    made: list = []
    creator = threading.Thread(target=lambda: made.append(rig.create(name="hung", timeout_seconds=50)), daemon=True)
    creator.start()
    procs.eventually(lambda: [v["state"] for v in rig.client.call("vm.list")["vms"]] == ["booting"], 20, "it boots")
    rig.behave()
    creator.join(50)
    assert made, rig.log_text()[-2000:]
    with made[0] as sandbox:
        assert sandbox.exec("echo ok").stdout == "ok\n" and rig.rundirs() == [sandbox.id]
        log = rig.log_text()
        assert log.count("its boot hangs: no hello after") == 1 and "booting -> starting" in log
        pid = sandbox.info().pid
        rig.restart()
        assert rig.sandbox(sandbox.id).info().pid == pid and rig.sandbox(sandbox.id).exec("echo ok").stdout == "ok\n"


def test_c047_program_that_cannot_be_started(rig):
    """C047 kin: the VMM's file is missing or is no program."""
    vmm = rig.fake_dir / "vmm"
    for make in (lambda: vmm.unlink(), lambda: vmm.write_text("no program"), lambda: vmm.chmod(0o644)):
        rig.behave()
        make()
        with pytest.raises(hutch.StartFailed):
            rig.create(name="same")
        assert rig.rundirs() == []
    rig.behave()
    with rig.create(name="same"):
        pass


def test_a_damaged_kernel_is_named(rig):
    """A template whose kernel is not what its build recorded: an error with the file's name, before anything is started."""
    template = rig.state / "templates" / "base"
    manifest = json.loads((template / "template.json").read_text())
    files = {name: hashlib.sha256((template / name).read_bytes()).hexdigest() for name in ("kernel", "initramfs")}
    manifest["files"] = {name: {"sha256": digest} for name, digest in files.items()}
    (template / "template.json").write_text(json.dumps(manifest))
    rig.create().kill()
    rig.create().kill()
    good = (template / "kernel").read_bytes()
    (template / "kernel").write_bytes(good[:-1] + b"!")
    with pytest.raises(hutch.WrongState, match="template base: kernel: it does not have the digest") as e:
        rig.create()
    assert e.value.stage == "digest" and e.value.path == "kernel" and rig.rundirs() == []
    (template / "kernel").write_bytes(good)
    rig.create().kill()


def test_c047_many_failures_at_once_and_then_success(rig):
    """C047 kin: twenty failing creates at the same time leave as little as one does."""

    rig.behave("exit")

    def fail(_):
        with pytest.raises(hutch.HutchError):
            rig.create(timeout_seconds=5)

    fds = procs.fd_count(rig.pid)
    parallel(fail, range(20), 10)
    rig.client.close()
    procs.eventually(lambda: procs.fd_count(rig.pid) <= fds + 2, 5, "descriptors closed")
    rig.behave()
    with rig.create():
        pass


def test_c044_first_exec_waits_for_a_guest_that_is_slow_to_listen(rig):
    """C044, fault: a connect right after the start is closed or never answered; retries get EOF.

    Nobody accepts for 300 ms; then connections are closed at once, closed after CONNECT 5 times, one hangs; then it answers. The
    agent comes up after 500 ms. The create and the first exec succeed within a second of that, with few connects.
    """
    rig.behave(accept_after_ms=300, agent_after_ms=500, handshake=["refuse", "close", "close", "close", "close", "close", "hang"])
    before = len(rig.connects())
    start = time.monotonic()
    with rig.create(timeout_seconds=20) as sandbox:
        ready = time.monotonic() - start
        assert sandbox.exec(["echo", "ok"]).stdout == "ok\n"
        took = time.monotonic() - start
        connects = len(rig.connects()) - before
    assert connects < 100, rig.connects()[-5:]
    assert took < 0.5 + 1 + 5, took  # one hanging handshake may cost its own deadline
    assert ready > 0.3


@pytest.mark.parametrize("handshake", [["refuse"] * 3, ["close"] * 5, ["split"] * 3, ["joined"] * 3, ["refuse", "joined", "split", "close"]], ids=",".join)
def test_c044_neighbours_after_ready(rig, handshake):
    """C044 on a VM that is ready: exec.start is retried by key on a fresh connection, never done twice."""
    rig.behave(handshake=handshake)
    with rig.create(timeout_seconds=20) as sandbox:
        for i in range(8):
            assert sandbox.exec(f"echo {i}").stdout == f"{i}\n"


def test_c044_agent_that_never_comes_up(rig):
    """C044: create fails at the boot deadline with the console's tail in the error, and nothing is left running."""
    rig.behave("never_ready", console="".join(f"boot line {i}\n" for i in range(200)) + "stuck here\n")
    start = time.monotonic()
    with pytest.raises(hutch.BootFailed) as caught:
        rig.create(timeout_seconds=1)
    assert 0.9 < time.monotonic() - start < 3
    assert "stuck here" in caught.value.message and "boot line 0\n" not in caught.value.message
    assert not rig.fake_processes()


def test_c021_ok_line_and_first_frames_in_one_write(rig):
    """C021, fault (a): what comes behind the OK line in the same read is lost."""
    rig.behave(handshake_after="joined")
    with rig.create() as sandbox:
        for i in range(30):
            assert sandbox.exec(f"echo {i}").stdout == f"{i}\n"


def test_c021_ok_line_one_byte_at_a_time(rig):
    """C021 (b)."""
    rig.behave(handshake_after="split")
    with rig.create() as sandbox:
        for i in range(5):
            assert sandbox.exec(f"echo {i}").stdout == f"{i}\n"
        streams = [sandbox.exec_stream(["sleep", "5"]) for _ in range(6)]
        assert sandbox.exec("echo ok").stdout == "ok\n"
        for s in streams:
            s.kill()
            s.close()


@pytest.mark.parametrize("bad", ["hang", "flood"])
def test_c021_handshake_that_never_ends(rig, bad):
    """C021 (c) no answer: an error within 5 s, not a hang. (d) 1 MB without a newline: an error, memory bounded."""
    rig.behave(handshake=[], handshake_after="ok", no_dial=False)
    with rig.create() as warm:
        warm.exec("true")
    rss = procs.rss_kib(rig.pid)
    rig.behave(handshake_after=bad)
    start = time.monotonic()
    try:
        with rig.create(timeout_seconds=4) as sandbox:
            start = time.monotonic()
            with pytest.raises(hutch.HutchError) as caught:
                sandbox.exec(["true"])
            assert caught.value.kind in ("not_dispatched", "timeout"), caught.value
    except hutch.HutchError as e:
        assert e.kind in ("boot_failed", "start_failed", "timeout"), e
    assert time.monotonic() - start < 6.5
    assert procs.rss_kib(rig.pid) - rss < 2048


def test_c021_one_vm_that_hangs_delays_no_other(rig):
    """C021 kin: the fault of one guest costs that guest alone."""

    good = rig.create()
    rig.behave("qmp_hang")

    def fail(_):
        with pytest.raises(hutch.HutchError):
            rig.create(timeout_seconds=3)

    thread = threading.Thread(target=lambda: parallel(fail, range(5), 5))
    thread.start()
    try:
        while thread.is_alive():
            start = time.monotonic()
            assert good.exec("echo ok").stdout == "ok\n"
            assert time.monotonic() - start < 1
    finally:
        thread.join()
