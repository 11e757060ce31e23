# SPDX-License-Identifier: Apache-2.0
"""What stands between a VMM and the host, as /proc shows it from outside. Needs root: a uid for each VMM."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import images
import procs
from brokerrig import BrokerRig

SPACES = ("mnt", "pid", "ipc", "uts", "net")

LIMIT_FILES = ("cpu.max", "cpu.cfs_quota_us", "memory.max", "memory.limit_in_bytes", "pids.max")


def status(pid: int) -> dict:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.split() for key, _, value in (line.partition(":") for line in lines)}


def namespace(pid: int, name: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{name}")


def shown(root: Path) -> tuple:
    """The files and the empty directories of a VMM's root, beside the system's libraries, devices and /proc."""
    files, empty = set(), set()
    for place, directories, names in os.walk(root):
        here = Path(place).relative_to(root)
        if place == str(root):
            directories[:] = set(directories) - {"dev", "lib", "lib64", "proc", "usr"}
        files.update(str(here / name) for name in names)
        if not directories and not names:
            empty.add(str(here))
    return files, empty


def jailed_view(pid: int) -> dict:
    """Everything that is claimed of a VMM; asserts what does not depend on the VM."""
    s = status(pid)
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(s[kind][0], 16) == 0, kind
    assert s["NoNewPrivs"] == ["1"] and s["Seccomp"] == ["2"] and int(s["Seccomp_filters"][0]) >= 2
    assert s["NSpid"] == [str(pid), "1"]
    assert s["Groups"] == []
    for name in SPACES:
        assert namespace(pid, name) != namespace(os.getpid(), name), name
    root = Path(f"/proc/{pid}/root")
    assert os.listdir(root / "vm") == []  # the socket of the hello is gone by now
    files, empty = shown(root)
    libraries = {str(path).lstrip("/") for path in (procs.build_dir() / "lib").glob("hutch-*.so")}
    assert files <= {"etc/ld.so.cache", *libraries}, files
    assert empty <= {"vm"}, empty
    mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    assert mounts and all("ro" in m[5].split(",") or m[4] == "/proc" for m in mounts), mounts
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert "Max core file size        0                    0 " in limits
    uids = {int(u) for u in s["Uid"] + s["Gid"]}
    assert len(uids) == 1
    return {"uid": uids.pop()}


@pytest.mark.slow
@pytest.mark.limit(150)
def test_a_vmm_as_the_host_sees_it():
    """Root: own uid, namespaces, root, no capability, filters; still found, adopted and ended from outside."""
    if os.geteuid() != 0:
        pytest.fail("needs root")
    with BrokerRig(fake=False, templates=images.base_templates(), args=["--require-isolation", "uid", "--accel", "tcg"]) as rig:
        isolation = rig.info()["isolation"]
        assert isolation["level"] == "uid" and "own uid" not in isolation["missing"]
        sandbox = rig.create()
        info = sandbox.info()
        pid = info.pid
        view = jailed_view(pid)
        assert 1900000000 < view["uid"] <= 1900065535
        assert info.raw["isolation"]["level"] == "uid"
        # its descriptors: nothing of the host's files is open for writing but its two logs
        rundir = rig.state / "vm" / sandbox.id
        for fd in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            flags = int(Path(f"/proc/{pid}/fdinfo/{fd}").read_text().split("flags:")[1].split()[0], 8)
            if target.startswith(("/", str(rig.state))) and not target.startswith("/dev/") and flags & os.O_ACCMODE != os.O_RDONLY:
                assert target in (str(rundir / "vmm.log"), str(rundir / "console.log")), target
        # as its uid nothing of the broker's can be read, in or out of the jail
        probe = ["setpriv", f"--reuid={view['uid']}", f"--regid={view['uid']}", "--clear-groups"]
        for path in (rig.state, rundir, rundir / "record.json", rig.socket):
            assert subprocess.run([*probe, "cat", str(path)], capture_output=True).returncode != 0
        assert sandbox.exec("echo ok").stdout == "ok\n"
        rig.restart(signal.SIGKILL)
        sandbox = rig.sandbox(sandbox.id)
        assert sandbox.info().pid == pid and sandbox.exec("echo ok").stdout == "ok\n"
        assert sandbox.info().raw["isolation"]["level"] == "uid"
        sandbox.kill()
        assert not procs.alive(pid)


@pytest.mark.slow
@pytest.mark.limit(150)
def test_a_zygote_and_its_forks_as_the_host_sees_them():
    """A fork has all that a VMM of its own has, uid and namespaces too, and nothing open of its zygote's; the zygote has no right."""
    if os.geteuid() != 0:
        pytest.fail("needs root")
    with BrokerRig(fake=False, templates=images.base_templates(), args=["--accel", "tcg"]) as rig:
        zygote = rig.zygote()
        s = status(zygote)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(s[kind][0], 16) == 0, kind
        assert s["NoNewPrivs"] == ["1"] and s["Seccomp"] == ["2"] and s["Groups"] == []
        sandboxes = [rig.create() for _ in range(3)]
        pids = [sandbox.info().pid for sandbox in sandboxes]
        assert all(sandbox.info().raw["zygote"] for sandbox in sandboxes)
        views = [jailed_view(pid) for pid in pids]
        uids = {int(s["Uid"][0]), *(view["uid"] for view in views)}
        assert len(uids) == 4 and all(1900000000 < uid <= 1900065535 for uid in uids), uids
        for name in ("mnt", "pid", "user", "ipc", "uts"):
            assert len({namespace(pid, name) for pid in [zygote, *pids]}) == 4, name
        for sandbox, pid in zip(sandboxes, pids):
            rundir = rig.state / "vm" / sandbox.id
            assert f"HUTCH_VM={sandbox.id}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            assert sandbox.id in procs.command_line(pid)
            assert [name for name in os.listdir(f"/proc/{pid}/root/proc") if name.isdigit()] == ["1"]
            for fd in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                if target.endswith(".log"):
                    assert target in (str(rundir / "vmm.log"), str(rundir / "console.log")), target
        held = [{os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()} for pid in (zygote, *pids)]
        sockets = [{name for name in names if name.startswith("socket:")} for names in held]
        assert len(set().union(*sockets)) == sum(map(len, sockets)), sockets
        os.kill(zygote, signal.SIGKILL)
        assert [sandbox.exec("echo ok").stdout for sandbox in sandboxes] == ["ok\n"] * 3


