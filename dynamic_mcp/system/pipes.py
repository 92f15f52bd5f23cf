"""Pipes for the event loop, and threads for files, terminals and Windows pipes, which the loop cannot wait for.

A `PausableStream` delivers data in order. A `Sink` accepts all data and never blocks the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, Protocol, cast
from weakref import WeakKeyDictionary

if sys.platform == "linux":
    import fcntl
if sys.platform == "win32":
    from asyncio.windows_utils import PipeHandle

    Pipe = int | PipeHandle
else:
    Pipe = int

_FLUSH_WITHIN_S = 0.5
_CHUNK_BYTES = 1 << 18
# Data from this size on is written before the end of a burst: joining copies it, and its reader can start sooner.
_JOINED_BYTES = 1 << 16
# A result of the largest default size fits. It is not larger, because Linux limits the total of a user's pipes.
_PIPE_BYTES = 1 << 17


class PausableStream(Protocol):
    """A stream that is being read."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Stop reading for good."""
        ...


class Sink(Protocol):
    """A stream that is being written."""

    def write(self, data: bytes) -> None:
        """Accept all of `data`."""
        ...

    def try_write(self, data: bytes, most_buffered: int) -> bool:
        """Accept all of `data`, unless this is closing or has more bytes buffered; return whether it did."""
        ...

    def buffered_bytes(self) -> int:
        """Return how many bytes the other side has not read yet."""
        ...

    def is_closing(self) -> bool:
        """Return whether this is closed or closing, so that nothing more can be written."""
        ...

    async def close(self) -> None:
        """Flush the buffered data, within a time limit, and close."""
        ...


async def open_source(pipe: Pipe, receive: Callable[[bytes], None], on_end: Callable[[], None]) -> PausableStream:
    """Read `pipe` until it ends, and close it. `receive` gets each chunk; `on_end` is called once, at the end.

    It is a descriptor, or on Windows the overlapped handle of a pipe.
    """
    if isinstance(pipe, int) and not _can_be_awaited(pipe):
        return _ThreadSource(pipe, receive, on_end)
    reader = _Reader(receive, on_end)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: reader, _file(pipe, "rb"))
    return transport


async def open_sink(
    pipe: Pipe, *, high: int, on_full: Callable[[], None], on_drain: Callable[[], None], on_end: Callable[[], None]
) -> Sink:
    """Write to `pipe`, as `open_source` has it; the sink closes it.

    `on_full` is called when more than `high` bytes are buffered, `on_drain` when the buffer has drained, and `on_end`
    when the other side disconnects.
    """
    if isinstance(pipe, int) and not _can_be_awaited(pipe):
        return _ThreadSink(pipe, high, on_full, on_drain, on_end)
    writer = _Writer(high, on_full, on_drain, on_end)
    await asyncio.get_running_loop().connect_write_pipe(lambda: writer, _file(pipe, "wb"))
    return writer


def enlarge(fd: int) -> None:
    """Enlarge a pipe's buffer for a large message, so that neither side waits for the other in its middle.

    Does nothing where the system refuses, or if this is not a pipe.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < _PIPE_BYTES:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _file(pipe: Pipe, mode: str) -> IO[bytes]:
    """Wrap a descriptor for the loop so that it is closed once: uvloop closes it in addition to the file object."""
    if sys.platform == "win32":
        return cast(IO[bytes], pipe)  # a handle has what its loop needs of a file
    else:  # noqa: RET505 - mypy takes what follows an `if` for dead code on Windows
        is_uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        return cast(IO[bytes], os.fdopen(pipe, mode, 0, closefd=not is_uvloop))


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


class Burst:
    """The handling of messages that arrived together: the data written in response is joined.

    A burst ends after the tasks and callbacks that its messages started or woke; until then `is_open` is true.
    A single message does not open one, which saves a callback and a turn of the loop.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._number = 0  # several sources may have one open at the same time
        self._callbacks: list[Callable[[], None]] = []

    def handle(self, receive: Callable[[bytes], None], messages: Sequence[bytes]) -> None:
        """Pass messages that arrived together to `receive`."""
        is_burst = len(messages) > 1
        if is_burst:
            self._number += 1
            self.is_open = True
        try:
            for message in messages:
                receive(message)
        finally:
            if is_burst:
                asyncio.get_running_loop().call_soon(self._end)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` at the end of the current burst."""
        self._callbacks.append(callback)

    def _end(self) -> None:
        self._number -= 1
        if self._number == 0:
            self.is_open = False
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback()


_bursts: WeakKeyDictionary[asyncio.AbstractEventLoop, Burst] = WeakKeyDictionary()


def burst_of(loop: asyncio.AbstractEventLoop) -> Burst:
    """Return the burst that all sources and sinks of a loop share."""
    return _bursts.setdefault(loop, Burst())


class _Writer(asyncio.BaseProtocol):
    """Writes the first message of a burst at once and joins the later ones at its end; any other is written at once.

    Messages are never reordered.
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
        self._burst = burst_of(asyncio.get_running_loop())
        self._has_written = False  # in this burst
        self._joined: list[bytes] = []
        self._joined_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast(asyncio.WriteTransport, transport)  # uvloop's class has the methods, but is not a subclass
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
        elif not self._pipe.is_closing():  # uvloop raises after the other side has disconnected
            if self._burst.is_open:
                self._has_written = True
                self._burst.on_end(self._end_burst)
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

    def _end_burst(self) -> None:
        self._has_written = False
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
    """Writes in a thread, so that a stalled reader does not block the loop."""

    def __init__(
        self, fd: int, high: int, full: Callable[[], None], drained: Callable[[], None], ended: Callable[[], None]
    ) -> None:
        self._fd = fd
        self._high = high
        self._on_full = full
        self._on_drain = drained
        self._on_end = ended
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._buffered = 0  # changed by the loop only
        self._is_full = False
        self._closing = False
        self._closed = asyncio.Event()
        threading.Thread(target=self._write, daemon=True).start()

    def write(self, data: bytes) -> None:
        if self._closing or not data:
            return
        self._buffered += len(data)
        self._queue.put(data)
        if self._buffered > self._high and not self._is_full:
            self._is_full = True
            self._on_full()

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
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the program is ending
            with contextlib.suppress(OSError):
                while data := self._take():
                    view = memoryview(data)
                    while view:
                        view = view[os.write(self._fd, view) :]
                    self._loop.call_soon_threadsafe(self._take_written, len(data))
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._loop.call_soon_threadsafe(self._take_end)

    def _take(self) -> bytes:
        """Return what is to be written next, joined as far as it is small; nothing if this is to be closed."""
        parts = [self._queue.get()]
        size = len(parts[0])
        with contextlib.suppress(queue.Empty):
            while parts[-1] and size < _JOINED_BYTES:
                parts.append(self._queue.get_nowait())
                size += len(parts[-1])
        if len(parts) > 1 and not parts[-1]:
            self._queue.put(b"")
        return b"".join(parts)

    def _take_written(self, size: int) -> None:
        self._buffered -= size
        # at a quarter, as asyncio's transports do
        if self._is_full and self._buffered <= self._high // 4:
            self._is_full = False
            self._on_drain()

    def _take_end(self) -> None:
        self._closing = True
        self._closed.set()
        self._on_end()
