# SPDX-License-Identifier: Apache-2.0
"""Fixtures for fs.* on the agent as a plain process.

The agent runs as root in a mount namespace of its own, with a tmpfs at /mnt and one of 8 MiB at /mnt/t; its own
view of the file system is reached through /proc/PID/root.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
from pathlib import Path

import pytest

from agentrig import AgentRig
from fscall import Files

SETUP = """
mount -t tmpfs -o mode=755 none /mnt
mkdir -p /mnt/t
mount -t tmpfs -o size=8m none /mnt/t
umask 077
"""


@pytest.fixture(scope="module")
def rig():
    if os.geteuid() != 0:
        pytest.skip("needs root for owners, users and mounts")
    with AgentRig(args=["--verbose"], setup=SETUP) as rig:
        yield rig
        assert rig.alive()


@pytest.fixture
def files(rig):
    files = Files(rig.connect())
    yield files
    files.close()


@pytest.fixture
def inside(rig):
    """The agent's path as this process reaches it."""
    return lambda path: Path(f"/proc/{rig.pid}/root") / str(path).lstrip("/")


@pytest.fixture
def tmp(inside, request):
    """A directory of the test's own below /mnt, as the agent names it."""
    name = "/mnt/" + re.sub(r"\W", "-", request.node.name)[:60]
    inside(name).mkdir()
    return name


def send_all(connection):
    while not connection.send_some():
        select.select([], [connection], [])


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
