"""Watches directories on Linux with inotify(7), read by the event loop.

watchdog does the same with three threads and 1 MiB, and is used on other systems.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

assert sys.platform == "linux"

# <linux/inotify.h>
_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _IGNORED, _ONLYDIR = 0x400, 0x800, 0x8000, 0x01000000
# Without the events for opening and reading, which our own reads cause.
_WRITING = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_READ_BYTES = 1 << 16

Identity = tuple[int, int]


class InotifyWatcher:
    """Watches a set of directories and calls `on_change` in the loop; all methods may be called in any thread.

    Raises OSError if the user has too many, and AttributeError if the C library has no inotify.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watches: dict[Identity, int] = {}
        self._ended: set[int] = set()  # by the system, as their directories were removed
        self._fd = _check(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        loop.call_soon_threadsafe(loop.add_reader, self._fd, self._read)

    def watch(self, directories: Iterable[Path]) -> bool:
        """Watch exactly these directories; return whether any is new. Raises OSError.

        A directory is watched once, however many names it has.
        """
        targets = {(status.st_dev, status.st_ino): path for path in directories for status in [path.stat()]}
        ended, self._ended = self._ended, set()
        for gone in [each for each, watch in self._watches.items() if each not in targets or watch in ended]:
            self._libc.inotify_rm_watch(self._fd, self._watches.pop(gone))  # fails if it has ended
        new = targets.keys() - self._watches.keys()
        for each in new:
            name = os.fsencode(targets[each])
            self._watches[each] = _check(self._libc.inotify_add_watch(self._fd, name, _WRITING), targets[each])
        return bool(new)

    def stop(self) -> None:
        """Stop watching, in the next turn of the loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the program is ending
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            if mask & _IGNORED:
                self._ended.add(watch)
        self._on_change()


def _check(result: int, path: Path | None = None) -> int:
    """Return what a function of the C library has returned. Raises OSError if that is an error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), None if path is None else str(path))
    return result
