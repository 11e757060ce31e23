# SPDX-License-Identifier: Apache-2.0
"""The wire protocol (protocol/wire.md) as pure functions and state, without I/O.

`FrameDecoder` cuts a byte stream into frames. `Session` is the caller's side of one connection: it is
fed received bytes, hands out what they mean, and knows when the next call may be sent. The blocking and
the asyncio clients are thin loops around it.
"""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union

import msgpack

from . import errors

PROTO_VERSION = 1

HELLO, CALL, RESULT, ERROR, EVENT = 1, 2, 3, 4, 5
STDIN, STDOUT, STDERR = 16, 17, 18
END = 1

HEADER = struct.Struct("!IBBH")
MAX_DATA = 64 << 10
MAX_PAYLOAD = {
    HELLO: 4 << 10,
    CALL: 1 << 20,
    RESULT: 1 << 20,
    ERROR: 64 << 10,
    EVENT: 64 << 10,
    STDIN: MAX_DATA,
    STDOUT: MAX_DATA,
    STDERR: MAX_DATA,
}

BytesLike = Union[bytes, bytearray, memoryview]


class Frame(NamedTuple):
    """One frame as it was on the wire."""

    type: int
    flags: int
    payload: bytes

    @property
    def end(self) -> bool:
        return bool(self.flags & END)


def encode_frame(frame_type: int, payload: BytesLike = b"", flags: int = 0) -> bytes:
    """One whole frame. Raises TooLarge when the payload is above the type's maximum."""
    if len(payload) > MAX_PAYLOAD[frame_type]:
        raise errors.TooLarge(
            f"frame of type {frame_type} has {len(payload)} bytes, at most "
            f"{MAX_PAYLOAD[frame_type]} are allowed"
        )
    return HEADER.pack(len(payload), frame_type, flags, 0) + bytes(payload)


def encode_map(value: Mapping[str, Any]) -> bytes:
    """A map payload. Texts may hold surrogate escapes and are then sent as the bytes they stand for."""
    try:
        packed: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    except (TypeError, ValueError, OverflowError, RecursionError) as e:
        raise errors.Invalid(f"a parameter cannot be encoded: {e}") from None
    return packed


def decode_map(payload: BytesLike) -> Dict[str, Any]:
    """Decode a map payload; raises ProtocolError unless it is exactly one map with text keys."""
    try:
        value = msgpack.unpackb(payload, unicode_errors="surrogateescape", strict_map_key=True)
    except Exception as e:  # msgpack raises ValueError, TypeError and its own kinds for bad bytes
        raise errors.ProtocolError(f"the peer sent a payload that is not MessagePack: {e!r}") from None
    if not isinstance(value, dict):
        raise errors.ProtocolError("the peer sent a payload that is not a map")
    return value


