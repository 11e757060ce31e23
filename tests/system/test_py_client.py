# SPDX-License-Identifier: Apache-2.0
"""The Python client against a scripted peer: what it does when the other side is slow, wrong, gone or hostile."""

from __future__ import annotations

import io
import os
import pickle
import random
import signal
import threading
import time

import pytest

import hutch
from fakepeer import FakePeer, error_frame, event_frame, exec_result_frame, result_frame
from hutch import Client, Connection, Sandbox, errors, wire

EURO = "€".encode()


def serve_results(connection, _number):
    """Answer every call with its own parameters."""
    while (call := connection.call()) is not None:
        if not call["end"]:
            connection.stdin()
        connection.send(result_frame({"echo": call.get("params", {}), "method": call["method"]}))


def client_for(peer, **options):
    return Client(peer.path, **options)


# -- the wire core


def test_decoder_gives_the_same_frames_for_every_split():
    """Frames cut at read boundaries (C005's fault, one layer down)."""
    frames = [wire.encode_frame(wire.STDOUT, os.urandom(n)) for n in (0, 1, 7, 8, 9, 255, 65536)]
    stream = b"".join(frames) + wire.encode_frame(wire.RESULT, wire.encode_map({}), wire.END)
    whole = wire.FrameDecoder().feed(stream)
    assert len(whole) == 8
    rng = random.Random(1)
    for _ in range(50):
        decoder, got, at = wire.FrameDecoder(), [], 0
        while at < len(stream):
            step = rng.choice((1, 2, 3, 7, 8, 100, 40000))
            got += decoder.feed(stream[at : at + step])
            at += step
        assert got == whole and not decoder.pending


@pytest.mark.parametrize(
    "header",
    [
        wire.HEADER.pack(0, 99, 0, 0),
        wire.HEADER.pack(0, wire.STDOUT, 2, 0),
        wire.HEADER.pack(0, wire.STDOUT, 0, 1),
        wire.HEADER.pack((64 << 10) + 1, wire.STDOUT, 0, 0),
        wire.HEADER.pack(0xFFFFFFFF, wire.RESULT, 1, 0),
    ],
)
def test_decoder_refuses_by_the_header_alone(header):
    decoder = wire.FrameDecoder()
    with pytest.raises(hutch.ProtocolError):
        decoder.feed(header)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x90", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 60000, b"\x80\x80",
     b"\x81\x01\x01", b"\x81\xa1a"],
    ids=["empty", "array", "array32", "map32", "bin32", "nested", "trailing", "intkey", "cut"],
)
def test_bad_map_is_a_protocol_error(payload):
    """C042 on the client's side: claims of huge or deeply nested values cost nothing."""
    with pytest.raises(hutch.ProtocolError):
        wire.decode_map(payload)


def test_session_refuses_a_second_call_and_input_after_the_end():
    session = wire.Session()
    first, second = wire.FrameDecoder().feed(session.call("ping"))
    assert (first.type, second.type, second.end) == (wire.HELLO, wire.CALL, True)
    with pytest.raises(RuntimeError):
        session.call("ping")
    with pytest.raises(RuntimeError):
        session.stdin(b"x")


# -- calls


def test_calls_share_a_connection_and_hello_goes_with_the_first():
    with FakePeer(serve_results) as peer, client_for(peer) as client:
        for i in range(20):
            assert client.call("vm.list", {"i": i})["echo"] == {"i": i}
        assert peer.accepted == 1


def test_many_threads_never_mix_up_two_results():
    with FakePeer(serve_results) as peer, client_for(peer) as client:
        wrong = []

        def work(me):
            for i in range(100):
                if client.call("x", {"me": me, "i": i})["echo"] != {"me": me, "i": i}:
                    wrong.append((me, i))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong
        assert peer.accepted <= 12


