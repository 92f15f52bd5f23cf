"""Responses that are the same for every way in: errors in JSON-RPC's form, and the heads of the others."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import INVALID_REQUEST
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.mcp import wire

Headers = tuple[tuple[bytes, bytes], ...]

JSON: Headers = ((b"content-type", b"application/json"),)
NO_STORE: Headers = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
# A reverse proxy must pass each event on at once: the last header says so to nginx.
EVENTS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
ACCEPTED = Response(202)
# How long a client that finds everything taken should wait, in seconds.
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
    """Return an error that says why, to a client which may read it as the answer to its request `id`."""
    body = wire.answer_line(id, wire.error_frame(code, why, data))
    return Response(status, JSON + headers, body)


def too_long(most_bytes: int) -> Response:
    """Return the refusal of a message that is longer than it may be."""
    return refusal(413, f"a message may have {most_bytes} bytes at most")


def with_headers(response: Response, headers: Headers) -> Response:
    """Return a response with more headers."""
    return Response(response.status, response.headers + headers, response.body) if headers else response
