# SPDX-License-Identifier: Apache-2.0
"""Every exec case on the agent as a plain process, at the stated counts."""

from __future__ import annotations

import pytest

import procs
from agentrig import AgentRig
from box import Box
from cases_exec import ExecCases
from cases_lifetime import LifetimeCases
from cases_pty import PtyCases
from cases_quiet import WANTED, Quiet
from cases_stdio import StdioCases
from cases_wire import WireCases


@pytest.fixture(scope="module")
def rig():
    with AgentRig() as rig:
        yield rig


@pytest.fixture(scope="module")
def box(rig):
    return Box("agent", rig.sandbox, socket=str(rig.socket), agent=rig)


@pytest.fixture(scope="module", autouse=True)
def quiet():
    with AgentRig() as own:
        yield Quiet(Box("agent", own.sandbox, socket=str(own.socket), agent=own))


class TestWire(WireCases):
    def served(self, box):
        return box.agent.pid


class TestExec(ExecCases):
    pass


class TestStdio(StdioCases):
    pass


class TestLifetime(LifetimeCases):
    pass


class TestPty(PtyCases):
    pass


def test_nothing_is_left_of_all_this(rig, box):
    """After every case above: no process, no zombie, no descriptor beyond the idle ones, memory as small as before."""
    for e in box.sandbox.execs():
        if e.state == "running":
            box.sandbox.commands.kill(e.id)
    procs.eventually(lambda: not rig.children(), 10, "no process below the agent")
    box.client.close()
    procs.eventually(lambda: rig.fd_count() < 20, 10, "descriptors closed")
    box.agent_rss_at_most(2048)
    assert "AddressSanitizer" not in rig.log_text() and "runtime error:" not in rig.log_text()


def test_c064_quiet_commands_are_left_alone(quiet):
    """C064: see cases_quiet.py; it ran beside the tests above."""
    assert quiet.collect() == WANTED
