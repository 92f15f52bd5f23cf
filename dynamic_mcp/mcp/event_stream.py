"""Parses server-sent events incrementally (WHATWG HTML, 9.2.6), in bounded memory and linear time.

The data of an event stays the bytes that arrived, its lines joined by newlines.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynamic_mcp.mcp.lines import Lines, Oversized

_BOM = b"\xef\xbb\xbf"
_EDGE = 4096
_LONGEST_RETRY_S = 3600.0


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event with data. Data over the limit is `Oversized`."""

    name: str
    data: bytes


class EventStream:
    """One stream, possibly over several connections. To reconnect, send `last_id` and wait `retry_s`."""

    def __init__(self, limit: int) -> None:
        self.last_id = b""
        self.retry_s: float | None = None
        self._limit = limit
        self.restart()

    def restart(self) -> None:
        """Start a new connection and drop any incomplete event of the previous one."""
        self._lines = Lines(self._limit)
        self._is_first = True
        self._ends_with_cr = False
        self._reset_event()

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that this chunk completes."""
        if self._ends_with_cr or b"\r" in chunk:
            chunk = self._normalize_line_ends(chunk)
        events: list[ServerSentEvent] = []
        for line in self._lines.feed(chunk):
            if line:
                self._parse_field(line[len(_BOM) :] if self._is_first and line.startswith(_BOM) else line)
            elif event := self._finish_event():
                events.append(event)
            self._is_first = False
        return events

    def take_rest(self) -> ServerSentEvent | None:
        """Return the last event even if the empty line after it is missing."""
        if line := self._lines.take_rest():
            self._parse_field(line)
        return self._finish_event()

    def _normalize_line_ends(self, chunk: bytes) -> bytes:
        if self._ends_with_cr:
            chunk = chunk.removeprefix(b"\n")
        self._ends_with_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _parse_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._append_data(value, line.size if isinstance(line, Oversized) else len(value))
            case b"event":
                self._name = value[:_EDGE].decode("utf-8", "replace")
            case b"id" if b"\0" not in value and not isinstance(line, Oversized):
                self._id = value
            case b"retry" if value.isdigit() and len(value) < 20:
                self.retry_s = min(int(value) / 1000, _LONGEST_RETRY_S)

    def _append_data(self, value: bytes, size: int) -> None:
        self._size += size
        if self._size > self._limit and self._data:  # keep only the start and the end
            value = b"\n".join((self._data[0][:_EDGE], value[-_EDGE:]))
            self._data.clear()
        self._data.append(value)

    def _finish_event(self) -> ServerSentEvent | None:
        data, size, name = b"\n".join(self._data), self._size, self._name
        self.last_id = self._id  # only once the event is complete
        self._reset_event()
        if size > self._limit:
            data = Oversized(data)
            data.size = size
        return ServerSentEvent(name, data) if data else None

    def _reset_event(self) -> None:
        self._data: list[bytes] = []
        self._size = 0
        self._name = "message"
        self._id = self.last_id
