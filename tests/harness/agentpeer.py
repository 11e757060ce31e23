# SPDX-License-Identifier: Apache-2.0
"""The broker's side of an agent's connections, one frame at a time, and a cgroup of one's own for the agent."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from hutch import wire

HELLO = wire.encode_frame(wire.HELLO, wire.encode_map({"proto": 1, "role": "broker", "name": "peer"}))


class Peer:
    """A connection to the agent, or one that it dialled; `hello` is what it said."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(10)
        self.decoder = wire.FrameDecoder()
        self.frames: List[wire.Frame] = []
        self.sock.sendall(HELLO)
        self.hello = wire.decode_map(self.frame().payload)

    def frame(self) -> wire.Frame:
        while not self.frames:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError("the agent closed the connection")
            self.frames += self.decoder.feed(data)
        return self.frames.pop(0)

    def send(self, method: str, params: Optional[Dict[str, Any]] = None, *, end: bool = True, **envelope: Any) -> None:
        call = {"method": method, "params": params or {}, **envelope}
        self.sock.sendall(wire.encode_frame(wire.CALL, wire.encode_map(call), wire.END if end else 0))

    def answer(self) -> Tuple[str, Dict[str, Any]]:
        """("result", its map) or ("error", its map); what comes before is dropped."""
        while True:
            frame = self.frame()
            if frame.type in (wire.RESULT, wire.ERROR):
                return "result" if frame.type == wire.RESULT else "error", wire.decode_map(frame.payload)

    def ask(self, method: str, params: Optional[Dict[str, Any]] = None, **envelope: Any) -> Dict[str, Any]:
        self.send(method, params, **envelope)
        how, fields = self.answer()
        assert how == "result", fields
        return fields

    def refused(self, method: str, params: Optional[Dict[str, Any]] = None, **envelope: Any) -> str:
        """The kind of its ERROR."""
        self.send(method, params, **envelope)
        how, fields = self.answer()
        assert how == "error", fields
        return str(fields["kind"])

    def silent(self, seconds: float) -> bool:
        """Nothing comes for that long."""
        return not self.frames and not select.select([self.sock], [], [], seconds)[0]

    def closed(self) -> bool:
        """Reads to the end of the stream."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                self.frame()
        return True

    def close(self) -> None:
        self.sock.close()


class Host:
    """A listening socket in the host's place, for the agent's --dial."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(str(path))
        self.sock.listen(16)

    def accept(self, seconds: float = 5) -> Peer:
        self.sock.settimeout(seconds)
        return Peer(self.sock.accept()[0])

    def close(self) -> None:
        self.sock.close()


@contextlib.contextmanager
def own_cgroup() -> Iterator[Optional[Path]]:
    """A new cgroup2 directory; None where this process may not make one that can be frozen."""
    for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        path = Path(mount, f"hutch-test-{os.getpid()}")
        try:
            if not Path(mount, "cgroup.controllers").exists():
                continue
            path.mkdir()
        except OSError:
            continue
        try:
            yield path if (path / "cgroup.freeze").exists() and os.access(path / "cgroup.procs", os.W_OK) else None
        finally:
            _remove(path)
        return
    yield None


def _remove(path: Path) -> None:
    deadline = time.monotonic() + 10
    for folder in sorted((p for p in path.rglob("*") if p.is_dir()), reverse=True):
        _rmdir(folder, deadline)
    _rmdir(path, deadline)


def _rmdir(path: Path, deadline: float) -> None:
    """The kernel empties a cgroup some time after its processes were reaped."""
    while True:
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            with contextlib.suppress(OSError):
                (path / "cgroup.kill").write_text("1")
            time.sleep(0.01)
