"""Responses that all ways in share: errors in JSON-RPC form, and headers."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import INVALID_REQUEST
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.mcp import wire

Headers = tuple[tuple[bytes, bytes], ...]

JSON: Headers = ((b"content-type", b"application/json"),)
NO_STORE: Headers = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
# The last header makes nginx forward each event at once.
EVENTS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
ACCEPTED = Response(202)
# For a client at a limit, in seconds.
RETRY_AFTER: Headers = ((b"retry-after", b"5"),)


def refusal(
    status: int,
    why: str,
    headers: Headers = (),
    *,
    code: int = INVALID_REQUEST,
    id: Raw = wire.NULL,
    data: object = None,
) -> Response:
    """Return an error response, which a client may read as the answer to its request `id`."""
    body = wire.answer_line(id, wire.error_frame(code, why, data))
    return Response(status, JSON + headers, body)


SESSION_NOT_FOUND = refusal(404, "session not found; start a new one with `initialize`")


def too_long(most_bytes: int) -> Response:
    """Return the refusal of a message over the size limit."""
    return refusal(413, f"a message may have at most {most_bytes} bytes")


def with_headers(response: Response, headers: Headers) -> Response:
    """Return a response with additional headers."""
    return Response(response.status, response.headers + headers, response.body) if headers else response
