"""Which requests of a legacy client are not served at all."""

from __future__ import annotations

from collections.abc import Collection

from dynamic_mcp.errors import INTERNAL_ERROR, INVALID_REQUEST
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame

# Requests of one client that are served at once; those beyond are refused.
MAX_IN_FLIGHT = 4096


def may_be_served(frame: Frame, id: bytes, in_flight: Collection[bytes]) -> bool:
    """Return whether a request is one, and none too many.

    `id` is its own, and `in_flight` are those of the requests that are being served.
    """
    return (
        frame.jsonrpc == "2.0"
        and id.startswith(wire.ID_START)
        and id not in in_flight
        and len(in_flight) < MAX_IN_FLIGHT
    )


def refuse_request(frame: Frame, id: bytes, in_flight: Collection[bytes]) -> Frame:
    """Return the error for a request that cannot be served."""
    if frame.jsonrpc != "2.0":
        return wire.error_frame(INVALID_REQUEST, '`jsonrpc` is not "2.0"')
    if not wire.is_request_id(id):
        return wire.error_frame(INVALID_REQUEST, "`id` is neither a string nor a number")
    if id in in_flight:
        return wire.error_frame(INVALID_REQUEST, "a request with this `id` is in flight")
    return wire.error_frame(INTERNAL_ERROR, f"{MAX_IN_FLIGHT} requests are in flight: no more are accepted")
