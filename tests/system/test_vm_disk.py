# SPDX-License-Identifier: Apache-2.0
"""Writable disks of real VMs: full, forked, kept, forged. C051, C040 for disks."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

import hutch
import images
import procs
from box import FULL
from brokerrig import BrokerRig

pytestmark = pytest.mark.limit(300)

DISK_MIB = 64
CLUSTER = 65536
# A line a turn, each on the disk before the next. It goes on in a fork.
COUNT = "cd /root; : > count; (i=0; while :; do i=$((i+1)); echo $i >> count; fsync count; usleep 20000; done) >/dev/null 2>&1 &"
DROP_CACHES = "echo 3 > /proc/sys/vm/drop_caches"


@pytest.fixture(scope="module")
def rig():
    with tempfile.TemporaryDirectory(prefix="hutch-templates-") as folder:
        made = images.build_template("base", Path(folder), "--disk-mib", DISK_MIB)
        assert (made / "disk.ext4").stat().st_blocks * 512 < 1 << 20, "a blank disk is sparse"
        with BrokerRig(fake=False, templates=Path(folder)) as rig:
            told = rig.snapshot_template()
            assert told["disk_mib"] == DISK_MIB and told["snapshot"]["fits"]
            yield rig


@pytest.fixture(autouse=True)
def alone(rig):
    yield
    rig.clear()


def create(rig, **options):
    return rig.create(timeout_seconds=120, **options)


def fork(rig, vm, count=1):
    made = rig.client.call("vm.fork", {"count": count, "timeout_ms": 120000}, vm=vm.id, timeout_seconds=180)
    return [rig.sandbox(v["id"]) for v in made["vms"]]


def refused(kind, call, *args, **more):
    with pytest.raises(hutch.HutchError) as caught:
        call(*args, **more)
    assert caught.value.kind == kind, caught.value
    return caught.value.message


def rundir(rig, vm):
    return rig.state / "vm" / vm.id


def overlays(rig, vm):
    """Its own, the one it writes to last."""
    return sorted(rundir(rig, vm).glob("disk-[0-9]*"), key=lambda p: int(p.name[5:]))


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("cold", [False, True])
def test_a_full_disk_is_the_guests_problem_alone(rig, cold):
    """What is written goes to the disk, not to memory; df shows its size; when it is full that is an error, and no more."""
    with create(rig, **({"cold": True} if cold else {})) as vm:
        told = vm.client.call("vm.info", vm=vm.id)
        assert told["disk_mib"] == DISK_MIB and told["boot_mode"] == ("cold" if cold else "restore")
        total = int(vm.exec("df -k / | awk 'END { print $2 }'").stdout)
        assert 0.85 * DISK_MIB * 1024 < total <= DISK_MIB * 1024
        full = vm.exec("dd if=/dev/zero of=/root/big bs=64k; echo $?; sync; df -k / | awk 'END { print $4 }'")
        assert "No space left" in full.stderr and full.stdout.split() == ["1", "0"]
        assert vm.exec("rm /root/big; echo ok > /root/f; cat /root/f").stdout == "ok\n"
        (own,) = overlays(rig, vm)
        assert own.stat().st_size > (DISK_MIB << 20) * 0.8 and own.stat().st_mode & 0o777 == 0o600
    assert not rundir(rig, vm).exists()


def size_kib(vm):
    return int(vm.exec("df -k / | awk 'END { print $2 }'", check=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize("cold", [False, True])
def test_a_size_of_its_own(rig, cold):
    """Larger than the template's, at create: the guest has all of it; so have its forks, its snapshot, and it itself after it was parked."""
    vm = create(rig, cold=cold, disk_mib=3 * DISK_MIB)
    told = vm.info().raw
    assert told["disk_mib"] == 3 * DISK_MIB and told["boot_mode"] == ("cold" if cold else "restore")
    assert 0.85 * 3 * DISK_MIB * 1024 < size_kib(vm) <= 3 * DISK_MIB * 1024
    fill = f"(head -c {DISK_MIB + 24}M /dev/zero; cat /proc/sys/kernel/random/uuid) > /root/big && md5sum /root/big > /root/sum; sync"
    vm.exec(fill, check=True, timeout_seconds=120)
    (child,) = fork(rig, vm)
    rig.client.call("snapshot.create", {"name": "large"}, vm=vm.id, timeout_seconds=120)
    vm.park()
    for other, mib in ((vm, 3), (child, 3), (create(rig, snapshot="large"), 3), (create(rig, snapshot="large", disk_mib=5 * DISK_MIB), 5)):
        assert other.info().raw["disk_mib"] == mib * DISK_MIB
        other.exec(DROP_CACHES)
        assert other.exec("md5sum -c /root/sum", timeout_seconds=120).stdout == "/root/big: OK\n"
        assert 0.85 * mib * DISK_MIB * 1024 < size_kib(other) <= mib * DISK_MIB * 1024
    full = vm.exec("dd if=/dev/zero of=/root/more bs=64k; rm /root/more; echo here > /root/f; sync; cat /root/f", timeout_seconds=120)
    assert "No space left" in full.stderr and full.stdout == "here\n"
    said = refused("invalid", create, rig, snapshot="large", disk_mib=DISK_MIB)
    assert f"disk_mib is {DISK_MIB}, snapshot 'large' has {3 * DISK_MIB}: a disk can grow, not shrink" in said


