# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox, for asyncio: `async_sandbox.filesystem`. Parameters, records and errors are hutch.Filesystem's."""

from __future__ import annotations

import asyncio
import collections
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Deque,
    Dict,
    List,
    Literal,
    Mapping,
    Optional,
    Union,
    overload,
)

from . import archive, errors, files, transfer, wire
from .files import Change, Copied, DiskSpace, FileInfo, OnError, Path, Written
from .result import take

if TYPE_CHECKING:
    from .aio import AsyncConnection, AsyncSandbox, AsyncStdin


class AsyncFlow:
    """A call whose answer comes piece by piece; see hutch.filesystem.Flow."""

    def __init__(self, client: Any, connection: "AsyncConnection") -> None:
        self.fields: Optional[Dict[str, Any]] = None
        self._client = client
        self._connection = connection
        self._ready: Deque[wire.Received] = collections.deque()
        self._over = False

    @classmethod
    async def open(cls, client: Any, method: str, params: Mapping[str, Any], vm: str, *, end: bool = True) -> "AsyncFlow":
        connection = await client.connect()
        flow = cls(client, connection)
        try:
            await connection.send(connection.session.call(method, params, vm=vm, end=end))
        except BaseException:
            connection.close()
            raise
        return flow

    async def next(self) -> Union[wire.Output, wire.Event, None]:
        """The next piece; None at the end. A task that is cancelled here may ask again."""
        while True:
            if self._ready:
                received = self._ready.popleft()
                if isinstance(received, (wire.Output, wire.Event)):
                    return received
                await self._end(received)
            if self._over:
                return None
            try:
                self._ready.extend(await self._connection.receive())
            except Exception:
                self.close()
                raise

    async def _end(self, received: Union[wire.Result, wire.Failure]) -> None:
        self._over = True
        try:
            await self._send_end()
        finally:
            self._client.give(self._connection)
        if isinstance(received, wire.Failure):
            raise received.error
        self.fields = received.fields

    async def _send_end(self) -> None:
        session = self._connection.session
        if not self._connection.closed and not session.own_end:
            await self._connection.send(session.stdin(b"", end=True))

    async def stop(self) -> None:
        if not self._over:
            await self._send_end()

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._connection.close()

    async def __aiter__(self) -> AsyncIterator[Union[wire.Output, wire.Event]]:
        while (received := await self.next()) is not None:
            yield received


class _Closing:
    """`async with` lets go of the flow."""

    _flow: AsyncFlow

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._flow.close()


class AsyncFileStream(_Closing):
    """The bytes of a file: `async for` over it, in an `async with` block. info: the file as it was opened."""

    def __init__(self, flow: AsyncFlow, info: FileInfo) -> None:
        self._flow = flow
        self.info = info

    @classmethod
    async def open(cls, flow: AsyncFlow, path: Path) -> "AsyncFileStream":
        try:
            event = await flow.next()
            if not isinstance(event, wire.Event) or event.name != "file":
                raise errors.ProtocolError("the peer sent a file without saying which")
        except BaseException:
            flow.close()
            raise
        return cls(flow, FileInfo.from_wire(event.fields, files.shown(path), "file"))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for received in self._flow:
            if isinstance(received, wire.Output):
                yield received.data


class AsyncScan(_Closing):
    """A listing, told while it is made; then `errors` says what could not be read."""

    def __init__(self, flow: AsyncFlow) -> None:
        self._flow = flow

    async def __aiter__(self) -> AsyncIterator[FileInfo]:
        async for received in self._flow:
            if isinstance(received, wire.Event):
                for info in files.entries(received):
                    yield info

    @property
    def fields(self) -> Dict[str, Any]:
        return self._flow.fields or {}

    @property
    def errors(self) -> List[files.FileError]:
        return [files.FileError.from_wire(e) for e in take(self.fields, "errors", list, [])]


class AsyncWatch(_Closing):
    """Changes below a path, as they happen; see hutch.Watch."""

    def __init__(self, flow: AsyncFlow) -> None:
        self._flow = flow
        self._ready: Deque[Change] = collections.deque()

    @classmethod
    async def open(cls, flow: AsyncFlow) -> "AsyncWatch":
        try:
            event = await flow.next()
            if not isinstance(event, wire.Event) or event.name != "watching":
                raise errors.ProtocolError("the peer sent changes before it was watching")
        except BaseException:
            flow.close()
            raise
        return cls(flow)

    @property
    def reason(self) -> Optional[str]:
        return None if self._flow.fields is None else take(self._flow.fields, "reason", str, "")

    async def read(self, timeout_seconds: Optional[float] = None) -> Optional[Change]:
        """The next change; None at the end. Raises Timeout."""
        while not self._ready:
            try:
                received = await asyncio.wait_for(self._flow.next(), timeout_seconds)
            except asyncio.TimeoutError:
                raise errors.Timeout("nothing changed in time") from None
            if received is None:
                return None
            if isinstance(received, wire.Event):
                self._ready.extend(files.changes(received))
        return self._ready.popleft()

    async def __aiter__(self) -> AsyncIterator[Change]:
        while (change := await self.read()) is not None:
            yield change

    async def stop(self) -> None:
        """No more: what is on its way still comes, then the end."""
        await self._flow.stop()


