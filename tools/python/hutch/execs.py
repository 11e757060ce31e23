# SPDX-License-Identifier: Apache-2.0
"""What running a command means, without I/O: parameters in, output and result out. Used by the blocking and asyncio clients."""

from __future__ import annotations

import codecs
import secrets
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import errors, wire
from .result import ExecResult, take

Command = Union[str, Sequence[Union[str, bytes]]]
Callback = Callable[[Any], object]

# The agent enforces a command's timeout; this much later the client gives up on an answer.
TIMEOUT_MARGIN_SECONDS = 30.0


def new_key() -> str:
    """A key for an idempotent call, never used before."""
    return secrets.token_hex(12)


def new_id() -> str:
    """An exec's id, never used before."""
    return "x" + secrets.token_hex(8)


def milliseconds(seconds: Optional[float], name: str) -> Optional[int]:
    """Whole milliseconds of a duration in seconds, at least 1 for anything above 0; None for None."""
    if seconds is None:
        return None
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds < 1e12:
        raise errors.Invalid(f"{name} must be a number of seconds, from 0 to below 1e12, not {seconds!r}")
    whole = int(seconds * 1000)
    return whole if whole or not seconds else 1


def start_params(
    command: Command,
    *,
    cwd: Union[str, bytes, None] = None,
    env: Optional[Mapping[str, Optional[str]]] = None,
    clear_env: bool = False,
    user: Union[str, int, None] = None,
    timeout_seconds: Optional[float] = None,
    grace_seconds: Optional[float] = None,
    output_limit: Optional[int] = None,
    merge_stderr: bool = False,
    pty: Optional[Mapping[str, Any]] = None,
    detach: bool = False,
    resumable: bool = False,
    notify: bool = False,
    memory_bytes: Optional[int] = None,
    pids: Optional[int] = None,
    cpu_percent: Optional[int] = None,
) -> Dict[str, Any]:
    """The `exec.start` parameters (wire.md); what is at its default is left out."""
    params: Dict[str, Any] = {}
    if isinstance(command, (str, bytes)):
        params["shell"] = command
    elif isinstance(command, Iterable):
        params["argv"] = list(command)
    else:
        raise TypeError(f"command must be a text or a sequence of words, not {type(command).__name__}")
    optional: Tuple[Tuple[str, Any], ...] = (
        ("cwd", cwd),
        ("env", dict(env) if env else None),
        ("clear_env", clear_env or None),
        ("user", str(user) if isinstance(user, int) else user),
        ("timeout_ms", milliseconds(timeout_seconds, "timeout_seconds")),
        ("grace_ms", milliseconds(grace_seconds, "grace_seconds")),
        ("output_limit", output_limit),
        ("merge_stderr", merge_stderr or None),
        ("pty", dict(pty) if pty is not None else None),
        ("detach", detach or None),
        ("resumable", resumable or None),
        ("notify", notify or None),
        ("memory_bytes", memory_bytes),
        ("pids", pids),
        ("cpu_percent", cpu_percent),
    )
    params.update((name, value) for name, value in optional if value is not None)
    return params


def answer_deadline(timeout_seconds: Optional[float], grace_seconds: Optional[float]) -> Optional[float]:
    """Seconds after which a silent peer is given up on; None when the command may run for ever."""
    if not timeout_seconds:
        return None
    return timeout_seconds + (grace_seconds or 0) + TIMEOUT_MARGIN_SECONDS


class _Stream:
    """One output stream: kept pieces, and a callback that gets them as they come."""

    def __init__(self, text: bool, capture: bool, callback: Optional[Callback]) -> None:
        self._pieces: List[bytes] = []
        self._text = text
        self._capture = capture
        self._callback = callback
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace") if text and callback else None

    def add(self, data: bytes) -> None:
        if self._capture:
            self._pieces.append(data)
        self._tell(data, False)

    def _tell(self, data: bytes, final: bool) -> None:
        if self._callback is None:
            return
        piece: Any = self._decoder.decode(data, final) if self._decoder else data
        if piece:
            self._callback(piece)

    def finish(self) -> Any:
        if self._decoder:
            self._tell(b"", True)
        whole = b"".join(self._pieces)
        return whole.decode("utf-8", "replace") if self._text else whole


class Collector:
    """Takes what a session received for one exec and makes its ExecResult.

    Text is decoded as UTF-8 when whole (for callbacks: by an incremental decoder), so a character is never cut; only
    bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(
        self,
        command: Any,
        *,
        text: bool = True,
        capture: bool = True,
        on_stdout: Optional[Callback] = None,
        on_stderr: Optional[Callback] = None,
    ) -> None:
        self._command = command
        self._streams = {
            "stdout": _Stream(text, capture, on_stdout),
            "stderr": _Stream(text, capture, on_stderr),
        }
        self._gaps: List[Tuple[str, int, int]] = []

    def add(self, received: wire.Received) -> None:
        if isinstance(received, wire.Output):
            self._streams[received.stream].add(received.data)
        elif isinstance(received, wire.Event) and received.name == "gap":
            fields = received.fields
            self._gaps.append(
                (take(fields, "stream", str, "stdout"), take(fields, "from", int, 0), take(fields, "to", int, 0))
            )

    def result(self, fields: Mapping[str, Any]) -> ExecResult[Any]:
        stdout = self._streams["stdout"].finish()
        stderr = self._streams["stderr"].finish()
        return ExecResult.from_wire(fields, stdout, stderr, self._command, list(self._gaps))


def judge(result: ExecResult[Any], check: Optional[bool]) -> ExecResult[Any]:
    """Apply `check`: None raises for a timeout alone, True for anything but success, False never."""
    if check or (check is None and result.timed_out):
        return result.check()
    return result
