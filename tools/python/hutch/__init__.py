# SPDX-License-Identifier: Apache-2.0
"""hutch: run commands in microVMs.

    from hutch import Sandbox

    with Sandbox.create(template="base", ttl_seconds=300) as sbx:
        r = sbx.exec("echo hi", timeout_seconds=10)
        print(r.stdout, r.exit_code)
"""

from .aio import AsyncClient, AsyncCommands, AsyncExecStream, AsyncSandbox, default_async_client
from .aio_filesystem import AsyncFilesystem
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
from .files import Change, Copied, DiskSpace, FileError, FileInfo, Written
from .filesystem import Filesystem, FileStream, Scan, Watch
from .result import ExecInfo, ExecResult, SnapshotInfo, StartError, VmInfo
from .commands import Commands
from .sandbox import Sandbox
from .stream import ExecStream, Piece

__version__ = "0.1.0"

__all__ = [
    "AsyncClient", "AsyncCommands", "AsyncExecStream", "AsyncFilesystem", "AsyncSandbox", "BootFailed",
    "BrokerUnavailable", "Busy", "Canceled", "Change", "Client", "Commands", "Connection", "Copied", "Denied",
    "DiskSpace", "ExecFailed", "ExecInfo", "ExecResult", "ExecStream", "ExecTimeout", "Exists", "FileError",
    "FileInfo", "FileStream", "Filesystem", "HutchError", "InternalError", "Invalid", "IoFailed", "NotDispatched",
    "NotFound", "OutcomeUnknown", "Piece", "ProtocolError", "QuotaExceeded", "Sandbox", "Scan", "SnapshotInfo", "StartError",
    "StartFailed", "Timeout", "TooLarge", "UnknownMethod", "Unsupported", "VmDied", "VmInfo", "Watch", "Written",
    "WrongState", "default_async_client", "default_client",
]
