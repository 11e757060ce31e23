# SPDX-License-Identifier: Apache-2.0
"""What a callee (agent or broker) does with bytes that break wire.md, and with awkward but right ones. Raw sockets."""

from __future__ import annotations

import os
import random
import socket
import time

import pytest

import procs
from box import Box
from hutch import paths, wire

HELLO = wire.encode_frame(wire.HELLO, wire.encode_map({"proto": 1, "role": "client", "name": "raw"}))
PING = wire.encode_frame(wire.CALL, wire.encode_map({"method": "ping"}), wire.END)
ANSWER_SECONDS = 1.0


class Raw:
    """A socket and a frame decoder."""

    def __init__(self, box: Box) -> None:
        self.sock = paths.connect(box.socket)
        self.sock.settimeout(5)
        self.decoder = wire.FrameDecoder()
        self.frames = []

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()

    def send(self, *parts: bytes) -> None:
        try:
            self.sock.sendall(b"".join(parts))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def frame(self):
        """The next frame; None when the peer closed."""
        while not self.frames:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.frames += self.decoder.feed(data)
        return self.frames.pop(0)

    def answer(self):
        """The next RESULT or ERROR frame; None when the peer closed."""
        while (frame := self.frame()) is not None:
            if frame.type in (wire.RESULT, wire.ERROR):
                return frame
        return None

    def until_closed(self):
        """All frames up to the peer's close."""
        frames = []
        while (frame := self.frame()) is not None:
            frames.append(frame)
        return frames


def call(box: Box, method: str, params=None, end=True, **envelope) -> bytes:
    fields = {"method": method, **({"vm": box.vm} if box.vm else {}), **envelope}
    if params is not None:
        fields["params"] = params
    return wire.encode_frame(wire.CALL, wire.encode_map(fields), wire.END if end else 0)


BOMBS = {
    "array32": b"\xdd\xff\xff\xff\xff",
    "map32": b"\xdf\xff\xff\xff\xff",
    "bin32": b"\xc6\xff\xff\xff\xff",
    "str32": b"\xdb\xff\xff\xff\xff",
    "ext32": b"\xc9\xff\xff\xff\xff\x01",
    "nested91": b"\x91" * 100000,
    "nested81": b"\x81\xa1a" * 30000,
    "arrays16": b"\xdc\xff\xff" * 24000,
    "deep17": b"\x81\xa1a" * 17 + b"\xc0",
}


