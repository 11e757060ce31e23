# SPDX-License-Identifier: Apache-2.0
"""Sandbox: one VM, and the commands that run in it."""

from __future__ import annotations

import grp
import os
from typing import Any, Dict, List, Literal, Mapping, Optional, Union, overload

from . import errors, execs
from .client import Client, default_client
from .commands import Commands
from .feed import Stdin
from .filesystem import Filesystem
from .result import ExecInfo, ExecResult, SnapshotInfo, VmInfo, take
from .stream import ExecStream

DEFAULT_TEMPLATE = "base"
DEFAULT_TTL_SECONDS = 3600.0
DEFAULT_CREATE_TIMEOUT_SECONDS = 60.0


def group_text(group: Union[str, int]) -> str:
    """A group as the broker takes it: its number where this host knows the name, wherever its groups come from."""
    if isinstance(group, int):
        return str(group)
    try:
        return str(grp.getgrnam(group).gr_gid)
    except KeyError:
        return group


def create_params(
    template: Optional[str],
    name: Optional[str],
    ttl_seconds: Optional[float],
    memory_mib: Optional[int],
    vcpus: Optional[int],
    metadata: Optional[Mapping[str, str]],
    timeout_seconds: Optional[float],
    snapshot: Optional[str] = None,
    cold: bool = False,
    secrets: bool = False,
    pause_after_seconds: Optional[float] = None,
    park_after_seconds: Optional[float] = None,
    share_group: Union[str, int, None] = None,
    disk_mib: Optional[int] = None,
) -> Dict[str, Any]:
    """The `vm.create` parameters (wire.md); what was not given is left out."""
    optional = {
        "template": template if template is not None or snapshot is not None else DEFAULT_TEMPLATE,
        "snapshot": snapshot,
        "cold": cold or None,
        "secrets": secrets or None,
        "share_group": None if share_group is None else group_text(share_group),
        "name": name,
        "ttl_ms": execs.milliseconds(ttl_seconds, "ttl_seconds"),
        "memory_mib": memory_mib,
        "vcpus": vcpus,
        "disk_mib": disk_mib,
        "metadata": dict(metadata) if metadata else None,
        "timeout_ms": execs.milliseconds(timeout_seconds, "timeout_seconds"),
        "idle": idle_params(pause_after_seconds, park_after_seconds) or None,
    }
    return {k: v for k, v in optional.items() if v is not None}


def idle_params(pause_after_seconds: Optional[float], park_after_seconds: Optional[float]) -> Dict[str, Any]:
    """The `vm.set_idle` parameters (wire.md); None is never."""
    optional = {
        "pause_after_ms": execs.milliseconds(pause_after_seconds, "pause_after_seconds"),
        "park_after_ms": execs.milliseconds(park_after_seconds, "park_after_seconds"),
    }
    return {k: v for k, v in optional.items() if v is not None}


def fork_params(
    count: int,
    name: Optional[str],
    ttl_seconds: Optional[float],
    metadata: Optional[Mapping[str, str]],
    timeout_seconds: Optional[float],
    allow_secrets: bool,
) -> Dict[str, Any]:
    """The `vm.fork` parameters (wire.md)."""
    optional = {
        "count": count,
        "name": name,
        "ttl_ms": execs.milliseconds(ttl_seconds, "ttl_seconds"),
        "metadata": dict(metadata) if metadata is not None else None,
        "timeout_ms": execs.milliseconds(timeout_seconds, "timeout_seconds"),
        "allow_secrets": allow_secrets or None,
    }
    return {k: v for k, v in optional.items() if v is not None}


def snapshot_params(name: str, allow_secrets: bool) -> Dict[str, Any]:
    return {"name": name, "allow_secrets": True} if allow_secrets else {"name": name}


