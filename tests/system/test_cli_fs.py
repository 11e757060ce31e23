# SPDX-License-Identifier: Apache-2.0
"""hutch fs with the agent."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from brokerrig import BrokerRig
from terminal import hutch, socket_env


@pytest.fixture(scope="module")
def rig():
    with BrokerRig() as rig:
        yield rig


@pytest.fixture(scope="module")
def vm(rig):
    return rig.create(ttl_seconds=600).id


@pytest.fixture
def fs(rig, vm, tmp_path):
    """fs(verb, options..., path): path is below tmp_path, which the plain agent shares with us."""

    def run(verb, *args, **more):
        words = [*args[:-1], f"{vm}:{tmp_path}/{args[-1]}"] if verb != "mv" else [*args[:-2], f"{vm}:{tmp_path}/{args[-2]}", f"{tmp_path}/{args[-1]}"]
        return subprocess.run(hutch("fs", verb, *words), env={**os.environ, **socket_env(rig.socket)}, capture_output=True, timeout=60, **more)

    return run


def test_write_cat_append(fs, tmp_path):
    data = os.urandom(200000)
    assert fs("write", "f", input=data).returncode == 0
    assert (tmp_path / "f").read_bytes() == data
    assert fs("cat", "f").stdout == data
    assert fs("write", "--append", "f", input=b"more").returncode == 0
    assert (tmp_path / "f").read_bytes() == data + b"more"
    r = fs("write", "--new", "f", input=b"x")
    assert r.returncode == 1 and b"f" in r.stderr
    assert fs("write", "-p", "--mode", "600", "a/b/c", input=b"deep").returncode == 0
    assert (tmp_path / "a/b/c").stat().st_mode & 0o7777 == 0o600
    assert fs("write", "--mode", "9", "g", input=b"").returncode == 2
    assert fs("cat", "absent").returncode == 1


def test_ls_and_stat(fs, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("12345")
    os.chmod(tmp_path / "d" / "f", 0o4751)
    os.symlink("f", tmp_path / "d" / "l\x1b")
    os.mkdir(tmp_path / "d" / "sub")
    (tmp_path / "d" / "sub" / "x").write_text("")
    lines = sorted(fs("ls", "d").stdout.decode().splitlines(), key=lambda line: line.split()[-1])
    assert len(lines) == 3 and any(line.startswith("lrwxrwxrwx") and line.endswith("l\\x1b -> f") for line in lines)
    assert any(line.startswith("-rwsr-x--x 1 ") and line.endswith(" f") and " 5 " in line for line in lines)
    records = [json.loads(line) for line in fs("ls", "-R", "--json", "d").stdout.splitlines()]
    assert sorted(r["path"] for r in records) == ["f", "l\x1b", "sub", "sub/x"]
    assert json.loads(fs("stat", "--json", "d/l\x1b").stdout)["type"] == "file"
    assert json.loads(fs("stat", "-L", "--json", "d/l\x1b").stdout)["target"] == "f"
    assert fs("ls", "absent").returncode == 1


def test_mkdir_rm_mv(fs, tmp_path):
    assert fs("mkdir", "a").returncode == 0
    assert fs("mkdir", "a").returncode == 1
    assert fs("mkdir", "-p", "a/b/c").returncode == 0 and (tmp_path / "a/b/c").is_dir()
    assert fs("mv", "a/b", "a/z").returncode == 0 and (tmp_path / "a/z/c").is_dir()
    (tmp_path / "x").write_text("")
    (tmp_path / "y").write_text("")
    assert fs("mv", "--new", "x", "y").returncode == 1
    assert fs("rm", "a").returncode == 1
    assert fs("rm", "-r", "a").returncode == 0 and not (tmp_path / "a").exists()
    assert fs("rm", "a").returncode == 1
    assert fs("rm", "-f", "a").returncode == 0


def test_usage(rig):
    env = {**os.environ, **socket_env(rig.socket)}
    for args in (("ls",), ("ls", "/x"), ("mv", "v:/a"), ("cat", "v:/a", "v:/b"), ("nosuch", "v:/a"), ()):
        assert subprocess.run(hutch("fs", *args), env=env, capture_output=True).returncode == 2, args
    for verb in ("ls", "cat", "write", "stat", "mkdir", "rm", "mv", "watch"):
        r = subprocess.run(hutch("fs", verb, "--help"), env=env, capture_output=True)
        assert r.returncode == 0 and r.stdout.startswith(f"usage: hutch fs {verb}".encode())


def test_watch(rig, vm, tmp_path):
    argv = hutch("fs", "watch", f"{vm}:{tmp_path}")
    p = subprocess.Popen(argv, env={**os.environ, **socket_env(rig.socket)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = p.stdout.readline()
    if first == b"" and b"no fs.watch" in p.stderr.read():
        pytest.skip("the agent has no fs.watch")
    assert first == b"watching\n"
    (tmp_path / "new").write_text("x")
    assert p.stdout.readline() == b"create new\n"
    p.terminate()
    assert p.wait(20) == 128 + 15
    p.stdout.close()
    p.stderr.close()
