# SPDX-License-Identifier: Apache-2.0
"""ExecStream: a running command whose output is read, and whose input is written, piece by piece.

How it works: sending and receiving have a lock each, so one thread may write while another reads. A writer that
finds the socket full reads output into a queue meanwhile (unless a reader is at it), so a filter cannot deadlock it.
"""

from __future__ import annotations

import collections
import select
import signal as _signal
import threading
import time
from typing import Any, Deque, Dict, Iterator, NamedTuple, Optional, Union

from . import errors, execs, wire
from .client import Client
from .connection import Connection, poll_wait
from .feed import as_bytes
from .result import ExecResult, take

MAX_QUEUED = 16 << 20  # bytes of output kept for the reader while a writer waits


class Piece(NamedTuple):
    """A piece of output: stream is "stdout" or "stderr", data is str in text mode, else bytes."""

    stream: str
    data: Any


class StreamState:
    """What is known about a stream so far; without I/O, shared by the blocking and the asyncio class."""

    def __init__(self, id: str, command: Any, text: bool, capture: bool) -> None:
        self.id = id
        self.pid: Optional[int] = None
        self.started = False
        self.stdin_closed = False
        self.offsets = {"stdout": 0, "stderr": 0}
        self.size: Optional[tuple[int, int]] = None  # rows, cols at which an attached PTY's output was made
        self.queue: Deque[Piece] = collections.deque()
        self.queued = 0
        self.fields: Optional[Dict[str, Any]] = None
        self.error: Optional[errors.HutchError] = None
        self.collector = execs.Collector(
            command, text=text, capture=capture,
            on_stdout=lambda d: self.queue.append(Piece("stdout", d)),
            on_stderr=lambda d: self.queue.append(Piece("stderr", d)),
        )
        self._result: Optional[ExecResult[Any]] = None

    @property
    def over(self) -> bool:
        return self.fields is not None or self.error is not None

    def add(self, received: wire.Received) -> None:
        if isinstance(received, wire.Output):
            self.started = True
            self.offsets[received.stream] += len(received.data)
            self.queued += len(received.data)
        elif isinstance(received, wire.Event):
            self._event(received)
        elif isinstance(received, wire.Result):
            self.started = True
            self.fields = received.fields
            self.id = take(received.fields, "id", str, self.id)
            self.pid = take(received.fields, "pid", int, 0) or self.pid
            self._result = self.collector.result(received.fields)
            return
        else:
            self.error = received.error
            return
        self.collector.add(received)

    def _event(self, event: wire.Event) -> None:
        fields = event.fields
        if event.name in ("started", "attached"):
            self.started = True
            self.id = take(fields, "id", str, self.id)
            self.pid = take(fields, "pid", int, 0) or None
            self.offsets["stdout"] = take(fields, "stdout_offset", int, 0)
            self.offsets["stderr"] = take(fields, "stderr_offset", int, 0)
            if fields.get("rows"):
                self.size = (take(fields, "rows", int, 0), take(fields, "cols", int, 0))
        elif event.name == "gap":
            stream = take(fields, "stream", str, "stdout")
            if stream in self.offsets:
                self.offsets[stream] = take(fields, "to", int, self.offsets[stream])
        elif event.name == "stdin_closed":
            self.stdin_closed = True

    def pop(self) -> Optional[Piece]:
        if not self.queue:
            return None
        piece = self.queue.popleft()
        if not self.queue:
            self.queued = 0
        return piece

    def result(self) -> ExecResult[Any]:
        if self.error is not None:
            raise self.error
        assert self._result is not None
        return self._result