@pytest.mark.parametrize("kind", sorted(errors._BY_KIND))
def test_each_error_kind_has_its_exception(kind):
    def script(c, _):
        while c.call():
            c.send(error_frame(kind, "broken thing", errno=2, errno_name="ENOENT", stage="s", path="/p", retryable=True))

    with FakePeer(script) as peer, client_for(peer) as client:
        with pytest.raises(errors._BY_KIND[kind]) as caught:
            client.call("x")
        copy = pickle.loads(pickle.dumps(caught.value))
        for e in (caught.value, copy):
            assert (e.kind, e.message, e.errno, e.errno_name) == (kind, "broken thing", 2, "ENOENT")
            assert (e.stage, e.path, e.retryable) == ("s", "/p", True)
        with pytest.raises(hutch.HutchError):
            client.call("x")
        assert peer.accepted == 1  # an ERROR is a clean end


def test_error_kind_of_a_newer_peer_stays_readable():
    with FakePeer(lambda c, _: (c.call(), c.send(error_frame("brand_new")))) as peer, client_for(peer) as client:
        with pytest.raises(hutch.HutchError) as caught:
            client.call("x")
        assert caught.value.kind == "brand_new" and type(caught.value) is hutch.HutchError


def test_nobody_listens():
    client = Client("/nonexistent/hutch.sock")
    with pytest.raises(hutch.BrokerUnavailable) as caught:
        client.ping()
    assert caught.value.errno_name == "ENOENT" and caught.value.path == "/nonexistent/hutch.sock"
    assert isinstance(caught.value, hutch.NotDispatched) and caught.value.retryable


def test_peer_that_speaks_another_version():
    hello = wire.encode_frame(wire.HELLO, wire.encode_map({"proto": 9, "role": "broker", "name": "x"}))
    with FakePeer(lambda c, _: c.call(), hello) as peer, client_for(peer) as client:
        with pytest.raises(hutch.ProtocolError, match="protocol 9"):
            client.ping()


@pytest.mark.parametrize(
    "garbage",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", wire.encode_frame(wire.CALL, b"\x80", 1), wire.encode_frame(wire.RESULT, b"\x80"),
     wire.encode_frame(wire.RESULT, b"\x90", 1), wire.encode_frame(wire.HELLO, b"\x80")],
)
def test_garbage_is_a_protocol_error_and_ends_the_connection(garbage):
    closed = threading.Event()

    def script(c, _):
        c.call()
        c.send(garbage)
        c.until_closed()
        closed.set()

    with FakePeer(script) as peer, client_for(peer) as client:
        with pytest.raises(hutch.ProtocolError):
            client.call("x")
        assert closed.wait(5)


def test_answer_that_nobody_asked_for_is_not_taken_for_the_next_one():
    def script(c, number):
        c.call()
        c.send(result_frame({"n": 1}), result_frame({"n": 2}) if number == 0 else b"")
        c.until_closed()

    with FakePeer(script) as peer, client_for(peer) as client:
        with pytest.raises(hutch.ProtocolError):
            client.call("x")
        assert client.call("x") == {"n": 1}


def test_unanswered_call_times_out_and_its_late_answer_is_never_seen():
    release = threading.Event()

    def script(c, number):
        while (call := c.call()) is not None:
            if call["params"]["n"] == 0:
                release.wait(10)
            c.send(result_frame({"n": call["params"]["n"]}))

    with FakePeer(script) as peer, client_for(peer) as client:
        start = time.monotonic()
        with pytest.raises(hutch.Timeout):
            client.call("x", {"n": 0}, timeout_seconds=0.2)
        assert time.monotonic() - start < 3
        release.set()
        for n in range(1, 5):
            assert client.call("x", {"n": n}) == {"n": n}


def test_path_longer_than_sun_path(tmp_path):
    """C019's limit, on the client's side: 107 bytes and beyond."""
    with FakePeer(serve_results) as peer:
        for length in (107, 108, 109, 180, 250):
            directory = tmp_path
            while length - len(str(directory)) > 200:
                directory = directory / ("d" * 100)
            directory.mkdir(exist_ok=True, parents=True)
            path = str(directory) + "/" + "s" * (length - len(str(directory)) - 1)
            assert len(path) == length
            os.link(peer.path, path)
            with Client(path) as client:
                assert client.call("x")["method"] == "x"


# -- stale connections


def test_connection_that_the_peer_closed_meanwhile_is_not_used():
    def script(c, _number):
        c.call()
        c.send(result_frame())

    with FakePeer(script) as peer, client_for(peer) as client:
        for _ in range(5):
            client.call("x")
            idle = client._idle[0]
            while idle.reusable:
                time.sleep(0.001)
        assert peer.accepted == 5


