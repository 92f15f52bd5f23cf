"""The standard streams of a window on Windows, which cannot be polled: threads read and write them.

With `poll`, `read` and `write` the shim uses them and the pipe of its daemon as it uses descriptors elsewhere.
"""

from __future__ import annotations

import _thread
import _winapi
import ctypes
import os
import sys
import time

assert sys.platform == "win32"

from dynamic_mcp.system.named_pipe import PipeConnection  # noqa: E402

# As <poll.h> has them.
POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL = 0x1, 0x4, 0x8, 0x10, 0x20

_STDIN, _STDOUT = 0, 1
_CHUNK_BYTES = 1 << 16

_kernel32 = ctypes.WinDLL("kernel32")
_kernel32.CreateEventW.restype = ctypes.c_void_p


class _Event:
    """An event of Windows, which threads set; several can be waited for at once."""

    def __init__(self, *, is_set: bool = False) -> None:
        self.handle: int = _kernel32.CreateEventW(None, True, is_set, None)  # noqa: FBT003 - takes no keyword

    def set(self) -> None:
        _kernel32.SetEvent(ctypes.c_void_p(self.handle))

    def clear(self) -> None:
        _kernel32.ResetEvent(ctypes.c_void_p(self.handle))


class _Input:
    """Reads stdin, one chunk ahead once the first is wanted."""

    def __init__(self) -> None:
        self.arrived = _Event()
        self._chunk: bytes | None = None
        self._is_reading = self._has_begun = False
        self._descriptor = -1
        self._target: int | None = None
        self._wanted = _thread.allocate_lock()
        self._wanted.acquire()

    def is_ready(self) -> bool:
        """Return whether a chunk, or the end, is there; read one if not."""
        if self._chunk is None and not self._is_reading:
            self._is_reading = True
            if self._has_begun:
                self._wanted.release()
            else:
                self._has_begun = True
                self._descriptor = os.dup(_STDIN)  # `hand_over` replaces stdin while it is being read
                _thread.start_new_thread(self._read, ())
        return self._chunk is not None

    def take(self) -> bytes:
        """Return the chunk; empty at the end. Raises BlockingIOError if there is none."""
        self.arrived.clear()
        chunk = self._chunk
        if chunk is None:
            raise BlockingIOError
        if chunk:
            self._chunk = None
        return chunk

    def hand_over(self) -> None:
        """Make stdin a pipe with what has not been taken: a read that has begun cannot be ended."""
        if not self._has_begun or self._chunk == b"":
            return
        source, self._target = os.pipe()
        os.dup2(source, _STDIN)
        os.close(source)
        self._wanted.release()

    def _read(self) -> None:
        while True:
            chunk = self._read_chunk()
            self._chunk = chunk
            self._is_reading = False
            self.arrived.set()
            self._wanted.acquire()
            if self._target is not None:
                self._copy(self._target)
                return

    def _copy(self, target: int) -> None:
        chunk = self._read_chunk() if self._chunk is None else self._chunk
        try:
            while chunk:
                chunk = chunk[os.write(target, chunk) :] or self._read_chunk()
        except OSError:  # this process has closed its stdin
            pass
        os.close(target)

    def _read_chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, _CHUNK_BYTES)
        except OSError:
            return b""


