"""The received bytes of a connection that are not consumed yet."""

from __future__ import annotations

from dynamic_mcp.face.http.parser import find_head_end

_CR = 13


class InputBuffer:
    """Returns heads and bodies. Data that arrives and is taken in one piece is not copied."""

    __slots__ = ("_data", "_has_skipped_line", "_scanned")

    def __init__(self) -> None:
        self._data: bytes | bytearray = b""
        self._scanned = 0
        self._has_skipped_line = False

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        if not self._data:
            self._data = data
            return
        if type(self._data) is not bytearray:
            self._data = bytearray(self._data)
        self._data += data

    def take_head(self) -> bytes | None:
        """Return the head of the next request; None if it is incomplete. Raises HttpRefusal."""
        if self._data[0] == _CR and not self._has_skipped_line and not self._skip_line():
            return None
        end = find_head_end(self._data, self._scanned)
        if end < 0:
            self._scanned = len(self._data)
            return None
        return self.take_message(0, end)

    def take_message(self, head: int, length: int) -> bytes:
        """Consume a head of `head` bytes and a body of `length` bytes; return the body."""
        self._scanned = 0
        self._has_skipped_line = False
        data, end = self._data, head + length
        body = bytes(data[head:end])
        if end == len(data):
            self._data = b""
        else:
            self.skip(end)
        return body

    def peek(self) -> bytes | bytearray:
        return self._data

    def skip(self, count: int) -> None:
        """Consume the next bytes."""
        if count == len(self._data):
            self._data = b""
            return
        if type(self._data) is not bytearray:
            self._data = bytearray(self._data)
        del self._data[:count]  # does not copy the rest

    def _skip_line(self) -> bool:
        """Skip one empty line before a request, which some clients send after a body (RFC 9112, 2.2)."""
        if len(self._data) > 1:
            self._has_skipped_line = True
            if self._data.startswith(b"\r\n"):
                self.skip(2)
        return len(self._data) > 0 and self._has_skipped_line
