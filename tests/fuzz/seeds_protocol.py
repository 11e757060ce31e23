#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the protocol's fuzz targets: run it in tests/fuzz after a change of wire.md."""

import pathlib
import struct

import msgpack

SEEDS = pathlib.Path(__file__).parent / "seeds"
BOOT_ID = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"


def write(target: str, name: str, data: bytes) -> None:
    path = SEEDS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def frame(kind: int, payload: bytes, flags: int = 0) -> bytes:
    return struct.pack(">IBBH", len(payload), kind, flags, 0) + payload


EXEC_START = {
    "argv": ["ls", "-l", ""], "env": {"A": "1", "B": "", "C": None}, "clear_env": True, "cwd": "/tmp",
    "user": "u:g", "timeout_ms": 1000, "grace_ms": 30000, "output_limit": 2**63 - 1,
    "merge_stderr": True, "detach": True, "resumable": True, "notify": True, "drain_ms": 0,
    "memory_bytes": 1 << 20, "pids": 10, "cpu_percent": 50,
    "pty": {"rows": 24, "cols": 80, "term": "vt100"},
}
EXEC_RESULT = {
    "id": "x1", "pid": 77, "started": True, "exit_code": 137, "signal": 9, "timed_out": True,
    "oom_killed": True, "canceled": True, "stdout_bytes": 5, "stderr_bytes": 6,
    "stdout_truncated": True, "stderr_truncated": True, "duration_us": 7,
    "rusage": {"user_us": 1, "system_us": 2, "max_rss_kib": 3},
    "start_error": {"kind": "io", "errno": 5, "errno_name": "EIO", "stage": "execve",
                    "path": b"/\xff", "message": "m"},
}
IDENTITY = {"keep_keys": True, "generation": 1, "hostname": "h", "machine_id": "0123456789abcdef" * 2,
            "realtime_ns": 1764446400000000000, "entropy": bytes(range(32))}
VM_CREATE = {"template": "t.1", "name": "my_vm", "ttl_ms": 1000, "timeout_ms": 2000, "share_group": "users",
             "memory_mib": 128, "vcpus": 2, "disk_mib": 64, "metadata": {"a": "1", "b": None, "c": b"\xff"},
             "idle": {"pause_after_ms": 1000, "park_after_ms": 2000}}
HELLO = {"proto": 1, "role": "agent", "name": "hutch-agent 0.1", "boot_id": BOOT_ID,
         "generation": 3, "pid1": True, "held": True}
CALL = {"method": "exec.start", "vm": "v", "id": "i", "key": "k", "params": {"argv": ["a"]}}
ERROR = {"kind": "io", "message": "m\x1b\u20ac", "errno": 2, "errno_name": "ENOENT", "stage": "s",
         "path": "/p", "retryable": True}

# One per decoder, in the order of the targets' selector bytes.
FAMILIES = {
    "msg": [[HELLO, {"proto": 2}, {"proto": 1, "role": "client"}], [CALL, {"method": "ping"}],
            [ERROR, {"kind": "busy", "message": ""}]],
    "msg_exec": [
        [EXEC_START, {"shell": ""}, {"shell": b"exit 7", "pty": {}}],
        [EXEC_RESULT, {"started": False, "exit_code": 127}],
        [{"event": "started", "id": "x", "pid": 5}, {"event": "stdin_closed"},
         {"event": "gap", "stream": "stderr", "from": 1, "to": 2},
         {"event": "attached", "id": "x", "pid": 5, "stdout_offset": 1, "stderr_offset": 2,
          "rows": 24, "cols": 80},
         {"event": "ack", "stdout": 1, "stderr": 2}, {"event": "other"}],
        [IDENTITY],
        [{"stdout_after": 1, "stderr_after": 2, "owner": True}, {"tail": True}],
        [{"signal": 9, "tree": True}, {"signal": "SIGTERM"}],
        [{"rows": 24, "cols": 80}],
        [{"timeout_ms": 1000}],
        [{"grace_ms": 1000}],
        [{"close": True}],
        [{"timeout_ms": 1000}],
        [{"generation": 1, "frozen_us": 800}],
        [{"generation": 1, "realtime_ns": 1764446400000000000}],
    ],
    "msg_vm": [[VM_CREATE, {}], [{"ttl_ms": 1000}], [{"all": True}], [{"name": "base"}],
               [{"count": 8, "name": "w", "ttl_ms": 5, "metadata": {"a": "1"}, "allow_secrets": True}],
               [{"name": "s", "allow_secrets": True}], [{"name": "s"}],
               [{"name": "base", "memory_mib": 256, "vcpus": 2, "timeout_ms": 9}],
               [{"template": "base", "size": 3}],
               [{"pause_after_ms": 1000, "park_after_ms": 0}, {"park_after_ms": 5000}]],
}


def main() -> None:
    for target, decoders in FAMILIES.items():
        for selector, messages in enumerate(decoders):
            for n, message in enumerate(messages):
                write(target, f"{selector}-{n}", bytes([selector]) + msgpack.packb(message))

    empty = msgpack.packb({})
    write("frame", "all", b"".join(frame(kind, empty) for kind in (1, 2, 3, 4, 5, 16, 17, 18)))
    write("frame", "end", frame(16, b"", 1) + frame(18, b"x" * 300, 1))
    write("frame", "long", frame(16, b"")[:0] + struct.pack(">IBBH", 65537, 16, 0, 0))
    write("frame", "reserved", struct.pack(">IBBH", 0, 2, 0, 1))

    write("codec", "every_form", msgpack.packb({
        "a": [0, 127, -1, -32, None, True, False, 1.5, 255, 256, 65535, 65536, 2**32, 2**64 - 1],
        "b": [-33, -129, -32769, -2**31 - 1, -2**63], "k": {"": {}, "k": []},
        "s": ["", "x" * 40, b"", b"y" * 300, "z" * 300]}))
    write("codec", "deep", b"\x81\xa1x" + b"\x91" * 15 + b"\xc0")
    write("codec", "too_deep", b"\x81\xa1x" + b"\x91" * 16 + b"\xc0")
    write("codec", "twice", b"\x82\xa1k\x01\xa1k\x02")
    write("codec", "wide", b"\xde\x00\x48" + b"".join(b"\xa2%02d\xc0" % i for i in range(72)))
    write("codec", "ext", b"\x81\xa1k\xd4\x01\x00")
    write("codec", "map32", b"\xdf\x00\x00\x00\x01\xa1k\xdd\x00\x00\x00\x01\xdb\x00\x00\x00\x01x")
    for n, claim in enumerate((b"\xdd", b"\xdf", b"\xc6", b"\xdb")):
        write("codec", f"claim-{n}", b"\x81\xa1k" + claim + b"\xff" * 4)


main()
