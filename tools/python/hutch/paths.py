# SPDX-License-Identifier: Apache-2.0
"""Where the broker's socket is, and how to connect to it whatever its path's length."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Optional

from . import errors

SUN_PATH_MAX = 107  # bytes, unix(7)


def socket_path(path: Optional[str] = None) -> str:
    """The first of: path, $HUTCH_SOCKET, $XDG_RUNTIME_DIR/hutch/hutchd.sock if it is there, /run/hutch/hutchd.sock."""
    chosen = path or os.environ.get("HUTCH_SOCKET")
    if chosen:
        return os.fspath(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        candidate = os.path.join(runtime, "hutch", "hutchd.sock")
        if os.path.exists(candidate):
            return candidate
    return "/run/hutch/hutchd.sock"


def connect(path: str, timeout_seconds: float = 5.0) -> socket.socket:
    """A connected stream socket. Raises BrokerUnavailable (errno, path) when nobody answers there.

    A path above the 107 bytes of sun_path is reached through /proc/self/fd. A listener whose backlog is full is waited
    for up to timeout_seconds; 0 does not wait and raises BlockingIOError.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    fd = -1
    try:
        if timeout_seconds:  # what connect(2) waits for on a blocking socket, unix(7)
            whole, part = divmod(int(timeout_seconds * 1000000), 1000000)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", whole, part))
        else:
            sock.setblocking(False)
        target = path
        if len(os.fsencode(path)) > SUN_PATH_MAX:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            target = f"/proc/self/fd/{fd}"
        sock.connect(target)
    except OSError as e:
        sock.close()
        if isinstance(e, BlockingIOError) and not timeout_seconds:
            raise
        number = errno.ETIMEDOUT if isinstance(e, BlockingIOError) else e.errno
        reason = os.strerror(number) if number else str(e)
        raise errors.BrokerUnavailable(
            f"no broker answers on {path}: {reason}",
            errno=number,
            path=path,
            stage="connect",
            retryable=True,
        ) from None
    except BaseException:
        sock.close()
        raise
    finally:
        if fd >= 0:
            os.close(fd)
    return sock
