"""Parses a request: the end of its head, the head itself, and the chunks of its body.

Strict on purpose: anything that two programs may read differently is refused, since one of them may be a proxy in
front.
"""

from __future__ import annotations

import asyncio
import re
import socket

import httptools
from msgspec import Struct

from dynamic_mcp.face.http.exchange import GONE, HeadNotes, RequestHead
from dynamic_mcp.face.http.limits import MAX_FIELDS, MAX_HEAD_BYTES
from dynamic_mcp.face.http.rules import HttpRefusal, check_host

# The allowed overhead of a chunked body: this much, and more for each byte of data.
_MAX_CHUNK_OVERHEAD_BYTES = 64 << 10
_MAX_OVERHEAD_A_BYTE = 16
_EMPTY_LINES_AT_ONCE = 256

PREFACE_OF_HTTP2 = b"PRI * HTTP/2.0\r\n\r\n"

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_BEGINS_WITH_TOKEN = re.compile(_TOKEN)
# without `#`: fragments are not sent
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb"+) ([!\"$-~]+) HTTP/([0-9]\.[0-9])\r\n")
_ABSOLUTE_TARGET = re.compile(rb"https?://([^/?@]+)((?:[/?].*)?)", re.IGNORECASE)


class ParsedRequest(Struct, frozen=True, gc=False):
    """A head, and what it means for the connection. `length` is the body's; None if it is chunked."""

    head: RequestHead
    length: int | None
    is_http10: bool
    is_keep_alive: bool
    expects_continue: bool


class Peer(Struct, frozen=True, gc=False):
    """The other end of a connection, as each head of the connection names it."""

    address: str
    is_secure: bool
    port: int = 0

    @staticmethod
    def of(transport: asyncio.BaseTransport) -> Peer:
        name = transport.get_extra_info("peername")  # over a Unix socket a string, maybe empty
        socket_ = transport.get_extra_info("socket")
        is_unix = socket_ is None or socket_.family == getattr(socket, "AF_UNIX", None)
        address, port = name[:2] if isinstance(name, tuple) and len(name) > 1 else ("" if is_unix else GONE, 0)
        return Peer(address, transport.get_extra_info("sslcontext") is not None, port)


def find_head_end(data: bytes | bytearray, scanned: int) -> int:
    """Return where the head at the beginning of `data` ends, or -1 if it is incomplete.

    Its first `scanned` bytes were scanned before. Raises HttpRefusal as soon as this cannot become a request.
    """
    end = data.find(b"\r\n\r\n", max(scanned - 3, 0), MAX_HEAD_BYTES)
    stop = end + 4 if end >= 0 else MAX_HEAD_BYTES
    start = scanned - 1 if scanned and data[scanned - 1] == 13 else scanned  # a CR may be waiting for its LF
    if data.count(b"\n", start, stop) != data.count(b"\r\n", start, stop):
        raise HttpRefusal(400, "a line ends without CR")
    if end >= 0:
        return stop
    if not scanned and not _BEGINS_WITH_TOKEN.match(data):
        raise HttpRefusal(400, "not an HTTP request")
    if len(data) >= MAX_HEAD_BYTES:
        raise HttpRefusal(431, f"the head is longer than {MAX_HEAD_BYTES} bytes")
    return -1


