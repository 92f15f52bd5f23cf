"""Reads single keys and whole lines from a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator

# Returns the next key within seconds; empty if none comes.
ReadKey = Callable[[float], str]

if sys.platform == "win32":
    import msvcrt

    _POLL_S = 0.05

    def _read(within_s: float) -> str:
        ends_at = time.monotonic() + within_s
        while time.monotonic() < ends_at:
            if msvcrt.kbhit():
                key = msvcrt.getwch()
                if key == "\x03":
                    raise KeyboardInterrupt
                return key
            time.sleep(_POLL_S)
        return ""

    @contextlib.contextmanager
    def open_keyboard() -> Iterator[ReadKey]:
        """Read keys at once and without showing them, from now on."""
        yield _read

    def read_line(within_s: float) -> str | None:
        """Return a line that is typed; None if nothing is typed in this time. Raises EOFError at the end of input."""
        ends_at = time.monotonic() + within_s
        while not msvcrt.kbhit():
            if time.monotonic() > ends_at:
                return None
            time.sleep(_POLL_S)
        return input()

    def discard_typed() -> None:
        """Throw away what was typed before."""
        while msvcrt.kbhit():
            msvcrt.getwch()

else:
    import termios
    import tty

    def _read(within_s: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], within_s)
        if not ready:
            return ""
        typed = os.read(sys.stdin.fileno(), 1024)
        if not typed:
            raise KeyboardInterrupt  # the terminal is gone
        return typed.decode("utf-8", "replace") if len(typed) == 1 else "?"  # an arrow, or something pasted

    @contextlib.contextmanager
    def open_keyboard() -> Iterator[ReadKey]:
        """Read keys at once and without showing them, from now on; what was typed before is thrown away."""
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor, termios.TCSAFLUSH)
            yield _read
        finally:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)

    def read_line(within_s: float) -> str | None:
        """Return a line that is typed; None if none comes in this time. Raises EOFError at the end of input."""
        ready, _, _ = select.select([sys.stdin], [], [], within_s)
        if not ready:
            return None
        typed = os.read(sys.stdin.fileno(), 65536)
        if not typed:
            raise EOFError
        return typed.decode("utf-8", "replace").rstrip("\n")

    def discard_typed() -> None:
        """Throw away what was typed before."""
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def discard(read: ReadKey, for_s: float) -> None:
    """Throw away what is typed in this time."""
    ends_at = time.monotonic() + for_s
    while (left := ends_at - time.monotonic()) > 0:
        read(left)
