# SPDX-License-Identifier: Apache-2.0
"""One blocking connection: a thin loop around wire.Session that writes and reads at once.

How it works: the socket is non-blocking. An exchange sends its request, then waits with poll(2) for whichever comes first:
room for more input, the next piece of input, or bytes of the answer. So neither side can wait for the other for ever.
An exchange that does not end cleanly, for whatever reason, closes the connection: the callee takes that as a cancel.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import errors, paths, wire
from .feed import Feeder

OUT_HIGH = 256 << 10  # bytes of input kept ready for the socket
RECV_SIZE = 256 << 10
FLUSH_SECONDS = 5.0  # for our END after the answer

SIGNAL_SLICE_MS = 500

_live: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _close_in_child() -> None:
    # The child's copies must not keep the parent's connections open, and must not end them either.
    for connection in list(_live):
        connection._drop()


os.register_at_fork(after_in_child=_close_in_child)


def poll_wait(poll: "select.poll", timeout_ms: Optional[float]) -> List[Tuple[int, int]]:
    """poll(2), in the main thread cut into slices.

    A signal that CPython notes just before it enters poll(2) does not end it, and its handler (ctrl-C's, say) runs after it
    only; so the wait has an end.
    """
    if threading.current_thread() is not threading.main_thread():
        return poll.poll(timeout_ms)
    if timeout_ms is not None and timeout_ms <= SIGNAL_SLICE_MS:
        return poll.poll(timeout_ms)
    deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
    while True:
        left = SIGNAL_SLICE_MS if deadline is None else min((deadline - time.monotonic()) * 1000, SIGNAL_SLICE_MS)
        ready = poll.poll(max(left, 0))
        if ready or (deadline is not None and time.monotonic() >= deadline):
            return ready


class Connection:
    """A connection to a broker or an agent; one call at a time, for one thread at a time.

    path: of the Unix socket. connect_timeout_seconds: for connect(2). Raises BrokerUnavailable.
    """

    def __init__(self, path: str, *, connect_timeout_seconds: float = 5.0, role: str = "client") -> None:
        self.path = path
        self.session = wire.Session(role=role)
        self._pid = os.getpid()
        self._out = bytearray()
        self._send_failed = False
        self._sock: Optional[socket.socket] = paths.connect(path, connect_timeout_seconds)
        self._sock.setblocking(False)
        self._poll = select.poll()
        self._events = 0
        _live.add(self)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._sock is None

    @property
    def reusable(self) -> bool:
        """Another call may be sent: the last one is over, and the peer neither closed nor said anything since."""
        if self._sock is None or not self.session.idle or self._out or self._pid != os.getpid():
            return False
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """End the connection. An exec that is attached to it is cancelled by the broker."""
        sock = self._sock
        if sock is not None and self._pid == os.getpid():
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._drop()

    def _drop(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def call(
        self,
        method: str,
        params: Optional[Mapping[str, Any]] = None,
        *,
        vm: Optional[str] = None,
        id: Optional[str] = None,
        key: Optional[str] = None,
        timeout_seconds: Optional[float] = None,
    ) -> Dict[str, Any]:
        """A call without input or output: its RESULT map. Raises the exception of its ERROR."""
        request = self.session.call(method, params, vm=vm, id=id, key=key)
        return self.exchange(request, timeout_seconds=timeout_seconds)

    def exchange(
        self,
        request: bytes,
        *,
        feeder: Optional[Feeder] = None,
        on_received: Optional[Callable[[wire.Received], None]] = None,
        timeout_seconds: Optional[float] = None,
    ) -> Dict[str, Any]:
        """Send a request made with `session.call` and its input, until the answer is there; returns the RESULT map.

        on_received is called with every Output and Event. timeout_seconds: after it, the peer's silence (or
        a second of it, whichever is later) is Timeout.
        """
        try:
            self._out += request
            answer = self._until_answer(feeder, on_received, timeout_seconds)
            if not self.session.own_end:
                self._out += self.session.stdin(b"", end=True)
            self.flush()
        except BaseException:
            self.close()
            raise
        finally:
            if feeder is not None:
                feeder.close()
        if isinstance(answer, wire.Failure):
            raise answer.error
        return answer.fields

    def _until_answer(
        self,
        feeder: Optional[Feeder],
        on_received: Optional[Callable[[wire.Received], None]],
        timeout_seconds: Optional[float],
    ) -> Any:
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        session = self.session
        while True:
            extra, more = None, False
            if feeder is not None and not session.own_end:
                if self._feed(feeder):
                    extra = feeder.fileno()
                else:
                    more = not session.own_end
            if not self.send_some() or self._send_failed:
                more = False
            if not self._wait(deadline, extra, at_once=more):
                continue
            for received in self.receive_some():
                if isinstance(received, (wire.Result, wire.Failure)):
                    return received
                if isinstance(received, wire.Event) and received.name == "stdin_closed" and not session.own_end:
                    self._out += session.stdin(b"", end=True)
                if on_received is not None:
                    on_received(received)

    def _feed(self, feeder: Feeder) -> bool:
        """Move input to the output buffer; true when the feeder has to be waited for."""
        while len(self._out) < OUT_HIGH:
            piece = feeder.next()
            if piece is None:
                self._out += self.session.stdin(b"", end=True)
                return False
            if not piece:
                return True
            self._out += self.session.stdin(piece)
        return False

    def _wait(self, deadline: Optional[float], extra: Optional[int], at_once: bool) -> bool:
        """Wait until something can be done (at_once: just look); true when bytes, or the end, of the answer are there."""
        sock = self._require()
        events = select.POLLIN | (select.POLLOUT if self._out and not self._send_failed else 0)
        if events != self._events:
            self._poll.register(sock, events)
            self._events = events
        timeout_ms: Optional[int] = None
        if at_once:
            timeout_ms = 0
        elif deadline is not None:
            timeout_ms = int(max(deadline - time.monotonic(), 1.0) * 1000)
        if extra is None:
            ready = poll_wait(self._poll, timeout_ms)
        else:
            self._poll.register(extra, select.POLLIN)
            try:
                ready = poll_wait(self._poll, timeout_ms)
            finally:
                self._poll.unregister(extra)
        if not ready and not at_once:
            raise errors.Timeout(f"{self.path} did not answer in time")
        me = sock.fileno()
        return any(fd == me and got & ~select.POLLOUT for fd, got in ready)

    def _require(self) -> socket.socket:
        if self._sock is None:
            raise errors.OutcomeUnknown(f"the connection to {self.path} is closed")
        return self._sock

    def fileno(self) -> int:
        """The socket's descriptor, for poll(2)."""
        return self._require().fileno()

    def queue(self, data: bytes) -> None:
        """Add bytes (made by `session`) to what `send_some` sends."""
        self._out += data

    def send_some(self) -> bool:
        """Send what the socket takes now; true when nothing is left. A lost peer shows when receiving."""
        while self._out and not self._send_failed:
            try:
                with memoryview(self._out) as view:
                    sent = self._require().send(view[: 1 << 20])
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                self._send_failed = True
                break
            del self._out[:sent]
        return not self._out or self._send_failed

    def receive_some(self) -> List[wire.Received]:
        """What came in; empty when nothing did. Raises OutcomeUnknown when the peer closed, ProtocolError."""
        try:
            data = self._require().recv(RECV_SIZE)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            data = b""
        if not data:
            when = "before it answered" if self.session.peer else "before it said hello"
            raise errors.OutcomeUnknown(f"{self.path} closed the connection {when}", stage="receive")
        return self.session.receive(data)

    def flush(self) -> None:
        """Send what is left of our side after the answer; the peer discards it. Closes when that is not possible."""
        deadline = time.monotonic() + FLUSH_SECONDS
        while not self.send_some():
            self._poll.register(self._require(), select.POLLOUT)
            self._events = select.POLLOUT
            left = deadline - time.monotonic()
            if left <= 0 or not self._poll.poll(int(left * 1000) + 1):
                break
        if self._out:
            self.close()
