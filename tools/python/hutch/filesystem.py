# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox: `sandbox.filesystem`."""

from __future__ import annotations

import collections
import select
import threading
import time
from typing import IO, TYPE_CHECKING, Any, Callable, Deque, Dict, Iterator, List, Literal, Mapping, Optional, Union, overload

from . import archive, errors, files, transfer, wire
from .client import Client
from .connection import Connection, poll_wait
from .feed import Feeder, Stdin, feeder
from .files import Change, Copied, DiskSpace, FileInfo, OnError, Path, Written
from .result import take

if TYPE_CHECKING:
    from .sandbox import Sandbox


class Flow:
    """A call whose answer comes piece by piece: iterate over it for Output and Event; then `fields` is the RESULT.

    Nothing is read before it is asked for, so what waits is bounded. close() before the end breaks the call off.
    """

    def __init__(self, client: Client, method: str, params: Mapping[str, Any], vm: Optional[str], *, end: bool = True) -> None:
        self.fields: Optional[Dict[str, Any]] = None
        self._client = client
        self._connection: Connection = client.connect()
        self._ready: Deque[wire.Received] = collections.deque()
        self._sending = threading.Lock()
        self._over = False
        try:
            self._connection.queue(self._connection.session.call(method, params, vm=vm, end=end))
        except BaseException:
            self._connection.close()
            raise

    def next(self, timeout_seconds: Optional[float] = None) -> Union[wire.Output, wire.Event, None]:
        """The next piece; None at the end. Raises Timeout when none comes in time, and what the call fails with."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            if self._ready:
                received = self._ready.popleft()
                if isinstance(received, (wire.Output, wire.Event)):
                    return received
                self._end(received)
            if self._over:
                return None
            try:
                self._fill(deadline)
            except errors.Timeout:
                raise
            except BaseException:
                self.close()
                raise

    def _fill(self, deadline: Optional[float]) -> None:
        connection = self._connection
        with self._sending:
            sent = connection.send_some()
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN | (0 if sent else select.POLLOUT))
        if not poll_wait(poll, None if deadline is None else max(deadline - time.monotonic(), 0) * 1000):
            raise errors.Timeout(f"{self._client.socket} had nothing to say in time")
        self._ready.extend(connection.receive_some())

    def _end(self, received: Union[wire.Result, wire.Failure]) -> None:
        self.stop()
        self._over = True
        self._connection.flush()
        self._client.give(self._connection)
        if isinstance(received, wire.Failure):
            raise received.error
        self.fields = received.fields

    def stop(self) -> None:
        """Send our END. Any thread may."""
        with self._sending:
            if not self._over and not self._connection.closed and not self._connection.session.own_end:
                self._connection.queue(self._connection.session.stdin(b"", end=True))
                self._connection.send_some()

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._connection.close()

    def __iter__(self) -> Iterator[Union[wire.Output, wire.Event]]:
        while (received := self.next()) is not None:
            yield received


class FileStream:
    """The bytes of a file, read while they are used: iterate over it, in a `with` block.

    info: the file as it was opened.
    """

    def __init__(self, flow: Flow, path: Path) -> None:
        self._flow = flow
        try:
            event = flow.next()
            if not isinstance(event, wire.Event) or event.name != "file":
                raise errors.ProtocolError("the peer sent a file without saying which")
        except BaseException:
            flow.close()
            raise
        self.info = FileInfo.from_wire(event.fields, files.shown(path), "file")

    def __enter__(self) -> "FileStream":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        for received in self._flow:
            if isinstance(received, wire.Output):
                yield received.data

    def close(self) -> None:
        """Let go; what was not read is not sent."""
        self._flow.close()


class Scan:
    """A listing, told while it is made: iterate over it for FileInfo; then `errors` says what could not be read."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def __enter__(self) -> "Scan":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[FileInfo]:
        for received in self._flow:
            if isinstance(received, wire.Event):
                yield from files.entries(received)

    @property
    def fields(self) -> Dict[str, Any]:
        return self._flow.fields or {}

    @property
    def errors(self) -> List[files.FileError]:
        return [files.FileError.from_wire(e) for e in take(self.fields, "errors", list, [])]

    def close(self) -> None:
        self._flow.close()


