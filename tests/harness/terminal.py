# SPDX-License-Identifier: Apache-2.0
"""A program on a pseudo-terminal of its own, as a person at a keyboard has it."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

import procs

WAIT_SECONDS = 20.0
Wanted = Union[str, bytes]


def _bytes(text: Wanted) -> bytes:
    return text.encode() if isinstance(text, str) else text


class Terminal:
    """argv as leader of a session whose terminal is ours. screen: all that it wrote. stdin: instead of the terminal."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Optional[Dict[str, str]] = None,
        rows: int = 24,
        cols: int = 80,
        stdin: Optional[int] = None,
    ) -> None:
        self.master, slave = os.openpty()
        self.size(rows, cols)
        self.screen = b""
        self.seen = 0
        self.before = termios.tcgetattr(slave)
        self.slave_path = os.ttyname(slave)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                for fd in range(3):
                    os.dup2(slave if fd or stdin is None else stdin, fd)
                os.closerange(3, 256)
                os.execvpe(argv[0], list(argv), {**os.environ, **(env or {})})
            finally:
                os._exit(99)
        self.slave = slave  # kept open: its modes can be looked at after the program's end
        self.status: Optional[int] = None

    def size(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, keys: Wanted) -> None:
        data = _bytes(keys)
        while data:
            data = data[os.write(self.master, data) :]

    def _fill(self, deadline: float) -> bool:
        """One more piece of output; False: there is none by then."""
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.master], [], [], left)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError as e:
            if e.errno != errno.EIO:
                raise
            return False
        self.screen += data
        return bool(data)

    def expect(self, text: Wanted, seconds: float = WAIT_SECONDS) -> bytes:
        """Waits until text comes after what was expected before; returns what was up to its end."""
        wanted = _bytes(text)
        deadline = time.monotonic() + seconds
        while wanted not in self.screen[self.seen :]:
            if not self._fill(deadline):
                raise AssertionError(f"{wanted!r} did not come; after {self.seen}: {self.screen[self.seen :]!r}")
        start = self.seen
        self.seen = self.screen.index(wanted, start) + len(wanted)
        return self.screen[start : self.seen]

    def modes(self) -> List:
        return termios.tcgetattr(self.slave)

    def is_raw(self) -> bool:
        return not self.modes()[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def is_restored(self) -> bool:
        return self.modes() == self.before

    def await_raw(self, raw: bool = True) -> None:
        procs.eventually(lambda: self.is_raw() == raw, WAIT_SECONDS, f"raw: {raw}")

    def kill(self, sig: int) -> None:
        os.kill(self.pid, sig)

    def stopped(self) -> bool:
        return procs.stat(self.pid).state == "T"

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """The program's exit status, or minus the signal; its output is read meanwhile."""
        deadline = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise AssertionError(f"{self.pid} has not ended; screen: {self.screen[-2000:]!r}")
            self._fill(time.monotonic() + 0.02)
        while self._fill(time.monotonic() + 0.02):
            pass
        return self.status

    def close(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.status = -signal.SIGKILL
        for fd in (self.master, self.slave):
            if fd >= 0:
                os.close(fd)
        self.master = self.slave = -1

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def hutch(*args: object) -> List[str]:
    """The hutch command with these words."""
    return [procs.binary("hutch"), *(str(a) for a in args)]


def socket_env(socket: Path) -> Dict[str, str]:
    return {"HUTCH_SOCKET": str(socket)}
