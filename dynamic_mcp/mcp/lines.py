"""Splits a byte stream into lines, in bounded memory and linear time, and recovers ids from broken lines."""

from __future__ import annotations

import re

from msgspec import Raw

_EDGE = 4096


class Oversized(bytes):
    """The first and last few kilobytes of an oversized line; `size` is the length of the whole line."""

    size: int = 0


class Lines:
    """Splits a byte stream into lines. A line longer than `limit` bytes becomes `Oversized`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their line ends."""
        end = data.find(b"\n")
        if end < 0:
            self._append(data)
            return []
        if end == len(data) - 1 <= self._limit:  # `split` checks each byte, which takes far longer
            if not self._parts:
                return [data[:end]]
            self._append(data[:end])
            return [self.take_rest()]
        if not self._parts and len(data) <= self._limit:
            *lines, rest = data.split(b"\n")
            self._append(rest)
            return lines
        first, *lines, rest = data.split(b"\n")
        if len(data) > self._limit:
            lines = [self._truncate(line) for line in lines]
        self._append(first)
        lines.insert(0, self.take_rest())
        self._append(rest)
        return lines

    def take_rest(self) -> bytes:
        """Remove and return the data after the last line end."""
        line, size, head = b"".join(self._parts), self._size, self._head
        self._parts.clear()
        self._size, self._head = 0, b""
        return self._truncate(line, size, head)

    def _append(self, data: bytes) -> None:
        if not data:
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > self._limit:
            data = b"".join(self._parts)
            self._head = self._head or data[:_EDGE]
            self._parts[:] = [data[-_EDGE:]]

    def _truncate(self, line: bytes, size: int = 0, head: bytes = b"") -> bytes:
        size = max(size, len(line))
        if size <= self._limit:
            return line
        cut = Oversized((head or line[:_EDGE]) + b"\n" + line[-_EDGE:])
        cut.size = size
        return cut


def on_one_line(message: bytes) -> bytes:
    """Return a JSON message without line ends, which are only white space: JSON strings cannot contain them."""
    return message.replace(b"\n", b" ").replace(b"\r", b" ")


class MultilineJoiner:
    """Rejoins messages that were written over several lines, from a lone `{` to a lone `}`."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self._limit = limit
        self._lines: list[bytes] = []
        self._size = 0

    def feed(self, line: bytes) -> bytes:
        """Return the message that `line` is or completes; empty inside a message and for blank lines."""
        if not self._lines:
            if line.startswith(b'{"'):  # as nearly all messages do
                return line
            if line.strip() != b"{":
                return line if line.strip() else b""
        elif line.startswith(b'{"') or self._size > self._limit:
            self._lines.clear()  # the brace did not start a message
            return line
        self._lines.append(line)
        self._size = self._size + len(line) if len(self._lines) > 1 else len(line)
        if line.rstrip() != b"}":
            return b""
        lines, self._lines = self._lines, []
        return b" ".join(lines)


# Writers put the id first, or last next to `jsonrpc`. Anywhere else in a broken line, an `id` may belong to a nested
# object.
_ID = rb'(-?\d+|"[^"\\]{0,200}")'
_FIRST = rb'\A\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_LAST = rb',\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*' + _ID + rb"\s*\}\s*\Z"
_ANSWER = rb'"(?:result|error)"\s*:'
_METHOD = rb'"method"\s*:\s*"[^"\\]{0,200}"'


def find_response_id(line: bytes) -> Raw | None:
    """Return the id of a response that cannot be parsed, so that its request can fail."""
    return _find_id(line, rb'"id"\s*:\s*' + _ID + rb"\s*,\s*" + _ANSWER, _ANSWER)


def find_request_id(line: bytes) -> Raw | None:
    """Return the id of a request that cannot be parsed, so that it can be answered."""
    either = rb'(?:"id"\s*:\s*' + _ID + rb"\s*,\s*" + _METHOD + rb"|" + _METHOD + rb'\s*,\s*"id"\s*:\s*' + _ID + rb")"
    return _find_id(line, either, _METHOD)


def _find_id(line: bytes, early: bytes, opening: bytes) -> Raw | None:
    head, tail = line[: _EDGE * 2], line[-_EDGE * 2 :]
    match = re.match(_FIRST + early, head)
    if match is None and re.match(_FIRST + opening, head):
        match = re.search(_LAST, tail)
    return Raw(next(filter(None, match.groups()))) if match else None
