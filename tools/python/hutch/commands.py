# SPDX-License-Identifier: Apache-2.0
"""Commands of a sandbox by id: those that run in the background, from any process that knows the id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Union

from . import errors, execs
from .feed import Stdin, feeder
from .result import ExecInfo, ExecResult, take

if TYPE_CHECKING:
    from .sandbox import Sandbox
    from .stream import ExecStream


class Commands:
    """`sandbox.commands`."""

    def __init__(self, sandbox: "Sandbox") -> None:
        self._sandbox = sandbox
        self._client = sandbox.client

    def run(self, command: execs.Command, *, background: bool = False, **options: Any) -> Any:
        """Run a command to its end (ExecResult, as `Sandbox.exec`); background: start it detached and return its id.

        A background command has no owner: it goes on when this process ends. Its output is kept in a bounded ring until
        `connect` reads it. stdin=True keeps its input open for `send_stdin`.
        """
        if not background:
            return self._sandbox.exec(command, **options)
        return self.start(command, **options)

    def start(
        self, command: execs.Command, *, stdin: bool = False, id: Optional[str] = None, key: Optional[str] = None, **options: Any
    ) -> str:
        """Start a detached command; returns its id. Raises ExecFailed when it could not be started."""
        params = execs.start_params(command, detach=True, **options)
        connection = self._client.connect()
        try:
            request = connection.session.call(
                "exec.start", params, vm=self._sandbox.id, id=id or execs.new_id(), key=key or execs.new_key(), end=not stdin
            )
            fields = connection.exchange(request, timeout_seconds=self._client.call_timeout_seconds)
        finally:
            self._client.give(connection)
        if not take(fields, "started", bool, True):
            result = ExecResult.from_wire(fields, "", "", command)
            raise errors.ExecFailed(f"{command!r} {result.describe()}", result)
        return take(fields, "id", str, "")

    def list(self) -> "List[ExecInfo]":
        """The VM's execs: those that run, and those that ended and are not collected yet."""
        return self._sandbox.execs()

    def connect(self, id: str, **options: Any) -> "ExecStream":
        """Follow a command's output from the oldest that is kept; see Sandbox.attach."""
        return self._sandbox.attach(id, **options)

    def wait(self, id: str, timeout_seconds: Optional[float] = None) -> ExecResult[str]:
        """The command's result, without output, when it has ended. Raises Timeout after timeout_seconds."""
        params = {"timeout_ms": execs.milliseconds(timeout_seconds, "timeout_seconds") or 0}
        limit = float("inf") if timeout_seconds is None else timeout_seconds + execs.TIMEOUT_MARGIN_SECONDS
        fields = self._client.call("exec.wait", params, vm=self._sandbox.id, id=id, timeout_seconds=limit)
        return ExecResult.from_wire(fields, "", "", id)

    def signal(self, id: str, signal: Union[int, str], *, tree: bool = False) -> None:
        """Send a signal (number or name without SIG) to the command's process group, or to all of its processes."""
        params = {"signal": signal if isinstance(signal, str) else int(signal), "tree": tree}
        self._client.call("exec.signal", params, vm=self._sandbox.id, id=id)

    def kill(self, id: str, grace_seconds: Optional[float] = None) -> None:
        """End every process of the command; returns when all are gone."""
        params = {"grace_ms": execs.milliseconds(grace_seconds, "grace_seconds") or 0}
        limit = self._client.call_timeout_seconds + (grace_seconds or 0)
        self._client.call("exec.kill", params, vm=self._sandbox.id, id=id, timeout_seconds=limit)

    def send_stdin(self, id: str, data: Stdin, *, close: bool = False) -> int:
        """Send input to the command, close its input after it if asked; returns the bytes that it was given."""
        connection = self._client.connect()
        source = feeder(b"" if data is None else data)
        try:
            request = connection.session.call("exec.stdin", {"close": close}, vm=self._sandbox.id, id=id, end=False)
            return take(connection.exchange(request, feeder=source), "bytes", int, 0)
        finally:
            self._client.give(connection)

    def close_stdin(self, id: str) -> None:
        """End the command's input."""
        self._client.call("exec.close_stdin", vm=self._sandbox.id, id=id)

    def resize(self, id: str, rows: int, cols: int) -> None:
        """Give the command's PTY a new size."""
        self._client.call("exec.resize", {"rows": rows, "cols": cols}, vm=self._sandbox.id, id=id)
