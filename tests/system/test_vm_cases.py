# SPDX-License-Identifier: Apache-2.0
"""Every exec case in a real VM (QEMU, under TCG where there is no KVM), through the broker and real virtio-vsock.

Counts are lower than on the agent alone, where the full ones run in seconds; HUTCH_TEST_FULL gives the stated ones here.
"""

from __future__ import annotations

import pytest

import images
import procs
from box import Box
from brokerrig import BrokerRig
from cases_cli import CliCases
from cases_exec import ExecCases
from cases_lifetime import LifetimeCases
from cases_pty import PtyCases
from cases_quiet import WANTED, Quiet
from cases_stdio import StdioCases

pytestmark = pytest.mark.limit(240)


@pytest.fixture(scope="module")
def rig():
    with BrokerRig(fake=False, templates=images.base_templates()) as rig:
        yield rig


@pytest.fixture(scope="module")
def box(rig):
    return Box("vm", rig.create(ttl_seconds=3000, timeout_seconds=120), socket=str(rig.socket), slow=10)


@pytest.fixture(scope="module", autouse=True)
def quiet(box):
    return Quiet(box)


def test_the_vm_is_one(box):
    """No take-in: QEMU, a kernel of its own, vsock by virtio, the agent as PID 1."""
    info = box.sandbox.info()
    assert info.vmm == "qemu" and info.accel in ("kvm", "tcg") and info.accel_reason
    assert box.exec(["cat", "/proc/1/comm"]).stdout == "hutch-agent\n"
    assert "0x0013" in box.sh("cat /sys/bus/virtio/devices/*/device").stdout
    assert box.sh("ls /sys/class/net").stdout == "lo\n"
    assert box.sandbox.agent_info()["pid1"] and box.sandbox.agent_info()["failures"] == []


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


def test_nothing_is_left_of_all_this(box):
    """No process but the agent's own, no zombie, memory as small as before."""
    quiet_execs = {e.id for e in box.sandbox.execs() if e.argv[:1] in (["cat"], ["sh"])}
    for e in box.sandbox.execs():
        if e.state == "running" and e.id not in quiet_execs:
            box.sandbox.commands.kill(e.id)
    procs.eventually(lambda: not [p for p in box.processes() if p[1] == "Z"], 20, "no zombies")
    box.agent_rss_at_most(2048)


def test_c064_quiet_commands_are_left_alone(quiet):
    """C064: see cases_quiet.py; it ran beside the tests above."""
    assert quiet.collect() == WANTED
