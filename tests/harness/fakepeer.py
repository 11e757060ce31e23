# SPDX-License-Identifier: Apache-2.0
"""A scripted callee on a Unix socket: what a broker could say, well or badly, for tests of the clients."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from hutch import wire

HELLO_FRAME = wire.encode_frame(
    wire.HELLO, wire.encode_map({"proto": 1, "role": "broker", "name": "fakepeer"})
)


def result_frame(fields: Optional[Dict[str, Any]] = None) -> bytes:
    return wire.encode_frame(wire.RESULT, wire.encode_map(fields or {}), wire.END)


def exec_result_frame(**fields: Any) -> bytes:
    return result_frame({"id": "e1", "pid": 42, "started": True, "exit_code": 0, **fields})


def error_frame(kind: str, message: str = "as scripted", **fields: Any) -> bytes:
    return wire.encode_frame(wire.ERROR, wire.encode_map({"kind": kind, "message": message, **fields}), wire.END)


def event_frame(event: str, **fields: Any) -> bytes:
    return wire.encode_frame(wire.EVENT, wire.encode_map({"event": event, **fields}))


class PeerConnection:
    """One accepted connection, as the script sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._decoder = wire.FrameDecoder()
        self._frames: List[wire.Frame] = []

    def frame(self) -> Optional[wire.Frame]:
        """The next frame; None at the end of the stream."""
        while not self._frames:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def call(self) -> Optional[Dict[str, Any]]:
        """The next CALL's map, with `end` added; HELLO frames on the way are skipped."""
        while True:
            frame = self.frame()
            if frame is None:
                return None
            if frame.type == wire.CALL:
                return {**wire.decode_map(frame.payload), "end": frame.end}

    def stdin(self) -> bytes:
        """All input up to END."""
        data = b""
        while True:
            frame = self.frame()
            if frame is None:
                return data
            if frame.type == wire.STDIN:
                data += frame.payload
                if frame.end:
                    return data

    def send(self, *parts: bytes) -> None:
        try:
            self.sock.sendall(b"".join(parts))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def until_closed(self) -> None:
        while self.frame() is not None:
            pass


class FakePeer:
    """Runs script(connection, number) in a thread for each accepted connection, after a HELLO."""

    def __init__(self, script: Callable[[PeerConnection, int], None], hello: bytes = HELLO_FRAME) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="hutch-peer-"))
        self.path = str(self.dir / "s")
        self.accepted = 0
        self.failures: List[BaseException] = []
        self._script = script
        self._hello = hello
        self._threads: List[threading.Thread] = []
        self._open: List[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(16)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            number = self.accepted
            self.accepted += 1
            self._open.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, number), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, sock: socket.socket, number: int) -> None:
        with sock:
            connection = PeerConnection(sock)
            connection.send(self._hello)
            try:
                self._script(connection, number)
            except BaseException as e:
                self.failures.append(e)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(5)
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self) -> "FakePeer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
        if exc[0] is None:
            assert not self.failures, self.failures