class Watch:
    """Changes below a path, as they happen: iterate over it for Change, in a `with` block.

    It ends after stop(), which any thread may call, or when the path is gone: `reason` is `stopped`, `removed` or `unmounted`.
    """

    def __init__(self, flow: Flow, timeout_seconds: Optional[float]) -> None:
        self._flow = flow
        self._ready: Deque[Change] = collections.deque()
        try:
            event = flow.next(timeout_seconds)
            if not isinstance(event, wire.Event) or event.name != "watching":
                raise errors.ProtocolError("the peer sent changes before it was watching")
        except BaseException:
            flow.close()
            raise

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def reason(self) -> Optional[str]:
        return None if self._flow.fields is None else take(self._flow.fields, "reason", str, "")

    def read(self, timeout_seconds: Optional[float] = None) -> Optional[Change]:
        """The next change; None at the end. Raises Timeout."""
        while not self._ready:
            received = self._flow.next(timeout_seconds)
            if received is None:
                return None
            if isinstance(received, wire.Event):
                self._ready.extend(files.changes(received))
        return self._ready.popleft()

    def __iter__(self) -> Iterator[Change]:
        while (change := self.read()) is not None:
            yield change

    def stop(self) -> None:
        """No more: what is on its way still comes, then the end."""
        self._flow.stop()

    def close(self) -> None:
        self._flow.close()


def _feeder(data: Any) -> Feeder:
    source = feeder(data)
    assert source is not None
    return source


