# SPDX-License-Identifier: Apache-2.0
"""Input for a command, taken piece by piece, so that output can be read between the pieces.

A feeder's `next()` returns the next bytes, b"" when there are none yet (wait until `fileno()` is readable), None at
the end. `fileno()` is None for a feeder that always has something to say.
"""

from __future__ import annotations

import collections
import io
import os
import select
import socket
import stat
import threading
from typing import IO, Any, Deque, Iterable, Iterator, Optional, Union

PIECE = 64 << 10

Stdin = Union[None, bytes, bytearray, memoryview, str, int, IO[bytes], IO[str], Iterable[Union[bytes, str]]]


def as_bytes(piece: Any) -> bytes:
    """Bytes of a piece of input; text is sent as UTF-8."""
    if isinstance(piece, str):
        return piece.encode("utf-8", "surrogateescape")
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return bytes(piece)
    raise TypeError(f"stdin must give bytes or str, not {type(piece).__name__}")


class Feeder:
    """Base: bytes that are all there."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = memoryview(data)

    def fileno(self) -> Optional[int]:
        return None

    def next(self) -> Optional[bytes]:
        if not self._data:
            return None
        piece, self._data = self._data[:PIECE], self._data[PIECE:]
        return bytes(piece)

    def close(self) -> None:
        pass


class FileFeeder(Feeder):
    """A file whose read() never has to wait for somebody: a regular file, BytesIO, StringIO."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def next(self) -> Optional[bytes]:
        return as_bytes(self._file.read(PIECE)) or None


class FdFeeder(Feeder):
    """A pipe, socket or terminal. It is read below Python's buffers, as subprocess does with stdin=file."""

    def __init__(self, fd: int, file: Any = None) -> None:
        super().__init__()
        self._fd = fd
        self._file = file  # keeps it open
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def fileno(self) -> Optional[int]:
        return self._fd

    def next(self) -> Optional[bytes]:
        if not self._poll.poll(0):
            return b""
        try:
            return os.read(self._fd, PIECE) or None
        except BlockingIOError:
            return b""


class ThreadFeeder(Feeder):
    """An iterator, or a file that may block: a thread asks it for the next piece when the last one was taken."""

    def __init__(self, pieces: Iterator[Any]) -> None:
        super().__init__()
        self._pieces = pieces
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self._queue: Deque[Any] = collections.deque()
        self._wanted = threading.Semaphore(1)
        self._closed = False
        self._thread = threading.Thread(target=self._pull, name="hutch-stdin", daemon=True)
        self._thread.start()

    def _pull(self) -> None:
        end: Any = None
        try:
            while True:
                self._wanted.acquire()
                if self._closed:
                    break
                try:
                    piece = as_bytes(next(self._pieces))
                except StopIteration:
                    break
                if piece:
                    self._queue.append(piece)
                    self._there.send(b"x")
                else:
                    self._wanted.release()
        except BaseException as e:  # handed to the thread that runs the command
            end = e
        finally:
            self._queue.append(end)
            try:
                self._there.send(b"x")
            except OSError:
                pass
            self._there.close()

    def fileno(self) -> Optional[int]:
        return self._here.fileno()

    def next(self) -> Optional[bytes]:
        try:
            self._here.recv(1)
        except BlockingIOError:
            return b""
        item = self._queue.popleft()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return None
        self._wanted.release()
        piece: bytes = item
        return piece

    def close(self) -> None:
        self._closed = True
        self._wanted.release()
        self._here.close()


def _descriptor(source: Any) -> Optional[int]:
    try:
        fd = source.fileno()
    except (AttributeError, OSError, io.UnsupportedOperation):
        return None
    return fd if isinstance(fd, int) else None


def _read_pieces(file: Any) -> Iterator[Any]:
    read = getattr(file, "read1", None) or file.read
    while True:
        piece = read(PIECE)
        if not piece:
            return
        yield piece


def feeder(stdin: Stdin) -> Optional[Feeder]:
    """The feeder for what a caller gave as stdin; None when it gave none (the program reads /dev/null)."""
    if stdin is None:
        return None
    if isinstance(stdin, Feeder):
        return stdin
    if isinstance(stdin, (bytes, bytearray, memoryview, str)):
        return Feeder(as_bytes(stdin))
    if isinstance(stdin, int):
        return FdFeeder(stdin)
    if isinstance(stdin, (io.BytesIO, io.StringIO)):
        return FileFeeder(stdin)
    fd = _descriptor(stdin)
    if fd is not None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return FileFeeder(stdin) if hasattr(stdin, "read") else FdFeeder(fd, stdin)
        return FdFeeder(fd, stdin)
    if hasattr(stdin, "read"):
        return ThreadFeeder(_read_pieces(stdin))
    if isinstance(stdin, dict):
        raise TypeError("stdin must be bytes, str, a file or an iterable of them, not dict")
    return ThreadFeeder(iter(stdin))
