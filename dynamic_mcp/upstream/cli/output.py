"""What a program writes, kept within a limit: the first part and the last, as text that is fit to be read."""

from __future__ import annotations

import re

# Colours, cursor moves, titles and other orders to a terminal (ECMA-48).
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}
_CONTINUATION = re.compile(rb"^[\x80-\xbf]{1,3}")
_INCOMPLETE = re.compile(rb"(?:[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})$")


class Output:
    """One stream of a program. Of more than `limit` bytes, only both ends are kept."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._most = limit // 2
        self._head = bytearray()
        self._tail = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what was written."""
        self.size += len(data)
        room = self._most - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._most:
            del self._tail[: -self._most]

    @property
    def is_cut(self) -> bool:
        """Whether the middle is missing."""
        return self.size > self._limit

    def text(self) -> str:
        """Return the text, without what is meant for a terminal, and a line about the middle if it is missing."""
        if not self.is_cut:
            return clean(bytes(self._head + self._tail))
        head = _INCOMPLETE.sub(b"", bytes(self._head))
        tail = _CONTINUATION.sub(b"", bytes(self._tail[-self._most :]))
        missing = self.size - len(head) - len(tail)
        return f"{clean(head)}\n… ({missing} bytes left out) …\n{clean(tail)}"


def clean(data: bytes) -> str:
    """Return the text without escapes for a terminal and other characters that cannot be seen."""
    text = data.decode("utf-8", "replace")
    return _ESCAPES.sub("", text).translate(_CONTROLS) if not text.isprintable() else text
