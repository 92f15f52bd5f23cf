"""The whole program on a terminal of its own: what it shows is waited for, what a person types is sent."""

from __future__ import annotations

import contextlib
import os
import re
import select
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests import own_process

if sys.platform != "win32":
    import fcntl
    import pty
    import termios

CONFIG = {"DYNAMIC_MCP_CONFIG": "dynamic-mcp.json"}
DOWN, ENTER, INTERRUPT, BLANK = b"\x1b[B", b"\r", b"\x03", b" "


class Terminal:
    """A program on a terminal: what it shows is waited for, what a person types is sent."""

    def __init__(self, process: own_process.Blocking, descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._shown = b""
        self._typed_at = 0

    @property
    def output(self) -> bytes:
        """All that was shown so far, as it came."""
        return self._shown

    @property
    def text(self) -> str:
        """All that was shown so far, without what moves and colours it."""
        return strip_escapes(self._shown.decode(errors="replace")).replace("\r\n", "\n")

    @property
    def shown(self) -> bytes:
        """What was shown since something was typed, as it came."""
        return self._shown[self._typed_at :]

    def shows(self, words: str) -> None:
        """Wait until the program has shown this since something was typed."""
        while words.encode() not in self.shown and words not in strip_escapes(self.shown.decode(errors="replace")):
            assert self.read(), f"ended before {words!r}: {self.shown!r}"

    def types(self, keys: bytes) -> None:
        """Send keys, after which only what is shown from then on is waited for."""
        self._typed_at = len(self._shown)
        self.presses(keys)

    def presses(self, keys: bytes) -> None:
        """Send keys."""
        os.write(self._descriptor, keys)

    def ends(self) -> int:
        """Wait for the end, and return the exit code."""
        while self.read():
            pass
        return self.process.wait(own_process.BOUND_S)

    def read(self) -> bytes:
        """Wait until the program shows something, and return it; nothing if it has ended."""
        ready, _, _ = select.select([self._descriptor], [], [], own_process.BOUND_S)
        assert ready, f"nothing more after: {self.shown!r}"
        data = b""
        with contextlib.suppress(OSError):  # Linux's way to say that the other side is closed
            data = os.read(self._descriptor, 65536)
        # a program may ask the terminal where the cursor is
        for _ in range(data.count(b"\x1b[6n")):
            os.write(self._descriptor, b"\x1b[1;1R")
        self._shown += data
        return data


@contextlib.contextmanager
def open_terminal(
    *args: str,
    env: Mapping[str, str],
    cwd: Path,
    stdout: int | None = None,
    rows: int = 50,
    columns: int = 200,
) -> Iterator[Terminal]:
    """Run the program on a terminal of this size, in this environment; its stdout can be something else."""
    if sys.platform == "win32":
        pytest.skip("needs a pseudo-terminal, as POSIX systems have them")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = own_process.start_at_terminal(*args, terminal=theirs, stdout=stdout, env=env, cwd=cwd)
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait(own_process.BOUND_S)
        os.close(ours)


@contextlib.contextmanager
def terminal(home: Path, *args: str) -> Iterator[Terminal]:
    """Run the program on a terminal, by a person with this home."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CODEX", "CLAUDE", "XDG_CONFIG"))
    }
    environment = {**kept, "HOME": str(home), "TERM": "xterm", "COLUMNS": "200", "LINES": "50", **CONFIG}
    with open_terminal(*args, env=environment, cwd=home) as person:
        yield person


def strip_escapes(shown: str) -> str:
    """Return terminal output without its control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
