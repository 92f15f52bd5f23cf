"""A request body that does not arrive together with its head."""

from __future__ import annotations

from dynamic_mcp.face.http.limits import BODY_PROGRESS_BYTES
from dynamic_mcp.face.http.parser import MessageParser


class RequestBody:
    """Collects a body while it is wanted, and counts the discarded bytes afterwards.

    `length` is its Content-Length; None if `parser` finds its end.
    """

    __slots__ = ("_data", "_due", "_missing", "_parser", "discarded_bytes", "is_coming", "is_wanted")

    def __init__(self, length: int | None, parser: MessageParser | None) -> None:
        self.is_coming = True  # False: the client waits for `100 Continue`
        self.is_wanted = True
        self.discarded_bytes = 0
        self._missing = length or 0
        self._parser = parser if length is None else None
        self._data = bytearray()
        self._due = BODY_PROGRESS_BYTES

    def feed(self, data: bytes | bytearray) -> int:
        """Consume bytes of this body from `data`; return how many were consumed. Raises HttpRefusal."""
        parser = self._parser
        if parser is None:
            taken = min(self._missing, len(data))
            self._missing -= taken
            if self.is_wanted:
                self._data += data if taken == len(data) else data[:taken]
        else:
            taken = parser.feed(data)
            if self.is_wanted:
                self._data += parser.body
            parser.body.clear()
        if not self.is_wanted:
            self.discarded_bytes += taken
        return taken

    def is_complete(self) -> bool:
        return self._missing == 0 if self._parser is None else self._parser.is_complete

    def missing_bytes(self) -> int:
        """Return how many bytes are known to be still missing."""
        return self._missing

    def collected_bytes(self) -> int:
        return len(self._data)

    def record_progress(self) -> bool:
        """Record the progress; return whether it is enough to keep waiting."""
        if len(self._data) < self._due:
            return False
        self._due = len(self._data) + BODY_PROGRESS_BYTES
        return True

    def take(self) -> bytes:
        return bytes(self._data)

    def drop(self) -> None:
        """Stop collecting."""
        self.is_wanted = False
        self._data.clear()
