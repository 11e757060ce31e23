# SPDX-License-Identifier: Apache-2.0
"""What calls return, as checked plain records."""

from __future__ import annotations

import signal as _signal
from dataclasses import dataclass, field
from typing import Any, AnyStr, Dict, Generic, List, Mapping, Optional, Type, TypeVar

from . import errors

T = TypeVar("T")


def take(fields: Mapping[str, Any], name: str, kind: Type[T], default: T) -> T:
    """fields[name] if it has the type, default when it is absent or nil, else ProtocolError."""
    value = fields.get(name)
    if value is None:
        return default
    if kind is str and isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise errors.ProtocolError(f"the peer sent {name} with a value that is not {kind.__name__}")
    return value


@dataclass(frozen=True)
class StartError:
    """Why a program never ran.

    kind: `not_found`, `denied`, `cwd`, `user`, `format`, `limit` or `io`. stage: the step that failed (`chdir`, `execve`,
    ...). path: the file it is about. errno, errno_name: what the operating system said, None where it was not asked.
    """

    kind: str
    message: str
    errno: Optional[int] = None
    errno_name: Optional[str] = None
    stage: Optional[str] = None
    path: Optional[str] = None

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> "StartError":
        return cls(
            kind=take(fields, "kind", str, "io"),
            message=take(fields, "message", str, ""),
            errno=take(fields, "errno", int, 0) or None,
            errno_name=take(fields, "errno_name", str, "") or None,
            stage=take(fields, "stage", str, "") or None,
            path=take(fields, "path", str, "") or None,
        )


@dataclass(frozen=True)
class ExecResult(Generic[AnyStr]):
    """All that is known about a command that ended.

    stdout, stderr: what it wrote (str in text mode, else bytes), as far as it was kept.
    exit_code: 0-255; 128 + n when signal n ended it; 127 not found, 126 not executable or another start error.
    signal: number of the signal that ended it, None when it exited.
    timed_out: its timeout ended it, whatever code it left with. oom_killed: the kernel's OOM killer ended a process of it.
    canceled: somebody ended it with kill.
    truncated: some output was dropped (output_limit); the *_bytes totals count it.
    duration_ms: from start to end in milliseconds, on the guest's monotonic clock.
    user_ms, system_ms: processor time; max_rss_kib: peak resident memory of its processes.
    started: False when the program never ran; start_error says why.
    id, pid: the exec's id and its process id in the guest (None when it never ran).
    gaps: bytes that this reader did not get, as (stream, from, to); empty for the owner of an exec.
    """

    stdout: AnyStr
    stderr: AnyStr
    exit_code: int
    signal: Optional[int] = None
    timed_out: bool = False
    oom_killed: bool = False
    canceled: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    duration_ms: float = 0.0
    user_ms: float = 0.0
    system_ms: float = 0.0
    max_rss_kib: int = 0
    started: bool = True
    start_error: Optional[StartError] = None
    id: str = ""
    pid: Optional[int] = None
    command: Any = field(default=None, compare=False)
    gaps: List[Any] = field(default_factory=list, compare=False)

    @property
    def truncated(self) -> bool:
        """Some output of either stream was dropped."""
        return self.stdout_truncated or self.stderr_truncated

    @property
    def ok(self) -> bool:
        """The program ran, exited with 0 and was not timed out."""
        return self.started and self.exit_code == 0 and not self.timed_out

    def describe(self) -> str:
        """How it ended, as the rest of a sentence."""
        if not self.started:
            why = self.start_error.message if self.start_error else "no reason was given"
            return f"did not start: {why}"
        if self.timed_out:
            return f"timed out after {self.duration_ms:.0f} ms"
        if self.oom_killed:
            return "was ended because memory ran out"
        if self.signal is not None:
            try:
                return f"was ended by {_signal.Signals(self.signal).name}"
            except ValueError:
                return f"was ended by signal {self.signal}"
        return f"exited with {self.exit_code}"

    def check(self) -> "ExecResult[AnyStr]":
        """Return self if the command succeeded; raise ExecTimeout or ExecFailed, which hold this result."""
        if self.ok:
            return self
        message = f"{self.command!r} {self.describe()}"
        if self.timed_out:
            raise errors.ExecTimeout(message, self)
        raise errors.ExecFailed(message, self)

    @classmethod
    def from_wire(
        cls,
        fields: Mapping[str, Any],
        stdout: AnyStr,
        stderr: AnyStr,
        command: Any = None,
        gaps: Optional[List[Any]] = None,
    ) -> "ExecResult[AnyStr]":
        """Build one from a RESULT map; raises ProtocolError when a field has a wrong type."""
        start_error = take(fields, "start_error", dict, {})
        usage = take(fields, "rusage", dict, {})
        exit_code = take(fields, "exit_code", int, -1)
        if not 0 <= exit_code <= 255:
            raise errors.ProtocolError(f"the peer sent a result with exit code {exit_code}")
        return cls(
            stdout=stdout,
            stderr=stderr,
            exit_code=exit_code,
            signal=take(fields, "signal", int, 0) or None,
            timed_out=take(fields, "timed_out", bool, False),
            oom_killed=take(fields, "oom_killed", bool, False),
            canceled=take(fields, "canceled", bool, False),
            stdout_truncated=take(fields, "stdout_truncated", bool, False),
            stderr_truncated=take(fields, "stderr_truncated", bool, False),
            stdout_bytes=take(fields, "stdout_bytes", int, 0),
            stderr_bytes=take(fields, "stderr_bytes", int, 0),
            duration_ms=take(fields, "duration_us", int, 0) / 1000,
            user_ms=take(usage, "user_us", int, 0) / 1000,
            system_ms=take(usage, "system_us", int, 0) / 1000,
            max_rss_kib=take(usage, "max_rss_kib", int, 0),
            started=take(fields, "started", bool, True),
            start_error=StartError.from_wire(start_error) if start_error else None,
            id=take(fields, "id", str, ""),
            pid=take(fields, "pid", int, 0) or None,
            command=command,
            gaps=gaps or [],
        )


