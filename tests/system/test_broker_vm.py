# SPDX-License-Identifier: Apache-2.0
"""The life of a VM at the broker, with the fake VMM: create, find, TTL, kill, and everybody who waits for its end."""

from __future__ import annotations

import os
import signal
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
def behaves(rig):
    rig.behave()
    yield
    rig.client.kill_all()


def test_create_info_list_kill(rig):
    start = time.time()
    sandbox = rig.create(name="first", ttl_seconds=300, metadata={"owner": "me", "empty": ""}, memory_mib=192, vcpus=2)
    info = sandbox.info()
    assert (info.id, info.name, info.state, info.template) == (sandbox.id, "first", "running", "base")
    assert (info.memory_mib, info.vcpus, info.metadata) == (192, 2, {"owner": "me", "empty": ""})
    assert info.owner_uid == os.getuid() and procs.alive(info.pid) and info.cid >= 3
    assert start - 1 <= info.created <= time.time() + 1 and 290 < info.expires_in_seconds <= 300
    assert info.boot_mode == "cold" and set(info.stages_ms) >= {"spawn", "qmp", "hello", "identity", "total"}
    assert info.raw["isolation"]["level"] == "none" and info.vmm == "test"
    assert len(info.id) == 36 and info.raw["agent"]["generation"] >= 1
    assert [v.id for v in rig.client.vms()] == [sandbox.id]
    assert hutch.Sandbox.get("first", client=rig.client).id == sandbox.id
    assert sandbox.exec(["hostname"]).exit_code == 0
    pid = info.pid
    sandbox.kill()
    assert not procs.alive(pid) and rig.client.vms() == [] and rig.rundirs() == []
    after = sandbox.info()
    assert after.state == "dead" and "kill" in after.reason
    sandbox.kill()  # a dead VM: succeeds
    with pytest.raises(hutch.NotFound):
        hutch.Sandbox.get(sandbox.id, client=rig.client)


def test_with_block_ends_the_vm(rig):
    with rig.create() as sandbox:
        assert sandbox.exec("echo hi").stdout == "hi\n"
    assert sandbox.info().state == "dead"


@pytest.mark.parametrize(
    "params",
    [{"template": 5}, {"template": ""}, {"template": "../x"}, {"name": ""}, {"name": "-x"}, {"name": ".x"}, {"name": "a b"}, {"name": "x" * 129},
     {"ttl_ms": 0}, {"ttl_ms": 30 * 24 * 3600 * 1000 + 1}, {"memory_mib": 63}, {"memory_mib": 65537}, {"vcpus": 33}, {"vcpus": "1"},
     {"metadata": {"a": 1}}, {"metadata": {str(i): "x" for i in range(65)}}, {"metadata": {"a": "x" * 4097}}, {"metadata": []}],
    ids=str,
)
def test_create_with_invalid_parameters(rig, params):
    with pytest.raises(hutch.Invalid):
        rig.client.call("vm.create", params)
    assert rig.client.vms() == [] and rig.rundirs() == [] and not rig.fake_processes()


def test_unknown_template_is_named_with_the_way_to_build_it(rig):
    with pytest.raises(hutch.NotFound, match="nosuch"):
        rig.create(template="nosuch")


def test_names_are_unique_among_the_living(rig):
    first = rig.create(name="dup")
    with pytest.raises(hutch.Exists, match="dup"):
        rig.create(name="dup")
    first.kill()
    second = rig.create(name="dup")
    assert second.id != first.id and rig.sandbox("dup").id == second.id


def test_create_is_idempotent_by_key(rig):
    """The same key gives the same VM, at the same time and later, also when it is dead; other arguments are refused."""
    ids = {s.id for s in parallel(lambda _: rig.create(key="k1", name="keyed"), range(4), 4)}
    assert len(ids) == 1 and len(rig.client.vms()) == 1
    with pytest.raises(hutch.Exists):
        rig.create(key="k1", name="other")
    sandbox = rig.create(key="k1", name="keyed")
    assert {sandbox.id} == ids
    sandbox.kill()
    assert rig.create(key="k1", name="keyed").id == sandbox.id
    assert rig.client.vms() == []


