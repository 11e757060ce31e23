# SPDX-License-Identifier: Apache-2.0
"""The asyncio client: AsyncClient, AsyncSandbox, AsyncExecStream. Same wire core, parameters, results and errors as the blocking one.

A cancelled task closes its connection, which cancels its command, and its answer can reach no other call. A client belongs
to the event loop (and the process) that first uses it.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal as _signal
import socket as _socket
import weakref
from typing import (
    Any,
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Dict,
    List,
    Literal,
    Mapping,
    Optional,
    Union,
    overload,
)

from . import errors, execs, paths, wire
from .aio_filesystem import AsyncFilesystem
from .client import CALL_TIMEOUT_SECONDS, MAX_IDLE
from .feed import PIECE, Feeder, Stdin, as_bytes, feeder
from .result import ExecInfo, ExecResult, SnapshotInfo, VmInfo, take
from .sandbox import DEFAULT_CREATE_TIMEOUT_SECONDS, DEFAULT_TTL_SECONDS, create_params, fork_params, idle_params, snapshot_params
from .stream import Piece, StreamState

AsyncStdin = Union[Stdin, AsyncIterable[Union[bytes, str]]]


class _Reader(asyncio.StreamReader):
    """A StreamReader that knows how many bytes it holds."""

    held = 0

    def feed_data(self, data: bytes) -> None:
        self.held += len(data)
        super().feed_data(data)

    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        self.held -= len(data)
        return data


class AsyncConnection:
    """One connection, for one task at a time."""

    def __init__(self, path: str, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        self.path = path
        self.session = wire.Session()
        self.reader = reader
        self.writer = writer
        self.closed = False

    @classmethod
    async def open(cls, path: str) -> "AsyncConnection":
        loop = asyncio.get_running_loop()
        try:
            sock = paths.connect(path, 0)
        except BlockingIOError:  # its backlog is full
            sock = await loop.run_in_executor(None, paths.connect, path)
        try:
            sock.setblocking(False)
            reader = _Reader(limit=PIECE, loop=loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
        except BaseException:
            sock.close()
            raise
        return cls(path, reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    @property
    def reusable(self) -> bool:
        """Another call may be sent: the last one is over, and the peer neither closed nor said anything since."""
        if self.closed or not self.session.idle or self.reader.held or self.reader.at_eof() or self.writer.is_closing():
            return False
        poll = select.poll()
        poll.register(self.writer.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """End the connection at once; an exec attached to it is cancelled by the broker."""
        if not self.closed:
            self.closed = True
            try:  # ends it even where a forked child has a copy of the descriptor
                self.writer.get_extra_info("socket").shutdown(_socket.SHUT_RDWR)
            except OSError:
                pass
            self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        """Send, waiting while the peer does not take it. A lost peer shows when receiving."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass

    async def receive(self) -> List[wire.Received]:
        """The next bytes' meaning. Raises OutcomeUnknown when the peer closed, ProtocolError."""
        if self.closed:
            raise errors.OutcomeUnknown(f"the connection to {self.path} is closed")
        try:
            data = await self.reader.read(256 << 10)
        except ConnectionResetError:
            data = b""
        if not data:
            when = "before it answered" if self.session.peer else "before it said hello"
            raise errors.OutcomeUnknown(f"{self.path} closed the connection {when}", stage="receive")
        return self.session.receive(data)

    async def exchange(
        self,
        request: bytes,
        *,
        stdin: AsyncStdin = None,
        on_received: Optional[Callable[[wire.Received], Optional[Awaitable[None]]]] = None,
    ) -> Dict[str, Any]:
        """Send a request and its input until the answer is there; returns the RESULT map, raises the ERROR's exception."""
        feeding: Optional["asyncio.Task[None]"] = None
        answer: Any = None
        try:
            if not self.session.own_end:
                request += await self._first_input(stdin)
            sending = asyncio.ensure_future(self.send(request))
            if not self.session.own_end:
                feeding = asyncio.ensure_future(self._feed(sending, stdin))
            while answer is None:
                for received in await self._receive_or_failure(feeding):
                    if isinstance(received, (wire.Result, wire.Failure)):
                        answer = received
                        break
                    if isinstance(received, wire.Event) and received.name == "stdin_closed" and feeding is not None:
                        feeding.cancel()
                    if on_received is not None:
                        waiting = on_received(received)
                        if waiting is not None:
                            await waiting
            if feeding is not None and not feeding.done():
                feeding.cancel()
                await asyncio.wait([feeding])
            await sending
            if not self.session.own_end:
                await self.send(self.session.stdin(b"", end=True))
        except BaseException:
            self.close()
            if feeding is not None:
                feeding.cancel()
            raise
        if isinstance(answer, wire.Failure):
            raise answer.error
        fields: Dict[str, Any] = answer.fields
        return fields

    async def _first_input(self, stdin: AsyncStdin) -> bytes:
        """Small input leaves with the call, its end included."""
        if isinstance(stdin, (bytes, bytearray, memoryview, str)):
            data = as_bytes(stdin)
            if len(data) <= PIECE:
                return self.session.stdin(data, end=True)
        return b""

    async def _receive_or_failure(self, feeding: Optional["asyncio.Task[None]"]) -> List[wire.Received]:
        if feeding is None or feeding.done():
            if feeding is not None and not feeding.cancelled() and feeding.exception() is not None:
                raise feeding.exception()  # type: ignore[misc]
            return await self.receive()
        receiving = asyncio.ensure_future(self.receive())
        try:
            await asyncio.wait([receiving, feeding], return_when=asyncio.FIRST_COMPLETED)
            if feeding.done() and not feeding.cancelled() and feeding.exception() is not None:
                raise feeding.exception()  # type: ignore[misc]
            return await receiving
        finally:
            if not receiving.done():
                receiving.cancel()

    async def _feed(self, sending: "asyncio.Future[None]", stdin: AsyncStdin) -> None:
        await asyncio.shield(sending)
        pieces = _pieces(stdin)
        try:
            async for piece in pieces:
                await self.send(self.session.stdin(piece))
        finally:
            await pieces.aclose()
        if not self.session.own_end:
            await self.send(self.session.stdin(b"", end=True))


