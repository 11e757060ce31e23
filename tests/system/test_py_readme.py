# SPDX-License-Identifier: Apache-2.0
"""The examples of the Python package's README, run one after the other against a broker."""

from __future__ import annotations

import re

import pytest

import hutch
from brokerrig import BrokerRig
from conftest import ROOT

README = (ROOT / "tools" / "python" / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
TITLES = [README[: m.start()].rsplit("\n## ", 1)[-1].split("\n", 1)[0] for m in re.finditer(r"^```python\n", README, re.M)]


@pytest.fixture(scope="module")
def rig():
    with BrokerRig() as rig:
        yield rig


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=TITLES)
def test_example(rig, monkeypatch, number):
    monkeypatch.setenv("HUTCH_SOCKET", str(rig.socket))
    with rig.create() as sbx:
        exec(compile(EXAMPLES[number], f"README example {number}", "exec"), {"sbx": sbx, "Sandbox": hutch.Sandbox})
    hutch.default_client().close()
    assert rig.client.vms() == []
