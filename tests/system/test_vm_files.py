# SPDX-License-Identifier: Apache-2.0
"""Files in a real VM: trees and files there and back by the CLI and by Python, compared with what was sent."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil

import pytest

import hutch
import images
from box import Box
from brokerrig import BrokerRig
from conftest import ROOT
from hutch import AsyncClient, AsyncSandbox
from test_cli_cp import make_tree, tree

pytestmark = pytest.mark.limit(240)


@pytest.fixture(scope="module")
def rig():
    with BrokerRig(fake=False, templates=images.base_templates()) as rig:
        yield rig


@pytest.fixture(scope="module")
def box(rig):
    return Box("vm", rig.create(ttl_seconds=3000, timeout_seconds=120), socket=str(rig.socket), slow=10)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Part of this project's source, and the hard cases."""
    top = tmp_path_factory.mktemp("files") / "src"
    shutil.copytree(ROOT / "protocol", top, symlinks=True)
    make_tree(top / "hard cases")
    os.chmod(top / "hard cases" / "hard", 0o755)
    return top


def test_a_tree_there_and_back_by_the_cli(box, source, tmp_path):
    r = box.cli("cp", "-q", str(source), f"{box.sandbox.id}:/tmp/cli")
    assert r.returncode == 0 and r.stderr == b"", r.stderr
    r = box.cli("cp", "-q", f"{box.sandbox.id}:/tmp/cli", str(tmp_path / "back"))
    assert r.returncode == 0 and r.stderr == b"", r.stderr
    assert tree(source) == tree(tmp_path / "back")
    links = [tmp_path / "back/hard cases" / name for name in ("hard", "d/f")]
    assert os.path.samefile(*links)
    assert (tmp_path / "back/hard cases/sparse").stat().st_blocks * 512 < 1 << 20
    assert int(box.sh("du -k '/tmp/cli/hard cases/sparse'").stdout.split()[0]) < 1024


def test_a_tree_there_and_back_by_python(box, source, tmp_path):
    fs = box.sandbox.filesystem
    sent = fs.upload_dir(source, "/tmp/py")
    came = fs.download_dir("/tmp/py", tmp_path / "back")
    assert tree(source) == tree(tmp_path / "back") and came.count == sent.count - 1  # ./ is not made there
    listed = {i.path: i for i in fs.list("/tmp/py", depth=0)}
    assert len(listed) == came.count and listed["hard cases/d/f"].nlink == 2
    assert fs.remove("/tmp/py", recursive=True) == came.count + 1


def test_a_file_there_and_back(box, tmp_path):
    """16 MiB of noise by the CLI and by Python, and one of them through the other."""
    data = os.urandom(16 << 20)
    (tmp_path / "f").write_bytes(data)
    assert box.cli("cp", str(tmp_path / "f"), f"{box.sandbox.id}:/tmp/f").returncode == 0
    assert box.cli("cp", f"{box.sandbox.id}:/tmp/f", str(tmp_path / "g")).returncode == 0
    assert (tmp_path / "g").read_bytes() == data
    fs = box.sandbox.filesystem
    assert fs.stat("/tmp/f").mtime_ns == (tmp_path / "f").stat().st_mtime_ns
    h = hashlib.sha256()
    with fs.read_stream("/tmp/f") as stream:
        for piece in stream:
            h.update(piece)
    assert h.digest() == hashlib.sha256(data).digest()
    assert box.sh("sha256sum /tmp/f").stdout.split()[0] == h.hexdigest()
    fs.write("/tmp/f", (data[i : i + 100000] for i in range(0, len(data), 100000)), sha256=h.hexdigest())
    fs.remove("/tmp/f")


def test_what_only_a_guest_has(box):
    """Files of /proc and /sys, users of the image's own, a root that nothing leads out of, a full file system."""
    fs = box.sandbox.filesystem
    assert "hutch-agent" in fs.read("/proc/1/comm")
    fs.write("/proc/sys/kernel/domainname", "example", atomic=False)
    assert fs.read("/proc/sys/kernel/domainname") == "example\n"
    fs.mkdir("/tmp/jail")
    fs.chown("/tmp/jail", owner="65534:65534")
    fs.symlink("/tmp/jail/out", "/etc")
    jail = fs.using(user=65534, root="/tmp/jail")
    with pytest.raises(hutch.Denied):
        jail.read("out/passwd")
    with pytest.raises(hutch.Denied):
        fs.write("/etc/x", "x", user=65534)
    jail.write("mine", "x")
    assert fs.stat("/tmp/jail/mine").uid == 65534
    space = fs.statfs("/tmp")
    with pytest.raises(hutch.IoFailed) as e:
        fs.write("/tmp/large", b"x", size=space.total_bytes + 1)
    assert e.value.errno_name == "ENOSPC" and not fs.exists("/tmp/large")
    with fs.watch("/tmp/jail") as w:
        box.sh("mkdir /tmp/jail/new")
        assert w.read(20)[:3] == ("create", "new", True)


def test_asyncio(box):
    async def main():
        async with AsyncClient(box.socket) as client:
            fs = AsyncSandbox(box.sandbox.id, client=client).filesystem
            await asyncio.gather(*(fs.write(f"/tmp/a{i}", f"{i}" * 1000) for i in range(16)))
            assert await asyncio.gather(*(fs.read(f"/tmp/a{i}") for i in range(16))) == [f"{i}" * 1000 for i in range(16)]

    asyncio.run(asyncio.wait_for(main(), 60))