async def _pieces(stdin: AsyncStdin) -> AsyncGenerator[bytes, None]:
    if hasattr(stdin, "__aiter__"):
        async for piece in stdin:  # type: ignore[union-attr]
            yield as_bytes(piece)
        return
    source = feeder(stdin)  # type: ignore[arg-type]
    if source is None:
        return
    try:
        while (piece := await _next_piece(source)) is not None:
            if piece:
                yield piece
    finally:
        source.close()


async def _next_piece(source: Feeder) -> Optional[bytes]:
    piece = source.next()
    fd = source.fileno()
    if piece != b"" or fd is None:
        return piece
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)
    return source.next()


class AsyncClient:
    """Calls to the broker on one Unix socket, from any number of tasks of one event loop; see hutch.Client."""

    def __init__(self, socket: Optional[str] = None, *, call_timeout_seconds: float = CALL_TIMEOUT_SECONDS) -> None:
        self.socket = paths.socket_path(socket)
        self.call_timeout_seconds = call_timeout_seconds
        self._idle: List[AsyncConnection] = []
        self._owner: Any = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next turn

    def close(self) -> None:
        """Close the idle connections. The client can still be used."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def connect(self) -> AsyncConnection:
        """A new connection of the caller's own, outside the pool."""
        return await AsyncConnection.open(self.socket)

    def _take(self) -> Optional[AsyncConnection]:
        owner = (os.getpid(), asyncio.get_running_loop())
        if self._owner != owner:
            # connections of another loop or of a parent process are not ours to use or to end
            self._idle, self._owner = [], owner
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        return None

    def give(self, connection: AsyncConnection) -> None:
        """Keep a connection for the next call if its last one ended cleanly, else close it."""
        if not connection.closed and connection.session.idle and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    async def call(
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
        """One call without input or output: its RESULT map; see hutch.Client.call."""
        limit = self.call_timeout_seconds if timeout_seconds is None else timeout_seconds

        async def run(connection: AsyncConnection) -> Dict[str, Any]:
            return await connection.exchange(connection.session.call(method, params, vm=vm, id=id, key=key))

        return await self._within(limit, self._on_connection(run, fresh=fresh, repeatable=not fresh))

    async def _within(self, limit: Optional[float], work: Awaitable[Dict[str, Any]]) -> Dict[str, Any]:
        try:
            return await asyncio.wait_for(work, None if limit == float("inf") else limit)
        except asyncio.TimeoutError:
            raise errors.Timeout(f"{self.socket} did not answer in time") from None

    async def _on_connection(
        self,
        run: Callable[[AsyncConnection], Awaitable[Dict[str, Any]]],
        *,
        fresh: bool = False,
        repeatable: bool = True,
    ) -> Dict[str, Any]:
        connection = None if fresh else self._take()
        pooled = connection is not None
        if connection is None:
            connection = await self.connect()
        try:
            try:
                return await run(connection)
            except errors.OutcomeUnknown:
                if not (pooled and repeatable and connection.closed and not connection.session.heard):
                    raise
            connection = await self.connect()
            return await run(connection)
        finally:
            self.give(connection)

    async def exec(
        self,
        command: execs.Command,
        *,
        vm: Optional[str] = None,
        id: Optional[str] = None,
        key: Optional[str] = None,
        stdin: AsyncStdin = None,
        text: bool = True,
        capture: bool = True,
        check: Optional[bool] = None,
        on_stdout: Optional[execs.Callback] = None,
        on_stderr: Optional[execs.Callback] = None,
        timeout_seconds: Optional[float] = None,
        grace_seconds: Optional[float] = None,
        **options: Any,
    ) -> ExecResult[Any]:
        """Run a command to its end; see Sandbox.exec. stdin may be an async iterable as well."""
        params = execs.start_params(command, timeout_seconds=timeout_seconds, grace_seconds=grace_seconds, **options)
        key = key or execs.new_key()
        collectors: List[execs.Collector] = []

        async def run(connection: AsyncConnection) -> Dict[str, Any]:
            collector = execs.Collector(command, text=text, capture=capture, on_stdout=on_stdout, on_stderr=on_stderr)
            collectors.append(collector)
            request = connection.session.call("exec.start", params, vm=vm, id=id, key=key, end=stdin is None)
            return await connection.exchange(request, stdin=stdin, on_received=collector.add)

        limit = execs.answer_deadline(timeout_seconds, grace_seconds)
        fields = await self._within(limit, self._on_connection(run, repeatable=stdin is None))
        return execs.judge(collectors[-1].result(fields), check)

    async def ping(self, vm: Optional[str] = None) -> None:
        await self.call("ping", vm=vm)

    async def info(self) -> Dict[str, Any]:
        return await self.call("broker.info")

    async def vms(self) -> List[VmInfo]:
        return [VmInfo.from_wire(v) for v in take(await self.call("vm.list"), "vms", list, [])]

    async def templates(self) -> List[Dict[str, Any]]:
        return list(take(await self.call("template.list"), "templates", list, []))

    async def snapshots(self) -> List[SnapshotInfo]:
        return [SnapshotInfo.from_wire(s) for s in take(await self.call("snapshot.list"), "snapshots", list, [])]

    async def snapshot(self, name: str) -> SnapshotInfo:
        return SnapshotInfo.from_wire(await self.call("snapshot.info", {"name": name}))

    async def delete_snapshot(self, name: str) -> None:
        await self.call("snapshot.delete", {"name": name})

    async def verify_snapshot(self, name: str) -> None:
        await self.call("snapshot.verify", {"name": name}, timeout_seconds=float("inf"))

    async def snapshot_template(self, name: str, **size: int) -> None:
        await self.call("template.snapshot", {"name": name, **size}, timeout_seconds=120)

    async def set_pool(self, template: str, size: int) -> Dict[str, Any]:
        return await self.call("pool.set", {"template": template, "size": size})

    async def pools(self) -> List[Dict[str, Any]]:
        return list(take(await self.call("pool.list"), "pools", list, []))

    async def kill_all(self) -> int:
        return take(await self.call("vm.kill", {"all": True}, fresh=True), "killed", int, 0)


_default: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient]" = weakref.WeakKeyDictionary()