class _Output:
    """Writes to stdout what `give` accepts."""

    def __init__(self) -> None:
        self.has_room = _Event(is_set=True)
        self.is_idle = _Event(is_set=True)
        self.broken = _Event()
        self.error: OSError | None = None
        self._buffer = bytearray()
        self._lock = _thread.allocate_lock()
        self._wanted = _thread.allocate_lock()
        self._wanted.acquire()
        self._is_waiting = self._has_begun = False

    def is_full(self) -> bool:
        return len(self._buffer) >= _CHUNK_BYTES

    def give(self, data: bytes | bytearray) -> int:
        """Accept all of `data`. Raises BlockingIOError while too much is unwritten, and OSError."""
        with self._lock:
            if self.error is not None:
                raise self.error
            if self.is_full():
                raise BlockingIOError
            self._buffer += data
            self.is_idle.clear()
            if self.is_full():
                self.has_room.clear()
            if self._is_waiting:
                self._is_waiting = False
                self._wanted.release()
        if not self._has_begun:
            self._has_begun = True
            _thread.start_new_thread(self._write, ())
        return len(data)

    def _write(self) -> None:
        try:
            while True:
                if data := self._take():
                    view = memoryview(data)
                    while view:
                        view = view[os.write(_STDOUT, view) :]
                else:
                    self._wanted.acquire()
        except OSError as exc:
            self.error = exc
            for event in (self.broken, self.has_room, self.is_idle):
                event.set()

    def _take(self) -> bytes:
        """Return everything that is to be written; if that is nothing, `give` wakes the thread."""
        with self._lock:
            data = bytes(self._buffer)
            self._buffer.clear()
            self.has_room.set()
            if not data:
                self.is_idle.set()
                self._is_waiting = True
            return data


_input = _Input()
_output = _Output()


class poll:  # noqa: N801 - as in `select`
    """As `select.poll`, of stdin, stdout and pipes."""

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}
        self._pipes: dict[int, PipeConnection] = {}

    def register(self, target: int | PipeConnection, mask: int) -> None:
        number = _number(target)
        self._masks[number] = mask
        if isinstance(target, PipeConnection):
            self._pipes[number] = target

    modify = register

    def unregister(self, target: int | PipeConnection) -> None:
        """Raises KeyError if it is not registered."""
        number = _number(target)
        del self._masks[number]
        self._pipes.pop(number, None)

    def poll(self, within_ms: float | None = None) -> list[tuple[int, int]]:
        """Return what is ready within this time; it may be nothing earlier, too."""
        ready, events = self._look()
        if ready:
            return ready
        bound = _winapi.INFINITE if within_ms is None else int(within_ms)
        if events:
            _winapi.WaitForMultipleObjects(events, False, bound)  # noqa: FBT003 - takes no keyword
        elif within_ms is not None:
            time.sleep(within_ms / 1000)
        return self._look()[0]

    def _look(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Return what is ready, and the events of what is not."""
        ready: list[tuple[int, int]] = []
        events: list[int] = []
        for number, mask in self._masks.items():
            found = 0
            if number == _STDIN:
                found = _find(POLLIN, mask, None if _input.is_ready() else _input.arrived.handle, events)
            elif number == _STDOUT:
                found = POLLERR if _output.error is not None else 0
                events.append(_output.broken.handle)
                found |= _find(POLLOUT, mask, _output.has_room.handle if _output.is_full() else None, events)
            elif mask:
                pipe = self._pipes[number]
                if mask & POLLIN:
                    found = _find(POLLIN, mask, pipe.read_event(), events)
                if mask & POLLOUT:
                    found |= _find(POLLOUT, mask, pipe.write_event(), events)
            if found:
                ready.append((number, found))
        return ready, events


def read(descriptor: int, most: int) -> bytes:
    """Return a chunk of stdin, as `os.read` of a descriptor that does not block."""
    return _input.take()


def write(descriptor: int, data: bytes | bytearray) -> int:
    """Write to stdout, as `os.write` to a descriptor that does not block."""
    return _output.give(data)


def flush(within_ms: int) -> bool:
    """Wait until everything is written; return whether it is, within this time."""
    is_idle = _winapi.WaitForSingleObject(_output.is_idle.handle, within_ms) == _winapi.WAIT_OBJECT_0
    return is_idle and _output.error is None


def hand_over() -> None:
    """Leave stdin to the rest of this process."""
    _input.hand_over()


def _find(kind: int, mask: int, event: int | None, events: list[int]) -> int:
    """Return `kind` if it is polled for and has no event to wait for."""
    if not mask & kind:
        return 0
    if event is None:
        return kind
    events.append(event)
    return 0


def _number(target: int | PipeConnection) -> int:
    return target if isinstance(target, int) else target.fileno()
