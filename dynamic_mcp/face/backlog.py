"""The client's lines that no daemon has answered yet, as its window keeps them. Only line ends are parsed.

Imports nothing, because a window starts with this.
"""

from __future__ import annotations

# An unfinished line is kept up to this length; a longer one is over every limit and will be refused.
_MAX_UNFINISHED_BYTES = 1 << 28


class Backlog:
    """Numbered lines, from 1 with each daemon; lines that no daemon has taken; and an unfinished line."""

    def __init__(self) -> None:
        self.unanswered: dict[int, bytes] = {}
        self._fresh: list[bytes] = []
        self._unfinished: list[bytes] = []
        self._unfinished_bytes = 0
        self._last_number = 0

    def __bool__(self) -> bool:
        """Return whether there is anything left for a daemon to handle."""
        return bool(self.unanswered or self._fresh or self._unfinished)

    def add(self, data: bytes) -> None:
        """Number the lines that `data` completes, and keep each until it is removed from `unanswered`."""
        if not self._unfinished and data.find(b"\n") == len(data) - 1:  # nearly always
            self._last_number += 1
            self.unanswered[self._last_number] = data[:-1]
            return
        first, *lines = data.split(b"\n")
        if first:
            self._unfinished.append(first)
            self._unfinished_bytes += len(first)
        if lines:
            rest = lines.pop()
            for line in (b"".join(self._unfinished), *lines):
                self._last_number += 1
                self.unanswered[self._last_number] = line
            self._unfinished, self._unfinished_bytes = [rest] if rest else [], len(rest)
        elif self._unfinished_bytes > _MAX_UNFINISHED_BYTES:
            self._unfinished[1:] = [b"\0"]  # never JSON, so that the daemon refuses the line

    def add_untaken(self, data: bytes) -> None:
        """Keep input for the next daemon: there is none now, or the current one is stopping."""
        *lines, rest = b"".join((*self._unfinished, data)).split(b"\n")
        self._fresh += lines
        self._unfinished, self._unfinished_bytes = [rest] if rest else [], len(rest)

    def end_untaken_line(self) -> None:
        """End an unfinished line for the next daemon."""
        if self._unfinished:
            self.add_untaken(b"\n")

    def end_line(self) -> bytes:
        """End an unfinished line; return the bytes to send for that."""
        if not self._unfinished:
            return b""
        self.add(b"\n")
        return b"\n"

    def on_stop(self, taken: int) -> None:
        """Called when the daemon stops after taking the lines up to this number."""
        self._fresh = [line for number, line in self.unanswered.items() if number > taken]
        self.unanswered = {number: line for number, line in self.unanswered.items() if number <= taken}

    def unread(self) -> bytes:
        """Return the input that no daemon has taken."""
        return b"".join(line + b"\n" for line in self._fresh) + b"".join(self._unfinished)

    def interrupted(self) -> list[bytes]:
        """Return the lines that a daemon took and did not answer."""
        return list(self.unanswered.values())

    def restore(self, interrupted: list[bytes], unread: bytes) -> None:
        """Continue with what `interrupted` and `unread` of another backlog returned."""
        self.unanswered = dict(enumerate(interrupted, 1))
        self._last_number = len(interrupted)
        *self._fresh, rest = unread.split(b"\n")
        self._unfinished, self._unfinished_bytes = [rest] if rest else [], len(rest)

    def hand_over(self) -> bytes:
        """Renumber all lines for a daemon that knows the interrupted ones; return the bytes to send to it."""
        unread = self.unread()
        self.unanswered = dict(enumerate((*self.unanswered.values(), *self._fresh), 1))
        self._last_number = len(self.unanswered)
        self._fresh = []
        return unread
