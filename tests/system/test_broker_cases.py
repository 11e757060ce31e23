# SPDX-License-Identifier: Apache-2.0
"""Every exec case through the broker, on the fake VMM: what the relay could break. And C012 at the broker, and the CLI."""

from __future__ import annotations

import time

import pytest

import procs
from box import FULL, Box
from brokerrig import BrokerRig
from cases_cli import CliCases
from cases_exec import ExecCases
from cases_lifetime import LifetimeCases
from cases_pty import PtyCases
from cases_stdio import StdioCases
from cases_wire import WireCases


@pytest.fixture(scope="module")
def rig():
    with BrokerRig() as rig:
        yield rig


@pytest.fixture(scope="module")
def box(rig):
    box = Box("broker", rig.create(ttl_seconds=3000), socket=str(rig.socket))
    box.rig = rig
    return box


class TestWire(WireCases):
    program = "hutchd"

    def served(self, box):
        return box.rig.pid


class TestExec(ExecCases):
    pass


class TestStdio(StdioCases):
    pass


class TestLifetime(LifetimeCases):
    pass


class TestPty(PtyCases):
    pass


class TestCli(CliCases):
    pass


def test_c012_client_that_never_reads(rig, box):
    """C012, fault: a client that stops reading blocks the one reader of the channel. Same VM and another VM.

    50 echoes each, each within a second; broker and agent stay below 64 MiB (over 30 s with HUTCH_TEST_FULL).
    """
    with rig.create() as other:
        stalled = [box.sandbox.exec_stream(["yes"], text=False), other.exec_stream(["yes"], text=False)]
        start = time.monotonic()
        done = 0
        while done < 50 or (FULL and time.monotonic() - start < 30):
            for sandbox in (box.sandbox, other):
                before = time.monotonic()
                assert sandbox.exec(["echo", "ok"]).stdout == "ok\n"
                assert time.monotonic() - before < 1
            done += 1
        limit = (64 << 10) if not procs.sanitized("hutchd") else (256 << 10)
        assert procs.rss_kib(rig.pid) < limit
        box.agent_rss_at_most(16 << 10)
        for s in stalled:
            s.kill()
            whole = b"".join(p.data for p in s)
            assert whole == (b"y\n" * (len(whole) // 2 + 1))[: len(whole)]
            assert s.wait().canceled
            s.close()


def test_nothing_is_left_of_all_this(rig, box):
    for e in box.sandbox.execs():
        if e.state == "running":
            box.sandbox.commands.kill(e.id)
    box.client.close()
    vmm = box.sandbox.info().pid
    procs.eventually(lambda: not [p for p in procs.descendants(vmm) if p.name not in ("unshare", "sh", "hutch-agent")], 10, "commands gone")
    box.client.close()
    procs.eventually(lambda: procs.fd_count(rig.pid) < 60, 10, "descriptors closed")