def lose_second_call(seen):
    def script(c, number):
        while (call := c.call()) is not None:
            seen.append((number, call))
            if number == 0 and len(seen) == 2:
                return  # after the call was sent, before a byte of the answer
            if not call["end"]:
                c.stdin()
            c.send(exec_result_frame())

    return script


def test_call_lost_with_a_kept_connection_is_repeated_with_the_same_key():
    seen = []
    with FakePeer(lose_second_call(seen)) as peer, client_for(peer) as client:
        client.ping()
        assert client.exec("true").exit_code == 0
        assert [n for n, _ in seen] == [0, 0, 1]
        assert seen[1][1] == seen[2][1] and seen[1][1]["key"]


def test_lost_call_with_input_is_not_repeated():
    with FakePeer(lose_second_call([])) as peer, client_for(peer) as client:
        client.ping()
        with pytest.raises(hutch.OutcomeUnknown):
            client.exec("cat", stdin="x")


def test_call_lost_on_a_new_connection_is_not_repeated():
    with FakePeer(lambda c, _: c.call()) as peer, client_for(peer) as client:
        with pytest.raises(hutch.OutcomeUnknown):
            client.exec("true")
        assert peer.accepted == 1


def test_answer_lost_in_the_middle_is_not_repeated():
    def script(c, number):
        while (call := c.call()) is not None:
            if call["method"] == "exec.start":
                c.send(wire.encode_frame(wire.STDOUT, b"half"))
                return
            c.send(result_frame())

    with FakePeer(script) as peer, client_for(peer) as client:
        client.ping()
        with pytest.raises(hutch.OutcomeUnknown):
            client.exec("true")
        assert peer.accepted == 1


# -- exec


def exec_script(*parts):
    def script(c, _):
        while (call := c.call()) is not None:
            if not call["end"]:
                c.stdin()
            c.send(*parts)

    return script


def out(data, stream=wire.STDOUT):
    return wire.encode_frame(stream, data)


def test_exec_parameters_on_the_wire():
    seen = []

    def script(c, _):
        while (call := c.call()) is not None:
            seen.append(call)
            c.send(exec_result_frame())

    with FakePeer(script) as peer, client_for(peer) as client:
        sandbox = Sandbox("vm-1", client=client)
        sandbox.exec("echo $A")
        sandbox.exec(["a", b"\xff"], cwd="/w", env={"A": "x y", "B": None}, user=1000, timeout_seconds=0.0001, grace_seconds=2,
                     output_limit=5, merge_stderr=True, id="me", key="k")
    first, second = seen
    assert first["vm"] == "vm-1" and first["method"] == "exec.start" and first["end"]
    assert first["params"] == {"shell": "echo $A"} and "id" not in first
    assert second["id"] == "me" and second["key"] == "k"
    assert second["params"] == {
        "argv": ["a", b"\xff"], "cwd": "/w", "env": {"A": "x y", "B": None}, "user": "1000", "timeout_ms": 1, "grace_ms": 2000,
        "output_limit": 5, "merge_stderr": True,
    }


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "5", True])
def test_bad_durations_are_refused(bad):
    with pytest.raises(hutch.Invalid):
        Client("/nonexistent").exec("true", timeout_seconds=bad)


def test_result_has_everything():
    frame = exec_result_frame(
        exit_code=137, signal=9, timed_out=True, oom_killed=True, stdout_truncated=True, stdout_bytes=10, stderr_bytes=3,
        duration_us=1500, rusage={"user_us": 2000, "system_us": 500, "max_rss_kib": 77},
    )
    with FakePeer(exec_script(out(b"ab"), out(b"e", wire.STDERR), frame)) as peer, client_for(peer) as client:
        r = client.exec(["x"], check=False)
    assert (r.stdout, r.stderr, r.exit_code, r.signal) == ("ab", "e", 137, 9)
    assert r.timed_out and r.oom_killed and r.truncated and r.started and r.start_error is None
    assert (r.stdout_bytes, r.stderr_bytes, r.duration_ms, r.user_ms, r.system_ms) == (10, 3, 1.5, 2.0, 0.5)
    assert (r.max_rss_kib, r.id, r.pid) == (77, "e1", 42)