def default_async_client() -> AsyncClient:
    """The running event loop's own client for the default socket path."""
    loop = asyncio.get_running_loop()
    client = _default.get(loop)
    if client is None or client.socket != paths.socket_path():
        client = _default[loop] = AsyncClient()
    return client


class AsyncExecStream:
    """A command that runs: `async for stream, data in s`, `await s.write(...)`, `await s.wait()`. See hutch.ExecStream.

    One task may write while another reads.
    """

    def __init__(self, client: AsyncClient, connection: AsyncConnection, state: StreamState, vm: Optional[str]) -> None:
        self._client = client
        self._connection = connection
        self._state = state
        self._vm = vm
        self._writing = asyncio.Lock()
        self._given_back = False

    @classmethod
    async def open(
        cls,
        client: AsyncClient,
        method: str,
        params: Dict[str, Any],
        *,
        vm: Optional[str],
        id: str,
        key: Optional[str] = None,
        stdin: bool = False,
        command: Any = None,
        text: bool = True,
        capture: bool = False,
    ) -> "AsyncExecStream":
        connection = await client.connect()
        try:
            stream = cls(client, connection, StreamState(id, command, text, capture), vm)
            await connection.send(connection.session.call(method, params, vm=vm, id=id, key=key, end=not stdin))
            await asyncio.wait_for(stream._until_started(), client.call_timeout_seconds)
        except asyncio.TimeoutError:
            connection.close()
            raise errors.Timeout(f"{client.socket} did not answer in time") from None
        except BaseException:
            connection.close()
            raise
        return stream

    async def _until_started(self) -> None:
        while not self._state.started and not self._state.over:
            await self._take_in()
        if self._state.error is not None:
            raise self._state.error

    async def __aenter__(self) -> "AsyncExecStream":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        return self._state.id

    @property
    def pid(self) -> Optional[int]:
        return self._state.pid

    @property
    def stdout_offset(self) -> int:
        return self._state.offsets["stdout"]

    @property
    def stderr_offset(self) -> int:
        return self._state.offsets["stderr"]

    async def _take_in(self) -> None:
        try:
            for received in await self._connection.receive():
                self._state.add(received)
        except errors.HutchError as e:
            self._state.error = e
            self._connection.close()
        if self._state.over and not self._connection.closed:
            await self._finish()

    async def _finish(self) -> None:
        async with self._writing:
            session = self._connection.session
            if not session.own_end:
                await self._connection.send(session.stdin(b"", end=True))
            if not self._given_back:
                self._given_back = True
                self._client.give(self._connection)

    async def read(self, timeout_seconds: Optional[float] = None) -> Optional[Piece]:
        """The next piece of output; None when the command has ended and all was read. Raises Timeout, VmDied, ... ."""
        state = self._state
        while True:
            piece = state.pop()
            if piece is not None:
                return piece
            if state.error is not None:
                raise state.error
            if state.over:
                return None
            try:
                await asyncio.wait_for(self._take_in(), timeout_seconds)
            except asyncio.TimeoutError:
                raise errors.Timeout(f"exec {self.id} wrote nothing for {timeout_seconds} s") from None

    async def __aiter__(self) -> AsyncIterator[Piece]:
        while (piece := await self.read()) is not None:
            yield piece

    async def wait(self, timeout_seconds: Optional[float] = None, *, check: Optional[bool] = None) -> ExecResult[Any]:
        """Drop the output that was not read, wait for the end, return the result (check: as in Sandbox.exec)."""

        async def drain() -> None:
            while await self.read() is not None:
                pass

        try:
            await asyncio.wait_for(drain(), timeout_seconds)
        except asyncio.TimeoutError:
            raise errors.Timeout(f"exec {self.id} did not end within {timeout_seconds} s") from None
        return execs.judge(self._state.result(), check)

    async def write(self, data: Union[bytes, str]) -> None:
        """Send input; waits while the command does not read. Raises BrokenPipeError when it takes no more.

        A filter needs a task that reads meanwhile: this does not read output.
        """
        async with self._writing:
            view = memoryview(as_bytes(data))
            while view:
                if self._state.over or self._state.stdin_closed or self._connection.session.own_end:
                    raise BrokenPipeError(f"exec {self.id} takes no more input")
                await self._connection.send(self._connection.session.stdin(view[: wire.MAX_DATA]))
                view = view[wire.MAX_DATA :]

    async def close_stdin(self) -> None:
        """End the input. On a PTY the terminal's end-of-file character is sent."""
        async with self._writing:
            if not self._connection.session.own_end:
                await self._connection.send(self._connection.session.stdin(b"", end=True))

    async def signal(self, signal: Union[int, str, _signal.Signals], *, tree: bool = False) -> None:
        """Send a signal to the command's process group; tree: to every process of it."""
        value = signal if isinstance(signal, str) else int(signal)
        await self._client.call("exec.signal", {"signal": value, "tree": tree}, vm=self._vm, id=self.id)

    async def kill(self, grace_seconds: Optional[float] = None) -> None:
        """End every process of the command; returns when all are gone."""
        params = {"grace_ms": execs.milliseconds(grace_seconds, "grace_seconds") or 0}
        limit = self._client.call_timeout_seconds + (grace_seconds or 0)
        await self._client.call("exec.kill", params, vm=self._vm, id=self.id, timeout_seconds=limit)

    async def resize(self, rows: int, cols: int) -> None:
        """Give a PTY a new size."""
        await self._client.call("exec.resize", {"rows": rows, "cols": cols}, vm=self._vm, id=self.id)

    def close(self) -> None:
        """Let go of the stream; a command that has not ended is cancelled, unless this was a viewer of it."""
        if not self._given_back:
            self._connection.close()


