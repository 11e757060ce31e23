# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class per error kind of protocol/wire.md, all of them HutchError."""

from __future__ import annotations

import errno as _errno
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple, Type

if TYPE_CHECKING:
    from .result import ExecResult


class HutchError(Exception):
    """A call failed.

    kind: name of the error kind, from the table in protocol/wire.md.
    message: one sentence that names the object and what was attempted.
    errno, errno_name: Linux errno and its name, None where there is none.
    stage: which step failed, where there are several.
    path: the file it is about, where there is one.
    retryable: repeating the same call may succeed.
    """

    kind: str = "internal"

    def __init__(
        self,
        message: str,
        *,
        kind: Optional[str] = None,
        errno: Optional[int] = None,
        errno_name: Optional[str] = None,
        stage: Optional[str] = None,
        path: Optional[str] = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        if kind is not None:
            self.kind = kind
        self.errno = errno
        if errno_name is None and errno is not None:
            errno_name = _errno.errorcode.get(errno)
        self.errno_name = errno_name
        self.stage = stage
        self.path = path
        self.retryable = retryable

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(cls: Type[HutchError], message: str, state: Dict[str, Any]) -> HutchError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ProtocolError(HutchError):
    """The peer's bytes break the protocol; the connection was closed."""

    kind = "protocol"


class Unsupported(HutchError):
    """The other side lacks a version or capability."""

    kind = "unsupported"


class UnknownMethod(HutchError):
    """The other side has no such method."""

    kind = "unknown_method"


class Invalid(HutchError):
    """A parameter is missing, of the wrong type, out of range, or contradicts another."""

    kind = "invalid"


class NotFound(HutchError):
    """The VM, template, exec or file that is named does not exist."""

    kind = "not_found"


class Exists(HutchError):
    """The name, id or key is taken, or a key was used with other arguments."""

    kind = "exists"


class Denied(HutchError):
    """The caller may not do this."""

    kind = "denied"


class WrongState(HutchError):
    """The object's state does not allow it."""

    kind = "state"


class TooLarge(HutchError):
    """A limit on size or count would be passed."""

    kind = "too_large"


class Busy(HutchError):
    """A bounded resource is used up for the moment; the call may be repeated."""

    kind = "busy"


class QuotaExceeded(HutchError):
    """The caller's quota is used up."""

    kind = "quota"


class Timeout(HutchError):
    """A deadline passed."""

    kind = "timeout"


class Canceled(HutchError):
    """Ended because somebody asked so."""

    kind = "canceled"


class NotDispatched(HutchError):
    """The call did not reach its target; nothing was done; it may be repeated."""

    kind = "not_dispatched"


class BrokerUnavailable(NotDispatched):
    """No broker answers on the socket; errno and path say more."""


class OutcomeUnknown(HutchError):
    """The connection was lost after the call was sent; it may or may not have been done."""

    kind = "outcome_unknown"


class VmDied(HutchError):
    """The VM ended while the call ran; the message says why."""

    kind = "vm_died"


class BootFailed(HutchError):
    """The VM did not come up; the message ends with the tail of its console."""

    kind = "boot_failed"


class StartFailed(HutchError):
    """The VMM could not be started or set up."""

    kind = "start_failed"


class IoFailed(HutchError):
    """The operating system refused; errno says why."""

    kind = "io"


class InternalError(HutchError):
    """A fault of hutch itself."""

    kind = "internal"


class ExecFailed(HutchError):
    """A checked command did not succeed; `result` is its whole ExecResult."""

    kind = "exec_failed"

    def __init__(self, message: str, result: "ExecResult[Any]") -> None:
        super().__init__(message)
        self.result = result


class ExecTimeout(Timeout):
    """A command ran into its timeout; `result` holds what it had printed until then."""

    def __init__(self, message: str, result: "ExecResult[Any]") -> None:
        super().__init__(message)
        self.result = result


_BY_KIND: Dict[str, Type[HutchError]] = {
    cls.kind: cls
    for cls in (
        ProtocolError, Unsupported, UnknownMethod, Invalid, NotFound, Exists, Denied, WrongState,
        TooLarge, Busy, QuotaExceeded, Timeout, Canceled, NotDispatched, OutcomeUnknown, VmDied,
        BootFailed, StartFailed, IoFailed, InternalError,
    )
}


def from_wire(payload: Mapping[Any, Any]) -> HutchError:
    """The exception for the map of an ERROR frame. A kind that is not known here stays readable in `kind`."""

    def text(name: str) -> Optional[str]:
        value = payload.get(name)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        return value if isinstance(value, str) else None

    number = payload.get("errno")
    kind = text("kind") or "internal"
    return _BY_KIND.get(kind, HutchError)(
        text("message") or "no message",
        kind=kind,
        errno=number if isinstance(number, int) else None,
        errno_name=text("errno_name"),
        stage=text("stage"),
        path=text("path"),
        retryable=payload.get("retryable") is True,
    )