def test_result_of_a_program_that_never_ran():
    start_error = {"kind": "cwd", "errno": 2, "errno_name": "ENOENT", "stage": "chdir", "path": "/no/such", "message": "m"}
    frame = result_frame({"id": "e", "started": False, "exit_code": 126, "start_error": start_error})
    with FakePeer(exec_script(frame)) as peer, client_for(peer) as client:
        r = client.exec(["x"])
        assert not r.started and r.pid is None and not r.ok
        e = r.start_error
        assert (e.kind, e.errno, e.errno_name, e.stage, e.path) == ("cwd", 2, "ENOENT", "chdir", "/no/such")
        with pytest.raises(hutch.ExecFailed, match="did not start: m"):
            r.check()


def test_timed_out_exec_raises_with_its_output_unless_told_not_to():
    """C024: a command that ends itself with 0 on the timeout's signal is no success."""
    script = exec_script(out(b"a\n"), out(b"b\n", wire.STDERR), exec_result_frame(timed_out=True, duration_us=10**6))
    with FakePeer(script) as peer, client_for(peer) as client:
        for check in (None, True):
            with pytest.raises(hutch.ExecTimeout) as caught:
                client.exec("x", check=check, timeout_seconds=1)
            r = caught.value.result
            assert (r.stdout, r.stderr, r.exit_code, r.timed_out, r.ok) == ("a\n", "b\n", 0, True, False)
            assert pickle.loads(pickle.dumps(caught.value)).result == r
        assert client.exec("x", check=False, timeout_seconds=1) == r


def test_check_raises_for_a_failure_only_when_asked():
    with FakePeer(exec_script(exec_result_frame(exit_code=3))) as peer, client_for(peer) as client:
        assert client.exec("x").exit_code == 3
        with pytest.raises(hutch.ExecFailed, match="exited with 3") as caught:
            client.exec("x", check=True)
        assert caught.value.result.exit_code == 3


@pytest.mark.parametrize("fields", [{"exit_code": "0"}, {"exit_code": 256}, {"exit_code": None}, {"signal": "KILL"},
                                    {"timed_out": 1}, {"rusage": []}, {"id": 5}, {"start_error": 3}])
def test_result_with_wrong_types_is_refused(fields):
    with FakePeer(exec_script(exec_result_frame(**fields))) as peer, client_for(peer) as client:
        with pytest.raises(hutch.ProtocolError):
            client.exec("x")


def test_text_is_never_cut_inside_a_character():
    """C005: a multi-byte character at a frame boundary, in the result and in the callbacks, on both streams."""
    text = b"a" * 8191 + EURO
    parts = [out(text[i : i + 8192], s) for s in (wire.STDOUT, wire.STDERR) for i in range(0, len(text), 8192)]
    pieces = {"out": [], "err": []}
    with FakePeer(exec_script(*parts, exec_result_frame())) as peer, client_for(peer) as client:
        r = client.exec("x", on_stdout=pieces["out"].append, on_stderr=pieces["err"].append)
        raw = client.exec("x", text=False)
    want = "a" * 8191 + "€"
    assert r.stdout == r.stderr == want
    assert "".join(pieces["out"]) == "".join(pieces["err"]) == want
    assert all("\ufffd" not in p for p in pieces["out"])
    assert raw.stdout == raw.stderr == text


def test_every_cut_of_every_character_width():
    text = "é€𝄞z".encode()
    for cut in range(len(text) + 1):
        seen = []
        script = exec_script(out(text[:cut]), out(text[cut:]), exec_result_frame())
        with FakePeer(script) as peer, client_for(peer) as client:
            assert client.exec("x", on_stdout=seen.append).stdout == "é€𝄞z" == "".join(seen)


def test_bytes_that_are_no_text_are_marked_and_nothing_else_is():
    data = b"ok\xff\xfe" + EURO + EURO[:2]
    with FakePeer(exec_script(out(data), exec_result_frame())) as peer, client_for(peer) as client:
        seen = []
        assert client.exec("x", on_stdout=seen.append).stdout == "ok\ufffd\ufffd€\ufffd" == "".join(seen)
        assert client.exec("x", text=False).stdout == data