class WireCases:
    program = "hutch-agent"

    def served(self, box: Box) -> int:
        """The process that the bytes go to."""
        raise NotImplementedError

    def rss_kib(self, box: Box) -> int:
        return procs.rss_kib(self.served(box))

    @pytest.mark.parametrize("bomb", sorted(BOMBS))
    @pytest.mark.parametrize("where", ["raw", "hello", "call", "params", "event"])
    def test_c042_claims_of_huge_or_nested_values(self, box: Box, bomb, where):
        """C042, fault: a few bytes that claim a huge array crash the decoder or take gigabytes."""
        data = BOMBS[bomb]
        box.sandbox.ping()
        before = self.rss_kib(box)
        with Raw(box) as other:
            other.send(HELLO, PING)
            assert other.answer().type == wire.RESULT
            for _ in range(5):
                with Raw(box) as c:
                    start = time.monotonic()
                    if where == "raw":
                        c.send(data)
                        c.sock.shutdown(socket.SHUT_WR)
                    elif where == "hello":
                        c.send(wire.HEADER.pack(len(data), wire.HELLO, 0, 0) + data)
                    elif where == "call":
                        c.send(HELLO, wire.HEADER.pack(len(data), wire.CALL, 1, 0) + data)
                    elif where == "params":
                        head = b"\x82\xa6method\xaaexec.start\xa6params" + data
                        c.send(HELLO, wire.HEADER.pack(len(head), wire.CALL, 1, 0) + head)
                    else:
                        c.send(HELLO, call(box, "exec.start", {"argv": ["cat"]}, end=False),
                               wire.HEADER.pack(min(len(data), 65536), wire.EVENT, 0, 0) + data[:65536])
                    frames = c.until_closed() if where != "event" else [c.answer()]
                    assert time.monotonic() - start < ANSWER_SECONDS
                    assert all(f is None or f.type in (wire.HELLO, wire.ERROR) for f in frames), frames
                    if where in ("call", "params"):
                        assert wire.decode_map(frames[-1].payload)["kind"] == "protocol"
            other.send(PING)
            assert other.answer().type == wire.RESULT
        allowed = 1024 if not procs.sanitized(self.program) else 4096
        assert self.rss_kib(box) - before < allowed
        assert box.exec(["echo", "ok"]).stdout == "ok\n"

    @pytest.mark.parametrize(
        "header",
        [wire.HEADER.pack(0, 0, 0, 0), wire.HEADER.pack(0, 6, 0, 0), wire.HEADER.pack(0, 255, 0, 0), wire.HEADER.pack(1, wire.CALL, 2, 0),
         wire.HEADER.pack(1, wire.CALL, 0x81, 0), wire.HEADER.pack(1, wire.CALL, 1, 1), wire.HEADER.pack((1 << 20) + 1, wire.CALL, 1, 0),
         wire.HEADER.pack(0xFFFFFFFF, wire.CALL, 1, 0), wire.HEADER.pack(65537, wire.STDIN, 0, 0), wire.HEADER.pack(4097, wire.HELLO, 0, 0)],
    )
    @pytest.mark.parametrize("first", [True, False])
    def test_headers_that_break_the_protocol(self, box: Box, header, first):
        """Refused by the header alone: the payload is never waited for."""
        with Raw(box) as c:
            start = time.monotonic()
            c.send(b"" if first else HELLO, header)
            frames = c.until_closed()
            assert time.monotonic() - start < ANSWER_SECONDS
            if not first:
                assert frames[-1].type == wire.ERROR and wire.decode_map(frames[-1].payload)["kind"] == "protocol"
        box.sandbox.ping()

    @pytest.mark.parametrize("frame_type", [wire.RESULT, wire.ERROR, wire.STDOUT, wire.STDERR, wire.HELLO, wire.STDIN, wire.EVENT])
    def test_frames_that_have_no_place_on_an_idle_stream(self, box: Box, frame_type):
        with Raw(box) as c:
            payload = b"" if frame_type >= 16 else wire.encode_map({"proto": 1, "role": "client", "name": "x"})
            c.send(HELLO, wire.encode_frame(frame_type, payload, 0))
            frames = c.until_closed()
            assert frames[-1].type == wire.ERROR and wire.decode_map(frames[-1].payload)["kind"] == "protocol"

    @pytest.mark.parametrize("payload", [b"", b"\x90", b"\xc0", b"\x81\x01\x02", b"\x80\x80", b"\x81\xa6method", b"\x82\xa6method\xa4ping\xa6method\xa4ping"])
    def test_calls_that_are_no_map(self, box: Box, payload):
        with Raw(box) as c:
            c.send(HELLO, wire.encode_frame(wire.CALL, payload, wire.END))
            frames = c.until_closed()
            assert frames[-1].type == wire.ERROR and wire.decode_map(frames[-1].payload)["kind"] == "protocol"

    def test_first_frame_must_be_hello(self, box: Box):
        with Raw(box) as c:
            c.send(PING)
            frames = c.until_closed()
            assert all(f.type in (wire.HELLO, wire.ERROR) for f in frames)

    @pytest.mark.parametrize("hello", [{"proto": 2, "role": "client", "name": "x"}, {"proto": 0, "role": "client", "name": "x"}])
    def test_other_versions_are_refused_by_name(self, box: Box, hello):
        with Raw(box) as c:
            c.send(wire.encode_frame(wire.HELLO, wire.encode_map(hello)))
            frames = c.until_closed()
            assert frames[-1].type == wire.ERROR and wire.decode_map(frames[-1].payload)["kind"] == "unsupported"

    def test_unknown_keys_and_widths_are_accepted(self, box: Box):
        """Unknown keys are ignored, nil counts as absent, integers come in any width, bin where text is asked for."""
        with Raw(box) as c:
            c.send(wire.encode_frame(wire.HELLO, b"\x84\xa5proto\xcf\0\0\0\0\0\0\0\x01\xa4role\xc4\x06client\xa4name\xa1x\xa3new\x92\x01\x80"))
            c.send(wire.encode_frame(wire.CALL, b"\x84\xa6method\xc4\x04ping\xa6params\xc0\xa2id\xc0\xa6future\x81\xa1a\x93\x01\x02\xc3", wire.END))
            assert c.answer().type == wire.RESULT

    def test_unknown_methods_get_a_typed_error_and_keep_the_connection(self, box: Box):
        with Raw(box) as c:
            c.send(HELLO)
            for method in ("nosuch", "exec.nosuch", "vm.nosuch", "", "x" * 64):
                c.send(wire.encode_frame(wire.CALL, wire.encode_map({"method": method}), wire.END))
                answer = c.answer()
                if answer is None:
                    assert method in ("", "x" * 64)  # may as well be taken for a broken envelope
                    return
                assert answer.type == wire.ERROR
                assert wire.decode_map(answer.payload)["kind"] in ("unknown_method", "protocol", "invalid", "not_found")

    def test_calls_one_after_the_other_on_one_connection(self, box: Box):
        with Raw(box) as c:
            c.send(HELLO)
            for i in range(100):
                c.send(PING)
                assert c.answer().type == wire.RESULT
                c.send(call(box, "exec.start", {"argv": ["echo", str(i)]}))
                frames = [c.frame()]
                while frames[-1].type != wire.RESULT:
                    frames.append(c.frame())
                frames = [f for f in frames if f.type != wire.HELLO]
                assert b"".join(f.payload for f in frames if f.type == wire.STDOUT) == b"%d\n" % i

    def test_one_byte_at_a_time(self, box: Box):
        """Frames cut anywhere (C021's fault, on a connection in use)."""
        stream = HELLO + call(box, "exec.start", {"argv": ["cat"]}, end=False)
        stream += wire.encode_frame(wire.STDIN, b"hello") + wire.encode_frame(wire.STDIN, b"", wire.END) + PING
        with Raw(box) as c:
            for i in range(len(stream) - len(PING)):
                c.send(stream[i : i + 1])
            out = b""
            while (frame := c.frame()).type != wire.RESULT:
                out += frame.payload if frame.type == wire.STDOUT else b""
            assert out == b"hello"
            c.send(PING)
            assert c.answer().type == wire.RESULT

    def test_input_after_the_result_is_discarded_until_the_end(self, box: Box):
        with Raw(box) as c:
            c.send(HELLO, call(box, "exec.start", {"argv": ["true"]}, end=False))
            assert c.answer().type == wire.RESULT
            for _ in range(50):
                c.send(wire.encode_frame(wire.STDIN, b"x" * 65536))
            c.send(wire.encode_frame(wire.EVENT, wire.encode_map({"event": "ack", "stdout": 0})))
            c.send(wire.encode_frame(wire.STDIN, b"y", wire.END), PING)
            assert c.answer().type == wire.RESULT

    @pytest.mark.parametrize("end", [False, True])
    def test_call_before_the_last_one_is_over(self, box: Box, end):
        """A CALL before our own END, or before the RESULT, is a protocol error; the connection is closed."""
        with Raw(box) as c:
            c.send(HELLO, call(box, "exec.start", {"argv": ["sleep", "5"]}, end=end), PING)
            frames = c.until_closed()
            assert frames[-1].type == wire.ERROR and wire.decode_map(frames[-1].payload)["kind"] == "protocol"
        box.sandbox.ping()

    def test_half_close_after_the_call_lets_it_finish(self, box: Box):
        """A half-close says nothing about the call: the answer comes, then the callee closes."""
        with Raw(box) as c:
            c.send(HELLO, PING)
            c.sock.shutdown(socket.SHUT_WR)
            frames = c.until_closed()
            assert frames[-1].type == wire.RESULT

    def test_connections_that_say_nothing_or_half_of_something(self, box: Box):
        """They cost a bounded amount and hold up nobody."""
        idle = [Raw(box) for _ in range(20)]
        for i, c in enumerate(idle):
            c.send((HELLO + PING)[: i * 3])
        with box.within(1):
            assert box.exec(["echo", "ok"]).stdout == "ok\n"
        for c in idle:
            c.sock.close()
        box.sandbox.ping()

    def test_random_bytes(self, box: Box):
        """Garbage and damaged frames from a seeded generator: always an answer or a close, and the callee lives."""
        rng = random.Random(20240601)
        good = HELLO + call(box, "exec.start", {"argv": ["cat"], "env": {"A": "b"}}, end=False)
        good += wire.encode_frame(wire.STDIN, b"hello", wire.END)
        for _ in range(150):
            data = bytearray(good)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            with Raw(box) as c:
                c.send(bytes(data[: rng.choice((len(data), rng.randrange(1, len(data))))]))
                c.sock.shutdown(socket.SHUT_WR)
                c.until_closed()
        assert box.exec(["echo", "ok"]).stdout == "ok\n"

    def test_descriptors_and_memory_return(self, box: Box):
        """Five hundred connections, opened and dropped in the middle of things, leave nothing open."""
        pid = self.served(box)

        def storm(rounds):
            for i in range(rounds):
                with Raw(box) as c:
                    c.send(HELLO, *([PING] if i % 3 else [call(box, "exec.start", {"argv": ["true"]}, end=False)]))
                    if i % 2:
                        c.answer()

        storm(50)
        for e in box.sandbox.execs():
            if e.state == "running":
                box.sandbox.commands.kill(e.id)
        before, rss = procs.fd_count(pid), procs.rss_kib(pid)
        storm(500)
        procs.eventually(lambda: procs.fd_count(pid) <= before + 2, 10, "descriptors closed")
        assert procs.rss_kib(pid) - rss < (1024 if not procs.sanitized(self.program) else 32 << 10)
        assert os.path.exists(box.socket)