def test_sizes_that_are_refused(rig):
    said = refused("invalid", create, rig, disk_mib=DISK_MIB // 2)
    assert f"disk_mib is {DISK_MIB // 2}, template 'base' has {DISK_MIB}: a disk can grow, not shrink" in said
    made = rig.client.call("vm.create", {"disk_mib": DISK_MIB, "timeout_ms": 120000}, timeout_seconds=180)
    assert made["disk_mib"] == DISK_MIB and made["boot_mode"] == "restore"


def test_disk_and_memory_of_a_fork_are_of_one_instant(rig):
    """A loop that counts into a file goes on in each child, and in each no number is missing or there twice."""
    with create(rig) as vm:
        vm.exec(COUNT)
        procs.eventually(lambda: int(vm.exec("wc -l < /root/count").stdout) > 20, 30, "it counts")
        vm.exec("head -c 3000000 /dev/urandom > /root/r; sync; sha256sum /root/r > /root/sum")
        children = fork(rig, vm, 2)
        grandchild = fork(rig, children[0])[0]
        children[1].exec("echo mine > /root/own")
        for machine in (vm, *children, grandchild):
            before = int(machine.exec("wc -l < /root/count").stdout)
            procs.eventually(lambda m=machine, n=before: int(m.exec("wc -l < /root/count").stdout) > n, 30, "it goes on")
            # Read from the disk, not from what was in memory.
            said = machine.exec(f"{DROP_CACHES}; sha256sum -c /root/sum && awk '$1 != NR {{ exit 1 }}' /root/count", check=False)
            assert said.exit_code == 0, said
        assert [m.exec("cat /root/own", check=False).stdout for m in (vm, *children, grandchild)] == ["", "", "mine\n", ""]
        assert [len(overlays(rig, m)) for m in (vm, *children, grandchild)] == [2, 2, 1, 1]


def test_a_paused_vm_is_forked_more_than_once(rig):
    with create(rig) as vm:
        vm.exec("echo 1 > /root/f; sync")
        rig.client.call("vm.pause", vm=vm.id)
        for _ in range(2):
            (child,) = fork(rig, vm)
            assert child.exec(f"{DROP_CACHES}; cat /root/f; echo 2 > /root/f; cat /root/f").stdout == "1\n2\n"
        rig.client.call("vm.resume", vm=vm.id, timeout_seconds=60)
        assert vm.exec("cat /root/f; echo 3 > /root/f; sync").stdout == "1\n"
        (child,) = fork(rig, vm)
        assert child.exec(f"{DROP_CACHES}; cat /root/f").stdout == "3\n"


def test_c051_a_snapshots_disk_stays_what_it_is(rig):
    """C051: two VMs of one snapshot write the same file: neither sees the other's, and the files of the snapshot are as before."""
    with create(rig) as vm:
        vm.exec("echo kept > /root/x; sync")
        told = rig.client.call("snapshot.create", {"name": "s"}, vm=vm.id, timeout_seconds=120)
        assert told["disk_mib"] == DISK_MIB
        vm.exec("echo parent > /root/x; sync")
    folder = rig.state / "snapshots" / str(os.getuid()) / "s"
    files = sorted(p for p in folder.iterdir() if p.name.startswith("disk"))
    assert [p.name for p in files] == ["disk", "disk-0", "disk-1"] and {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o600}
    before = [digest(p) for p in files]
    made = [rig.client.call("vm.create", {"snapshot": "s", "timeout_ms": 120000}, timeout_seconds=180)["id"] for _ in range(2)]
    for text, machine in zip("ab", map(rig.sandbox, made)):
        assert machine.exec(f"{DROP_CACHES}; cat /root/x; echo {text} > /root/x; sync; {DROP_CACHES}; cat /root/x").stdout == f"kept\n{text}\n"
    assert [digest(p) for p in files] == before
    rig.client.call("snapshot.verify", {"name": "s"}, timeout_seconds=120)


def test_c051_a_disk_layer_that_was_tampered_with_is_refused(rig):
    with create(rig) as vm:
        vm.exec("echo kept > /root/x; sync")
        rig.client.call("snapshot.create", {"name": "t"}, vm=vm.id, timeout_seconds=120)
    folder = rig.state / "snapshots" / str(os.getuid()) / "t"
    manifest = json.loads((folder / "manifest.json").read_text())
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept, copy_function=os.link)

    def attempt(word, change):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder, copy_function=os.link)
        change()
        for method, params in (("snapshot.verify", {"name": "t"}), ("vm.create", {"snapshot": "t"})):
            assert word in refused("state", rig.client.call, method, params, timeout_seconds=120)

    def flip(name):
        (folder / name).unlink()
        subprocess.run(["cp", "--sparse=always", kept / name, folder / name], check=True)
        with open(folder / name, "r+b") as f:
            f.seek(-1, os.SEEK_END)
            f.write(b"x")

    def rewrite(**changes):
        (folder / "manifest.json").unlink()
        (folder / "manifest.json").write_text(json.dumps({**manifest, **changes}))

    try:
        attempt("disk-1", lambda: flip("disk-1"))
        attempt("disk", lambda: flip("disk"))
        attempt("'disk_layers'", lambda: rewrite(disk_layers=7000))
        attempt("disk-2", lambda: rewrite(disk_layers=3))
    finally:
        shutil.rmtree(folder)
        kept.rename(folder)


