# SPDX-License-Identifier: Apache-2.0
"""hutch: run commands in microVMs.

    from hutch import Sandbox

    with Sandbox.create(template="base", ttl_seconds=300) as sbx:
        r = sbx.exec("echo hi", timeout_seconds=10)
        print(r.stdout, r.exit_code)
"""

from .aio import AsyncClient, AsyncCommands, AsyncExecStream, AsyncSandbox, default_async_client
from .client import Client, default_client
from .connection import Connection
from .errors import (
    BootFailed,
    BrokerUnavailable,
    Busy,
    Canceled,
    Denied,
    ExecFailed,
    ExecTimeout,
    Exists,
    HutchError,
    InternalError,
    Invalid,
    IoFailed,
    NotDispatched,
    NotFound,
    OutcomeUnknown,
    ProtocolError,
    QuotaExceeded,
    StartFailed,
    Timeout,
    TooLarge,
    UnknownMethod,
    Unsupported,
    VmDied,
    WrongState,
)
from .result import ExecInfo, ExecResult, StartError, VmInfo
from .commands import Commands
from .sandbox import Sandbox
from .stream import ExecStream, Piece

__version__ = "0.1.0"

__all__ = [
    "AsyncClient", "AsyncCommands", "AsyncExecStream", "AsyncSandbox", "BootFailed", "BrokerUnavailable", "Busy", "Canceled", "Client", "Commands", "Connection", "Denied", "ExecFailed",
    "ExecInfo", "ExecResult", "ExecStream", "ExecTimeout", "Exists", "HutchError", "InternalError", "Invalid", "IoFailed",
    "NotDispatched", "NotFound", "OutcomeUnknown", "Piece", "ProtocolError", "QuotaExceeded", "Sandbox", "StartError",
    "StartFailed", "Timeout", "TooLarge", "UnknownMethod", "Unsupported", "VmDied", "VmInfo", "WrongState",
    "default_async_client", "default_client",
]
