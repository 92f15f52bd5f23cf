"""The body of a request that has not come with its head."""

from __future__ import annotations

from dynamic_mcp.face.http.limits import BODY_PROGRESS_BYTES
from dynamic_mcp.face.http.parser import MessageParser


class RequestBody:
    """Collects a body while it is wanted, and counts what is thrown away of it afterwards.

    `length` is its Content-Length; None if `parser` finds its end.
    """

    __slots__ = ("_data", "_due", "_missing", "_parser", "is_coming", "is_wanted", "thrown_away")

    def __init__(self, length: int | None, parser: MessageParser | None) -> None:
        self.is_coming = True  # False: the client waits to be told to go on
        self.is_wanted = True
        self.thrown_away = 0
        self._missing = length or 0
        self._parser = parser if length is None else None
        self._data = bytearray()
        self._due = BODY_PROGRESS_BYTES

    def feed(self, data: bytes | bytearray) -> int:
        """Take from the next bytes; return how many were taken, none of which is behind this body. Raises Refusal."""
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
            self.thrown_away += taken
        return taken

    def is_complete(self) -> bool:
        """Tell whether all of it has come."""
        return self._missing == 0 if self._parser is None else self._parser.is_complete

    def missing_bytes(self) -> int:
        """Return how much is known to be on its way still."""
        return self._missing

    def collected_bytes(self) -> int:
        """Return how much was collected."""
        return len(self._data)

    def note_progress(self) -> bool:
        """Note how much was collected; tell whether it is enough since the last time to wait for more."""
        if len(self._data) < self._due:
            return False
        self._due = len(self._data) + BODY_PROGRESS_BYTES
        return True

    def take(self) -> bytes:
        """Return what was collected."""
        return bytes(self._data)

    def drop(self) -> None:
        """Collect no more."""
        self.is_wanted = False
        self._data.clear()
