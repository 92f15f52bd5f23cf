"""Parses the heads of one connection: a client sends the same one with each message, but for its Content-Length."""

from __future__ import annotations

import re

from msgspec import structs

from dynamic_mcp.face.http.parser import MessageParser, Peer, Request

# A length of more digits is left to the parser.
_MOST_DIGITS = 9
_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]{1,%d})\r\n" % _MOST_DIGITS, re.IGNORECASE)


class HeadCache:
    """Remembers the last head if it has a Content-Length. One that differs in the length only is not parsed again."""

    __slots__ = ("_after", "_before", "_length", "_peer", "_request")

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._request: Request | None = None
        self._before = self._length = self._after = b""

    def find(self, data: bytes | bytearray) -> tuple[Request, int] | None:
        """Return what the head says that `data` begins with, and its length in bytes; None if it is not known."""
        request = self._request
        if request is None or not data.startswith(self._before):
            return None
        start = len(self._before)
        end = data.find(b"\r", start, start + _MOST_DIGITS + 1)
        if end < 0 or not data.startswith(self._after, end):
            return None
        if data[start:end] != self._length:
            length = bytes(data[start:end])
            if not length.isdigit():
                return None
            head = structs.replace(request.head, headers={**request.head.headers, b"content-length": length})
            request = structs.replace(request, head=head, length=int(length))
            self._length, self._request = length, request
        return request, end + len(self._after)

    def parse(self, raw: bytes) -> tuple[Request, MessageParser | None]:
        """Return what a whole head says, and what parses the body if that is chunked. Raises Refusal."""
        known = self.find(raw)
        if known is not None and known[1] == len(raw):
            return known[0], None
        parser = MessageParser()
        request = parser.parse_head(raw, self._peer)
        self._remember(raw, request)
        return request, parser

    def _remember(self, raw: bytes, request: Request) -> None:
        match = _LENGTH.search(raw)
        if match is not None and request.length is not None and request.head.headers[b"content-length"] == match[1]:
            self._before, self._length, self._after = raw[: match.start(1)], match[1], raw[match.end(1) :]
            self._request = request
        else:  # such as GET: an open stream needs no memory for a head that may not come again
            self._before = self._length = self._after = b""
            self._request = None
