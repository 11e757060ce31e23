# SPDX-License-Identifier: Apache-2.0
"""Real VMs: create = restore, forks, pauses, snapshots, pools. Cases C006, C007, C008, C039, C040, C051."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

import hutch
import images
import procs
from box import FULL, parallel
from brokerrig import BrokerRig

pytestmark = pytest.mark.limit(300)

IDENTITY = "hostname; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n'; echo; cat /proc/sys/kernel/random/uuid"


@pytest.fixture(scope="module")
def rig():
    with BrokerRig(fake=False, templates=images.base_templates()) as rig:
        made = rig.snapshot_template()
        assert made["snapshot"]["fits"] and made["snapshot"]["memory_mib"] == made["memory_mib"]
        yield rig


@pytest.fixture(autouse=True)
def alone(rig):
    yield
    rig.clear()


def create(rig, **options):
    return rig.create(timeout_seconds=120, **options)


def info(vm):
    return vm.client.call("vm.info", vm=vm.id)


def fork(rig, vm, count=1, **params):
    made = rig.client.call("vm.fork", {"count": count, "timeout_ms": 120000, **params}, vm=vm.id, timeout_seconds=180)
    return [rig.sandbox(v["id"]) for v in made["vms"]], made


def snapshot(rig, vm, name, **params):
    return rig.client.call("snapshot.create", {"name": name, **params}, vm=vm.id, timeout_seconds=120)


def from_snapshot(rig, name, **params):
    made = rig.client.call("vm.create", {"snapshot": name, "timeout_ms": 120000, **params}, timeout_seconds=180)
    return rig.sandbox(made["id"])


def refused(kind, rig, method, params, **envelope):
    with pytest.raises(hutch.HutchError) as caught:
        rig.client.call(method, params, timeout_seconds=120, **envelope)
    assert caught.value.kind == kind, caught.value
    return caught.value


def test_create_restores_the_templates_snapshot(rig):
    with create(rig) as a, create(rig) as b:
        told = info(a)
        assert told["boot_mode"] == "restore" and "cold_reason" not in told and told["layers"] == 0
        assert told["stages"]["total_us"] >= told["stages"]["hello_us"] > 0 and told["agent"]["generation"] == 2
        first, second = (vm.exec(IDENTITY).stdout.split() for vm in (a, b))
        assert len(first) == 4 and not set(first) & set(second)
        assert abs(int(a.exec("date +%s").stdout) - time.time()) < 3


def test_where_the_snapshot_does_not_fit_the_kernel_is_booted(rig):
    with create(rig, memory_mib=192) as vm:
        assert info(vm)["boot_mode"] == "cold" and "memory_mib is 192" in info(vm)["cold_reason"]
        assert vm.exec("echo ok").stdout == "ok\n"


def test_c006_forks_have_identities_of_their_own(rig):
    """C006: 8 forks at once, each with other random bytes, UUID, hostname and machine-id in the first call after the fork."""
    with create(rig) as vm:
        vm.exec("true")
        children, made = fork(rig, vm, 8, name="w", metadata={"a": "1"})
        said = parallel(lambda c: c.exec(IDENTITY).stdout.split(), [*children, vm], 9)
        assert all(len(s) == 4 for s in said)
        for values in zip(*said):
            assert len(set(values)) == 9, values
        told = [info(c) for c in children]
        assert [t["name"] for t in told] == [f"w-{i}" for i in range(1, 9)] and [s[0] for s in said[:8]] == [t["name"] for t in told]
        assert all(t["boot_mode"] == "fork" and t["parent"] == vm.id and t["metadata"] == {"a": "1"} for t in told)
        assert len({t["cid"] for t in told}) == 8 and {t["layers"] for t in told} == {1} and made["bytes"] > 0


def test_c007_processes_files_and_streams_go_on(rig):
    """C007: a background process and an open file go on in each child, apart; a stream of the parent notices nothing."""
    with create(rig) as vm:
        vm.exec("i=0; exec 3>/tmp/ticks; (while :; do i=$((i+1)); echo $i >&3; sleep 0.05; done) >/dev/null 2>&1 &")
        with vm.exec_stream(["cat"], stdin=True) as stream:
            stream.write("before ")
            children, _ = fork(rig, vm, 2)
            stream.write("after")
            stream.close_stdin()
            assert "".join(data for _, data in stream) == "before after"
        children[0].exec("echo mine > /tmp/own")
        for machine in (vm, *children):
            ticks = machine.exec("tail -1 /tmp/ticks; n=$(wc -l < /tmp/ticks); while [ $(wc -l < /tmp/ticks) -le $n ]; do sleep 0.02; done; wc -l < /tmp/ticks").stdout.split()
            assert int(ticks[1]) > int(ticks[0]) - 1 > 0
        assert [m.exec("cat /tmp/own", check=False).stdout for m in (vm, *children)] == ["", "mine\n", ""]


def test_c008_a_detached_exec_can_be_attached_in_each_child(rig):
    with create(rig) as vm:
        vm.commands.start("echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done", id="job")
        children, _ = fork(rig, vm, 2)
        children[1].exec("touch /tmp/go")
        assert "".join(data for _, data in children[1].commands.connect("job")) == "begun\ndone\n"
        for other in (vm, children[0]):
            assert [e["state"] for e in other.client.call("exec.list", vm=other.id)["execs"] if e["id"] == "job"] == ["running"]


def test_c039_fork_of_a_fork(rig):
    """C039: generations of forks (50 with HUTCH_TEST_FULL, else 5), each with what all before it wrote."""
    generations = 50 if FULL else 5
    vm = create(rig)
    first, begun = None, info(vm)["agent"]["generation"]
    for i in range(generations):
        vm.exec(f"echo {i} >> /tmp/line")
        (child,), made = fork(rig, vm)
        first = first or made["bytes"]
        assert made["bytes"] < 2 * first + (4 << 20)
        vm.kill()
        vm = child
    assert vm.exec("cat /tmp/line").stdout.split() == [str(i) for i in range(generations)]
    assert info(vm)["layers"] == generations and info(vm)["agent"]["generation"] == begun + generations


def test_all_or_none(rig):
    with create(rig) as vm, create(rig, name="w-2"):
        assert "w-2" in str(refused("exists", rig, "vm.fork", {"count": 3, "name": "w"}, vm=vm.id))
        procs.eventually(lambda: len(rig.rundirs()) == 2, 20, "the other children are gone")
        assert vm.exec("echo ok").stdout == "ok\n"


def test_pause_and_resume(rig):
    with create(rig) as vm:
        stream = vm.exec_stream("while :; do echo; sleep 0.02; done")
        ticks = iter(stream)
        next(ticks)
        for _ in range(2):  # the second time it is paused already
            rig.client.call("vm.pause", vm=vm.id)
        assert info(vm)["state"] == "paused"
        assert "resume" in refused("state", rig, "exec.start", {"argv": ["true"]}, vm=vm.id).message
        children, _ = fork(rig, vm)  # it stays paused
        assert children[0].exec("echo child").stdout == "child\n" and info(vm)["state"] == "paused"
        for _ in range(2):
            rig.client.call("vm.resume", vm=vm.id)
        assert abs(int(vm.exec("date +%s").stdout) - time.time()) < 3
        next(ticks)
        stream.kill()


def test_snapshot_is_kept_used_and_deleted(rig):
    with create(rig) as vm:
        vm.exec("echo kept > /tmp/f; (while :; do sleep 1; done) >/dev/null 2>&1 & echo $! > /tmp/pid")
        made = snapshot(rig, vm, "s.1", allow_secrets=False)
        assert made["layers"] == 1 and made["vm"] == vm.id and made["verified"] and made["pause_us"] > 0
        refused("exists", rig, "snapshot.create", {"name": "s.1"}, vm=vm.id)
        vm.kill()
    told = rig.client.call("snapshot.info", {"name": "s.1"})
    assert told["must_match"]["vmm"].startswith("qemu ") and all(len(f["sha256"]) == 64 for f in told["files"])
    for path in (rig.state / "snapshots").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    again = from_snapshot(rig, "s.1")
    assert again.exec("cat /tmp/f; kill -0 $(cat /tmp/pid) && echo lives").stdout.split() == ["kept", "lives"]
    (child,), _ = fork(rig, again)
    again.kill()
    assert rig.client.call("snapshot.info", {"name": "s.1"})["users"] == [child.id]
    assert child.id in str(refused("state", rig, "snapshot.delete", {"name": "s.1"}))
    child.kill()
    rig.client.call("snapshot.delete", {"name": "s.1"})
    refused("not_found", rig, "vm.create", {"snapshot": "s.1"})
    assert not [p for p in (rig.state / "snapshots").rglob("*") if p.is_file()]


def test_c051_a_snapshot_that_was_tampered_with_is_refused(rig):
    """C051: a changed byte of memory, another VMM, a broken manifest: each is refused, and named."""
    with create(rig) as vm:
        snapshot(rig, vm, "t")
    folder = rig.state / "snapshots" / str(os.getuid()) / "t"
    manifest = json.loads((folder / "manifest.json").read_text())
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept, copy_function=os.link)

    def attempt(kind, word, change):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder, copy_function=os.link)
        change()
        for method, params in (("snapshot.verify", {"name": "t"}), ("vm.create", {"snapshot": "t"})):
            assert word in refused(kind, rig, method, params).message

    def flip():
        (folder / "layer-0").unlink()
        subprocess.run(["cp", "--sparse=always", kept / "layer-0", folder / "layer-0"], check=True)
        with open(folder / "layer-0", "r+b") as f:
            f.seek(os.lseek(f.fileno(), 0, os.SEEK_DATA) + 100)
            byte = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte[0] ^ 1]))

    def rewrite(**changes):
        (folder / "manifest.json").unlink()
        (folder / "manifest.json").write_text(json.dumps({**manifest, **changes}))

    try:
        attempt("state", "layer-0", flip)
        attempt("unsupported", "vmm was", lambda: rewrite(vmm="qemu 1.0"))
        attempt("unsupported", "tsc_khz was", lambda: rewrite(tsc_khz=manifest["tsc_khz"] * 2))
        attempt("state", "'layers'", lambda: rewrite(layers=7000))
        attempt("state", "device", lambda: (folder / "device").unlink())
    finally:
        shutil.rmtree(folder)
        kept.rename(folder)
    rig.client.call("snapshot.verify", {"name": "t"})


def test_secrets_are_not_copied_unless_told(rig):
    made = rig.client.call("vm.create", {"secrets": True, "timeout_ms": 120000}, timeout_seconds=180)
    for method, params in (("vm.fork", {}), ("snapshot.create", {"name": "x"})):
        assert "allow_secrets" in refused("denied", rig, method, params, vm=made["id"]).message
    (child,), _ = fork(rig, rig.sandbox(made["id"]), allow_secrets=True)
    assert info(child)["secrets"]


@pytest.mark.parametrize("after_ms", [0, 20, 60, 150] if FULL else [30])
def test_c040_kill_of_the_broker_around_a_fork(rig, after_ms):
    """C040: kill -9 in the middle: the parent goes on with its processes, no half-made child, no file is left."""
    with create(rig) as vm:
        vm.exec("exec 3>/tmp/ticks; (while :; do echo >&3; sleep 0.02; done) >/dev/null 2>&1 &")

        def attempt():
            try:
                fork(rig, vm, 4)
            except (hutch.HutchError, OSError):
                pass

        thread = threading.Thread(target=attempt)
        thread.start()
        time.sleep(after_ms / 1000)  # what is tested is any instant of it
        rig.kill()
        thread.join()
        rig.start()
        procs.eventually(lambda: len(rig.rundirs()) == len(rig.client.vms()), 20, "no half-made child")
        count = "wc -l < /tmp/ticks"
        first = int(vm.exec(count, timeout_seconds=60).stdout)
        procs.eventually(lambda: int(vm.exec(count).stdout) > first, 20, "its processes go on")
        assert not (rig.state / "vm" / vm.id / "capture").exists()
        (child,), _ = fork(rig, vm)
        assert child.exec("echo ok").stdout == "ok\n"


def test_kill_of_the_broker_while_a_vm_is_paused(rig):
    with create(rig) as vm:
        rig.client.call("vm.pause", vm=vm.id)
        rig.restart()
        assert info(vm)["state"] == "paused"
        rig.client.call("vm.resume", vm=vm.id, timeout_seconds=60)
        assert vm.exec("echo ok").stdout == "ok\n"


def test_pool(rig):
    """Taken and replaced; seen by nobody before; ended by a broker that comes back, and by size 0."""
    rig.client.call("pool.set", {"template": "base", "size": 2})

    def pool():
        return rig.client.call("pool.list")["pools"][0]

    procs.eventually(lambda: pool()["ready"] == 2, 60, "filled")
    assert rig.client.vms() == []
    vms = [create(rig, name=f"p{i}") for i in range(2)]
    assert [info(v)["boot_mode"] for v in vms] == ["pool"] * 2
    assert [v.exec(IDENTITY).stdout.split()[0] for v in vms] == ["p0", "p1"]
    assert not set(vms[0].exec(IDENTITY).stdout.split()) & set(vms[1].exec(IDENTITY).stdout.split())
    procs.eventually(lambda: pool()["ready"] == 2, 60, "filled again")
    assert pool()["taken"] == 2
    waiting = set(rig.rundirs()) - {v.id for v in vms}
    rig.kill(signal.SIGKILL)
    rig.start()
    assert not waiting & set(rig.rundirs()) and {v.id for v in rig.client.vms()} == {v.id for v in vms}
    procs.eventually(lambda: pool()["ready"] == 2, 60, "filled by the next broker")
    rig.client.call("pool.set", {"template": "base", "size": 0})
    assert rig.client.call("pool.list")["pools"] == []
    procs.eventually(lambda: set(rig.rundirs()) == {v.id for v in vms}, 20, "ended")


def test_a_limit_on_what_snapshots_take(rig, tmp_path):
    """The store is full: refused by name, nothing of it is kept, and the VM goes on."""
    config = tmp_path / "hutchd.conf"
    config.write_text("max_snapshot_mib = 8\n")
    vm = create(rig)
    before = list(rig.args)
    rig.args += ["--config", str(config)]
    try:
        rig.restart()
        vm = rig.sandbox(vm.id)

        def refused():
            with pytest.raises(hutch.Busy) as e:
                snapshot(rig, vm, "large")
            return "max_snapshot_mib is 8" in str(e.value)  # at first its adoption is under way

        procs.eventually(refused, 20)
        assert rig.client.call("snapshot.list")["snapshots"] == []
        assert vm.exec("echo on").stdout == "on\n" and not (rig.state / "vm" / vm.id / "capture").exists()
    finally:
        rig.args = before
        rig.restart()
    vm = rig.sandbox(vm.id)

    def kept():
        try:
            return snapshot(rig, vm, "large")["name"] == "large"
        except hutch.Busy as e:
            assert "adoption" in str(e), e
            return False

    procs.eventually(kept, 20)
    rows = {row["name"]: row for row in rig.client.call("broker.limits")["limits"]}
    assert rows["max_snapshot_mib"]["used"] > 8 and rows["max_snapshot_mib"]["value"] == 0