# Where in a header, and what a VMM in foreign hands could write there to have a file of the host opened for it, or to lie about itself.
FORGERIES = {
    "backing file": [(8, struct.pack(">QI", 512, 11)), (512, b"/etc/shadow")],
    "features": [(72, struct.pack(">Q", 4)), (104, struct.pack(">II", 0x44415441, 11) + b"/etc/shadow")],
    "another size": [(24, struct.pack(">Q", 1 << 40))],
}


@pytest.mark.parametrize("what", FORGERIES if FULL else ["backing file"])
def test_a_forged_header_goes_no_further(rig, what):
    """The parent lives on with it; no child and no snapshot ever has it opened."""
    with create(rig) as vm:
        vm.exec("echo 1 > /root/f; sync")
        (own,) = overlays(rig, vm)
        with own.open("r+b") as f:
            for at, data in FORGERIES[what]:
                f.seek(at)
                f.write(data)
        for method, params in (("vm.fork", {}), ("snapshot.create", {"name": "f"})):
            said = refused("state", rig.client.call, method, params, vm=vm.id, timeout_seconds=120)
            assert "its disk cannot be used" in said, said
        assert rig.client.call("snapshot.list")["snapshots"] == []
        assert vm.exec("cat /root/f").stdout == "1\n"
        procs.eventually(lambda: len(rig.rundirs()) == 1, 20, "no half-made child")


def test_one_that_can_still_be_written_to_is_not_shared(rig):
    """A VMM in foreign hands may keep the descriptor of what was frozen."""
    with create(rig) as vm:
        (own,) = overlays(rig, vm)
        with own.open("r+b"):
            assert "still open for writing" in refused("state", fork, rig, vm, 2)
            assert len(rig.rundirs()) == 1
        (child,) = fork(rig, vm)
        assert child.exec("echo ok").stdout == "ok\n"


