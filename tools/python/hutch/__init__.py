# SPDX-License-Identifier: Apache-2.0
"""hutch: run commands in microVMs.

    from hutch import Sandbox

    with Sandbox.create(template="base", ttl_seconds=300) as sbx:
        r = sbx.exec("echo hi", timeout_seconds=10)
        print(r.stdout, r.exit_code)
"""

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
from .sandbox import Sandbox

__version__ = "0.1.0"

__all__ = [
    "BootFailed", "BrokerUnavailable", "Busy", "Canceled", "Client", "Connection", "Denied", "ExecFailed",
    "ExecInfo", "ExecResult", "ExecTimeout", "Exists", "HutchError", "InternalError", "Invalid", "IoFailed",
    "NotDispatched", "NotFound", "OutcomeUnknown", "ProtocolError", "QuotaExceeded", "Sandbox", "StartError",
    "StartFailed", "Timeout", "TooLarge", "UnknownMethod", "Unsupported", "VmDied", "VmInfo", "WrongState",
    "default_client",
]