def test_output_can_be_left_uncaptured():
    with FakePeer(exec_script(out(b"abc"), exec_result_frame())) as peer, client_for(peer) as client:
        seen = []
        assert client.exec("x", capture=False, on_stdout=seen.append).stdout == "" and seen == ["abc"]


# -- input


def test_small_input_and_its_end_leave_in_the_same_segment_as_the_call():
    """C016: the end of input must not arrive as a message of its own that can be lost."""
    got = []

    def first_segment(c, _):
        data = c.sock.recv(1 << 16)
        frames = wire.FrameDecoder().feed(data)
        got.append([(f.type, f.end) for f in frames])
        c.send(exec_result_frame())
        c.until_closed()

    for stdin in ("hello", b""):
        with FakePeer(first_segment) as peer, client_for(peer) as client:
            client.exec(["cat"], stdin=stdin)
        frames = got.pop()
        assert frames[0][0] == wire.HELLO and frames[1] == (wire.CALL, False)
        assert frames[-1] == (wire.STDIN, True)
    with FakePeer(first_segment) as peer, client_for(peer) as client:
        client.exec(["cat"])
    assert got.pop()[-1] == (wire.CALL, True)


def echo(c, _):
    """cat: sends every piece of input back before it reads the next one."""
    while c.call() is not None:
        end = False
        while not end:
            frame = c.frame()
            if frame is None:
                return
            if frame.payload:
                c.send(out(frame.payload))
            end = frame.end
        c.send(exec_result_frame())


def pipe_with(data):
    r, w = os.pipe()
    threading.Thread(target=lambda: (os.write(w, data), os.close(w)) if len(data) < 60000 else _pump(w, data)).start()
    return r


def _pump(fd, data):
    with os.fdopen(fd, "wb") as f:
        f.write(data)