@dataclass(frozen=True)
class ExecInfo:
    """One exec of a VM, as `exec.list` tells it. state: `running` or `ended`; exit_code only when it ended."""

    id: str
    pid: Optional[int]
    state: str
    argv: List[str]
    started_ms_ago: int
    pty: bool = False
    detached: bool = False
    attached: int = 0
    exit_code: Optional[int] = None

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> "ExecInfo":
        state = take(fields, "state", str, "")
        return cls(
            id=take(fields, "id", str, ""),
            pid=take(fields, "pid", int, 0) or None,
            state=state,
            argv=[a if isinstance(a, str) else str(a) for a in take(fields, "argv", list, [])],
            started_ms_ago=take(fields, "started_ms_ago", int, 0),
            pty=take(fields, "pty", bool, False),
            detached=take(fields, "detached", bool, False),
            attached=take(fields, "attached", int, 0),
            exit_code=take(fields, "exit_code", int, 0) if state == "ended" else None,
        )


@dataclass(frozen=True)
class VmInfo:
    """A VM as the broker tells it.

    state: `starting`, `booting`, `running`, `paused`, `parked`, `stopping` or `dead`. reason: why it ended, when dead.
    created: unix time in seconds. expires_in_seconds: until its TTL ends it, None when that is not running.
    pid: of the VMM on the host. boot_mode: `cold` (cold_reason: although its template has a snapshot), `restore`, `fork` or
    `pool`. snapshot: the one its memory comes from; parent: id of the VM that it was forked from. share_gid: the group whose
    members may use it.
    disk_mib: of its writable disk; 0: what it writes is in its memory.
    stages_ms: milliseconds of each stage of its start. asleep_by: paused or parked by a `call` or by its `idle` policy, which is
    pause_after_seconds and park_after_seconds (None: never); asleep_since: unix time in seconds. raw: the map as it came.
    """

    id: str
    state: str
    name: Optional[str] = None
    template: str = ""
    memory_mib: int = 0
    vcpus: int = 0
    disk_mib: int = 0
    metadata: Dict[str, str] = field(default_factory=dict)
    owner_uid: int = 0
    pid: Optional[int] = None
    cid: Optional[int] = None
    created: float = 0.0
    expires_in_seconds: Optional[float] = None
    boot_mode: str = ""
    stages_ms: Dict[str, float] = field(default_factory=dict)
    vmm: str = ""
    vmm_version: str = ""
    accel: str = ""
    accel_reason: str = ""
    reason: Optional[str] = None
    cold_reason: Optional[str] = None
    snapshot: Optional[str] = None
    parent: Optional[str] = None
    layers: int = 0
    secrets: bool = False
    pause_after_seconds: Optional[float] = None
    park_after_seconds: Optional[float] = None
    asleep_by: Optional[str] = None
    asleep_since: Optional[float] = None
    share_gid: Optional[int] = None
    raw: Dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> "VmInfo":
        expires = fields.get("expires_in_ms")
        stages = take(fields, "stages", dict, {})
        idle, asleep = take(fields, "idle", dict, {}), take(fields, "asleep", dict, {})
        return cls(
            id=take(fields, "id", str, ""),
            state=take(fields, "state", str, ""),
            name=take(fields, "name", str, "") or None,
            template=take(fields, "template", str, ""),
            memory_mib=take(fields, "memory_mib", int, 0),
            vcpus=take(fields, "vcpus", int, 0),
            disk_mib=take(fields, "disk_mib", int, 0),
            metadata=dict(take(fields, "metadata", dict, {})),
            owner_uid=take(fields, "owner_uid", int, 0),
            pid=take(fields, "pid", int, 0) or None,
            cid=take(fields, "cid", int, 0) or None,
            created=take(fields, "created_ms", int, 0) / 1000,
            expires_in_seconds=None if expires is None else take(fields, "expires_in_ms", int, 0) / 1000,
            boot_mode=take(fields, "boot_mode", str, ""),
            stages_ms={k[:-3]: v / 1000 for k, v in stages.items() if k.endswith("_us") and isinstance(v, int)},
            vmm=take(fields, "vmm", str, ""),
            vmm_version=take(fields, "vmm_version", str, ""),
            accel=take(fields, "accel", str, ""),
            accel_reason=take(fields, "accel_reason", str, ""),
            reason=take(fields, "reason", str, "") or None,
            cold_reason=take(fields, "cold_reason", str, "") or None,
            snapshot=take(fields, "snapshot", str, "") or None,
            parent=take(fields, "parent", str, "") or None,
            layers=take(fields, "layers", int, 0),
            secrets=take(fields, "secrets", bool, False),
            pause_after_seconds=take(idle, "pause_after_ms", int, 0) / 1000 or None,
            park_after_seconds=take(idle, "park_after_ms", int, 0) / 1000 or None,
            asleep_by=take(asleep, "by", str, "") or None,
            asleep_since=take(asleep, "since_ms", int, 0) / 1000 or None,
            share_gid=take(fields, "share_gid", int, 0) if "share_gid" in fields else None,
            raw=dict(fields),
        )


