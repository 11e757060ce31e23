# SPDX-License-Identifier: Apache-2.0
"""Output that outlives its connection: acknowledged offsets, and a repeated start that does not repeat the input."""

from __future__ import annotations

import time

import pytest

import procs
from agentrig import AgentRig
from box import Box
from cases_wire import HELLO, Raw, call
from hutch import wire

RING = 256 << 10


@pytest.fixture(scope="module")
def rig():
    with AgentRig() as rig:
        yield rig


@pytest.fixture
def box(rig):
    return Box("agent", rig.sandbox, socket=str(rig.socket), agent=rig)


@pytest.fixture
def name():
    return f"r{time.monotonic_ns()}"


def numbers(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % i for i in range(first, last + 1))


class Reader:
    """One connection's view of an exec: its output so far, events, and the answer."""

    def __init__(self, box: Box, method: str, params, end=False, **envelope) -> None:
        self.c = Raw(box)
        self.out = b""
        self.events = []
        self.result = None
        self.c.send(HELLO, call(box, method, params, end=end, **envelope))
        assert self.c.frame().type == wire.HELLO

    def step(self) -> None:
        frame = self.c.frame()
        assert frame is not None, "the agent closed"
        if frame.type == wire.STDOUT:
            self.out += frame.payload
        elif frame.type == wire.EVENT:
            self.events.append(wire.decode_map(frame.payload))
        else:
            assert frame.type == wire.RESULT, wire.decode_map(frame.payload)
            self.result = wire.decode_map(frame.payload)

    def read(self, count: int) -> None:
        while len(self.out) < count:
            self.step()

    def until_result(self):
        while self.result is None:
            self.step()
        return self.result

    def pause(self, seconds: float) -> None:
        """Read all that comes until it has been silent for so long."""
        self.c.sock.settimeout(seconds)
        try:
            while True:
                self.step()
        except TimeoutError:
            self.c.sock.settimeout(5)

    def event(self, **fields) -> None:
        self.c.send(wire.encode_frame(wire.EVENT, wire.encode_map(fields)))

    def ack(self, offset: int) -> None:
        self.event(event="ack", stdout=offset, stderr=0)

    def lose(self) -> None:
        self.c.sock.close()


def test_unacknowledged_output_survives_the_connection(box, name):
    """The bytes in flight die with a connection; attach gives them again from the last one that was acknowledged."""
    first = Reader(box, "exec.start", {"shell": "seq 1 20000; read x; seq 20001 30000; exit 4", "resumable": True}, id=name)
    want = numbers(1, 20000)
    first.read(len(want) // 2)
    seen = len(want) // 4
    first.ack(seen)
    first.lose()
    second = Reader(box, "exec.attach", {"owner": True, "stdout_after": seen}, id=name)
    second.read(len(want) - seen)
    second.c.send(wire.encode_frame(wire.STDIN, b"go\n", wire.END))
    assert second.until_result()["exit_code"] == 4
    assert second.out == want[seen:] + numbers(20001, 30000)
    assert [e["event"] for e in second.events] == ["attached"] and second.events[0]["stdout_offset"] == seen


def test_owner_that_does_not_acknowledge_stalls_its_program(box, name):
    """What is not acknowledged is kept, so it is bounded; an acknowledgement lets the program go on."""
    r = Reader(box, "exec.start", {"shell": "seq 1 200000", "resumable": True}, id=name)
    want = numbers(1, 200000)
    r.pause(0.5)
    assert RING // 2 <= len(r.out) <= RING
    while r.result is None and len(r.out) < len(want):
        before = len(r.out)
        r.ack(before)
        r.read(before + 1)
        r.pause(0.05)
        assert len(r.out) - before <= RING
    assert r.until_result()["exit_code"] == 0 and r.out == want


@pytest.mark.parametrize("offset", [10**15, 2**62])
def test_acknowledging_what_was_never_sent_is_harmless(box, name, offset):
    r = Reader(box, "exec.start", {"shell": "seq 1 100000", "resumable": True}, id=name)
    r.ack(offset)
    r.ack(0)
    while r.result is None:
        r.ack(len(r.out))
        r.step()
    assert r.out == numbers(1, 100000)


def test_output_while_nobody_is_there_is_a_gap_when_it_is_too_much(box, name):
    """An exec without an owner is not held up; what did not fit is told by its offsets."""
    r = Reader(box, "exec.start", {"shell": "echo up; sleep 0.2; seq 1 100000; echo done", "resumable": True}, id=name)
    r.read(3)
    r.lose()
    procs.eventually(lambda: any(e.id == name and e.state == "ended" for e in box.sandbox.execs()), 10, "it ended")
    want = b"up\n" + numbers(1, 100000) + b"done\n"
    again = Reader(box, "exec.attach", {"owner": True, "stdout_after": 3}, id=name)
    again.until_result()
    gap = next(e for e in again.events if e["event"] == "gap")
    assert gap["stream"] == "stdout" and gap["from"] == 3 and again.out == want[gap["to"]:]
    assert again.result["stdout_bytes"] == len(want)


def test_repeated_start_does_not_repeat_the_input(box, name):
    """A start that is repeated with its key brings its whole input again; what the program already got is skipped."""
    text = b"".join(b"line %d\n" % i for i in range(3000))
    params = {"argv": ["cat"]}
    first = Reader(box, "exec.start", params, key=name)
    first.c.send(wire.encode_frame(wire.STDIN, text[:10000]))
    first.read(10000)
    first.lose()
    second = Reader(box, "exec.start", params, key=name)
    second.c.send(wire.encode_frame(wire.STDIN, text, wire.END))
    assert second.until_result()["exit_code"] == 0
    assert second.out == text and not second.events


def test_new_owner_takes_over_while_the_old_one_is_there(box, name):
    """The old one goes on as a viewer: it still gets the output, and its acknowledgements count no more."""
    old = Reader(box, "exec.start", {"argv": ["cat"]}, id=name)
    old.c.send(wire.encode_frame(wire.STDIN, b"one\n"))
    old.read(4)
    new = Reader(box, "exec.attach", {"owner": True}, id=name)
    new.read(4)
    new.c.send(wire.encode_frame(wire.STDIN, b"two\n", wire.END))
    assert new.until_result()["exit_code"] == old.until_result()["exit_code"] == 0
    assert new.out == old.out == b"one\ntwo\n"


def test_lost_owner_leaves_the_command_running(box, name):
    """A lost connection is no statement: the command goes on as an orphan, and an owner that attaches keeps it."""
    r = Reader(box, "exec.start", {"argv": ["cat"]}, id=name)
    r.c.send(wire.encode_frame(wire.STDIN, b"a"))
    r.read(1)
    r.lose()
    again = Reader(box, "exec.attach", {"owner": True, "tail": True}, id=name)
    again.c.send(wire.encode_frame(wire.STDIN, b"b", wire.END))
    assert again.until_result()["exit_code"] == 0 and again.out == b"b"