class AsyncSandbox:
    """A VM, for asyncio; see hutch.Sandbox for every parameter.

        async with await AsyncSandbox.create(ttl_seconds=300) as sbx:
            r = await sbx.exec("echo hi", timeout_seconds=10)
    """

    def __init__(self, id: str, *, client: Optional[AsyncClient] = None, name: Optional[str] = None) -> None:
        self.id = id
        self.name = name
        self.client = client or default_async_client()
        self._owner_pid = 0

    @classmethod
    async def create(
        cls,
        template: Optional[str] = None,
        *,
        snapshot: Optional[str] = None,
        cold: bool = False,
        secrets: bool = False,
        share_group: Union[str, int, None] = None,
        name: Optional[str] = None,
        ttl_seconds: Optional[float] = DEFAULT_TTL_SECONDS,
        memory_mib: Optional[int] = None,
        vcpus: Optional[int] = None,
        disk_mib: Optional[int] = None,
        metadata: Optional[Mapping[str, str]] = None,
        timeout_seconds: Optional[float] = DEFAULT_CREATE_TIMEOUT_SECONDS,
        pause_after_seconds: Optional[float] = None,
        park_after_seconds: Optional[float] = None,
        key: Optional[str] = None,
        client: Optional[AsyncClient] = None,
    ) -> "AsyncSandbox":
        """Make a VM and wait until it answers; a cancelled task takes it back (unless it gave a key)."""
        client = client or default_async_client()
        params = create_params(template, name, ttl_seconds, memory_mib, vcpus, metadata, timeout_seconds, snapshot, cold, secrets,
                               pause_after_seconds, park_after_seconds, share_group, disk_mib)
        limit = (timeout_seconds or DEFAULT_CREATE_TIMEOUT_SECONDS) + execs.TIMEOUT_MARGIN_SECONDS
        info = VmInfo.from_wire(await client.call("vm.create", params, key=key, timeout_seconds=limit, fresh=True))
        sandbox = cls(info.id, client=client, name=info.name)
        sandbox._owner_pid = os.getpid()
        return sandbox

    @classmethod
    async def get(cls, id: str, *, client: Optional[AsyncClient] = None) -> "AsyncSandbox":
        """The sandbox with an id or a name. Raises NotFound, also for a VM that has ended."""
        client = client or default_async_client()
        info = VmInfo.from_wire(await client.call("vm.info", vm=id))
        if info.state == "dead":
            raise errors.NotFound(f"VM {id} has ended: {info.reason or 'no reason is known'}")
        return cls(info.id, client=client, name=info.name)

    connect = get

    @staticmethod
    async def list(*, client: Optional[AsyncClient] = None) -> List[VmInfo]:
        """The caller's VMs that have not ended."""
        return await (client or default_async_client()).vms()

    async def __aenter__(self) -> "AsyncSandbox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._owner_pid != os.getpid():
            return
        try:
            await self.kill()
        except errors.HutchError:
            if exc[0] is None:
                raise

    async def info(self) -> VmInfo:
        return VmInfo.from_wire(await self.client.call("vm.info", vm=self.id))

    async def kill(self) -> None:
        """End the VM and remove all that it had."""
        await self.client.call("vm.kill", vm=self.id)

    async def set_ttl(self, ttl_seconds: float) -> float:
        params = {"ttl_ms": execs.milliseconds(ttl_seconds, "ttl_seconds")}
        return take(await self.client.call("vm.set_ttl", params, vm=self.id), "expires_in_ms", int, 0) / 1000

    async def wait(self, timeout_seconds: Optional[float] = None) -> VmInfo:
        """Wait until the VM has ended; its last info says why."""
        params = {"timeout_ms": execs.milliseconds(timeout_seconds, "timeout_seconds") or 0}
        limit = float("inf") if timeout_seconds is None else timeout_seconds + execs.TIMEOUT_MARGIN_SECONDS
        return VmInfo.from_wire(await self.client.call("vm.wait", params, vm=self.id, timeout_seconds=limit))

    async def fork(
        self,
        count: int = 1,
        *,
        name: Optional[str] = None,
        ttl_seconds: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
        timeout_seconds: Optional[float] = DEFAULT_CREATE_TIMEOUT_SECONDS,
        allow_secrets: bool = False,
    ) -> "List[AsyncSandbox]":
        """Branch the VM; see Sandbox.fork. A cancelled task takes the children back."""
        params = fork_params(count, name, ttl_seconds, metadata, timeout_seconds, allow_secrets)
        limit = (timeout_seconds or DEFAULT_CREATE_TIMEOUT_SECONDS) + execs.TIMEOUT_MARGIN_SECONDS
        fields = await self.client.call("vm.fork", params, vm=self.id, timeout_seconds=limit, fresh=True)
        return [self._child(VmInfo.from_wire(vm)) for vm in take(fields, "vms", list, [])]

    def _child(self, info: VmInfo) -> "AsyncSandbox":
        child = type(self)(info.id, client=self.client, name=info.name)
        child._owner_pid = os.getpid()
        return child

    async def snapshot(self, name: str, *, allow_secrets: bool = False) -> SnapshotInfo:
        """Keep the VM's state under a name; see Sandbox.snapshot."""
        params = snapshot_params(name, allow_secrets)
        fields = await self.client.call("snapshot.create", params, vm=self.id, timeout_seconds=float("inf"), fresh=True)
        return SnapshotInfo.from_wire(fields)

    async def pause(self) -> None:
        """Let the VM stand still; see Sandbox.pause."""
        await self.client.call("vm.pause", vm=self.id)

    async def resume(self) -> None:
        await self.client.call("vm.resume", vm=self.id)

    async def park(self) -> None:
        """Write the VM to the disk and free its memory; see Sandbox.park."""
        await self.client.call("vm.park", vm=self.id, timeout_seconds=float("inf"))

    async def set_idle(self, *, pause_after_seconds: Optional[float] = None, park_after_seconds: Optional[float] = None) -> None:
        """Let the VM be paused, and parked, when nobody uses it; see Sandbox.set_idle."""
        await self.client.call("vm.set_idle", idle_params(pause_after_seconds, park_after_seconds), vm=self.id)

    async def ping(self) -> None:
        await self.client.ping(vm=self.id)

    async def agent_info(self) -> Dict[str, Any]:
        return await self.client.call("agent.info", vm=self.id)

    async def execs(self) -> List[ExecInfo]:
        found = take(await self.client.call("exec.list", vm=self.id), "execs", list, [])
        return [ExecInfo.from_wire(e) for e in found]

    @overload
    async def exec(self, command: execs.Command, *, text: Literal[True] = ..., **options: Any) -> ExecResult[str]: ...

    @overload
    async def exec(self, command: execs.Command, *, text: Literal[False], **options: Any) -> ExecResult[bytes]: ...

    async def exec(self, command: execs.Command, **options: Any) -> ExecResult[Any]:
        """Run a command to its end; the parameters of Sandbox.exec, and stdin may be an async iterable."""
        return await self.client.exec(command, vm=self.id, **options)

    async def exec_stream(
        self,
        command: execs.Command,
        *,
        stdin: bool = False,
        text: bool = True,
        capture: bool = False,
        id: Optional[str] = None,
        key: Optional[str] = None,
        **options: Any,
    ) -> AsyncExecStream:
        """Start a command; see Sandbox.exec_stream."""
        params = execs.start_params(command, notify=True, **options)
        return await AsyncExecStream.open(
            self.client, "exec.start", params, vm=self.id, id=id or execs.new_id(), key=key or execs.new_key(),
            stdin=stdin, command=command, text=text, capture=capture,
        )

    async def pty(
        self,
        command: execs.Command = ("/bin/sh", "-i"),
        *,
        rows: int = 24,
        cols: int = 80,
        term: Optional[str] = None,
        text: bool = True,
        **options: Any,
    ) -> AsyncExecStream:
        """Start a command on a PTY; see Sandbox.pty."""
        size: Dict[str, Any] = {"rows": rows, "cols": cols, **({"term": term} if term is not None else {})}
        return await self.exec_stream(command, stdin=True, text=text, pty=size, **options)

    async def attach(
        self, id: str, *, owner: bool = False, text: bool = True, capture: bool = False, **params: Any
    ) -> AsyncExecStream:
        """Follow an exec; see Sandbox.attach."""
        wanted = {k: v for k, v in {**params, "owner": owner or None}.items() if v is not None}
        return await AsyncExecStream.open(
            self.client, "exec.attach", wanted, vm=self.id, id=id, stdin=owner, command=id, text=text, capture=capture
        )

    @property
    def commands(self) -> "AsyncCommands":
        return AsyncCommands(self)

    @property
    def filesystem(self) -> AsyncFilesystem:
        """Files of the VM; see Sandbox.filesystem."""
        return AsyncFilesystem(self)


