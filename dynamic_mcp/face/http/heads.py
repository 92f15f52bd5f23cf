"""The head of a response as bytes: the status line, Date, and the framing of the body."""

from __future__ import annotations

import time

from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import JSON

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 20\r\n"
    b"content-type: text/plain\r\n\r\ntoo many connections"
)
LAST_CHUNK = b"0\r\n\r\n"

# The framing of a body.
CHUNKED = b"transfer-encoding: chunked\r\n"
UNTIL_CLOSE = b""

_PHRASES = {
    200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 301: "Moved Permanently", 302: "Found",
    303: "See Other", 304: "Not Modified", 307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request",
    401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable",
    408: "Request Timeout", 409: "Conflict", 411: "Length Required", 413: "Content Too Large",
    415: "Unsupported Media Type", 417: "Expectation Failed", 421: "Misdirected Request", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout", 505: "HTTP Version Not Supported",
}  # fmt: skip
_STATUS_LINES = {status: f"HTTP/1.1 {status} {phrase}\r\n".encode() for status, phrase in _PHRASES.items()}
_JSON_FIELDS = b"".join(b"%b: %b\r\n" % field for field in JSON)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def date_line(seconds: float) -> bytes:
    """Return the Date header for a time since the epoch, in the format of RFC 9110, 5.6.7."""
    at = time.gmtime(seconds)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    return f"date: {day}, {at.tm_mday:02} {month} {at.tm_year:04} {clock} GMT\r\n".encode()


def has_body(status: int) -> bool:
    """Return whether a response with this status can have a body."""
    return status not in (204, 304) and status >= 200


def connection_line(*, is_keep_alive: bool, is_http10: bool) -> bytes:
    """Return the Connection header; empty if it is the default of the HTTP version."""
    if not is_keep_alive:
        return b"connection: close\r\n"
    return b"connection: keep-alive\r\n" if is_http10 else b""


def response_head(response: Response, date: bytes, framing: bytes) -> bytes:
    """Return a complete head; `date` and `framing` are lines of it."""
    status = response.status
    line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    if response.headers is JSON:  # nearly always
        fields = _JSON_FIELDS
    else:
        fields = b"".join([b"%b: %b\r\n" % field for field in response.headers])
    return b"%b%b%b%b\r\n" % (line, date, fields, framing)


def length_line(length: int) -> bytes:
    """Return the Content-Length header."""
    return b"content-length: %d\r\n" % length


def chunk(data: bytes) -> bytes:
    """Return one chunk of a body in the chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)