class MessageParser:
    """Parses one request: the head at once, and the body if it is chunked."""

    __slots__ = ("_fed", "_fields", "_last", "_parser", "_repeated", "body", "body_bytes", "is_complete")

    def __init__(self) -> None:
        self.body = bytearray()
        self.body_bytes = 0
        self.is_complete = False
        self._fields: dict[bytes, bytes] = {}
        self._repeated: set[bytes] | None = None
        self._fed = 0
        self._last = 0
        self._parser = httptools.HttpRequestParser(self)

    # --- called by httptools ---------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called with each field of the head, or of the trailers, which are ignored."""
        name, value = name.lower(), value.rstrip(b" \t")
        fields = self._fields
        if name in fields:
            self._repeated = self._repeated or set()
            self._repeated.add(name)
            value = fields[name] + b", " + value
        fields[name] = value

    def on_body(self, data: bytes) -> None:
        self.body_bytes += len(data)
        self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = True

    # --- the head --------------------------------------------------------------------------------------

    def parse_head(self, raw: bytes | bytearray, peer: Peer) -> ParsedRequest:
        """Return the request with this complete head. Raises HttpRefusal."""
        line = _REQUEST_LINE.match(raw)
        if line is None:
            raise HttpRefusal(400, "invalid HTTP/1 request line")
        method, target, version = line.groups()
        if version not in (b"1.1", b"1.0"):
            raise HttpRefusal(505, "only HTTP/1.1 and HTTP/1.0 are supported")
        if raw.count(b"\r\n") - 2 > MAX_FIELDS:
            raise HttpRefusal(431, f"more than {MAX_FIELDS} header fields")
        self._feed_head(raw)
        fields, self._fields = self._fields, {}
        repeated = frozenset(self._repeated) if self._repeated else frozenset[bytes]()
        is_http10 = version == b"1.0"
        check_host(fields, repeated, is_needed=not is_http10)
        head = RequestHead(
            method=method.decode(),
            target=target if target.startswith(b"/") else _plain_target(target, method, fields),
            headers=fields,
            repeated=repeated,
            peer=peer.address,
            is_secure=peer.is_secure,
            port=peer.port,
            notes=HeadNotes(),
        )
        return ParsedRequest(
            head=head,
            length=_body_length(fields, is_http10=is_http10),
            is_http10=is_http10,
            is_keep_alive=_is_keep_alive(fields.get(b"connection"), is_http10=is_http10),
            expects_continue=b"expect" in fields and not is_http10 and _expects_continue(fields[b"expect"]),
        )

    def _feed_head(self, raw: bytes | bytearray) -> None:
        try:
            self._parser.feed_data(raw)
        except httptools.HttpParserUpgrade:  # an answer in HTTP/1.1 declines it
            pass
        except httptools.HttpParserInvalidMethodError:
            raise HttpRefusal(501, "unknown method") from None
        except httptools.HttpParserError as exc:
            coding = self._fields.get(b"transfer-encoding")
            if coding is not None and coding.lower() != b"chunked" and b"content-length" not in self._fields:
                raise HttpRefusal(501, "unknown transfer coding") from None
            raise HttpRefusal(400, str(exc)) from None

    # --- the body --------------------------------------------------------------------------------------

    def feed(self, data: bytes | bytearray) -> int:
        """Consume more of a chunked body; return how many bytes were consumed, maybe fewer than belong to it.

        httptools does not report where a message ends, so it gets at most the bytes up to the next empty line at
        once. A body may consist of empty lines, so the number of them per call is bounded. Raises HttpRefusal.
        """
        at = 0
        for _ in range(_EMPTY_LINES_AT_ONCE):
            if at == len(data) or self.is_complete:
                break
            if at < 3 and self._last in b"\r\n":  # an empty line may have begun in the last call
                stop = at + 1
            else:
                end = data.find(b"\r\n\r\n", at)
                stop = end + 4 if end >= 0 else len(data)
            self._feed_chunks(data[at:stop])
            at = stop
            self._last = data[at - 1]
        self._fed += at
        if self._fed > _MAX_CHUNK_OVERHEAD_BYTES + self.body_bytes * _MAX_OVERHEAD_A_BYTE:
            raise HttpRefusal(400, "too much chunking overhead")
        return at

    def _feed_chunks(self, data: bytes | bytearray) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as exc:
            raise HttpRefusal(400, str(exc)) from None


def _plain_target(target: bytes, method: bytes, fields: dict[bytes, bytes]) -> bytes:
    """Return the path and query of a target: of a URL, whose authority replaces Host (RFC 9112, 3.2.2); or `*`."""
    if method == b"CONNECT":
        raise HttpRefusal(501, "CONNECT is not supported")
    if target == b"*" and method == b"OPTIONS":
        return target
    absolute = _ABSOLUTE_TARGET.fullmatch(target)
    if absolute is None:
        raise HttpRefusal(400, "the target is neither a path nor a URL")
    authority, path = absolute.groups()
    fields[b"host"] = authority
    return path if path.startswith(b"/") else b"/" + path


def _body_length(fields: dict[bytes, bytes], *, is_http10: bool) -> int | None:
    coding = fields.get(b"transfer-encoding")
    if coding is None:
        length = fields.get(b"content-length")
        return 0 if length is None else int(length)  # httptools has accepted it, so it is a short number
    if is_http10:
        raise HttpRefusal(400, "HTTP/1.0 does not support transfer codings")
    if coding.lower() != b"chunked":
        raise HttpRefusal(501, "unknown transfer coding")
    return None


def _is_keep_alive(connection: bytes | None, *, is_http10: bool) -> bool:
    if connection is None:
        return not is_http10
    options = {option.strip() for option in connection.lower().split(b",")}
    return b"close" not in options and (not is_http10 or b"keep-alive" in options)


def _expects_continue(expectation: bytes) -> bool:
    if expectation.lower() != b"100-continue":
        raise HttpRefusal(417, "only `Expect: 100-continue` is supported")
    return True