@dataclass(frozen=True)
class SnapshotInfo:
    """A snapshot. bytes: on the disk; own_bytes: of it, what deleting it frees. users: ids of the living VMs that go on from it.

    created: unix time in seconds. pause_ms: how long the VM stood still for it, told when it is made. raw: the map as it came.
    """

    name: str
    template: str = ""
    memory_mib: int = 0
    vcpus: int = 0
    disk_mib: int = 0
    vm: str = ""
    owner_uid: int = 0
    created: float = 0.0
    generation: int = 0
    layers: int = 0
    bytes: int = 0
    own_bytes: int = 0
    users: List[str] = field(default_factory=list)
    verified: bool = False
    secrets: bool = False
    must_match: Dict[str, str] = field(default_factory=dict)
    pause_ms: Optional[float] = None
    raw: Dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> "SnapshotInfo":
        pause = fields.get("pause_us")
        return cls(
            name=take(fields, "name", str, ""),
            template=take(fields, "template", str, ""),
            memory_mib=take(fields, "memory_mib", int, 0),
            vcpus=take(fields, "vcpus", int, 0),
            disk_mib=take(fields, "disk_mib", int, 0),
            vm=take(fields, "vm", str, ""),
            owner_uid=take(fields, "owner_uid", int, 0),
            created=take(fields, "created_ms", int, 0) / 1000,
            generation=take(fields, "generation", int, 0),
            layers=take(fields, "layers", int, 0),
            bytes=take(fields, "bytes", int, 0),
            own_bytes=take(fields, "own_bytes", int, 0),
            users=[u if isinstance(u, str) else str(u) for u in take(fields, "users", list, [])],
            verified=take(fields, "verified", bool, False),
            secrets=take(fields, "secrets", bool, False),
            must_match=dict(take(fields, "must_match", dict, {})),
            pause_ms=None if pause is None else take(fields, "pause_us", int, 0) / 1000,
            raw=dict(fields),
        )
