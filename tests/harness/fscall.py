# SPDX-License-Identifier: Apache-2.0
"""fs.* on the wire: one call with its input, events and output, without the package's own idea of files."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from hutch import Connection, wire
from hutch.feed import Feeder

Input = Union[None, bytes, Iterable[bytes]]


class _Pieces(Feeder):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__()
        self._pieces = iter(pieces)

    def next(self) -> Optional[bytes]:
        return next(self._pieces, None)


class Answer:
    """result: the RESULT map; out: the bytes of STDOUT; events: the EVENT maps."""

    def __init__(self) -> None:
        self.result: Dict[str, Any] = {}
        self.out = bytearray()
        self.events: List[Dict[str, Any]] = []

    def on_received(self, received: Any) -> None:
        if isinstance(received, wire.Output):
            self.out += received.data
        elif isinstance(received, wire.Event):
            self.events.append(received.fields)

    def __getitem__(self, key: str) -> Any:
        return self.result[key]


class Files:
    """fs.* over one connection that is kept open; `vm` where it leads to a broker."""

    def __init__(self, connection: Connection, vm: Optional[str] = None, timeout_seconds: float = 50.0) -> None:
        self.connection = connection
        self.vm = vm
        self.timeout_seconds = timeout_seconds

    def __call__(self, method: str, input: Input = None, **params: Any) -> Answer:
        """`files("write", b"x", path="/tmp/f")`. A key that is a word of Python's ends with "_" here."""
        answer = Answer()
        feeder: Optional[Feeder] = None
        if input is not None:
            feeder = Feeder(input) if isinstance(input, bytes) else _Pieces(input)
        request = self.connection.session.call(
            f"fs.{method}", {k.rstrip("_"): v for k, v in params.items()}, vm=self.vm, end=feeder is None
        )
        answer.result = self.connection.exchange(
            request, feeder=feeder, on_received=answer.on_received, timeout_seconds=self.timeout_seconds
        )
        return answer

    def write(self, path: str, data: Input, **params: Any) -> Answer:
        return self("write", data, path=path, **params)

    def read(self, path: str, **params: Any) -> bytes:
        return bytes(self("read", path=path, **params).out)

    def list(self, path: str, **params: Any) -> Tuple[Dict[str, Dict[str, Any]], Dict[str, Any]]:
        """The entries by path, and the RESULT."""
        answer = self("list", path=path, **params)
        entries = [entry for event in answer.events for entry in event["entries"]]
        found = {entry["path"]: entry for entry in entries}
        assert len(found) == len(entries), "an entry is there twice"
        return found, answer.result

    def close(self) -> None:
        self.connection.close()
