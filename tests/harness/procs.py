# SPDX-License-Identifier: Apache-2.0
"""Processes, descriptors and files as the kernel shows them: what the rigs wait for and count."""

from __future__ import annotations

import ctypes
import functools
import os
import select
import struct
import time
from pathlib import Path
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional

ROOT = Path(__file__).resolve().parents[2]


def build_dir() -> Path:
    """HUTCH_BUILD, else build-debug, else build: the first with binaries in it."""
    named = os.environ.get("HUTCH_BUILD")
    candidates = [Path(named)] if named else [ROOT / "build-debug", ROOT / "build"]
    for candidate in candidates:
        if (candidate / "bin").is_dir():
            return candidate.resolve()
    raise RuntimeError(f"no binaries in {', '.join(map(str, candidates))}; build first, or set HUTCH_BUILD")


def binary(name: str) -> str:
    path = build_dir() / "bin" / name
    if not path.exists():
        raise RuntimeError(f"{path} is not built")
    return str(path)


@functools.lru_cache(maxsize=None)
def sanitized(name: str) -> bool:
    """Built with ASan: its memory says little about the program's own."""
    return b"__asan_init" in Path(binary(name)).read_bytes()


class Stat(NamedTuple):
    pid: int
    name: str
    state: str
    ppid: int
    pgid: int
    sid: int
    start_time: int


def stat(pid: int) -> Optional[Stat]:
    """proc_pid_stat(5); None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    left, right = text.index("("), text.rindex(")")
    rest = text[right + 2 :].split()
    return Stat(pid, text[left + 1 : right], rest[0], int(rest[1]), int(rest[2]), int(rest[3]), int(rest[19]))


def all_processes() -> List[Stat]:
    found = (stat(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [s for s in found if s is not None]


def descendants(root: int) -> List[Stat]:
    """All processes below root, zombies included, root itself not."""
    children: Dict[int, List[Stat]] = {}
    for s in all_processes():
        children.setdefault(s.ppid, []).append(s)
    out: List[Stat] = []
    todo = [root]
    while todo:
        for s in children.get(todo.pop(), []):
            out.append(s)
            todo.append(s.pid)
    return out


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def with_text(text: str) -> List[int]:
    """Processes whose command line holds text."""
    return [s.pid for s in all_processes() if s.state != "Z" and text in command_line(s.pid)]


def alive(pid: int) -> bool:
    s = stat(pid)
    return s is not None and s.state not in "ZX"


def rss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def fd_count(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_gone(pid: int, timeout_seconds: float) -> bool:
    """Wait until a process has ended (or is a zombie that somebody else has to reap)."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], timeout_seconds)[0])
    finally:
        os.close(fd)


def eventually(condition: Callable[[], object], timeout_seconds: float, what: str = "") -> None:
    """Assert that a condition of the outside world, for which the kernel has no event, comes true in time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_seconds} s: {what or condition}"
        time.sleep(0.01)


_libc = ctypes.CDLL(None, use_errno=True)
IN_CREATE, IN_MOVED_TO, IN_ATTRIB, IN_CLOSE_WRITE, IN_DELETE = 0x100, 0x80, 0x4, 0x8, 0x200


class Watch:
    """inotify(7) on one directory: wait() returns the names that something happened to."""

    def __init__(self, directory: os.PathLike, mask: int = IN_CREATE | IN_MOVED_TO | IN_ATTRIB | IN_CLOSE_WRITE) -> None:
        self._fd = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0 or _libc.inotify_add_watch(self._fd, os.fsencode(directory), mask) < 0:
            raise OSError(ctypes.get_errno(), "inotify", str(directory))

    def fileno(self) -> int:
        return self._fd

    def wait(self, timeout_seconds: float, also: Iterable[int] = ()) -> List[str]:
        ready = select.select([self._fd, *also], [], [], timeout_seconds)[0]
        if self._fd not in ready:
            return []
        data = os.read(self._fd, 1 << 16)
        names, at = [], 0
        while at < len(data):
            _, _, _, length = struct.unpack_from("iIII", data, at)
            names.append(data[at + 16 : at + 16 + length].rstrip(b"\0").decode())
            at += 16 + length
        return names

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)


def wait_for_file(path: Path, pid: int, timeout_seconds: float) -> None:
    """Wait until path exists; fails at once when the process that should make it ends before."""
    deadline = time.monotonic() + timeout_seconds
    pidfd = os.pidfd_open(pid)
    try:
        with Watch(path.parent) as watch:
            while not path.exists():
                left = deadline - time.monotonic()
                assert left > 0, f"{path} was not made within {timeout_seconds} s"
                assert not select.select([pidfd], [], [], 0)[0], f"process {pid} ended before it made {path}"
                watch.wait(left, also=[pidfd])
    finally:
        os.close(pidfd)


def connect_when_listening(connect: Callable[[], object], timeout_seconds: float) -> object:
    """Call connect until somebody listens; bind(2) shows in the directory a moment before listen(2) is done."""
    from hutch import BrokerUnavailable

    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return connect()
        except BrokerUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