class AsyncCommands:
    """Commands of a sandbox by id; see hutch.Commands."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox
        self._client = sandbox.client

    async def _call(self, method: str, id: str, params: Mapping[str, Any], limit: Optional[float] = None) -> Dict[str, Any]:
        return await self._client.call(method, params, vm=self._sandbox.id, id=id, timeout_seconds=limit)

    async def run(self, command: execs.Command, *, background: bool = False, **options: Any) -> Any:
        """Run a command to its end (ExecResult); background: start it detached and return its id."""
        if not background:
            return await self._sandbox.exec(command, **options)
        return await self.start(command, **options)

    async def start(
        self, command: execs.Command, *, stdin: bool = False, id: Optional[str] = None, key: Optional[str] = None, **options: Any
    ) -> str:
        """Start a detached command; returns its id. Raises ExecFailed when it could not be started."""
        params = execs.start_params(command, detach=True, **options)
        connection = await self._client.connect()
        try:
            request = connection.session.call(
                "exec.start", params, vm=self._sandbox.id, id=id or execs.new_id(), key=key or execs.new_key(), end=not stdin
            )
            # no input is sent here: our END after the result leaves the command's input open
            fields = await self._client._within(
                self._client.call_timeout_seconds, connection.exchange(request, stdin=_Nothing())
            )
        finally:
            self._client.give(connection)
        if not take(fields, "started", bool, True):
            result = ExecResult.from_wire(fields, "", "", command)
            raise errors.ExecFailed(f"{command!r} {result.describe()}", result)
        return take(fields, "id", str, "")

    async def list(self) -> "List[ExecInfo]":
        return await self._sandbox.execs()

    async def connect(self, id: str, **options: Any) -> AsyncExecStream:
        return await self._sandbox.attach(id, **options)

    async def wait(self, id: str, timeout_seconds: Optional[float] = None) -> ExecResult[str]:
        params = {"timeout_ms": execs.milliseconds(timeout_seconds, "timeout_seconds") or 0}
        limit = float("inf") if timeout_seconds is None else timeout_seconds + execs.TIMEOUT_MARGIN_SECONDS
        return ExecResult.from_wire(await self._call("exec.wait", id, params, limit), "", "", id)

    async def signal(self, id: str, signal: Union[int, str], *, tree: bool = False) -> None:
        await self._call("exec.signal", id, {"signal": signal if isinstance(signal, str) else int(signal), "tree": tree})

    async def kill(self, id: str, grace_seconds: Optional[float] = None) -> None:
        params = {"grace_ms": execs.milliseconds(grace_seconds, "grace_seconds") or 0}
        await self._call("exec.kill", id, params, self._client.call_timeout_seconds + (grace_seconds or 0))

    async def send_stdin(self, id: str, data: AsyncStdin, *, close: bool = False) -> int:
        connection = await self._client.connect()
        try:
            request = connection.session.call("exec.stdin", {"close": close}, vm=self._sandbox.id, id=id, end=False)
            fields = await connection.exchange(request, stdin=b"" if data is None else data)
            return take(fields, "bytes", int, 0)
        finally:
            self._client.give(connection)

    async def close_stdin(self, id: str) -> None:
        await self._call("exec.close_stdin", id, {})

    async def resize(self, id: str, rows: int, cols: int) -> None:
        await self._call("exec.resize", id, {"rows": rows, "cols": cols})


class _Nothing:
    """Input that neither comes nor ends."""

    def __aiter__(self) -> "_Nothing":
        return self

    async def __anext__(self) -> bytes:
        await asyncio.get_running_loop().create_future()
        raise StopAsyncIteration