def test_ttl_ends_the_vm_and_says_so(rig):
    sandbox = rig.create(ttl_seconds=1)
    start = time.monotonic()
    info = sandbox.wait(10)
    assert info.state == "dead" and "ttl" in info.reason.lower() and 0.5 < time.monotonic() - start < 3
    assert not procs.alive(info.pid or 0) and rig.rundirs() == []


def test_set_ttl_counts_from_now(rig):
    sandbox = rig.create(ttl_seconds=1)
    assert 99 < sandbox.set_ttl(100) <= 100
    with pytest.raises(hutch.Timeout):
        sandbox.wait(1.5)
    assert 0 < sandbox.set_ttl(0.3) <= 0.3
    assert "ttl" in sandbox.wait(5).reason.lower()
    with pytest.raises(hutch.HutchError):
        sandbox.set_ttl(10)


@pytest.mark.parametrize("ttl", [-1, 0, 31 * 24 * 3600])
def test_set_ttl_refuses_what_cannot_be(rig, ttl):
    sandbox = rig.create()
    with pytest.raises(hutch.Invalid):
        rig.client.call("vm.set_ttl", {"ttl_ms": ttl * 1000}, vm=sandbox.id)


ENDS = {
    "kill": (lambda rig, s, info: s.kill(), "kill"),
    "ttl": (lambda rig, s, info: s.set_ttl(0.001), "ttl"),
    "vmm": (lambda rig, s, info: os.kill(info.pid, signal.SIGKILL), "signal 9"),
    "guest": (lambda rig, s, info: [os.kill(p.pid, signal.SIGKILL) for p in procs.descendants(info.pid) if p.name == "hutch-agent"], "power"),
}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_end_of_a_vm_is_told_at_once_to_everyone_who_waits(rig, end):
    """A VM that dies says so at once: running execs, streams, waiters, and calls that come after."""
    act, clause = ENDS[end]
    sandbox = rig.create()
    info = sandbox.info()
    got = {}

    def waiter(name, work):
        try:
            got[name] = work()
        except hutch.HutchError as e:
            got[name] = (e, time.monotonic())

    stream = sandbox.exec_stream(["sleep", "60"])
    idle = sandbox.exec_stream(["cat"], stdin=True)
    threads = [
        threading.Thread(target=waiter, args=("exec", lambda: sandbox.exec(["sleep", "60"]))),
        threading.Thread(target=waiter, args=("wait", lambda: sandbox.wait(20))),
        threading.Thread(target=waiter, args=("stream", lambda: stream.wait(20))),
        threading.Thread(target=waiter, args=("idle", lambda: idle.wait(20))),
        threading.Thread(target=waiter, args=("execwait", lambda: sandbox.commands.wait(stream.id, 20))),
    ]
    for t in threads:
        t.start()
    procs.eventually(lambda: len([e for e in sandbox.execs() if e.state == "running"]) == 3, 10, "three running execs")
    start = time.monotonic()
    act(rig, sandbox, info)
    for t in threads:
        t.join(20)
    for name in ("exec", "stream", "idle", "execwait"):
        error, when = got[name]
        assert isinstance(error, hutch.VmDied), (name, error)
        assert clause in error.message and when - start < 1.5, (name, error, when - start)
    assert got["wait"].state == "dead" and clause in got["wait"].reason
    with pytest.raises((hutch.VmDied, hutch.NotFound)):
        sandbox.exec("true")
    assert rig.client.vms() == []
    procs.eventually(lambda: not rig.fake_processes() and rig.rundirs() == [], 5, "nothing left")


def test_client_that_vanishes_before_create_returns_takes_the_vm_with_it(rig):
    rig.behave("never_ready")
    connection = rig.client.connect()
    connection.queue(connection.session.call("vm.create", {"timeout_ms": 60000}))
    connection.send_some()
    procs.eventually(lambda: rig.fake_processes(), 10, "a VMM")
    connection.close()
    procs.eventually(lambda: not rig.fake_processes() and rig.rundirs() == [], 5, "nothing left")
    assert rig.client.vms() == []


