"""The whole program on a terminal of its own: what it shows is waited for, what a person types is sent."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BOUND_S = 30.0
CONFIG = {"DYNAMIC_MCP_CONFIG": "dynamic-mcp.json"}
DOWN, ENTER, INTERRUPT, BLANK = b"\x1b[B", b"\r", b"\x03", b" "


class Terminal:
    """A program on a terminal: what it shows is waited for, what a person types is sent."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.shown = b""

    def shows(self, text: str) -> None:
        """Wait until the program has shown this since the last answer."""
        while text.encode() not in self.shown:
            ready, _, _ = select.select([self._descriptor], [], [], BOUND_S)
            assert ready, f"waiting for {text!r}: {self.shown!r}"
            data = b""
            with contextlib.suppress(OSError):  # Linux's way to say that the other side is closed
                data = os.read(self._descriptor, 65536)
            assert data, f"ended before {text!r}: {self.shown!r}"
            # a program may ask the terminal where the cursor is
            if b"\x1b[6n" in data:
                os.write(self._descriptor, b"\x1b[1;1R")
            self.shown += data

    def types(self, keys: bytes) -> None:
        """Send keys; what was shown before is forgotten."""
        self.shown = b""
        os.write(self._descriptor, keys)

    def ends(self) -> int:
        """Wait for the end, and return the exit code."""
        with contextlib.suppress(AssertionError):
            self.shows("\0 the end")
        return self.process.wait(BOUND_S)


@contextlib.contextmanager
def terminal(home: Path, *args: str) -> Iterator[Terminal]:
    """Run the program on a terminal of its own."""
    ours, theirs = pty.openpty()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CODEX", "CLAUDE", "XDG_CONFIG"))
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "dynamic_mcp", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=home,
        env={**kept, "HOME": str(home), "TERM": "xterm", "COLUMNS": "200", "LINES": "50", **CONFIG},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