@pytest.mark.parametrize("after_ms", [0, 10, 20, 40, 80, 160] if FULL else [25])
def test_c040_kill_of_the_broker_around_a_fork_with_a_disk(rig, after_ms):
    """C040: whether the disk was frozen or not when the broker died, the next one goes on with it."""
    with create(rig) as vm:
        vm.exec(COUNT)

        def attempt():
            try:
                fork(rig, vm, 2)
            except (hutch.HutchError, OSError):
                pass

        for _ in range(2):
            thread = threading.Thread(target=attempt)
            thread.start()
            time.sleep(after_ms / 1000)  # what is tested is any instant of it
            rig.kill()
            thread.join()
            rig.start()
            procs.eventually(lambda: len(rig.rundirs()) == len(rig.client.vms()), 20, "no half-made child")
            before = int(vm.exec("wc -l < /root/count", timeout_seconds=60).stdout)
            procs.eventually(lambda n=before: int(vm.exec("wc -l < /root/count").stdout) > n, 30, "it goes on")
        (child,) = fork(rig, vm)
        for machine in (vm, child):
            said = machine.exec(f"{DROP_CACHES}; awk '$1 != NR {{ exit 1 }}' /root/count", check=False)
            assert said.exit_code == 0, said


def test_a_pools_vms_have_disks_of_their_own(rig):
    rig.client.call("pool.set", {"template": "base", "size": 1})
    try:
        procs.eventually(lambda: rig.client.call("pool.list")["pools"][0]["ready"] == 1, 60, "one is ready")
        with create(rig) as vm:
            assert vm.client.call("vm.info", vm=vm.id)["boot_mode"] == "pool"
            vm.exec("echo pooled > /root/f; sync")
            (child,) = fork(rig, vm)
            assert child.exec(f"{DROP_CACHES}; cat /root/f").stdout == "pooled\n"
    finally:
        rig.client.call("pool.set", {"template": "base", "size": 0})


@pytest.mark.parametrize("cold", [False, True] if FULL else [True])
def test_a_parked_vm_keeps_its_disk(rig, cold):
    """It is the same after a wake, whatever was frozen of it, and can be forked then."""
    with create(rig, **({"cold": True} if cold else {})) as vm:
        for turn in range(3):
            vm.exec(f"echo {turn} >> /root/f; sync; head -c 1000000 /dev/urandom > /root/r; sha256sum /root/r > /root/sum")
            if turn == 1:
                fork(rig, vm)[0].exec("echo theirs >> /root/f")
            rig.client.call("vm.park", vm=vm.id, timeout_seconds=60)
            said = vm.exec(f"{DROP_CACHES}; sha256sum -c /root/sum >&2 && cat /root/f", timeout_seconds=60)
            assert said.stdout.split() == [str(t) for t in range(turn + 1)]
        (child,) = fork(rig, vm)
        assert child.exec(f"{DROP_CACHES}; sha256sum -c /root/sum >&2 && cat /root/f").stdout == "0\n1\n2\n"


WRITE = "echo {} >> /root/f; head -c 200000 /dev/urandom > /root/r{}; cat /root/r* | sha256sum > /root/sum; sync"
SAME = DROP_CACHES + "; cat /root/r* | sha256sum | cmp - /root/sum >&2 && cat /root/f"


def test_a_long_line_of_forks_has_a_short_chain(rig):
    """C039 for disks: each is forked from the one before; layers become one in the background, and what is read is the same."""
    machine = create(rig)
    for n in range(10):
        machine.exec(WRITE.format(n, n % 3))
        (child,) = fork(rig, machine)
        machine.kill()
        machine = child
    layers = lambda: json.loads((rundir(rig, machine) / "image" / "manifest.json").read_text())["disk_layers"]
    procs.eventually(lambda: layers() < 8, 30, "the chain is short")
    (child,) = fork(rig, machine)
    assert child.exec(SAME).stdout.split() == [str(n) for n in range(10)]
    procs.eventually(lambda: not list(rundir(rig, machine).glob("*merged*")), 10, "nothing is left over")


def test_a_vm_that_is_forked_often_has_a_short_chain(rig):
    with create(rig) as vm:
        for n in range(10):
            vm.exec(WRITE.format(n, n % 3))
            (child,) = fork(rig, vm)
            if n % 4 == 1:
                assert child.exec(SAME).stdout.split() == [str(i) for i in range(n + 1)]
            child.kill()
        procs.eventually(lambda: len(overlays(rig, vm)) < 8, 30, "the chain is short")
        for machine in (vm, *fork(rig, vm)):
            assert machine.exec(SAME).stdout.split() == [str(n) for n in range(10)]
        rig.client.call("vm.park", vm=vm.id, timeout_seconds=60)
        assert vm.exec(SAME, timeout_seconds=60).stdout.split() == [str(n) for n in range(10)]
