# SPDX-License-Identifier: Apache-2.0
"""A client of one broker: a pool of connections for any number of threads."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional

from . import errors, execs, paths
from .connection import Connection
from .feed import Stdin, feeder
from .result import ExecResult, SnapshotInfo, VmInfo, take

CALL_TIMEOUT_SECONDS = 60.0
MAX_IDLE = 16

_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


class Client:
    """Calls to the broker on one Unix socket. Any thread may use it; each call has a connection of its own.

    socket: path of the broker's socket, else HUTCH_SOCKET, $XDG_RUNTIME_DIR/hutch/hutchd.sock, /run/hutch/hutchd.sock.
    call_timeout_seconds: for an answer to a call that is not a command of the user's.

    Connections are kept for the next call only when the last one ended cleanly. A call that ends otherwise (an
    exception, ctrl-C, a cancelled task) closes its connection, so its answer can never reach another call. After a
    fork of the Python process the child starts with no connections.
    """

    def __init__(self, socket: Optional[str] = None, *, call_timeout_seconds: float = CALL_TIMEOUT_SECONDS) -> None:
        self.socket = paths.socket_path(socket)
        self.call_timeout_seconds = call_timeout_seconds
        self._forget()
        _clients.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._idle: List[Connection] = []
        self._pid = os.getpid()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.socket!r})"

    def close(self) -> None:
        """Close the idle connections. The client can still be used."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def connect(self) -> Connection:
        """A new connection of the caller's own, outside the pool."""
        return Connection(self.socket)

    def _take(self) -> Optional[Connection]:
        if self._pid != os.getpid():
            self._forget()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.reusable:
                return connection
            connection.close()

    def give(self, connection: Connection) -> None:
        """Keep a connection for the next call if its last one ended cleanly, else close it."""
        if not connection.closed and connection.session.idle:
            with self._lock:
                if len(self._idle) < MAX_IDLE:
                    self._idle.append(connection)
                    return
        connection.close()

    def call(
        self,
        method: str,
        params: Optional[Mapping[str, Any]] = None,
        *,
        vm: Optional[str] = None,
        id: Optional[str] = None,
        key: Optional[str] = None,
        timeout_seconds: Optional[float] = None,
        fresh: bool = False,
    ) -> Dict[str, Any]:
        """One call without input or output: its RESULT map; raises the exception of its ERROR (hutch.errors).

        timeout_seconds: for the answer, default call_timeout_seconds, inf for none. fresh: on a new connection.
        """
        limit = self.call_timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = None if limit == float("inf") else limit

        def run(connection: Connection) -> Dict[str, Any]:
            request = connection.session.call(method, params, vm=vm, id=id, key=key)
            return connection.exchange(request, timeout_seconds=deadline)

        return self._on_connection(run, fresh=fresh, repeatable=not fresh)

    def _on_connection(
        self, run: Callable[[Connection], Dict[str, Any]], *, fresh: bool = False, repeatable: bool = True
    ) -> Dict[str, Any]:
        connection = None if fresh else self._take()
        pooled = connection is not None
        if connection is None:
            connection = self.connect()
        try:
            try:
                return run(connection)
            except errors.OutcomeUnknown:
                # A kept connection whose broker is gone: only calls that may be done twice are repeated.
                if not (pooled and repeatable and connection.closed and not connection.session.heard):
                    raise
            connection = self.connect()
            return run(connection)
        finally:
            self.give(connection)

    def ping(self, vm: Optional[str] = None) -> None:
        """Ask the broker, or the agent of a VM, for a sign of life."""
        self.call("ping", vm=vm)

    def info(self) -> Dict[str, Any]:
        """What the broker says about itself: the map of `broker.info`."""
        return self.call("broker.info")

    def vms(self) -> List[VmInfo]:
        """The caller's VMs that have not ended."""
        return [VmInfo.from_wire(v) for v in take(self.call("vm.list"), "vms", list, [])]

    def templates(self) -> List[Dict[str, Any]]:
        """The templates that VMs can be made from: the maps of `template.list`."""
        return list(take(self.call("template.list"), "templates", list, []))

    def snapshots(self) -> List[SnapshotInfo]:
        """The caller's snapshots, without must_match."""
        return [SnapshotInfo.from_wire(s) for s in take(self.call("snapshot.list"), "snapshots", list, [])]

    def snapshot(self, name: str) -> SnapshotInfo:
        """One snapshot. Raises NotFound."""
        return SnapshotInfo.from_wire(self.call("snapshot.info", {"name": name}))

    def delete_snapshot(self, name: str) -> None:
        """Raises WrongState while a VM goes on from it."""
        self.call("snapshot.delete", {"name": name})

    def verify_snapshot(self, name: str) -> None:
        """Check that a snapshot fits this host, and its files' digests. Raises Unsupported or WrongState, which name what is wrong."""
        self.call("snapshot.verify", {"name": name}, timeout_seconds=float("inf"))

    def snapshot_template(self, name: str, **size: int) -> None:
        """Boot a template and keep the snapshot that its VMs are restored from. size: memory_mib, vcpus of the VMs that it fits."""
        self.call("template.snapshot", {"name": name, **size}, timeout_seconds=120)

    def set_pool(self, template: str, size: int) -> Dict[str, Any]:
        """Keep size VMs (0-64) of a template ready to be taken by `Sandbox.create`; the map of `pool.list`."""
        return self.call("pool.set", {"template": template, "size": size})

    def pools(self) -> List[Dict[str, Any]]:
        """The maps of `pool.list`: template, size, ready, starting, taken, missed, failed."""
        return list(take(self.call("pool.list"), "pools", list, []))

    def kill_all(self) -> int:
        """End every VM of the caller; returns how many there were."""
        return take(self.call("vm.kill", {"all": True}, fresh=True), "killed", int, 0)

    def exec(
        self,
        command: execs.Command,
        *,
        vm: Optional[str] = None,
        id: Optional[str] = None,
        key: Optional[str] = None,
        stdin: Stdin = None,
        text: bool = True,
        capture: bool = True,
        check: Optional[bool] = None,
        on_stdout: Optional[execs.Callback] = None,
        on_stderr: Optional[execs.Callback] = None,
        timeout_seconds: Optional[float] = None,
        grace_seconds: Optional[float] = None,
        **options: Any,
    ) -> ExecResult[Any]:
        """Run a command to its end. See Sandbox.exec; vm is the VM's id or name."""
        params = execs.start_params(
            command, timeout_seconds=timeout_seconds, grace_seconds=grace_seconds, **options
        )
        if key is None:
            key = execs.new_key()
        source = feeder(stdin)
        collectors: List[execs.Collector] = []

        def run(connection: Connection) -> Dict[str, Any]:
            collector = execs.Collector(
                command, text=text, capture=capture, on_stdout=on_stdout, on_stderr=on_stderr
            )
            collectors.append(collector)
            request = connection.session.call(
                "exec.start", params, vm=vm, id=id, key=key, end=source is None
            )
            return connection.exchange(
                request,
                feeder=source,
                on_received=collector.add,
                timeout_seconds=execs.answer_deadline(timeout_seconds, grace_seconds),
            )

        try:
            fields = self._on_connection(run, repeatable=source is None)
        finally:
            if source is not None:
                source.close()
        return execs.judge(collectors[-1].result(fields), check)


_default: Dict[str, Client] = {}
_default_lock = threading.Lock()


def _forget_in_child() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    _default.clear()
    for client in list(_clients):
        client._forget()


os.register_at_fork(after_in_child=_forget_in_child)


def default_client(socket: Optional[str] = None) -> Client:
    """The process's own client for a socket path (same rules as Client)."""
    path = paths.socket_path(socket)
    with _default_lock:
        client = _default.get(path)
        if client is None:
            client = _default[path] = Client(path)
        return client