def test_client_with_a_key_may_vanish_and_ask_again(rig):
    rig.behave(agent_after_ms=300)
    connection = rig.client.connect()
    connection.queue(connection.session.call("vm.create", {}, key="later"))
    connection.send_some()
    procs.eventually(lambda: rig.fake_processes(), 10, "a VMM")
    connection.close()
    sandbox = rig.create(key="later", ttl_seconds=None, timeout_seconds=None)
    assert sandbox.exec("echo ok").stdout == "ok\n" and len(rig.client.vms()) == 1


def test_many_creates_at_once(rig):
    """C059 at the broker: 20 at once, each its own CID and its own agent."""
    sandboxes = parallel(lambda i: rig.create(name=f"vm{i}"), range(20), 20)
    infos = [s.info() for s in sandboxes]
    assert len({i.cid for i in infos}) == len({i.id for i in infos}) == len({i.pid for i in infos}) == 20
    marks = parallel(lambda s: s.exec("readlink /proc/self/ns/pid").stdout, sandboxes, 8)
    assert len(set(marks)) == 20
    assert rig.client.kill_all() == 20
    assert rig.rundirs() == [] and not rig.fake_processes()


def test_hundred_creates_and_kills_leave_nothing(rig):
    """No process, file, socket or byte is left behind (here with the fake VMM; test_vm_lifecycle has the real one)."""
    with rig.create() as s:
        s.ping()
    rig.client.close()
    procs.eventually(lambda: not rig.fake_processes(), 5, "no VMM")
    files, fds, rss = rig.files(), procs.fd_count(rig.pid), procs.rss_kib(rig.pid)
    for _ in range(100):
        with rig.create() as s:
            assert s.exec("true").exit_code == 0
    rig.client.close()
    assert rig.files() == files and not rig.fake_processes()
    procs.eventually(lambda: procs.fd_count(rig.pid) <= fds, 5, "descriptors closed")
    assert procs.rss_kib(rig.pid) - rss < (1024 if not procs.sanitized("hutchd") else 32 << 10)
    assert [p for p in procs.descendants(rig.pid) if p.state == "Z"] == []


def test_guest_that_asks_for_power_off_is_reported(rig):
    rig.behave("poweroff")
    with pytest.raises(hutch.HutchError) as caught:
        rig.create()
    assert caught.value.kind in ("boot_failed", "vm_died")
    assert rig.rundirs() == []


def test_broker_info(rig):
    info = rig.info()
    assert info["proto"] == 1 and info["pid"] == rig.pid and info["uid"] == os.getuid() and info["socket"] == str(rig.socket)
    assert info["state_dir"] == str(rig.state) and info["vmm"]["driver"] == "test" and info["isolation"]["level"] == "none"
    assert info["uptime_ms"] >= 0 and info["vms"] == 0 and info["own_vms"] == 0


def test_vm_methods_of_an_unknown_vm(rig):
    for method in ("vm.info", "vm.kill", "vm.wait", "vm.set_ttl", "exec.start", "exec.list", "agent.info", "ping"):
        params = {"ttl_ms": 1000} if method == "vm.set_ttl" else {"argv": ["true"]} if method == "exec.start" else {}
        with pytest.raises(hutch.NotFound, match="no-such-vm"):
            rig.client.call(method, params, vm="no-such-vm")


def test_agents_own_methods_are_not_for_clients(rig):
    """agent.identity is the broker's alone."""
    sandbox = rig.create()
    with pytest.raises(hutch.HutchError) as caught:
        rig.client.call("agent.identity", {"generation": 99, "hostname": "x", "machine_id": "0" * 32, "realtime_ns": 1,
                                           "entropy": b"x" * 32}, vm=sandbox.id)
    assert caught.value.kind in ("denied", "unknown_method")
    assert sandbox.agent_info()["generation"] < 99


def test_template_list_and_remove(rig):
    assert [t["name"] for t in rig.client.templates()] == ["base"]
    with rig.create():
        with pytest.raises(hutch.WrongState, match="base"):
            rig.client.call("template.remove", {"name": "base"})
    with pytest.raises(hutch.NotFound):
        rig.client.call("template.remove", {"name": "nosuch"})
