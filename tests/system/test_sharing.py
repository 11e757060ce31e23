# SPDX-License-Identifier: Apache-2.0
"""VMs that their maker shares with a group: what members may, what stays the owner's, and whom the kernel calls a member."""

from __future__ import annotations

import os
import signal

import pytest

import hutch
import procs
from brokerrig import BrokerRig
from users import GROUP, as_uid

TEAM, OTHERS = 5001, 5002
OWNER, MEMBER, STRANGER = 1001, 1002, 1003


@pytest.fixture()
def rig(tmp_path):
    if os.geteuid() != 0:
        pytest.fail("needs root to be several users")
    config = tmp_path / "hutchd.conf"
    config.write_text(f"group = {GROUP}\n")
    with BrokerRig(args=["--config", str(config)]) as rig:
        for path in (rig.dir, rig.socket.parent):
            path.chmod(0o755)
        yield rig
        for vm in rig.client.vms():
            rig.client.call("vm.kill", vm=vm.id)


def create(**params):
    return lambda client: client.call("vm.create", {"ttl_ms": 60000, **params}, key=os.urandom(8).hex())["id"]


def call(method, vm, **params):
    return lambda client: client.call(method, params, vm=vm)


def kind(answer):
    return answer.get("error", "ok") if isinstance(answer, dict) else "ok"


def test_a_vm_of_a_group(rig):
    shared = as_uid(OWNER, rig, create(share_group=str(TEAM), name="ours"), [TEAM])
    own = as_uid(OWNER, rig, create(), [TEAM])
    member = lambda action: as_uid(MEMBER, rig, action, [OTHERS, TEAM])  # noqa: E731

    # members use it, and see no other of the same owner
    info = member(call("vm.info", shared))
    assert (info["owner_uid"], info["share_gid"]) == (OWNER, TEAM)
    assert member(lambda c: hutch.Sandbox.get(shared, client=c).exec("echo hi").stdout) == "hi\n"
    assert member(lambda c: [vm.id for vm in c.vms()]) == [shared]
    assert member(call("fs.list", shared, path="/"))
    assert member(call("vm.info", own))["error"] == "not_found"
    assert member(call("vm.info", "ours"))["error"] == "not_found"  # a name is its owner's

    # what ends, stops, copies or keeps it is the owner's, and said so
    for method, params in [("vm.kill", {}), ("vm.set_ttl", {"ttl_ms": 5000}), ("vm.pause", {}), ("vm.resume", {}), ("vm.fork", {}),
                           ("vm.park", {}), ("vm.set_idle", {}), ("snapshot.create", {"name": "s"})]:
        refused = member(call(method, shared, **params))
        assert refused.get("error") == "denied" and f"uid {OWNER}" in refused["text"], (method, refused)
    assert member(call("vm.kill", own))["error"] == "not_found"
    member(lambda c: c.kill_all())
    assert as_uid(OWNER, rig, call("vm.info", shared))["state"] == "running"

    # the owner needs no group for it; others find nothing, whatever group they name
    assert as_uid(OWNER, rig, lambda c: sorted(vm.id for vm in c.vms())) == sorted([shared, own])
    for method, params in [("vm.info", {}), ("vm.info", {"share_group": str(TEAM), "gid": TEAM}), ("exec.list", {}), ("vm.kill", {})]:
        assert as_uid(STRANGER, rig, call(method, shared, **params), [OTHERS])["error"] == "not_found", method
    assert as_uid(STRANGER, rig, lambda c: [vm.id for vm in c.vms()], [OTHERS]) == []

    # it stays so with the next broker, and the log says who
    rig.restart(signal.SIGKILL)
    assert member(lambda c: hutch.Sandbox.get(shared, client=c).exec("echo on").stdout) == "on\n"
    assert as_uid(STRANGER, rig, call("exec.list", shared), [OTHERS])["error"] == "not_found"
    log = rig.log_text()
    assert f"shared with group {TEAM} by client" in log and f"(uid {MEMBER}, pid" in log and f"as a member of group {TEAM}" in log
    as_uid(OWNER, rig, call("vm.kill", shared))
    assert member(call("exec.list", shared))["error"] == "vm_died"


def test_only_with_a_group_of_ones_own(rig):
    """The kernel says who is a member, at the connect; a number in a call proves nothing."""
    for group in (str(TEAM), "0", str(OTHERS), "root"):
        assert as_uid(OWNER, rig, create(share_group=group))["error"] == "denied", group
    for group in ("no-such-group", str(2**32 - 1), str(2**40), "-1", "5001 "):
        assert as_uid(OWNER, rig, create(share_group=group), [TEAM])["error"] == "not_found", group
    assert as_uid(OWNER, rig, create(share_group="x" * 65), [TEAM])["error"] == "invalid"
    assert rig.client.vms() == []
    # a primary group is one, too; root may share with any
    everyone = as_uid(OWNER, rig, create(share_group=str(GROUP)))
    assert kind(as_uid(STRANGER, rig, call("exec.list", everyone))) == "ok"
    assert rig.create(share_group=TEAM).info().share_gid == TEAM


def test_a_group_that_was_joined_after_the_connect(rig):
    shared = as_uid(OWNER, rig, create(share_group=str(TEAM)), [TEAM])
    there, back = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setegid(GROUP)
            os.seteuid(STRANGER)
            client = hutch.Client(str(rig.socket))
            client.ping()  # connected, and kept
            os.seteuid(0)
            os.setgroups([TEAM])
            os.seteuid(STRANGER)
            found = []
            for c in (client, hutch.Client(str(rig.socket))):
                try:
                    c.call("vm.info", vm=shared)
                    found.append("ok")
                except hutch.HutchError as e:
                    found.append(e.kind)
            os.write(back, " ".join(found).encode())
        finally:
            os._exit(0)
    os.close(back)
    with os.fdopen(there) as pipe:
        assert pipe.read() == "not_found ok"
    os.waitpid(pid, 0)
    assert procs.alive(rig.pid)
