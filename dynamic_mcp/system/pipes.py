"""Pipes for the event loop, and threads for what the loop cannot wait for: files, terminals, Windows pipes.

A `Source` delivers what arrives, in order. A `Sink` accepts what is written and never blocks the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable
from typing import IO, Protocol, cast

_FLUSH_WITHIN_S = 0.5
_CHUNK_BYTES = 1 << 18
# So much is not kept for the end of a turn: joining copies it, and its reader could be at work meanwhile.
_JOINED_BYTES = 1 << 16


class Source(Protocol):
    """A stream that is being read."""

    def pause_reading(self) -> None:
        """Stop delivering data for now."""
        ...

    def resume_reading(self) -> None:
        """Deliver data again."""
        ...

    def close(self) -> None:
        """Stop reading for good."""
        ...


class Sink(Protocol):
    """A stream that is being written."""

    def write(self, data: bytes) -> None:
        """Accept all of `data`."""
        ...

    def try_write(self, data: bytes, most_buffered: int) -> bool:
        """Accept all of `data` unless this is closing, or more is buffered already; return whether it did."""
        ...

    def buffered_bytes(self) -> int:
        """Return how many bytes the other side has not read yet."""
        ...

    def is_closing(self) -> bool:
        """Tell whether this is closed or closing, so that nothing more can be written."""
        ...

    async def close(self) -> None:
        """Flush what is left, within a time limit, and close."""
        ...


async def open_source(fd: int, receive: Callable[[bytes], None], on_end: Callable[[], None]) -> Source:
    """Read `fd` until it ends, and close it. `receive` gets each chunk; `on_end` is called once, at the end."""
    if not _can_be_awaited(fd):
        return _ThreadSource(fd, receive, on_end)
    reader = _Reader(receive, on_end)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: reader, _file(fd, "rb"))
    return transport


async def open_sink(
    fd: int, *, high: int, on_full: Callable[[], None], on_drain: Callable[[], None], on_end: Callable[[], None]
) -> Sink:
    """Write to `fd`, which the sink closes.

    `on_full` is called when more than `high` bytes are buffered, `on_drain` when the buffer has drained, and `on_end`
    when the other side is gone.
    """
    if not _can_be_awaited(fd):
        return _ThreadSink(fd)
    writer = _Writer(high, on_full, on_drain, on_end)
    await asyncio.get_running_loop().connect_write_pipe(lambda: writer, _file(fd, "wb"))
    return writer


def _file(fd: int, mode: str) -> IO[bytes]:
    """Wrap a descriptor for the loop so that it is closed once: uvloop closes it in addition to the file object."""
    is_uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    return cast(IO[bytes], os.fdopen(fd, mode, 0, closefd=not is_uvloop))


def _can_be_awaited(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


class _Reader(asyncio.Protocol):
    def __init__(self, receive: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._receive = receive
        self._on_end = ended

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


class _Writer(asyncio.BaseProtocol):
    """Writes the first message of a turn of the loop at once, and those that follow it together at its end.

    A message is never behind the one before it, and a lone one never waits.
    """

    def __init__(
        self, high: int, full: Callable[[], None], drained: Callable[[], None], ended: Callable[[], None]
    ) -> None:
        self._high = high
        self._on_end = ended
        self._closed = asyncio.Event()
        self._pipe: asyncio.WriteTransport
        self._on_full = full
        self._on_drain = drained
        self._loop = asyncio.get_running_loop()
        self._has_written = False  # in this turn
        self._joined: list[bytes] = []
        self._joined_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast(asyncio.WriteTransport, transport)  # uvloop's class has the methods, but is no subclass
        self._pipe.set_write_buffer_limits(high=self._high)

    def connection_lost(self, exc: Exception | None) -> None:
        self._take_joined()
        self._closed.set()
        self._on_end()

    def pause_writing(self) -> None:
        self._on_full()

    def resume_writing(self) -> None:
        self._on_drain()

    def write(self, data: bytes) -> None:
        if self._has_written:
            self._joined.append(data)
            self._joined_bytes += len(data)
            if self._joined_bytes >= _JOINED_BYTES:
                self._write_joined()
        elif not self._pipe.is_closing():  # uvloop raises once the other side is gone
            self._has_written = True
            self._loop.call_soon(self._end_turn)
            self._pipe.write(data)

    def try_write(self, data: bytes, most_buffered: int) -> bool:
        pipe = self._pipe
        if pipe.is_closing() or pipe.get_write_buffer_size() + self._joined_bytes > most_buffered:
            return False
        self.write(data)
        return True

    def buffered_bytes(self) -> int:
        return self._pipe.get_write_buffer_size() + self._joined_bytes

    def is_closing(self) -> bool:
        return self._pipe.is_closing()

    async def close(self) -> None:
        self._write_joined()
        self._pipe.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_WITHIN_S):  # wait_for may swallow a cancellation before 3.12
                await self._closed.wait()
        if not self._closed.is_set():  # asyncio's own pipes cannot be closed twice
            self._pipe.abort()

    def _end_turn(self) -> None:
        self._has_written = False
        if self._joined:
            self._write_joined()

    def _write_joined(self) -> None:
        data = self._take_joined()
        if data and not self._pipe.is_closing():
            self._pipe.write(data)

    def _take_joined(self) -> bytes:
        data = b"".join(self._joined)
        self._joined.clear()
        self._joined_bytes = 0
        return data


class _ThreadSource:
    """Reads in a thread, one chunk at a time; the next chunk is read once the loop has handled the last one."""

    def __init__(self, fd: int, receive: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._fd = fd
        self._receive = receive
        self._on_end = ended
        self._loop = asyncio.get_running_loop()
        self._may_read = threading.Event()
        self._may_read.set()
        self._closed = False
        threading.Thread(target=self._read, daemon=True).start()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def close(self) -> None:
        self._closed = True
        self._may_read.set()

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the program is ending
            with contextlib.suppress(OSError):
                while chunk := os.read(self._fd, _CHUNK_BYTES):
                    handled = threading.Event()
                    self._loop.call_soon_threadsafe(self._take, chunk, handled)
                    handled.wait()
                    self._may_read.wait()
            self._loop.call_soon_threadsafe(self._on_end)

    def _take(self, chunk: bytes, handled: threading.Event) -> None:
        if not self._closed:
            self._receive(chunk)
        handled.set()


class _ThreadSink:
    """Writes in a thread, so that a reader that stalls blocks nothing else."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._buffered = 0
        self._closing = False
        self._closed = asyncio.Event()
        threading.Thread(target=self._write, daemon=True).start()

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._buffered += len(data)
            self._queue.put(data)

    def try_write(self, data: bytes, most_buffered: int) -> bool:
        if self._closing or self._buffered > most_buffered:
            return False
        self.write(data)
        return True

    def buffered_bytes(self) -> int:
        return self._buffered

    def is_closing(self) -> bool:
        return self._closing

    async def close(self) -> None:
        self._closing = True
        self._queue.put(b"")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_WITHIN_S):  # wait_for may swallow a cancellation before 3.12
                await self._closed.wait()

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._queue.get():
                view = memoryview(data)
                while view:
                    view = view[os.write(self._fd, view) :]
                self._buffered -= len(data)
        with contextlib.suppress(OSError):
            os.close(self._fd)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._closed.set)