def test_required_isolation_that_is_not_there():
    """--require-isolation refuses to run with less, and says what there is."""
    rig = BrokerRig(start=False, args=["--require-isolation", "seccomp"])  # the test driver has none
    assert rig.spawn().wait(10) not in (0, None)
    text = rig.log_text()
    assert "isolation 'seccomp' is required" in text and "'none'" in text, text
    rig = BrokerRig(start=False, args=["--require-isolation", "much"])
    assert rig.spawn().wait(10) == 2 and "namespaces" in rig.log_text()


def test_the_broker_is_sealed():
    """The process that reads what guests and clients say: filters, no capability but CAP_KILL, no core, all threads."""
    with BrokerRig() as rig, rig.create() as sandbox:
        assert sandbox.exec("echo ok").stdout == "ok\n"
        tasks = [int(t) for t in os.listdir(f"/proc/{rig.pid}/task")]
        for task in tasks:
            s = status(task)
            assert s["Seccomp"] == ["2"] and s["NoNewPrivs"] == ["1"], (task, s)
            for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                assert int(s[kind][0], 16) & ~(1 << 5) == 0, (task, kind)
            assert s["Groups"] == [] or os.geteuid() != 0
        assert "Max core file size        0                    0 " in Path(f"/proc/{rig.pid}/limits").read_text()
        # an ordinary process of the same user could not even look into it; the launcher is another process
        assert len(rig.launchers()) >= 1 and status(rig.launchers()[0])["Seccomp"] == ["0"]


def places(rig: BrokerRig, sandbox) -> list:
    """The directories of a VM's cgroup."""
    named = rig.state / "vm" / sandbox.id / "cgroup"
    return [Path(line) for line in named.read_text().splitlines()] if named.exists() else []


def test_ceilings_where_the_host_has_them(tmp_path):
    """A VMM is in a cgroup of its own before it runs, with its limits; it goes with the VM, also when nobody saw its end."""
    config = tmp_path / "hutchd.conf"
    config.write_text("vm_cgroup = auto\nvm_cpu_percent = 50\n")
    with BrokerRig(args=["--config", str(config)]) as rig:
        ceilings = rig.info()["ceilings"]
        missing = rig.info()["isolation"]["missing"]
        sandbox = rig.create(vcpus=2, memory_mib=256)
        info = sandbox.info()
        assert info.raw["ceilings"] == {key: ceilings[key] for key in ("by", "of")}
        if ceilings["by"] == "rlimits":
            assert ceilings["of"] == [] and "cgroup" in missing and places(rig, sandbox) == []
            return
        assert "cgroup" not in missing and set(ceilings["of"]) <= {"cpu", "memory", "pids", "io"}
        own = places(rig, sandbox)
        entered = Path(f"/proc/{info.pid}/cgroup").read_text()
        assert own and all(p.name == f"hutch-{sandbox.id}" and str(info.pid) in (p / "cgroup.procs").read_text().split() for p in own)
        assert entered.count(f"/hutch-{sandbox.id}\n") == len(own)
        found = {f.name: f.read_text().strip() for p in own for name in LIMIT_FILES for f in [p / name] if f.exists()}
        if "pids" in ceilings["of"]:
            assert found["pids.max"] == "512"
        if "memory" in ceilings["of"]:
            assert (found.get("memory.max") or found["memory.limit_in_bytes"]) in (str((256 + 512 + more) << 20) for more in (0, 1024))
        if "cpu" in ceilings["of"]:
            assert (found.get("cpu.max", "").split() or [found["cpu.cfs_quota_us"]])[0] == "100000"
        sandbox.kill()
        procs.eventually(lambda: not any(p.exists() for p in own), 10, "its cgroup is gone")
        # ended while no broker and no launcher lived; adopted and ended
        lost, kept = rig.create(), rig.create()
        dirs = {s.id: places(rig, s) for s in (lost, kept)}
        pid = lost.info().pid
        rig.kill(signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        assert procs.wait_gone(pid, 10)
        rig.start()
        procs.eventually(lambda: rig.rundirs() == [kept.id], 10, "the lost VM is buried, the other kept")
        procs.eventually(lambda: not any(p.exists() for p in dirs[lost.id]), 10)
        rig.sandbox(kept.id).kill()
        procs.eventually(lambda: not any(p.exists() for p in dirs[kept.id]), 10)
