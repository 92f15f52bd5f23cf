"""Reads single keys and whole lines from a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator

# Returns the next key, or an empty string after a timeout in seconds.
ReadKey = Callable[[float], str]

if sys.platform == "win32":
    import msvcrt

    _POLL_S = 0.05

    def _read(within_s: float) -> str:
        ends_at = time.monotonic() + within_s
        while time.monotonic() < ends_at:
            if typed := _read_available():
                if "\x03" in typed:
                    raise KeyboardInterrupt
                return typed if len(typed) == 1 else "?"  # an arrow key, or pasted text
            time.sleep(_POLL_S)
        return ""

    def _read_available() -> str:
        typed = ""
        while msvcrt.kbhit():
            typed += msvcrt.getwch()
        return typed

    @contextlib.contextmanager
    def open_keyboard() -> Iterator[ReadKey]:
        """Read single keys, without echo, in this context; discard keys typed before."""
        discard_typed()
        yield _read

    def read_line(within_s: float) -> str | None:
        """Return a typed line; None after the timeout. Raises EOFError at the end of input."""
        ends_at = time.monotonic() + within_s
        while not msvcrt.kbhit():
            if time.monotonic() > ends_at:
                return None
            time.sleep(_POLL_S)
        return input()

    def discard_typed() -> None:
        """Discard keys typed before."""
        _read_available()

else:
    import termios
    import tty

    def _read(within_s: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], within_s)
        if not ready:
            return ""
        typed = os.read(sys.stdin.fileno(), 1024)
        if not typed:
            raise KeyboardInterrupt  # the terminal is closed
        return typed.decode("utf-8", "replace") if len(typed) == 1 else "?"  # an arrow key, or pasted text

    @contextlib.contextmanager
    def open_keyboard() -> Iterator[ReadKey]:
        """Read single keys, without echo, in this context; discard keys typed before."""
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor, termios.TCSAFLUSH)
            yield _read
        finally:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)

    def read_line(within_s: float) -> str | None:
        """Return a typed line; None after the timeout. Raises EOFError at the end of input."""
        ready, _, _ = select.select([sys.stdin], [], [], within_s)
        if not ready:
            return None
        typed = os.read(sys.stdin.fileno(), 65536)
        if not typed:
            raise EOFError
        return typed.decode("utf-8", "replace").rstrip("\n")

    def discard_typed() -> None:
        """Discard keys typed before."""
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def discard(read: ReadKey, for_s: float) -> None:
    """Discard keys for this many seconds."""
    ends_at = time.monotonic() + for_s
    while (left := ends_at - time.monotonic()) > 0:
        read(left)