class ExecStream:
    """A command that runs. Iterate over it for its output; `wait()` for its result.

        with sbx.exec_stream(["cat"], stdin=True) as s:
            s.write("hello")
            s.close_stdin()
            for stream, data in s:
                print(stream, data)
            print(s.wait().exit_code)

    id, pid: of the exec. stdout_offset, stderr_offset: bytes of each stream received so far, counted from the command's
    start; what `Sandbox.attach` takes to go on from here. size: rows and cols, of an attached PTY.

    Leaving the `with` block, or close(), before the command has ended cancels it, unless it was started detached or
    this stream is a viewer of it.
    """

    def __init__(self, client: Client, connection: Connection, state: StreamState, vm: Optional[str]) -> None:
        self._client = client
        self._connection = connection
        self._state = state
        self._vm = vm
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._given_back = False

    @classmethod
    def open(
        cls,
        client: Client,
        method: str,
        params: Dict[str, Any],
        *,
        vm: Optional[str],
        id: str,
        key: Optional[str] = None,
        stdin: bool = False,
        command: Any = None,
        text: bool = True,
        capture: bool = False,
        timeout_seconds: Optional[float] = None,
    ) -> "ExecStream":
        connection = client.connect()
        try:
            stream = cls(client, connection, StreamState(id, command, text, capture), vm)
            connection.queue(connection.session.call(method, params, vm=vm, id=id, key=key, end=not stdin))
            stream._until_started(client.call_timeout_seconds if timeout_seconds is None else timeout_seconds)
        except BaseException:
            connection.close()
            raise
        return stream

    def _until_started(self, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        state = self._state
        while not state.started and not state.over:
            with self._writing:
                sent = self._connection.send_some()
            if not self._receive(max(deadline - time.monotonic(), 0), select.POLLIN | (0 if sent else select.POLLOUT)):
                raise errors.Timeout(f"{self._client.socket} did not answer in time")
        if state.error is not None:
            raise state.error

    def __enter__(self) -> "ExecStream":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        return self._state.id

    @property
    def pid(self) -> Optional[int]:
        return self._state.pid

    @property
    def stdout_offset(self) -> int:
        return self._state.offsets["stdout"]

    @property
    def stderr_offset(self) -> int:
        return self._state.offsets["stderr"]

    @property
    def size(self) -> Optional[tuple[int, int]]:
        return self._state.size

    # receiving

    def _receive(self, timeout_seconds: Optional[float], events: int = select.POLLIN) -> bool:
        """Wait for the socket and take what is there; false when the time passed. Call with _reading free."""
        with self._reading:
            if self._state.over or self._state.queue:
                return True
            poll = select.poll()
            poll.register(self._connection.fileno(), events)
            if not poll_wait(poll, None if timeout_seconds is None else max(int(timeout_seconds * 1000), 0)):
                return False
            self._take_in()
            return True

    def _take_in(self) -> None:
        try:
            for received in self._connection.receive_some():
                self._state.add(received)
        except errors.HutchError as e:
            self._state.error = e
            self._connection.close()
        if self._state.over:
            self._finish()

    def _finish(self) -> None:
        """The answer is there: end our side, and let the connection serve the next call."""
        if not self._writing.acquire(blocking=False):
            return  # the writer does it when it is done
        try:
            connection = self._connection
            if self._given_back or connection.closed:
                return
            if not connection.session.own_end:
                connection.queue(connection.session.stdin(b"", end=True))
            connection.flush()
            self._given_back = True
            self._client.give(connection)
        finally:
            self._writing.release()

    def read(self, timeout_seconds: Optional[float] = None) -> Optional[Piece]:
        """The next piece of output; None when the command has ended and all was read. Raises Timeout, VmDied, ... ."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        state = self._state
        while True:
            piece = state.pop()
            if piece is not None:
                return piece
            if state.error is not None:
                raise state.error
            if state.over:
                return None
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not self._receive(left):
                raise errors.Timeout(f"exec {self.id} wrote nothing for {timeout_seconds} s")

    def __iter__(self) -> Iterator[Piece]:
        while True:
            piece = self.read()
            if piece is None:
                return
            yield piece

    def wait(self, timeout_seconds: Optional[float] = None, *, check: Optional[bool] = None) -> ExecResult[Any]:
        """Drop the output that was not read, wait for the end, return the result (check: as in Sandbox.exec)."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while self.read(None if deadline is None else max(deadline - time.monotonic(), 0)) is not None:
            pass
        return execs.judge(self._state.result(), check)

    # sending

    def write(self, data: Union[bytes, str]) -> None:
        """Send input. Raises BrokenPipeError when the command has closed its input or ended."""
        self._send(as_bytes(data), end=False)

    def close_stdin(self) -> None:
        """End the input. On a PTY the terminal's end-of-file character is sent. Closing twice does nothing."""
        if not self._connection.session.own_end:
            self._send(b"", end=True)

    def ack(self) -> None:
        """Tell a resumable exec that all output read so far has arrived, so that it need not be kept."""
        fields = {"event": "ack", "stdout": self.stdout_offset, "stderr": self.stderr_offset}
        with self._writing:
            if not self._connection.session.own_end:
                self._connection.queue(self._connection.session.event(fields))
                self._drain()
        self._after_sending()

    def _send(self, data: bytes, end: bool) -> None:
        with self._writing:
            connection = self._connection
            if self._state.over or (self._state.stdin_closed and not end) or connection.session.own_end:
                raise BrokenPipeError(f"exec {self.id} takes no more input")
            view = memoryview(data)
            while True:
                piece, view = view[: wire.MAX_DATA], view[wire.MAX_DATA :]
                connection.queue(connection.session.stdin(piece, end=end and not view))
                self._drain()
                if not view or self._state.over or self._state.stdin_closed:
                    break
        self._after_sending()

    def _after_sending(self) -> None:
        if self._state.over:
            with self._reading:
                self._finish()

    def _drain(self) -> None:
        """Send what is queued; take output in while the socket is full. Call with _writing held."""
        connection = self._connection
        while not connection.send_some() and not self._state.over:
            poll = select.poll()
            poll.register(connection.fileno(), select.POLLOUT)
            can_read = self._state.queued < MAX_QUEUED and self._reading.acquire(blocking=False)
            try:
                if can_read:
                    poll.modify(connection.fileno(), select.POLLIN | select.POLLOUT)
                ready = poll_wait(poll, None)
                if can_read and any(events & ~select.POLLOUT for _, events in ready):
                    self._take_in()
            finally:
                if can_read:
                    self._reading.release()

    # control, on connections of their own

    def _control(self, method: str, **params: Any) -> None:
        self._client.call(method, params, vm=self._vm, id=self.id)

    def signal(self, signal: Union[int, str, _signal.Signals], *, tree: bool = False) -> None:
        """Send a signal to the command's process group; tree: to every process of it."""
        self._control("exec.signal", signal=signal if isinstance(signal, str) else int(signal), tree=tree)

    def kill(self, grace_seconds: Optional[float] = None) -> None:
        """End every process of the command; returns when all are gone. grace_seconds: SIGTERM first, SIGKILL after it."""
        self._client.call(
            "exec.kill", {"grace_ms": execs.milliseconds(grace_seconds, "grace_seconds") or 0}, vm=self._vm, id=self.id,
            timeout_seconds=self._client.call_timeout_seconds + (grace_seconds or 0),
        )

    def resize(self, rows: int, cols: int) -> None:
        """Give a PTY a new size."""
        self._control("exec.resize", rows=rows, cols=cols)

    def close(self) -> None:
        """Let go of the stream. A command that has not ended is cancelled, unless this was a viewer of it."""
        if not self._given_back:
            self._connection.close()
