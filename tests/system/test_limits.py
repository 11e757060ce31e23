# SPDX-License-Identifier: Apache-2.0
"""Quotas: what one uid takes does not take from another, and the error says whether to wait. Root: clients of other uids."""

from __future__ import annotations

import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import hutch
import procs
from brokerrig import BrokerRig
from users import as_uid

CONFIG = """
group = 4242
uid_vms = 2
uid_memory_mib = 400
uid_clients = 3
uid_calls = 1
max_vms = 4
"""


@pytest.fixture()
def rig(tmp_path):
    if os.geteuid() != 0:
        pytest.fail("needs root to be several users")
    config = tmp_path / "hutchd.conf"
    config.write_text(CONFIG)
    with BrokerRig(args=["--config", str(config)]) as rig:
        for path in (rig.dir, rig.socket.parent):
            path.chmod(0o755)
        yield rig
        for vm in rig.client.vms():  # of all: kill_all is about one's own
            rig.client.call("vm.kill", vm=vm.id)


def create(memory_mib=128):
    return lambda client: client.call("vm.create", {"memory_mib": memory_mib, "ttl_ms": 60000}, key=os.urandom(8).hex())["id"]


def test_quotas_of_a_uid_and_of_all(rig):
    one, two = as_uid(1001, rig, create()), as_uid(1001, rig, create())
    refused = as_uid(1001, rig, create())
    assert refused["error"] == "quota" and not refused["retryable"] and "uid_vms is 2" in refused["text"], refused
    # the other one has its own, memory counts too, and a VM that ends makes room
    assert as_uid(1002, rig, create(500))["error"] == "quota"
    other = as_uid(1002, rig, create(300))
    assert as_uid(1002, rig, create(128))["error"] == "quota"
    assert as_uid(1002, rig, lambda c: c.call("vm.info", vm=one))["error"] == "not_found"
    as_uid(1001, rig, lambda c: c.call("vm.kill", vm=one))
    three = as_uid(1001, rig, create())
    assert {two, three, other} == {vm.id for vm in rig.client.vms()}
    # all together: busy, for it may pass without the caller's doing
    rig.create()
    busy = as_uid(1003, rig, create())
    assert busy["error"] == "busy" and busy["retryable"] and "max_vms is 4" in busy["text"], busy
    rows = {row["name"]: row for row in as_uid(1001, rig, lambda c: c.call("broker.limits"))["limits"]}
    assert rows["uid_vms"]["used"] == 2 and rows["uid_vms"]["value"] == 2 and rows["max_vms"]["used"] == 4
    assert rows["uid_memory_mib"]["used"] == 256 and rows["max_memory_mib"]["value"] == 0


def test_connections_and_calls_of_a_uid(rig):
    vm = as_uid(1001, rig, create())

    def connections(client):
        clients = [client] + [hutch.Client(str(rig.socket)) for _ in range(3)]
        for c in clients[:3]:
            c.ping()
        # they stay open: a fourth is one too many
        try:
            clients[3].ping()
            return "admitted"
        except hutch.HutchError as e:
            return e.kind

    assert as_uid(1001, rig, connections) == "quota"
    assert as_uid(1002, rig, lambda c: c.call("ping")) is not None

    def calls(client):
        busy = hutch.Sandbox.get(vm, client=hutch.Client(str(rig.socket)))
        threading.Thread(target=busy.exec, args=("sleep 30",), daemon=True).start()

        def used():
            return {row["name"]: row.get("used") for row in client.call("broker.limits")["limits"]}["uid_calls"]

        procs.eventually(lambda: used() == 1, 10, "the first call")
        try:
            hutch.Sandbox.get(vm, client=client).exec("true")
            return "admitted"
        except hutch.HutchError as e:
            return [e.kind, e.retryable]

    assert as_uid(1001, rig, calls) == ["quota", False]


def test_creates_in_a_second(tmp_path):
    """A second's worth at once, then busy with the time to wait; waiting that long is enough."""
    config = tmp_path / "hutchd.conf"
    config.write_text("max_creates = 1\n")

    def attempt(rig, _=None):
        with hutch.Client(str(rig.socket)) as client:
            try:
                return client.call("vm.create", {"ttl_ms": 60000}, key=os.urandom(8).hex())["id"]
            except hutch.HutchError as e:
                return e

    with BrokerRig(args=["--config", str(config)]) as rig, ThreadPoolExecutor(6) as threads:
        results = list(threads.map(lambda _: attempt(rig), range(6)))
        refused = [e for e in results if isinstance(e, hutch.HutchError)]
        assert 1 <= len(refused) <= 5
        assert all(e.kind == "busy" and e.retryable for e in refused)
        waits = [int(re.search(r"try again in (\d+) ms", str(e))[1]) for e in refused]
        assert max(waits) <= 1001
        time.sleep(max(waits) / 1000)  # what the broker asked for
        assert isinstance(attempt(rig), str)
