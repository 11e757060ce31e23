# SPDX-License-Identifier: Apache-2.0
"""Every bound of guest/limits.h that a peer or a command can reach: what happens there, and that nobody else notices."""

from __future__ import annotations

import os
import resource
import time

import pytest

import procs
from agentrig import AgentRig
from box import FULL, Box, parallel
from cases_wire import HELLO, PING, Raw, call
from hutch import wire

CONNECTIONS, EXECS, RECORDS, LEFTOVERS = 1024, 512, 256, 512


@pytest.fixture(scope="module", autouse=True)
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def rig():
    with AgentRig() as rig:
        yield rig


@pytest.fixture
def box(rig):
    return Box("agent", rig.sandbox, socket=str(rig.socket), agent=rig)


def memory_at_most(box: Box, kib: int) -> None:
    if not procs.sanitized("hutch-agent"):
        assert box.sandbox.agent_info()["rss_kib"] <= kib


def cpu_seconds(pid: int) -> float:
    """User and system time, proc(5)."""
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started(box: Box, params, end=True) -> Raw:
    c = Raw(box)
    c.send(HELLO, call(box, "exec.start", params, end=end))
    return c


def left_behind(box: Box, shell: str) -> None:
    with started(box, {"shell": shell, "drain_ms": 0}) as c:
        assert c.answer().type == wire.RESULT


def test_idle_agent_is_small(box):
    memory_at_most(box, 1024)


def test_connections(box):
    """One connection too many is closed; the others are served, and closing some makes room again."""
    box.client.close()
    open_ones = [Raw(box) for _ in range(CONNECTIONS)]
    for c in open_ones:
        c.send(HELLO)
        assert c.frame().type == wire.HELLO
    with Raw(box) as surplus:
        assert surplus.frame() is None
    for c in (open_ones[0], open_ones[-1]):
        c.send(PING)
        assert c.answer().type == wire.RESULT
    open_ones.pop().sock.close()  # for the client that asks
    memory_at_most(box, 4096)
    for c in open_ones:
        c.sock.close()
    procs.eventually(lambda: box.sandbox.agent_info()["connections"] < 4, 10, "connections are gone")


def test_running_commands(box):
    """One command too many is busy, which a client may repeat; ended ones make room."""
    running = [started(box, {"argv": ["sleep", "60"], "detach": True}) for _ in range(EXECS)]
    ids = [wire.decode_map(c.answer().payload)["id"] for c in running]
    refused = started(box, {"argv": ["true"]}).answer()
    fields = wire.decode_map(refused.payload)
    assert refused.type == wire.ERROR and fields["kind"] == "busy" and fields["retryable"]
    with box.within(1):
        box.sandbox.ping()
    box.sandbox.commands.kill(ids[EXECS // 2])
    assert box.exec(["echo", "ok"]).stdout == "ok\n"
    for c in running:
        c.sock.close()


def test_records(box):
    """Results that nobody collected are kept up to a number; the oldest are forgotten first."""
    def run(count):
        ids = [box.sandbox.commands.start(["true"]) for _ in range(count)]
        procs.eventually(lambda: all(e.state == "ended" for e in box.sandbox.execs()), 20, "all ended")
        return ids

    first, then = run(40), run(RECORDS)
    kept = [e.id for e in box.sandbox.execs()]
    assert RECORDS - 8 <= len(kept) <= RECORDS and set(kept) <= set(first[-8:] + then)


def test_half_received_calls(box):
    """Large calls that never become whole hold a bounded memory; small ones go on beside them."""
    half = call(box, "exec.start", {"argv": ["true"], "env": {"A": "x" * 900_000}})[:-1000]
    connections = [Raw(box) for _ in range(12)]
    answers = 0
    for c in connections:
        c.send(HELLO, half)
    for c in connections:
        c.sock.settimeout(0.2)
        try:
            frame = c.answer()
        except TimeoutError:
            continue
        assert frame.type == wire.ERROR and wire.decode_map(frame.payload)["kind"] == "busy"
        answers += 1
    assert 12 - 6 <= answers < 12
    memory_at_most(box, 8192)
    assert box.exec(["echo", "ok"]).stdout == "ok\n"
    for c in connections:
        c.sock.close()
    big = "y" * 100_000
    assert box.exec(["printenv", "A"], env={"A": big}).stdout == big + "\n"


def test_pipes_held_by_background_processes(box):
    """They are drained up to a number, and then the oldest is closed."""
    before = procs.fd_count(box.agent.pid)
    parallel(lambda _: left_behind(box, "sleep 120 2>/dev/null &"), range(LEFTOVERS + 40), 8)
    held = procs.fd_count(box.agent.pid) - before
    assert LEFTOVERS - 8 <= held <= LEFTOVERS + 16
    with box.within(1):
        assert box.exec(["echo", "ok"]).stdout == "ok\n"


def test_noisy_background_process_costs_little(box):
    """What nobody reads is discarded at a bounded rate."""
    left_behind(box, "yes &")
    before = cpu_seconds(box.agent.pid)
    time.sleep(1)  # the measured time
    assert cpu_seconds(box.agent.pid) - before < 0.3
    assert box.exec(["echo", "ok"]).stdout == "ok\n"


def test_sixty_four_commands(box):
    """64 running commands, some with a terminal, some with input: at most 2 MiB."""
    kinds = [{"argv": ["sleep", "60"]}, {"argv": ["cat"]}, {"argv": ["sh", "-i"], "pty": {}}]
    running = [started(box, kinds[i % 3], end=i % 3 == 0) for i in range(64)]
    procs.eventually(lambda: box.sandbox.agent_info()["execs"] == 64, 10, "64 commands run")
    memory_at_most(box, 2048)
    for c in running:
        c.sock.close()


def test_stalled_readers(box):
    """A hundred readers that stop: every program waits, the memory stays bounded, the loop goes on."""
    stalled = [started(box, {"argv": ["yes"]}) for _ in range(100)]
    procs.eventually(lambda: box.sandbox.agent_info()["execs"] == 100, 10, "100 commands run")
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        with box.within(1):
            box.sandbox.ping()
    memory_at_most(box, 16 << 10)
    for c in stalled[:3]:  # nothing of what they now read is missing
        got = b""
        while len(got) < 2_000_000:
            frame = c.frame()
            got += frame.payload if frame.type == wire.STDOUT else b""
        assert got == (b"y\n" * (len(got) // 2 + 1))[: len(got)]
    for c in stalled:
        c.sock.close()


def test_one_gigabyte_to_a_slow_reader(box):
    """The reader sets the pace; memory does not depend on how much comes."""
    size = 1 << 30 if FULL else 128 << 20
    with box.stream(["head", "-c", str(size), "/dev/zero"], text=False) as s:
        got, looks = 0, 0
        for piece in s:
            got += len(piece.data)
            if got >> 24 > looks:
                looks = got >> 24
                time.sleep(0.02)  # slow it is
                memory_at_most(box, 16 << 10)
        assert got == size and s.wait().stdout_bytes == size
