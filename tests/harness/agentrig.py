# SPDX-License-Identifier: Apache-2.0
"""The agent as a plain process on a Unix socket, without a VM.

It runs in PID, mount and UTS namespaces of its own, below a shell that is the namespace's init: so it is a
plain process (not PID 1), nothing it or its commands leave behind survives the rig, and it cannot change the host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import procs
from fakevmm import tied
from hutch import Client, Connection, Sandbox

START_SECONDS = 10.0


def namespace_command(inner: Sequence[str], *, pid1: bool = False) -> List[str]:
    """Run inner in namespaces that end with this process. pid1: as their init itself, else below a shell."""
    command = [*tied(), "unshare"]
    if os.geteuid() != 0:
        command += ["--user", "--map-root-user"]
    command += ["--pid", "--mount", "--uts", "--fork", "--kill-child=KILL", "--mount-proc"]
    return command + (list(inner) if pid1 else ["/bin/sh", "-c", '"$@"; :', "agent", *inner])


class AgentRig:
    """A running agent. `client` and `sandbox` talk to it as if it were a VM; `connect()` gives a raw connection."""

    def __init__(
        self,
        *,
        args: Sequence[str] = (),
        binary: Optional[str] = None,
        setup: str = "",
        env: Optional[Dict[str, str]] = None,
    ) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="hutch-agent-"))
        self.socket = self.dir / "agent.sock"
        self.log = self.dir / "agent.log"
        agent = [binary or procs.binary("hutch-agent"), "--unix", str(self.socket), *args]
        if setup:  # runs in the agent's own mount namespace, before it
            agent = ["/bin/sh", "-ec", setup + '\nexec "$@"', "setup", *agent]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                namespace_command(agent),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], **(env or {})},
            )
        try:
            procs.wait_for_file(self.socket, self.process.pid, START_SECONDS)
            self.client = Client(str(self.socket), call_timeout_seconds=20)
            procs.connect_when_listening(self.client.ping, START_SECONDS)
        except BaseException:
            self.close()
            raise
        self.sandbox = Sandbox("agent", client=self.client)
        self.pid = self._find_agent()

    def _find_agent(self) -> int:
        # the agent never changes its program, so the lowest process of that name is it
        for s in sorted(procs.descendants(self.process.pid), key=lambda s: s.pid):
            if s.name.startswith("hutch-agent"):
                return s.pid
        raise AssertionError(f"no agent below {self.process.pid}; its log: {self.log_text()}")

    def connect(self) -> Connection:
        return self.client.connect()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def children(self) -> List[procs.Stat]:
        """All processes that the agent is responsible for, as the host sees them."""
        return procs.descendants(self.pid)

    def rss_kib(self) -> int:
        return procs.rss_kib(self.pid)

    def fd_count(self) -> int:
        return procs.fd_count(self.pid)

    def info(self) -> Dict[str, Any]:
        return self.client.call("agent.info")

    def alive(self) -> bool:
        return procs.alive(self.pid)

    def close(self) -> None:
        if hasattr(self, "client"):
            self.client.close()
        self.process.kill()  # the namespaces' init goes with it, and all in them
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self) -> "AgentRig":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