class Sandbox:
    """A VM. Make one with `Sandbox.create`, find one with `Sandbox.get`.

    id: the VM's UUID; name: the one it was given, or None.

    A sandbox made by `create` and used in a `with` statement is ended when the block is left, by the process that made
    it. One found by `get` is left alone.
    """

    def __init__(self, id: str, *, client: Optional[Client] = None, name: Optional[str] = None) -> None:
        self.id = id
        self.name = name
        self._client = client or default_client()
        self._owner_pid = 0

    @classmethod
    def create(
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
        client: Optional[Client] = None,
    ) -> "Sandbox":
        """Make a VM and wait until it answers.

        template: what it is made from, default `base`: a VM of its pool, else its snapshot, else its kernel (cold: only that).
        snapshot: instead, one of the caller's own to go on from. secrets: it will hold secrets, so fork and snapshot refuse
        it unless allow_secrets is given. share_group: a group of one's own whose members may use it as well, by id: run commands,
        read and write files, ask after it; to kill, fork, keep, pause and park it stays one's own.
        name: 1-128 of `A-Za-z0-9._-`, unique among the caller's VMs.
        ttl_seconds: how long it may live, counted from ready; at most 30 days. memory_mib, vcpus: the template's if not
        given. disk_mib: the template's or snapshot's if not given, which can only grow; for those that have a writable disk. metadata: texts kept with the VM, at most 64 entries and 4 KiB. timeout_seconds: for it to be ready.
        pause_after_seconds, park_after_seconds: what becomes of it while nobody uses it, see `set_idle`.
        key: makes the call idempotent: the same key again gives the same VM. Without it the VM is ended when this
        process vanishes before the call returns.

        Raises NotFound (no such template), Exists (name taken), BootFailed (the message ends with the console's
        last lines), StartFailed, Timeout, Busy, QuotaExceeded, Invalid.
        """
        client = client or default_client()
        params = create_params(template, name, ttl_seconds, memory_mib, vcpus, metadata, timeout_seconds, snapshot, cold, secrets,
                               pause_after_seconds, park_after_seconds, share_group, disk_mib)
        limit = (timeout_seconds or DEFAULT_CREATE_TIMEOUT_SECONDS) + execs.TIMEOUT_MARGIN_SECONDS
        info = VmInfo.from_wire(client.call("vm.create", params, key=key, timeout_seconds=limit, fresh=True))
        sandbox = cls(info.id, client=client, name=info.name)
        sandbox._owner_pid = os.getpid()
        return sandbox

    @classmethod
    def get(cls, id: str, *, client: Optional[Client] = None) -> "Sandbox":
        """The sandbox with an id or a name. Raises NotFound, also for a VM that has ended."""
        client = client or default_client()
        info = VmInfo.from_wire(client.call("vm.info", vm=id))
        if info.state == "dead":
            raise errors.NotFound(f"VM {id} has ended: {info.reason or 'no reason is known'}")
        return cls(info.id, client=client, name=info.name)

    connect = get

    @staticmethod
    def list(*, client: Optional[Client] = None) -> List[VmInfo]:
        """The caller's VMs that have not ended."""
        return (client or default_client()).vms()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._owner_pid != os.getpid():
            return
        try:
            self.kill()
        except errors.HutchError:
            if exc[0] is None:  # never hide why the block was left
                raise

    def __repr__(self) -> str:
        return f"Sandbox({self.id!r})"

    @property
    def client(self) -> Client:
        return self._client

    def info(self) -> VmInfo:
        """What the broker knows about the VM, also for 10 minutes after its end."""
        return VmInfo.from_wire(self._client.call("vm.info", vm=self.id))

    def kill(self) -> None:
        """End the VM and remove all that it had; returns when that is done. Ending a dead VM succeeds."""
        self._client.call("vm.kill", vm=self.id)

    def set_ttl(self, ttl_seconds: float) -> float:
        """Let the VM live for ttl_seconds from now (at most 30 days); returns the seconds that are left."""
        params = {"ttl_ms": execs.milliseconds(ttl_seconds, "ttl_seconds")}
        return take(self._client.call("vm.set_ttl", params, vm=self.id), "expires_in_ms", int, 0) / 1000

    def wait(self, timeout_seconds: Optional[float] = None) -> VmInfo:
        """Wait until the VM has ended; its last info says why (`reason`). Raises Timeout after timeout_seconds."""
        params = {"timeout_ms": execs.milliseconds(timeout_seconds, "timeout_seconds") or 0}
        limit = float("inf") if timeout_seconds is None else timeout_seconds + execs.TIMEOUT_MARGIN_SECONDS
        return VmInfo.from_wire(self._client.call("vm.wait", params, vm=self.id, timeout_seconds=limit))

    def fork(
        self,
        count: int = 1,
        *,
        name: Optional[str] = None,
        ttl_seconds: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
        timeout_seconds: Optional[float] = DEFAULT_CREATE_TIMEOUT_SECONDS,
        allow_secrets: bool = False,
    ) -> "List[Sandbox]":
        """Branch the VM: count children (at most 64) in which its memory, processes and files go on from one instant.

        The VM itself goes on after a short pause, and its connections live. A child's are closed; commands live on in it, and can
        be attached by id. Each child has a hostname, machine id and random numbers of its own. name: of the child, of several
        `name-1`, `name-2`, ... ttl_seconds, metadata: the VM's if not given. All are ready, or there are none.

        A child is ended when a `with` block that it is used in is left, as one made by `create`. Raises Denied (secrets), Timeout
        (its processes cannot be stopped), Busy (another fork or snapshot is under way), WrongState, ... .
        """
        params = fork_params(count, name, ttl_seconds, metadata, timeout_seconds, allow_secrets)
        limit = (timeout_seconds or DEFAULT_CREATE_TIMEOUT_SECONDS) + execs.TIMEOUT_MARGIN_SECONDS
        fields = self._client.call("vm.fork", params, vm=self.id, timeout_seconds=limit, fresh=True)
        return [self._child(VmInfo.from_wire(vm)) for vm in take(fields, "vms", list, [])]

    def _child(self, info: VmInfo) -> "Sandbox":
        child = type(self)(info.id, client=self._client, name=info.name)
        child._owner_pid = os.getpid()
        return child

    def snapshot(self, name: str, *, allow_secrets: bool = False) -> SnapshotInfo:
        """Keep the VM's state under a name, for `Sandbox.create(snapshot=name)`; it goes on after a short pause. Raises Exists."""
        params = snapshot_params(name, allow_secrets)
        fields = self._client.call("snapshot.create", params, vm=self.id, timeout_seconds=float("inf"), fresh=True)
        return SnapshotInfo.from_wire(fields)

    def pause(self) -> None:
        """Let the VM stand still until `resume`: its memory is kept, its TTL runs on. Calls to it raise WrongState meanwhile."""
        self._client.call("vm.pause", vm=self.id)

    def resume(self) -> None:
        """Let a paused VM go on, or wake a parked one."""
        self._client.call("vm.resume", vm=self.id)

    def park(self) -> None:
        """Write the VM to the disk and free its memory; it keeps id, name, commands and TTL, and wakes by itself at the next call.

        Calls that are open raise OutcomeUnknown; commands live on, and can be attached by id. Parking a parked VM succeeds. A call that cannot
        wake it, for want of memory say (Busy, QuotaExceeded), leaves it parked.
        """
        self._client.call("vm.park", vm=self.id, timeout_seconds=float("inf"))

    def set_idle(self, *, pause_after_seconds: Optional[float] = None, park_after_seconds: Optional[float] = None) -> None:
        """Let the VM be paused, and parked, when nobody has used it for so long (at least 1 s); None: never.

        It is used while a call to it is open or a process lives in it that somebody started. It goes on by itself at the next call.
        """
        self._client.call("vm.set_idle", idle_params(pause_after_seconds, park_after_seconds), vm=self.id)

    def ping(self) -> None:
        """Ask the VM's agent for a sign of life."""
        self._client.ping(vm=self.id)

    def agent_info(self) -> Dict[str, Any]:
        """The map of `agent.info`: uptime_ms, rss_kib, execs, ..."""
        return self._client.call("agent.info", vm=self.id)

    def execs(self) -> List[ExecInfo]:
        """The VM's execs: those that run, and those that ended and are not collected yet."""
        found = take(self._client.call("exec.list", vm=self.id), "execs", list, [])
        return [ExecInfo.from_wire(e) for e in found]

    @overload
    def exec(self, command: execs.Command, *, text: Literal[True] = ..., **options: Any) -> ExecResult[str]: ...

    @overload
    def exec(self, command: execs.Command, *, text: Literal[False], **options: Any) -> ExecResult[bytes]: ...

    def exec(
        self,
        command: execs.Command,
        *,
        cwd: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, Optional[str]]] = None,
        clear_env: bool = False,
        user: Union[str, int, None] = None,
        stdin: Stdin = None,
        on_stdout: Optional[execs.Callback] = None,
        on_stderr: Optional[execs.Callback] = None,
        timeout_seconds: Optional[float] = None,
        grace_seconds: Optional[float] = None,
        output_limit: Optional[int] = None,
        merge_stderr: bool = False,
        text: bool = True,
        capture: bool = True,
        check: Optional[bool] = None,
        id: Optional[str] = None,
        key: Optional[str] = None,
        memory_bytes: Optional[int] = None,
        pids: Optional[int] = None,
        cpu_percent: Optional[int] = None,
    ) -> ExecResult[Any]:
        """Run a command to its end and return its ExecResult.

        command: a text is run as `/bin/sh -c TEXT`; a list is run as it is, looked up in the command's PATH.
        cwd: absolute, or relative to HOME; without it HOME, else `/`. env: added to the default environment, None
        removes a name; clear_env starts from an empty one. user: `name`, `uid`, `name:group` or `uid:gid`.
        stdin: bytes, str, a file, a descriptor or an iterable; None is /dev/null. A pipe, socket or terminal is read below
        Python's own buffer (as subprocess does); an iterable is asked by a thread, when its last piece was taken.
        on_stdout, on_stderr: called with each piece of output as it comes (str in text mode, cut between
        characters only; else bytes), in the calling thread. capture=False: do not keep output for the result.
        timeout_seconds: ends the whole process tree; grace_seconds: SIGTERM first, SIGKILL after this. Default: none.
        output_limit: bytes kept per stream, the rest is dropped and `truncated` says so. merge_stderr: into stdout.
        text: decode output as UTF-8 (bytes that are not become U+FFFD); False gives bytes.
        check: None raises ExecTimeout when the timeout ended the command, whatever code it left with, and returns
        the result of every other command. True raises ExecFailed too, unless it exited with 0. False never raises for
        what the command did. Both exceptions hold the whole result, with all that was printed.
        id, key: the exec's id, and a key that makes the call idempotent; both are chosen if not given.
        memory_bytes, pids, cpu_percent: limits of this command alone; Unsupported where the guest cannot.

        Raises Invalid (parameters, an unknown user), NotFound (no such VM), VmDied, OutcomeUnknown, ... . An exception
        that leaves this call, KeyboardInterrupt and those of the callbacks included, cancels the command.
        """
        return self._client.exec(
            command, vm=self.id, id=id, key=key, stdin=stdin, text=text, capture=capture, check=check,
            on_stdout=on_stdout, on_stderr=on_stderr, timeout_seconds=timeout_seconds,
            grace_seconds=grace_seconds, cwd=cwd, env=env, clear_env=clear_env, user=user,
            output_limit=output_limit, merge_stderr=merge_stderr, memory_bytes=memory_bytes, pids=pids,
            cpu_percent=cpu_percent,
        )

    def exec_stream(
        self,
        command: execs.Command,
        *,
        stdin: bool = False,
        text: bool = True,
        capture: bool = False,
        id: Optional[str] = None,
        key: Optional[str] = None,
        **options: Any,
    ) -> ExecStream:
        """Start a command; returns an ExecStream when it runs (or could not be started: its result says why).

        stdin: keep its input open for `write`. capture: keep all output for the result as well. The other options are
        those of `exec`, and `pty` (a map of rows, cols, term), `resumable`.
        """
        params = execs.start_params(command, notify=True, **options)
        return ExecStream.open(
            self._client, "exec.start", params, vm=self.id, id=id or execs.new_id(), key=key or execs.new_key(), stdin=stdin,
            command=command, text=text, capture=capture,
        )

    def pty(
        self,
        command: execs.Command = ("/bin/sh", "-i"),
        *,
        rows: int = 24,
        cols: int = 80,
        term: Optional[str] = None,
        text: bool = True,
        **options: Any,
    ) -> ExecStream:
        """Start a command on a PTY of rows x cols (1-65535); its output is all "stdout", its input is open.

        term: the TERM variable, default `xterm-256color`. The other options are those of `exec_stream`.
        """
        size: Dict[str, Any] = {"rows": rows, "cols": cols}
        if term is not None:
            size["term"] = term
        return self.exec_stream(command, stdin=True, text=text, pty=size, **options)

    def attach(
        self,
        id: str,
        *,
        stdout_after: Optional[int] = None,
        stderr_after: Optional[int] = None,
        owner: bool = False,
        tail: bool = False,
        text: bool = True,
        capture: bool = False,
    ) -> ExecStream:
        """Follow an exec that runs, or collect the result of one that ended. Raises NotFound.

        stdout_after, stderr_after: byte offsets to go on from, default the oldest that is kept. tail: only what comes from
        now on. owner: take the owner's place: input is accepted, no output is lost from here, and closing cancels the
        exec. A viewer that reads too slowly loses output (the result's `gaps`) and stalls nobody.
        """
        optional = {
            "stdout_after": stdout_after, "stderr_after": stderr_after, "owner": owner or None, "tail": tail or None,
        }
        params = {k: v for k, v in optional.items() if v is not None}
        return ExecStream.open(
            self._client, "exec.attach", params, vm=self.id, id=id, stdin=owner, command=id, text=text, capture=capture
        )

    @property
    def commands(self) -> Commands:
        """Commands by id: run in the background, list, connect, signal, kill, input."""
        return Commands(self)

    @property
    def filesystem(self) -> Filesystem:
        """Files of the VM: read, write, list, copy in and out, watch."""
        return Filesystem(self)
