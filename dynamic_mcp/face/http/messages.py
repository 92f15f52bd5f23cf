"""The message in the body of a POST."""

from __future__ import annotations

from dynamic_mcp.errors import PARSE_ERROR
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.lines import on_one_line
from dynamic_mcp.mcp.wire import Frame

_VERSION = envelope.PROTOCOL_VERSION.encode()


def parse_message(body: bytes) -> Frame:
    """Parse a message, which may have several lines; its parts are on one line. Raises Malformed.

    JSON over a network is UTF-8 (RFC 8259, section 8.1): an upstream may decode other bytes differently.
    """
    check_utf8(body)
    frame = wire.parse(body)
    return wire.parse(on_one_line(body)) if b"\n" in body or b"\r" in body else frame


def check_utf8(body: bytes) -> None:
    """Raise Malformed if a body is not UTF-8."""
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError:
        raise wire.Malformed("the body is not UTF-8", PARSE_ERROR) from None


def has_envelope(body: bytes, frame: Frame) -> bool:
    """Return whether a message names its revision in `_meta`, as modern messages do."""
    return _VERSION in body and len(wire.member(frame.params, "_meta", envelope.PROTOCOL_VERSION)) > 0