class Filesystem:
    """`sandbox.filesystem`: files of the VM.

    Paths are str, bytes or path objects, absolute or relative to `/`. Every method takes user= (act as this user of the VM, as
    in `exec`, with no more rights than they have) and root= (a directory that no path, and no link on the way, may lead out
    of); `using(user=..., root=...)` gives a Filesystem where they are set for all.

    Raises NotFound, Exists, Denied, IoFailed (all with errno and path), Invalid, WrongState, Busy, VmDied, ... . A call takes as
    long as the VM's file system does; an exception that breaks it off (ctrl-C, one of a callback's) ends it in the VM too.
    """

    def __init__(self, sandbox: "Sandbox", *, user: Union[str, int, None] = None, root: Optional[Path] = None) -> None:
        self._sandbox = sandbox
        self._client = sandbox.client
        self._who = files.common(user, root)

    def using(self, *, user: Union[str, int, None] = None, root: Optional[Path] = None) -> "Filesystem":
        """The same files, with user and root for every call that does not name its own."""
        other = Filesystem(self._sandbox)
        other._who = files.override(self._who, {"user": user, "root": root})
        return other

    def _request(self, make: Callable[..., files.Request], who: Mapping[str, Any], *args: Any, **options: Any) -> files.Request:
        return make(files.override(self._who, who), *args, **options)

    def _ask(self, make: Callable[..., files.Request], who: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        return self._do(self._request(make, who, *args, **options))

    def _do(self, request: files.Request, *, source: Optional[Feeder] = None, pieces: Optional[List[bytes]] = None) -> Any:
        """One call; it is repeated where a kept connection proves to be dead and doing it twice does no harm."""

        def on_received(received: wire.Received) -> None:
            if pieces is not None and isinstance(received, wire.Output):
                pieces.append(received.data)

        def run(connection: Connection) -> Dict[str, Any]:
            if pieces is not None:
                pieces.clear()
            call = connection.session.call(f"fs.{request.method}", request.params, vm=self._sandbox.id, end=source is None)
            return connection.exchange(call, feeder=source, on_received=on_received)

        try:
            return request.parse(self._client._on_connection(run, repeatable=request.again and source is None))
        finally:
            if source is not None:
                source.close()

    def _flow(self, request: files.Request, *, end: bool = True) -> Flow:
        return Flow(self._client, f"fs.{request.method}", request.params, self._sandbox.id, end=end)

    # looking

    def stat(self, path: Path, *, follow: bool = True, **who: Any) -> FileInfo:
        """What a file is. follow=False: of a link, the link itself. Raises NotFound."""
        info: FileInfo = self._ask(files.stat, who, path, follow=follow)
        return info

    def exists(self, path: Path, *, follow: bool = True, **who: Any) -> bool:
        """Whether there is such a file. A link that leads nowhere does not exist unless follow is False."""
        there: bool = self._ask(files.exists, who, path, follow=follow)
        return there

    def readlink(self, path: Path, **who: Any) -> str:
        """Where a link leads."""
        target: str = self._ask(files.readlink, who, path)
        return target

    def statfs(self, path: Path = "/", **who: Any) -> DiskSpace:
        """Size and free space of the file system that path is on."""
        space: DiskSpace = self._ask(files.statfs, who, path)
        return space

    def scan(self, path: Path, *, depth: int = 1, stat: bool = True, **who: Any) -> Scan:
        """A directory's entries, one after the other: for one that is too large for a list. See `list`."""
        return Scan(self._flow(self._request(files.list_, who, path, depth=depth, stat=stat)))

    def list(
        self, path: Path, *, depth: int = 1, stat: bool = True, on_error: Optional[OnError] = None, **who: Any
    ) -> "List[FileInfo]":
        """A directory's entries, and those below down to depth levels (0: all), sorted; links are not followed.

        stat=False: only path and type. on_error: is given a FileError for each thing that could not be read; without it
        the first raises IoFailed.
        """
        with self.scan(path, depth=depth, stat=stat, **who) as scan:
            found = sorted(scan, key=lambda info: info.path)
        files.report(scan.fields, files.shown(path), on_error)
        return found

    # reading

    @overload
    def read(self, path: Path, *, text: Literal[True] = ..., **options: Any) -> str: ...

    @overload
    def read(self, path: Path, *, text: Literal[False], **options: Any) -> bytes: ...

    def read(self, path: Path, *, text: bool = True, offset: int = 0, length: Optional[int] = None, **who: Any) -> Any:
        """A file's content: str (it must be UTF-8, else Invalid), or bytes with text=False.

        offset, length: a range in bytes. Without length it ends where the file ended when it was opened.
        """
        pieces: List[bytes] = []
        self._do(self._request(files.read, who, path, offset=offset, length=length), pieces=pieces)
        data = b"".join(pieces)
        return files.decoded(data, path) if text else data

    def read_stream(self, path: Path, *, offset: int = 0, length: Optional[int] = None, **who: Any) -> FileStream:
        """A file's bytes piece by piece, for one that is too large for memory."""
        return FileStream(self._flow(self._request(files.read, who, path, offset=offset, length=length)), path)

    # writing

    def write(self, path: Path, data: Stdin, **options: Any) -> Written:
        """Make or replace a file. data: bytes, str (sent as UTF-8), a file or an iterable of them.

        The file appears whole or not at all, whatever fails: who opens it finds the old one or the new one. mode, uid, gid: of
        the file; by default those it has, else 0644 and the user's. parents: make directories that are missing.
        if_absent: raise Exists when there is one. if_size, if_sha256: raise WrongState unless the old file has
        them. size, sha256: of what is sent; Invalid when something else came. sync: "file" or "all" waits for the disk.
        offset, truncate, atomic=False: write in place instead (files of /proc and /sys are written like this).
        """
        data, size = files.content(data)
        who = files.take_common(options)
        request = self._request(files.write, who, path, **{"size": size, **options})
        written: Written = self._do(request, source=_feeder(data))
        return written

    def append(
        self, path: Path, data: Stdin, *, mode: Optional[int] = None, parents: bool = False, sync: Optional[str] = None, **who: Any
    ) -> Written:
        """Add to the end of a file, which is made when missing (with mode). What came before a failure stays."""
        data, size = files.content(data)
        request = self._request(files.append, who, path, mode=mode, parents=parents, sync=sync, size=size)
        written: Written = self._do(request, source=_feeder(data))
        return written

    # changing

    def mkdir(self, path: Path, *, mode: Optional[int] = None, parents: bool = False, **who: Any) -> bool:
        """Make a directory; parents: those above it as well, and one that is there is no error. Returns whether it was made."""
        made: bool = self._ask(files.mkdir, who, path, mode=mode, parents=parents)
        return made

    def remove(self, path: Path, *, recursive: bool = False, missing_ok: bool = False, **who: Any) -> int:
        """Remove a file, link or empty directory; recursive: with all below it. Returns how many things were removed."""
        count: int = self._ask(files.remove, who, path, recursive=recursive, missing_ok=missing_ok)
        return count

    def move(self, path: Path, to: Path, *, replace: bool = True, parents: bool = False, **who: Any) -> None:
        """Rename, within one file system. replace=False: raise Exists when `to` is there."""
        self._ask(files.move, who, path, to, replace=replace, parents=parents)

    def copy(
        self, path: Path, to: Path, *, recursive: bool = False, preserve: bool = True, replace: bool = True, parents: bool = False,
        **who: Any,
    ) -> Copied:
        """Copy a file; recursive: a tree, merged into `to` if that is a directory. preserve: times and owners too."""
        copied: Copied = self._ask(
            files.copy, who, path, to, recursive=recursive, preserve=preserve, replace=replace, parents=parents
        )
        return copied

    def symlink(self, path: Path, target: Path, **who: Any) -> None:
        """Make path a symbolic link that leads to target."""
        self._ask(files.symlink, who, path, target)

    def link(self, path: Path, to: Path, **who: Any) -> None:
        """Give the file at path the new name `to` as well (a hard link)."""
        self._ask(files.link, who, path, to)

    def chmod(self, path: Path, mode: int, *, recursive: bool = False, **who: Any) -> None:
        """Set permission bits."""
        self._ask(files.chmod, who, path, mode, recursive=recursive)

    def chown(
        self, path: Path, *, uid: Optional[int] = None, gid: Optional[int] = None, owner: Optional[str] = None, follow: bool = True,
        recursive: bool = False, **who: Any,
    ) -> None:
        """Set the owner: uid and gid (either alone, or both), or owner, as `user` of exec (`name`, `name:group`)."""
        self._ask(files.chown, who, path, uid=uid, gid=gid, owner=owner, follow=follow, recursive=recursive)

    def utimes(
        self, path: Path, *, mtime_ns: Optional[int] = None, atime_ns: Optional[int] = None, follow: bool = True, **who: Any
    ) -> None:
        """Set times; one that is not given stays, and with none given both are now."""
        self._ask(files.utimes, who, path, mtime_ns=mtime_ns, atime_ns=atime_ns, follow=follow)

    # watching

    def watch(self, path: Path, *, recursive: bool = False, **who: Any) -> Watch:
        """Watch a file or directory; returns when nothing is missed any more."""
        request = self._request(files.watch, who, path, recursive=recursive)
        return Watch(self._flow(request, end=False), self._client.call_timeout_seconds)

    # between this machine and the VM

    def upload(
        self, local: Union[Path, IO[bytes]], remote: Path, *, parents: bool = False, mode: Optional[int] = None, **who: Any
    ) -> int:
        """Copy a file of this machine (a path, or an open file from where it is) to remote; returns its size.

        Of a path, mode, time and holes are kept (a file that is replaced keeps its mode); with a `/` at its end remote
        is the directory that it goes into. It appears whole or not at all.
        """
        if hasattr(local, "read"):
            source = _feeder(files.content(local)[0])
            return int(self._do(self._request(files.write, who, remote, mode=mode, parents=parents), source=source).bytes)
        plan = transfer.Upload(local, remote, files.override(self._who, who), parents, mode)  # type: ignore[arg-type]
        return self._carry_out(plan.steps(), plan)

    def _carry_out(self, steps: transfer.Steps, plan: transfer.Upload) -> int:
        with plan:
            answer: Any = None
            while True:
                try:
                    step = steps.throw(answer) if isinstance(answer, errors.HutchError) else steps.send(answer)
                except StopIteration as e:
                    return int(e.value)
                try:
                    answer = self._do(step.request, source=step.source)
                except errors.HutchError as e:
                    answer = e

    def download(self, remote: Path, local: Union[Path, IO[bytes]], **who: Any) -> int:
        """Copy a file of the VM to this machine: to a path, or into an open file; returns its size.

        A path: mode (without setuid and setgid), time and holes are kept, the file is replaced whole or not at all and then
        keeps its mode; a directory gets it under its own name.
        """
        if hasattr(local, "write"):
            total = 0
            with self.read_stream(remote, **who) as stream:
                for piece in stream:
                    local.write(piece)  # type: ignore[union-attr]
                    total += len(piece)
            return total
        info = self.stat(remote, follow=False, **who)
        if transfer.has_holes(info):
            taker: transfer.Taker = transfer.TakeSparse(files.shown(local), remote)  # type: ignore[arg-type]
            flow = self._flow(self._request(files.tar_out, who, files.split(remote)[0], names=[files.split(remote)[1]]))
        else:
            taker = transfer.TakeFile(files.shown(local), remote)  # type: ignore[arg-type]
            flow = self._flow(self._request(files.read, who, remote))
        with taker:
            try:
                for received in flow:
                    taker.take(received)
            finally:
                flow.close()
            files.report(flow.fields or {}, files.shown(remote), None)
            return taker.finish()

    def upload_dir(
        self, local: Path, remote: Path, *, parents: bool = False, replace: bool = True, setid: bool = False,
        on_error: Optional[OnError] = None, **who: Any,
    ) -> Copied:
        """Copy what is in a directory of this machine into the directory remote, which is made if it is not there.

        Modes, times, links, hard links within the tree and holes are kept, setuid and setgid bits with setid; owners are
        the user's. Sockets and devices are left out (`skipped`). replace=False: raise Exists when something is there.
        parents: make directories that are missing above remote. on_error: is given a FileError for what could
        not be read; without it the first raises IoFailed (after the rest was copied).
        """
        packer = archive.Packer(files.shown(local), setid=setid)
        feed = archive.PackFeeder(packer)
        try:
            above = files.above(remote)
            if not parents and above is not None:
                self._ask(files.stat, who, above)  # it must be there
            copied: Copied = self._do(self._request(files.tar_in, who, remote, parents=True, replace=replace), source=feed)
        finally:
            feed.close()
        packer.report(files.shown(local), on_error)
        return copied._replace(skipped=copied.skipped + packer.skipped)

    def download_dir(
        self, remote: Path, local: Path, *, names: Optional["List[Path]"] = None, exclude: Optional["List[Path]"] = None,
        setid: bool = False, links: str = "all", on_error: Optional[OnError] = None, **who: Any,
    ) -> Copied:
        """Copy what is in a directory of the VM into a directory of this machine, which is made if it is not there.

        What is kept is as for upload_dir; owners are ours. Nothing is written outside of local, whatever the VM sends. Links
        are kept as they are, wherever they lead: whoever follows them here reads files of this machine; links="inside"
        leaves out those that lead out of local. names: only these, relative to remote, with what is below; exclude: patterns
        of fnmatch(3) to leave out. on_error: as for upload_dir. What was unpacked before a failure stays.
        """
        flow = self._flow(self._request(files.tar_out, who, remote, names=names, exclude=exclude))
        try:
            unpacker = archive.Unpacker(files.shown(local), setid=setid, links=links)
            try:
                for received in flow:
                    if isinstance(received, wire.Output):
                        unpacker.feed(received.data)
                unpacker.finish()
            finally:
                unpacker.close()
        finally:
            flow.close()
        files.report(flow.fields or {}, files.shown(remote), on_error)
        return unpacker.copied
