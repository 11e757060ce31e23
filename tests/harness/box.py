# SPDX-License-Identifier: Apache-2.0
"""A place where commands run, so that one case runs on every rig: the agent alone, through a broker, in a real VM."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import os
import shlex
import subprocess
import time
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

import procs
from hutch import Connection, ExecResult, ExecStream, Sandbox, Timeout

FULL = bool(os.environ.get("HUTCH_TEST_FULL"))
_numbers = itertools.count(1)


def parallel(work: Callable[[Any], Any], items: Iterable[Any], at_once: int) -> List[Any]:
    """work(item) for each, at_once at a time; the results in order. The first exception is raised."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(work, items))


class Box:
    """kind: "agent", "broker" or "vm". slow: how much longer than a native machine things may take here."""

    def __init__(self, kind: str, sandbox: Sandbox, *, socket: str, slow: float = 1.0, agent: Any = None) -> None:
        self.kind = kind
        self.sandbox = sandbox
        self.client = sandbox.client
        self.socket = socket
        self.slow = slow
        self.agent = agent
        self.vm = sandbox.id if kind != "agent" else None
        self.exec = sandbox.exec
        self.pty = sandbox.pty
        self.stream = sandbox.exec_stream

    @property
    def users(self) -> List[Optional[str]]:
        """The agent's own user and, where there can be one, an unprivileged one without an entry in passwd."""
        return [None, "4242:4343"] if os.geteuid() == 0 or self.kind == "vm" else [None]

    def n(self, full: int, vm: int) -> int:
        """A count: as stated in the case, on a VM (ten times slower under TCG) `vm` unless HUTCH_TEST_FULL is set."""
        return full if FULL or self.kind != "vm" else vm

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        start = time.monotonic()
        yield
        took = time.monotonic() - start
        assert took < seconds * self.slow, f"took {took:.2f} s, allowed are {seconds * self.slow} s"

    def agent_rss_at_most(self, kib: int) -> None:
        """The agent's resident memory; a sanitized one keeps 256 MiB of what was freed."""
        rss = self.sandbox.agent_info()["rss_kib"]
        sanitized = self.kind != "vm" and procs.sanitized("hutch-agent")
        assert rss <= (kib + (320 << 10) if sanitized else kib), f"{rss} KiB"

    def raw(self) -> Connection:
        return self.client.connect()

    def sh(self, script: str, **options: Any) -> ExecResult[str]:
        """Run a script that must succeed and say nothing on stderr."""
        r = self.exec(["sh", "-c", script], timeout_seconds=60, **options)
        assert r.ok and r.stderr == "", (script, r)
        return r

    @contextlib.contextmanager
    def tmp(self) -> Iterator[str]:
        """A directory in the guest that anybody may write to."""
        path = f"/tmp/hutch-test-{os.getpid()}-{next(_numbers)}"
        self.sh(f"mkdir -m 1777 {path}")
        try:
            yield path
        finally:
            self.exec(["rm", "-rf", path], timeout_seconds=60)

    def processes(self) -> List[Tuple[int, str, str]]:
        """(pid, state, command line) of every process in the guest but the ones that look."""
        script = (
            'for d in /proc/[0-9]*; do s=; read -r s < $d/stat; [ -n "$s" ] || continue; '
            "printf '%s\\t' \"$s\"; tr '\\0\\n' '  ' < $d/cmdline; echo; done 2>/dev/null"
        )
        r = self.exec(["sh", "-c", script], timeout_seconds=60)
        assert r.ok, r
        found = []
        for line in r.stdout.splitlines():
            head, _, cmdline = line.partition("\t")
            pid, state, ppid = int(head.split()[0]), *head[head.rindex(")") + 2 :].split()[:2]
            if pid != r.pid and int(ppid) != r.pid:
                found.append((pid, state, cmdline.strip()))
        return found

    def running(self, text: str) -> List[int]:
        """Pids in the guest whose command line holds text; zombies have none."""
        return [pid for pid, _, cmdline in self.processes() if text in cmdline]

    def gone(self, text: str, seconds: float) -> None:
        procs.eventually(lambda: not self.running(text), seconds * self.slow, f"end of every {text!r}")

    def cli(self, *args: str, input: Optional[bytes] = None, env: Optional[dict] = None) -> "subprocess.CompletedProcess[bytes]":
        """The hutch command on this box's broker."""
        assert self.kind != "agent"
        return subprocess.run(
            [procs.binary("hutch"), *args],
            input=b"" if input is None else input,
            capture_output=True,
            timeout=60,
            env={**os.environ, "HUTCH_SOCKET": self.socket, **(env or {})},
        )


class Reader:
    """Collects a stream's output and waits for texts in it."""

    def __init__(self, stream: ExecStream) -> None:
        self.stream = stream
        self.seen = ""
        self._from = 0

    def until(self, text: str, seconds: float) -> str:
        """Read until text has come after what the last call found; returns what came up to its end."""
        deadline = time.monotonic() + seconds
        while True:
            at = self.seen.find(text, self._from)
            if at >= 0:
                start, self._from = self._from, at + len(text)
                return self.seen[start : self._from]
            try:
                piece = self.stream.read(max(deadline - time.monotonic(), 0.01))
            except Timeout:
                raise AssertionError(f"no {text!r} within {seconds} s; all was {self.seen!r}") from None
            assert piece is not None, f"ended before {text!r}; all was {self.seen!r}"
            self.seen += piece.data

    def rest(self, seconds: float) -> str:
        """Read to the end; returns all that was ever seen."""
        deadline = time.monotonic() + seconds
        while (piece := self.stream.read(max(deadline - time.monotonic(), 0.01))) is not None:
            self.seen += piece.data
        return self.seen


def quote(words: Iterable[str]) -> str:
    return " ".join(map(shlex.quote, words))