class FrameDecoder:
    """Cuts received bytes into frames; refuses a frame by its header, before its payload is kept."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: BytesLike) -> List[Frame]:
        """All frames that became whole. Raises ProtocolError on a header that breaks the protocol."""
        buffer = self._buffer
        buffer += data
        frames = []
        at = 0
        while len(buffer) - at >= HEADER.size:
            length, frame_type, flags, reserved = HEADER.unpack_from(buffer, at)
            self._check(length, frame_type, flags, reserved)
            end = at + HEADER.size + length
            if len(buffer) < end:
                break
            frames.append(Frame(frame_type, flags, bytes(buffer[at + HEADER.size : end])))
            at = end
        if at:
            del buffer[:at]
        return frames

    @staticmethod
    def _check(length: int, frame_type: int, flags: int, reserved: int) -> None:
        limit = MAX_PAYLOAD.get(frame_type)
        if limit is None:
            raise errors.ProtocolError(f"the peer sent a frame of unknown type {frame_type}")
        if flags & ~END or reserved:
            raise errors.ProtocolError(f"the peer sent a frame of type {frame_type} with reserved bits set")
        if length > limit:
            raise errors.ProtocolError(
                f"the peer announced {length} bytes in a frame of type {frame_type}, at most {limit} are allowed"
            )


class Hello(NamedTuple):
    """What the other side said in its first frame."""

    proto: int
    role: str
    name: str
    fields: Dict[str, Any]


class Output(NamedTuple):
    """Bytes that the command wrote; stream is "stdout" or "stderr"."""

    stream: str
    data: bytes


class Event(NamedTuple):
    """An EVENT frame; name is its `event` field."""

    name: str
    fields: Dict[str, Any]


class Result(NamedTuple):
    """The call succeeded with this map; nothing follows."""

    fields: Dict[str, Any]


class Failure(NamedTuple):
    """The call failed with this error; nothing follows."""

    error: errors.HutchError


Received = Union[Output, Event, Result, Failure]

_STREAMS = {STDOUT: "stdout", STDERR: "stderr"}


class Session:
    """The caller's side of one connection.

    A call is open from `call()` until both ENDs were seen: `own_end` is ours, `answered` the peer's. `idle` says
    that the next call may be sent. After a ProtocolError the session is of no use any more.
    """

    def __init__(self, name: str = "hutch-python/0.1.0", role: str = "client") -> None:
        self.peer: Optional[Hello] = None
        self.own_end = True
        self.answered = True
        self.heard = False
        self.broken = False
        self._decoder = FrameDecoder()
        self._hello = encode_frame(HELLO, encode_map({"proto": PROTO_VERSION, "role": role, "name": name}))

    @property
    def idle(self) -> bool:
        return self.own_end and self.answered and not self.broken and not self._decoder.pending

    def call(
        self,
        method: str,
        params: Optional[Mapping[str, Any]] = None,
        *,
        vm: Optional[str] = None,
        id: Optional[str] = None,
        key: Optional[str] = None,
        end: bool = True,
    ) -> bytes:
        """Bytes that open a call (with our HELLO before the first). end: no STDIN or EVENT frames will follow."""
        if not self.idle:
            raise RuntimeError("a call is still open on this connection")
        envelope: Dict[str, Any] = {"method": method}
        for field, value in (("vm", vm), ("id", id), ("key", key), ("params", params)):
            if value is not None:
                envelope[field] = value
        frame = encode_frame(CALL, encode_map(envelope), END if end else 0)
        self.own_end = end
        self.answered = False
        self.heard = False
        hello, self._hello = self._hello, b""
        return hello + frame

    def stdin(self, data: BytesLike = b"", end: bool = False) -> bytes:
        """Input for the open call, cut into frames; end closes our direction."""
        if self.own_end:
            raise RuntimeError("this call's input has ended")
        view = memoryview(data)
        pieces = [view[i : i + MAX_DATA] for i in range(0, len(view), MAX_DATA)]
        if end and not pieces:
            pieces = [view]
        self.own_end = end
        last = len(pieces) - 1
        return b"".join(encode_frame(STDIN, p, END if end and i == last else 0) for i, p in enumerate(pieces))

    def event(self, fields: Mapping[str, Any]) -> bytes:
        """An EVENT towards the callee (an acknowledgement), while our direction is open."""
        if self.own_end:
            raise RuntimeError("this call's input has ended")
        return encode_frame(EVENT, encode_map(fields))

    def receive(self, data: BytesLike) -> List[Received]:
        """What the received bytes mean for the open call, in order."""
        try:
            out: List[Received] = []
            for frame in self._decoder.feed(data):
                received = self._take(frame)
                if received is not None:
                    out.append(received)
            return out
        except errors.HutchError:
            self.broken = True
            raise

    def _take(self, frame: Frame) -> Optional[Received]:
        if self.peer is None:
            if frame.type == HELLO:
                self.peer = self._take_hello(frame)
                return None
            if frame.type != ERROR:
                raise errors.ProtocolError(f"the peer's first frame has type {frame.type}, not HELLO")
        self.heard = True
        if self.answered:
            if frame.type == ERROR:
                raise errors.from_wire(decode_map(frame.payload))
            raise errors.ProtocolError(f"the peer sent a frame of type {frame.type} while no call was open")
        stream = _STREAMS.get(frame.type)
        if stream is not None:
            return Output(stream, frame.payload)
        if frame.type == EVENT:
            fields = decode_map(frame.payload)
            return Event(str(fields.get("event")), fields)
        if frame.type not in (RESULT, ERROR) or not frame.end:
            raise errors.ProtocolError(f"the peer sent a frame of type {frame.type} that has no place in an answer")
        self.answered = True
        fields = decode_map(frame.payload)
        if frame.type == RESULT:
            return Result(fields)
        return Failure(errors.from_wire(fields))

    @staticmethod
    def _take_hello(frame: Frame) -> Hello:
        fields = decode_map(frame.payload)
        proto = fields.get("proto")
        if proto != PROTO_VERSION:
            raise errors.ProtocolError(f"the peer speaks protocol {proto!r}, this side speaks {PROTO_VERSION}")
        return Hello(PROTO_VERSION, str(fields.get("role")), str(fields.get("name")), fields)
