"""Parses the heads of one connection. A client's heads often differ only in their Content-Length."""

from __future__ import annotations

import re

from msgspec import structs

from dynamic_mcp.face.http.parser import MessageParser, ParsedRequest, Peer

# Longer lengths are left to the parser.
_MOST_DIGITS = 9
_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]{1,%d})\r\n" % _MOST_DIGITS, re.IGNORECASE)


class HeadCache:
    """Caches the last head if it has a Content-Length. A head that differs only in the length is not parsed again."""

    __slots__ = ("_after", "_before", "_length", "_peer", "_request")

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._request: ParsedRequest | None = None
        self._before = self._length = self._after = b""

    def find(self, data: bytes | bytearray) -> tuple[ParsedRequest, int] | None:
        """Return the cached request at the beginning of `data`, and the length of its head; None if it differs."""
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

    def parse(self, raw: bytes) -> tuple[ParsedRequest, MessageParser | None]:
        """Return the request with this complete head, and a parser if its body is chunked. Raises HttpRefusal."""
        cached = self.find(raw)
        if cached is not None and cached[1] == len(raw):
            return cached[0], None
        parser = MessageParser()
        request = parser.parse_head(raw, self._peer)
        self._remember(raw, request)
        return request, parser

    def _remember(self, raw: bytes, request: ParsedRequest) -> None:
        match = _LENGTH.search(raw)
        if match is not None and request.length is not None and request.head.headers[b"content-length"] == match[1]:
            self._before, self._length, self._after = raw[: match.start(1)], match[1], raw[match.end(1) :]
            self._request = request
        else:  # such as GET: an open stream needs no memory for a head that may not repeat
            self._before = self._length = self._after = b""
            self._request = None
