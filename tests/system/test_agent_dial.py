# SPDX-License-Identifier: Apache-2.0
"""The agent's own connection to its host: its hello, and that it comes back after a loss without ever spinning."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import time
from pathlib import Path

import pytest

from agentrig import AgentRig
from cases_wire import HELLO, PING
from hutch import wire


class Host:
    """A listening socket in the host's place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listen()

    def listen(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(str(self.path))
        self.sock.listen(16)

    def accept(self, seconds: float) -> socket.socket:
        self.sock.settimeout(seconds)
        sock, _ = self.sock.accept()
        sock.settimeout(5)
        return sock

    def gone(self) -> None:
        self.sock.close()
        self.path.unlink()


@pytest.fixture
def host():
    folder = Path(tempfile.mkdtemp(prefix="hutch-dial-"))
    yield Host(folder / "host.sock")
    shutil.rmtree(folder)


@pytest.fixture
def rig(host):
    with AgentRig(args=["--dial", str(host.path)]) as rig:
        yield rig


def frames(sock: socket.socket, count: int):
    decoder, got = wire.FrameDecoder(), []
    while len(got) < count:
        data = sock.recv(1 << 16)
        assert data, "the agent closed"
        got += decoder.feed(data)
    return got


def greet(sock: socket.socket):
    sock.sendall(HELLO)
    return wire.decode_map(frames(sock, 1)[0].payload)


def test_hello_says_who_and_calls_are_served(host, rig):
    with host.accept(5) as sock:
        hello = greet(sock)
        assert hello["role"] == "agent" and hello["proto"] == 1 and hello["generation"] == 0
        assert hello["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        sock.sendall(PING)
        assert frames(sock, 1)[0].type == wire.RESULT


def test_lost_connection_is_made_again_at_once(host, rig):
    for _ in range(20):
        with host.accept(1) as sock:  # no pause grows as long as the host answers
            greet(sock)


@pytest.mark.parametrize("rude", ["closed", "reset", "silent end"])
def test_host_that_never_says_hello_is_not_flooded(host, rig, rude):
    count, deadline = 0, time.monotonic() + 1.5
    with contextlib.suppress(TimeoutError):
        while True:
            sock = host.accept(max(deadline - time.monotonic(), 0.01))
            count += 1
            if rude == "reset":
                sock.sendall(b"\xff")
            elif rude == "silent end":
                sock.shutdown(socket.SHUT_WR)
            sock.close()
    assert 3 <= count <= 12
    rig.client.ping()


def test_host_that_goes_and_comes_back(host, rig):
    with host.accept(5) as sock:
        greet(sock)
        host.gone()
    rig.client.ping()
    host.listen()
    with host.accept(10) as sock:
        assert greet(sock)["role"] == "agent"
