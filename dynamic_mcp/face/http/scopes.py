"""Answers about missing scopes, which have a status code of their own over HTTP."""

from __future__ import annotations

from dynamic_mcp.errors import INSUFFICIENT_SCOPE
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import JSON
from dynamic_mcp.mcp import wire

_MARK = b'"code":%d' % INSUFFICIENT_SCOPE


def find_missing(line: bytes) -> tuple[str, ...]:
    """Return the scopes that an answer names as missing; none for other answers."""
    if _MARK not in line or wire.is_batch(line):
        return ()
    error = wire.parse(line).error
    if not len(error) or bytes(wire.member(error, "code")) != b"%d" % INSUFFICIENT_SCOPE:
        return ()
    scopes = wire.value(wire.member(error, "data", "scopes"))
    return tuple(map(str, scopes)) if isinstance(scopes, list) else ()


def with_body(refusal: Response, line: bytes) -> Response:
    """Return a refusal with the answer as its body."""
    others = tuple(header for header in refusal.headers if header[0] != b"content-type")
    return Response(refusal.status, JSON + others, line)
