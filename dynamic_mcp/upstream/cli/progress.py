"""What a program writes to stderr while it runs, as progress of its call: the latest line, at most two a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Raw

from dynamic_mcp.mcp import lines, wire
from dynamic_mcp.system.text import one_line
from dynamic_mcp.upstream.cli.output import clean

EVERY_S = 0.5
_LINE_BYTES = 2000
_LONGEST = 300
# Of what is read at once, only so many lines are worth a look.
_LINES_AT_ONCE = 200


class Progress:
    """Hands each line to `take_line`, and the params of a progress notification to `send` if there is a token."""

    def __init__(self, token: Raw, take_line: Callable[[str], None], send: Callable[[bytes], None]) -> None:
        self._token = token
        self._take_line = take_line
        self._send = send
        self._lines = lines.Lines(_LINE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._sent = 0
        self._latest = ""
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        """Take what the program has written; a carriage return ends a line too."""
        for line in self._lines.feed(data.replace(b"\r", b"\n"))[-_LINES_AT_ONCE:]:
            if text := one_line(clean(line), _LONGEST):
                self._take_line(text)
                self._latest = text
        if self._latest and self._timer is None and len(self._token):
            self._send_latest()

    def close(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def _send_latest(self) -> None:
        """Send the latest line, if there is one since the last, and the next one not before its time."""
        self._timer = None
        if self._latest:
            self._sent += 1
            params = {"progressToken": self._token, "progress": self._sent, "message": self._latest}
            self._latest = ""
            self._timer = self._loop.call_later(EVERY_S, self._send_latest)
            self._send(wire.encode(params))
