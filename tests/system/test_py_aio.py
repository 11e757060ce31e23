# SPDX-License-Identifier: Apache-2.0
"""The asyncio client against a scripted peer: the faults of test_py_client.py, for tasks instead of threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

import hutch
from fakepeer import FakePeer, error_frame, event_frame, exec_result_frame, result_frame
from hutch import AsyncClient, AsyncSandbox, wire
from test_py_client import EURO, cancellable, echo, exec_script, lose_second_call, out, serve_results


def run(work):
    return asyncio.run(asyncio.wait_for(work, 30))


def test_many_tasks_never_mix_up_two_results():
    async def main(path):
        async with AsyncClient(path) as client:

            async def one(i):
                return (await client.call("x", {"i": i}))["echo"] == {"i": i}

            return await asyncio.gather(*(one(i) for i in range(300)))

    with FakePeer(serve_results) as peer:
        assert all(run(main(peer.path)))


def test_one_connection_serves_calls_in_turn_and_errors_are_typed():
    def script(c, _):
        while (call := c.call()) is not None:
            c.send(error_frame("not_found", "nope") if call["method"] == "bad" else result_frame({"a": 1}))

    async def main(path):
        async with AsyncClient(path) as client:
            for _ in range(10):
                assert await client.call("x") == {"a": 1}
                with pytest.raises(hutch.NotFound):
                    await client.call("bad")

    with FakePeer(script) as peer:
        run(main(peer.path))
        assert peer.accepted == 1


def test_exec_result_text_and_callbacks():
    text = b"a" * 8191 + EURO
    parts = [out(text[i : i + 8192]) for i in range(0, len(text), 8192)]

    async def main(path):
        async with AsyncClient(path) as client:
            pieces = []
            r = await AsyncSandbox("v", client=client).exec("x", on_stdout=pieces.append)
            assert r.stdout == "a" * 8191 + "€" == "".join(pieces) and r.exit_code == 5
            assert (await client.exec("x", text=False)).stdout == text

    with FakePeer(exec_script(*parts, exec_result_frame(exit_code=5))) as peer:
        run(main(peer.path))


def test_timed_out_exec_raises():
    async def main(path):
        async with AsyncClient(path) as client:
            with pytest.raises(hutch.ExecTimeout):
                await client.exec("x", timeout_seconds=1)
            assert (await client.exec("x", timeout_seconds=1, check=False)).timed_out

    with FakePeer(exec_script(exec_result_frame(timed_out=True))) as peer:
        run(main(peer.path))


async def slow_pieces(data):
    for i in range(0, len(data), 70000):
        await asyncio.sleep(0)
        yield data[i : i + 70000]


@pytest.mark.parametrize("source", ["bytes", "small", "empty", "async", "generator", "file", "pipe"])
def test_every_kind_of_input(tmp_path, source):
    data = os.urandom({"small": 10, "empty": 0}.get(source, 4 << 20))
    path = tmp_path / "in"
    path.write_bytes(data)

    async def main(socket):
        async with AsyncClient(socket) as client:
            if source == "async":
                stdin = slow_pieces(data)
            elif source == "generator":
                stdin = (data[i : i + 5000] for i in range(0, len(data), 5000))
            elif source == "file":
                stdin = open(path, "rb")
            elif source == "pipe":
                r, w = os.pipe()
                threading.Thread(target=lambda: (os.fdopen(w, "wb").write(data))).start()
                stdin = os.fdopen(r, "rb")
            else:
                stdin = data
            r = await client.exec(["cat"], stdin=stdin, text=False)
            assert r.stdout == data
            if hasattr(stdin, "fileno"):
                stdin.close()
            assert (await client.exec(["cat"], stdin="again")).stdout == "again"

    with FakePeer(echo) as peer:
        run(main(peer.path))
        assert peer.accepted == 1


def test_endless_input_stops_when_the_program_closed_its_own():
    async def endless():
        while True:
            yield b"line\n" * 1000

    def script(c, _):
        while (call := c.call()) is not None:
            if not call["end"]:
                c.frame()
                c.send(out(b"line\n"), event_frame("stdin_closed"), exec_result_frame())
                c.stdin()
            else:
                c.send(exec_result_frame())

    async def main(path):
        async with AsyncClient(path) as client:
            for _ in range(5):
                assert (await client.exec(["head"], stdin=endless())).stdout == "line\n"
                assert (await client.exec("true")).exit_code == 0

    with FakePeer(script) as peer:
        run(main(peer.path))
        assert peer.accepted == 1


def test_exception_of_an_input_iterator_reaches_the_caller():
    async def bad():
        yield b"x"
        raise ZeroDivisionError("mine")

    async def main(path):
        async with AsyncClient(path) as client:
            with pytest.raises(ZeroDivisionError, match="mine"):
                await client.exec(["cat"], stdin=bad())

    def script(c, _):
        c.call()
        c.until_closed()

    with FakePeer(script) as peer:
        run(main(peer.path))


def test_cancelled_task_cancels_its_exec_and_spoils_no_later_call():
    closed = threading.Event()

    async def main(path):
        async with AsyncClient(path) as client:
            await client.ping()
            started = asyncio.Event()
            task = asyncio.ensure_future(client.exec("yes", on_stdout=lambda _: started.set()))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.get_running_loop().run_in_executor(None, closed.wait, 5)
            assert closed.is_set()
            assert await client.call("x") == {"n": 1}

    with FakePeer(cancellable(closed)) as peer:
        run(main(peer.path))


def test_timeout_of_a_call_and_late_answer():
    def script(c, number):
        while (call := c.call()) is not None:
            if call["params"]["n"] == 0:
                time.sleep(0.4)
            c.send(result_frame(call["params"]))

    async def main(path):
        async with AsyncClient(path) as client:
            with pytest.raises(hutch.Timeout):
                await client.call("x", {"n": 0}, timeout_seconds=0.1)
            for n in range(1, 5):
                assert await client.call("x", {"n": n}) == {"n": n}

    with FakePeer(script) as peer:
        run(main(peer.path))


def test_stale_connection_and_lost_call():
    seen = []

    async def main(path):
        async with AsyncClient(path) as client:
            await client.ping()
            assert (await client.exec("true")).exit_code == 0

    with FakePeer(lose_second_call(seen)) as peer:
        run(main(peer.path))
        assert [n for n, _ in seen] == [0, 0, 1] and seen[1][1] == seen[2][1]

    def close_each(c, _):
        c.call()
        c.send(result_frame())

    async def stale(path):
        async with AsyncClient(path) as client:
            for _ in range(5):
                await client.ping()
                while client._idle[0].reusable:
                    await asyncio.sleep(0.001)

    with FakePeer(close_each) as peer:
        run(stale(peer.path))
        assert peer.accepted == 5


def test_answer_that_nobody_asked_for_is_not_taken_for_the_next_one():
    sent = threading.Event()

    def script(c, number):
        c.call()
        c.send(result_frame({"n": 1}))
        if number == 0:
            time.sleep(0.05)
            c.send(result_frame({"n": 2}))
            sent.set()
        c.until_closed()

    async def main(path):
        async with AsyncClient(path) as client:
            assert await client.call("x") == {"n": 1}
            await asyncio.get_running_loop().run_in_executor(None, sent.wait, 5)
            await asyncio.sleep(0)
            assert await client.call("x") == {"n": 1}

    with FakePeer(script) as peer:
        run(main(peer.path))
        assert peer.accepted == 2


def test_garbage_is_a_protocol_error():
    async def main(path):
        async with AsyncClient(path) as client:
            with pytest.raises(hutch.ProtocolError):
                await client.call("x")

    with FakePeer(lambda c, _: (c.call(), c.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), c.until_closed())) as peer:
        run(main(peer.path))


def test_client_used_by_two_event_loops():
    with FakePeer(serve_results) as peer:
        client = AsyncClient(peer.path)
        for i in range(3):
            assert run(client.call("x", {"i": i}))["echo"] == {"i": i}


def test_exec_stream():
    def script(c, _):
        while (call := c.call()) is not None:
            if call["method"] != "exec.start":
                c.send(result_frame())
                continue
            c.send(event_frame("started", id="e1", pid=7))
            end = call["end"]
            while not end:
                frame = c.frame()
                if frame is None:
                    return
                c.send(out(frame.payload)) if frame.payload else None
                end = frame.end
            c.send(exec_result_frame(exit_code=3))

    async def main(path):
        async with AsyncClient(path) as client:
            sandbox = AsyncSandbox("v", client=client)
            async with await sandbox.exec_stream(["cat"], stdin=True) as s:
                assert (s.id, s.pid) == ("e1", 7)
                await s.write("hello " + "€")
                await s.close_stdin()
                assert "".join([d async for _, d in s]) == "hello €"
                assert (await s.wait()).exit_code == 3
            async with await sandbox.pty(["cat"]) as s:
                with pytest.raises(hutch.Timeout):
                    await s.read(0.05)
                await s.write("x")
                assert (await s.read(5)).data == "x"
                await s.signal("INT")
                await s.resize(10, 20)
                await s.kill()
                await s.close_stdin()
                assert (await s.wait(5)).exit_code == 3
                with pytest.raises(BrokenPipeError):
                    await s.write("y")
            assert await sandbox.commands.start("x") == "e1"

    with FakePeer(script) as peer:
        run(main(peer.path))


def test_sandbox_lifecycle():
    calls = []

    def script(c, _):
        while (call := c.call()) is not None:
            calls.append(call["method"])
            c.send(result_frame({"id": "v1", "state": "running", "vms": [{"id": "v1", "state": "running"}], "expires_in_ms": 1500}))

    async def main(path):
        async with AsyncClient(path) as client:
            async with await AsyncSandbox.create(client=client) as sandbox:
                assert [v.id for v in await AsyncSandbox.list(client=client)] == ["v1"]
                assert await sandbox.set_ttl(2) == 1.5
                assert (await sandbox.info()).state == "running"

    with FakePeer(script) as peer:
        run(main(peer.path))
    assert calls[0] == "vm.create" and calls[-1] == "vm.kill"
    assert wire.PROTO_VERSION == 1