class AsyncFilesystem:
    """`async_sandbox.filesystem`: see hutch.Filesystem for every parameter, user= and root= included.

    Local files are read and written in the event loop, a piece at a time. A cancelled task breaks its call off, here and in the VM.
    """

    def __init__(self, sandbox: "AsyncSandbox", *, user: Union[str, int, None] = None, root: Optional[Path] = None) -> None:
        self._sandbox = sandbox
        self._client = sandbox.client
        self._who = files.common(user, root)

    def using(self, *, user: Union[str, int, None] = None, root: Optional[Path] = None) -> "AsyncFilesystem":
        """The same files, with user and root for every call that does not name its own."""
        other = AsyncFilesystem(self._sandbox)
        other._who = files.override(self._who, {"user": user, "root": root})
        return other

    def _request(self, make: Callable[..., files.Request], options: Dict[str, Any], *args: Any, **more: Any) -> files.Request:
        who = files.override(self._who, files.take_common(options))
        return make(who, *args, **more, **options)

    async def _ask(self, make: Callable[..., files.Request], options: Dict[str, Any], *args: Any) -> Any:
        return await self._do(self._request(make, options, *args))

    async def _do(self, request: files.Request, *, source: Any = None, pieces: Optional[List[bytes]] = None) -> Any:
        def on_received(received: wire.Received) -> None:
            if pieces is not None and isinstance(received, wire.Output):
                pieces.append(received.data)

        async def run(connection: "AsyncConnection") -> Dict[str, Any]:
            if pieces is not None:
                pieces.clear()
            call = connection.session.call(f"fs.{request.method}", request.params, vm=self._sandbox.id, end=source is None)
            return await connection.exchange(call, stdin=source, on_received=on_received)

        return request.parse(await self._client._on_connection(run, repeatable=request.again and source is None))

    async def _flow(self, request: files.Request, *, end: bool = True) -> AsyncFlow:
        return await AsyncFlow.open(self._client, f"fs.{request.method}", request.params, self._sandbox.id, end=end)

    # looking

    async def stat(self, path: Path, **options: Any) -> FileInfo:
        info: FileInfo = await self._ask(files.stat, options, path)
        return info

    async def exists(self, path: Path, **options: Any) -> bool:
        there: bool = await self._ask(files.exists, options, path)
        return there

    async def readlink(self, path: Path, **options: Any) -> str:
        target: str = await self._ask(files.readlink, options, path)
        return target

    async def statfs(self, path: Path = "/", **options: Any) -> DiskSpace:
        space: DiskSpace = await self._ask(files.statfs, options, path)
        return space

    async def scan(self, path: Path, **options: Any) -> AsyncScan:
        """A directory's entries, one after the other."""
        return AsyncScan(await self._flow(self._request(files.list_, options, path)))

    async def list(self, path: Path, *, on_error: Optional[OnError] = None, **options: Any) -> "List[FileInfo]":
        async with await self.scan(path, **options) as scan:
            found = sorted([info async for info in scan], key=lambda info: info.path)
        files.report(scan.fields, files.shown(path), on_error)
        return found

    # reading

    @overload
    async def read(self, path: Path, *, text: Literal[True] = ..., **options: Any) -> str: ...

    @overload
    async def read(self, path: Path, *, text: Literal[False], **options: Any) -> bytes: ...

    async def read(self, path: Path, *, text: bool = True, **options: Any) -> Any:
        pieces: List[bytes] = []
        await self._do(self._request(files.read, options, path), pieces=pieces)
        data = b"".join(pieces)
        return files.decoded(data, path) if text else data

    async def read_stream(self, path: Path, **options: Any) -> AsyncFileStream:
        """A file's bytes piece by piece."""
        return await AsyncFileStream.open(await self._flow(self._request(files.read, options, path)), path)

    # writing

    async def write(self, path: Path, data: "AsyncStdin", **options: Any) -> Written:
        """data may be an async iterable as well."""
        content, size = files.content(data)
        request = self._request(files.write, {"size": size, **options}, path)
        written: Written = await self._do(request, source=content)
        return written

    async def append(self, path: Path, data: "AsyncStdin", **options: Any) -> Written:
        content, size = files.content(data)
        written: Written = await self._do(self._request(files.append, {"size": size, **options}, path), source=content)
        return written

    # changing

    async def mkdir(self, path: Path, **options: Any) -> bool:
        made: bool = await self._ask(files.mkdir, options, path)
        return made

    async def remove(self, path: Path, **options: Any) -> int:
        count: int = await self._ask(files.remove, options, path)
        return count

    async def move(self, path: Path, to: Path, **options: Any) -> None:
        await self._ask(files.move, options, path, to)

    async def copy(self, path: Path, to: Path, **options: Any) -> Copied:
        copied: Copied = await self._ask(files.copy, options, path, to)
        return copied

    async def symlink(self, path: Path, target: Path, **options: Any) -> None:
        await self._ask(files.symlink, options, path, target)

    async def link(self, path: Path, to: Path, **options: Any) -> None:
        await self._ask(files.link, options, path, to)

    async def chmod(self, path: Path, mode: int, **options: Any) -> None:
        await self._ask(files.chmod, options, path, mode)

    async def chown(self, path: Path, **options: Any) -> None:
        await self._ask(files.chown, options, path)

    async def utimes(self, path: Path, **options: Any) -> None:
        await self._ask(files.utimes, options, path)

    # watching

    async def watch(self, path: Path, **options: Any) -> AsyncWatch:
        """Watch a file or directory; returns when nothing is missed any more."""
        flow = await self._flow(self._request(files.watch, options, path), end=False)
        return await AsyncWatch.open(flow)

    # between this machine and the VM

    async def upload(
        self, local: Union[Path, IO[bytes]], remote: Path, *, parents: bool = False, mode: Optional[int] = None, **who: Any
    ) -> int:
        if hasattr(local, "read"):
            request = self._request(files.write, who, remote, mode=mode, parents=parents)
            return int((await self._do(request, source=files.content(local)[0])).bytes)
        with transfer.Upload(local, remote, files.override(self._who, who), parents, mode) as plan:  # type: ignore[arg-type]
            steps = plan.steps()
            answer: Any = None
            while True:
                try:
                    step = steps.throw(answer) if isinstance(answer, errors.HutchError) else steps.send(answer)
                except StopIteration as e:
                    return int(e.value)
                try:
                    answer = await self._do(step.request, source=step.source)
                except errors.HutchError as e:
                    answer = e

    async def download(self, remote: Path, local: Union[Path, IO[bytes]], **who: Any) -> int:
        if hasattr(local, "write"):
            total = 0
            async with await self.read_stream(remote, **who) as stream:
                async for piece in stream:
                    local.write(piece)  # type: ignore[union-attr]
                    total += len(piece)
            return total
        info = await self.stat(remote, follow=False, **who)
        if transfer.has_holes(info):
            above, name = files.split(remote)
            request = self._request(files.tar_out, who, above, names=[name])
            taker: transfer.Taker = transfer.TakeSparse(local, remote)  # type: ignore[arg-type]
        else:
            request = self._request(files.read, who, remote)
            taker = transfer.TakeFile(local, remote)  # type: ignore[arg-type]
        with taker:
            flow = await self._flow(request)
            try:
                async for received in flow:
                    taker.take(received)
            finally:
                flow.close()
            files.report(flow.fields or {}, files.shown(remote), None)
            return taker.finish()

    async def upload_dir(
        self, local: Path, remote: Path, *, parents: bool = False, replace: bool = True, setid: bool = False,
        on_error: Optional[OnError] = None, **who: Any,
    ) -> Copied:
        packer = archive.Packer(files.shown(local), setid=setid)
        feed = archive.PackFeeder(packer)
        try:
            above = files.above(remote)
            if not parents and above is not None:
                await self._ask(files.stat, dict(who), above)  # it must be there
            request = self._request(files.tar_in, who, remote, parents=True, replace=replace)
            copied: Copied = await self._do(request, source=feed)
        finally:
            feed.close()
        packer.report(files.shown(local), on_error)
        return copied._replace(skipped=copied.skipped + packer.skipped)

    async def download_dir(
        self, remote: Path, local: Path, *, names: Optional["List[Path]"] = None, exclude: Optional["List[Path]"] = None,
        setid: bool = False, links: str = "all", on_error: Optional[OnError] = None, **who: Any,
    ) -> Copied:
        flow = await self._flow(self._request(files.tar_out, who, remote, names=names, exclude=exclude))
        try:
            unpacker = archive.Unpacker(files.shown(local), setid=setid, links=links)
            try:
                async for received in flow:
                    if isinstance(received, wire.Output):
                        unpacker.feed(received.data)
                unpacker.finish()
            finally:
                unpacker.close()
        finally:
            flow.close()
        files.report(flow.fields or {}, files.shown(remote), on_error)
        return unpacker.copied