def test_large_input_and_output_at_once():
    """C017: input is not written to its end before output is read."""
    data = os.urandom(8 << 20)
    with FakePeer(echo) as peer, client_for(peer) as client:
        start = time.monotonic()
        assert client.exec(["cat"], stdin=data, text=False).stdout == data
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 1 << 20])
@pytest.mark.parametrize("source", ["bytes", "file", "textfile", "bytesio", "pipe", "fd", "generator", "raw"])
def test_every_kind_of_input(tmp_path, source, size):
    data = (b"0123456789abcde\n" * (size // 16 + 1))[:size]
    path = tmp_path / "in"
    path.write_bytes(data)
    opened = []

    class Slow(io.RawIOBase):
        def __init__(self):
            self.left = io.BytesIO(data)

        def readable(self):
            return True

        def readinto(self, b):
            return self.left.readinto(b)

    if source == "bytes":
        stdin = data
    elif source == "file":
        stdin = open(path, "rb")
    elif source == "textfile":
        stdin = open(path)
    elif source == "bytesio":
        stdin = io.BytesIO(data)
    elif source == "pipe":
        stdin = os.fdopen(pipe_with(data), "rb")
    elif source == "fd":
        stdin = pipe_with(data)
        opened.append(stdin)
    elif source == "generator":
        stdin = (data[i : i + 1000] for i in range(0, len(data), 1000))
    else:
        stdin = Slow()
    with FakePeer(echo) as peer, client_for(peer) as client:
        assert client.exec(["cat"], stdin=stdin, text=False).stdout == data
    for fd in opened:
        os.close(fd)
    if hasattr(stdin, "close") and source != "generator":
        stdin.close()


def test_iterator_that_waits_for_output_does_not_deadlock():
    answered = threading.Event()

    def pieces():
        yield "ask"
        assert answered.wait(10)
        yield "done"

    with FakePeer(echo) as peer, client_for(peer) as client:
        r = client.exec(["cat"], stdin=pieces(), on_stdout=lambda _: answered.set())
    assert r.stdout == "askdone"


def test_silent_pipe_as_input_does_not_hold_up_output():
    r, w = os.pipe()

    def script(c, _):
        c.call()
        c.send(out(b"hi"), exec_result_frame())
        c.stdin()

    with FakePeer(script) as peer, client_for(peer) as client:
        with os.fdopen(r, "rb") as stdin, os.fdopen(w, "wb"):
            assert client.exec(["x"], stdin=stdin).stdout == "hi"


def test_input_that_the_socket_takes_at_once_goes_on_after_it():
    """C017 kin: a peer that reads as fast as it is written to, and answers nothing before the end."""
    for pause in (0, 0.2):
        def script(c, _):
            while c.call() is not None:
                time.sleep(pause)
                c.send(out(b"%d" % len(c.stdin())), exec_result_frame())

        with FakePeer(script) as peer, client_for(peer) as client:
            for size in (1 << 18, (1 << 18) + 1, 1 << 20, 5 << 20):
                assert client.exec(["wc", "-c"], stdin=b"x" * size).stdout == str(size)


def test_output_is_read_while_endless_input_is_taken():
    """A peer that takes everything at once must not keep the client from seeing the answer."""
    def script(c, _):
        while c.call() is not None:
            c.frame()
            c.send(out(b"hi"), exec_result_frame())
            c.stdin()

    def endless():
        while True:
            yield b"x" * 65536

    with FakePeer(script) as peer, client_for(peer) as client:
        for stdin in (endless(), open("/dev/zero", "rb")):
            assert client.exec(["head"], stdin=stdin).stdout == "hi"
        assert peer.accepted == 1


def test_endless_input_stops_when_the_program_closed_its_own():
    """C049: the caller is told to stop; the result comes, and the connection is good for the next call."""
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield b"line\n" * 1000

    def script(c, _):
        while (call := c.call()) is not None:
            if not call["end"]:
                c.frame()
                c.send(out(b"line\n"), event_frame("stdin_closed"))
                c.stdin()
            c.send(exec_result_frame())

    with FakePeer(script) as peer, client_for(peer) as client:
        assert client.exec(["head", "-n", "1"], stdin=endless()).stdout == "line\n"
        assert client.exec("true").exit_code == 0
        assert peer.accepted == 1


def test_result_before_the_end_of_input_ends_the_input_and_keeps_the_connection():
    def script(c, _):
        while (call := c.call()) is not None:
            c.send(exec_result_frame(exit_code=3))
            if not call["end"]:
                c.stdin()

    with FakePeer(script) as peer, client_for(peer) as client:
        for _ in range(20):
            assert client.exec("exit 3", stdin=b"x" * (1 << 20)).exit_code == 3
            assert client.exec("exit 3").exit_code == 3
        assert peer.accepted == 1


@pytest.mark.parametrize("stdin", [{"a": 1}, [1, 2], 5.5, object()])
def test_wrong_input_types_raise(stdin):
    with FakePeer(echo) as peer, client_for(peer) as client:
        with pytest.raises(TypeError):
            client.exec(["cat"], stdin=stdin)


@pytest.mark.parametrize("command", [5, None, 5.5, object()])
def test_what_is_no_command_raises(command):
    with FakePeer(echo) as peer, client_for(peer) as client:
        with pytest.raises(TypeError, match="command must be"):
            client.exec(command)
        assert peer.accepted == 0


def test_exception_of_an_input_iterator_reaches_the_caller_and_cancels():
    closed = threading.Event()

    def script(c, _):
        c.call()
        c.until_closed()
        closed.set()

    def bad():
        yield b"x"
        raise ZeroDivisionError("mine")

    with FakePeer(script) as peer, client_for(peer) as client:
        with pytest.raises(ZeroDivisionError, match="mine"):
            client.exec(["cat"], stdin=bad())
        assert closed.wait(5)


# -- cancel, threads, fork


def cancellable(closed):
    def script(c, number):
        while (call := c.call()) is not None:
            if call["method"] != "exec.start":
                c.send(result_frame({"n": number}))
                continue
            c.send(out(b"x"))
            c.until_closed()
            closed.set()
            c.send(exec_result_frame())  # too late

    return script


def test_callback_that_raises_cancels_the_exec():
    closed = threading.Event()

    def callback(_):
        raise KeyError("mine")

    with FakePeer(cancellable(closed)) as peer, client_for(peer) as client:
        client.ping()
        with pytest.raises(KeyError, match="mine"):
            client.exec("yes", on_stdout=callback)
        assert closed.wait(5)
        assert client.call("x") == {"n": 1}


def test_ctrl_c_cancels_the_exec_and_spoils_no_later_call():
    closed = threading.Event()
    started = threading.Event()

    def press():
        started.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    with FakePeer(cancellable(closed)) as peer, client_for(peer) as client:
        thread = threading.Thread(target=press)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            client.exec("yes", on_stdout=lambda _: started.set())
        thread.join()
        assert closed.wait(5)
        assert client.call("x") == {"n": 1}


def in_child(work):
    """Run work() in a forked child; true when it returned true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_fork_never_shares_a_connection():
    with FakePeer(serve_results) as peer, client_for(peer) as client:
        client.ping()
        assert peer.accepted == 1
        assert in_child(lambda: client.call("x", {"who": "child"})["echo"] == {"who": "child"})
        assert client.call("x", {"who": "parent"})["echo"] == {"who": "parent"}
        assert peer.accepted == 2


def test_fork_while_other_threads_call_neither_hangs_nor_mixes():
    with FakePeer(serve_results) as peer, client_for(peer) as client:
        stop = threading.Event()
        wrong = []

        def work(me):
            i = 0
            while not stop.is_set():
                i += 1
                if client.call("x", {"me": me, "i": i})["echo"] != {"me": me, "i": i}:
                    wrong.append(me)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for n in range(30):
            assert in_child(lambda: client.call("x", {"c": n})["echo"] == {"c": n})
        stop.set()
        for t in threads:
            t.join()
        assert not wrong


def test_child_does_not_keep_the_parents_connection_open():
    closed = threading.Event()
    r, w = os.pipe()
    with FakePeer(cancellable(closed)) as peer, client_for(peer) as client:
        connection = client.connect()
        connection.call("x")
        pid = os.fork()
        if pid == 0:
            os.close(w)
            os.read(r, 1)  # lives until the parent lets go
            os._exit(0)
        os.close(r)
        connection.queue(connection.session.call("exec.start"))
        connection.send_some()
        connection.close()
        assert closed.wait(5)
        os.close(w)
        os.waitpid(pid, 0)


def test_sandbox_is_killed_by_the_process_that_made_it_alone():
    killed = []

    def script(c, _):
        while (call := c.call()) is not None:
            if call["method"] == "vm.kill":
                killed.append(call["vm"])
            c.send(result_frame({"id": "v1", "state": "running"}))

    with FakePeer(script) as peer, client_for(peer) as client:
        with Sandbox.create(client=client) as sandbox:
            assert sandbox.id == "v1"

            def leave():
                with sandbox:
                    pass
                return True

            assert in_child(leave)
            assert killed == []
        assert killed == ["v1"]
        with Sandbox.get("v1", client=client):
            pass
        assert killed == ["v1"]


def test_default_client_is_one_per_socket_and_finds_the_socket(monkeypatch, tmp_path):
    with FakePeer(serve_results) as peer:
        monkeypatch.setenv("HUTCH_SOCKET", peer.path)
        assert hutch.default_client() is hutch.default_client()
        assert hutch.default_client().socket == peer.path
        monkeypatch.delenv("HUTCH_SOCKET")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert hutch.default_client().socket == "/run/hutch/hutchd.sock"
        (tmp_path / "hutch").mkdir()
        os.link(peer.path, tmp_path / "hutch" / "hutchd.sock")
        assert hutch.default_client().socket == str(tmp_path / "hutch" / "hutchd.sock")
        hutch.default_client().ping()


def test_descriptors_are_not_leaked():
    with FakePeer(serve_results) as peer:
        def once():
            with client_for(peer) as client:
                client.call("x")
            try:
                Connection("/nonexistent")
            except hutch.BrokerUnavailable:
                pass

        once()
        deadline = time.monotonic() + 5
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(30):
            once()
        while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
            time.sleep(0.01)  # the peer's threads close theirs
        assert len(os.listdir("/proc/self/fd")) <= before
