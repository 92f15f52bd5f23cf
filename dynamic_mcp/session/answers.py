"""The answers to requests of clients of both eras: refusals, results, and errors.

Every request gets exactly one answer, unless it is cancelled.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime

from msgspec import Raw

from dynamic_mcp.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    ApprovalPending,
    DynamicMcpError,
    MissingScope,
)
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.mcp.lines import Oversized, find_request_id
from dynamic_mcp.mcp.own_meta import APPROVAL
from dynamic_mcp.mcp.wire import NULL, Frame
from dynamic_mcp.observe.current_request import mark_request
from dynamic_mcp.proxy.request import Request

log = logging.getLogger(__name__)

# The maximum number of requests of one client in flight.
MAX_IN_FLIGHT = 4096


class RequestRefused(Exception):
    """Raised for a request that is not served; `answer` is the error."""

    def __init__(self, answer: Frame) -> None:
        super().__init__()
        self.answer = answer


# The errors that a request may raise; any other is a bug.
KNOWN_ERRORS = (DynamicMcpError, wire.Malformed, RequestRefused, StateRefused)


async def answer_request(
    request: Request, serve: Callable[[Request], Awaitable[Frame]], deliver: Callable[[Request, Frame], None]
) -> None:
    """Deliver the answer to a request: the result of `serve`, or the error that it raises."""
    mark = mark_request(request.id)
    try:
        answer = await serve(request)
    except KNOWN_ERRORS as exc:
        answer = error_answer(request.method, exc)
    except Exception:
        log.exception("a bug: answering %s failed", request.method)
        answer = wire.error_frame(INTERNAL_ERROR, "internal error; see the log of dynamic-mcp")
    finally:
        mark.is_over = True
    deliver(request, answer)


def error_answer(method: str, exc: Exception) -> Frame:
    """Return the answer to a request that has raised one of the `KNOWN_ERRORS`."""
    match exc:
        case DynamicMcpError():
            return to_answer(method, exc)
        case RequestRefused():
            return exc.answer
        case StateRefused():
            return wire.error_frame(INVALID_PARAMS, str(exc), {"reason": exc.reason})
    return wire.error_frame(INVALID_PARAMS, str(exc))


# --- refusals --------------------------------------------------------------------------------------------


def refuse_line(line: bytes, exc: wire.Malformed) -> bytes:
    """Return the answer to a line that is not a message; nothing if the line is empty."""
    if not line.strip():
        return b""
    if isinstance(line, Oversized):
        return error_line(find_request_id(line) or NULL, INVALID_REQUEST, too_long(line))
    return error_line(exc.id, exc.code, str(exc))


def too_long(line: Oversized) -> str:
    """Return the error text for a message over the size limit."""
    return f"a message of {line.size} bytes is over `max_message_bytes`"


def refuse_request(
    frame: Frame, id: bytes, in_flight: Collection[bytes] = (), most: float = math.inf
) -> Frame | None:
    """Return the error for a request that is invalid or exceeds `most`; None if it may be served.

    `id` is the request's id, `in_flight` are the ids of the client's requests in flight.
    """
    if frame.jsonrpc == "2.0" and id[0] in wire.ID_START and id not in in_flight and len(in_flight) < most:
        return None
    if frame.jsonrpc != "2.0":
        return wire.error_frame(INVALID_REQUEST, '`jsonrpc` must be "2.0"')
    if id[0] not in wire.ID_START:
        return wire.error_frame(INVALID_REQUEST, "`id` must be a string or a number")
    return duplicate_id() if id in in_flight else too_many(most)


def duplicate_id() -> Frame:
    """Return the error for a request with the id of another one in flight."""
    return wire.error_frame(INVALID_REQUEST, "duplicate `id`: a request with it is in flight")


def too_many(most: float) -> Frame:
    """Return the error for a request over the limit of requests in flight."""
    return wire.error_frame(INTERNAL_ERROR, f"too many requests: {most} are in flight")


# --- answers ---------------------------------------------------------------------------------------------


def error_line(id: Raw, code: int, why: str) -> bytes:
    """Return the line that answers a request with an error."""
    return wire.answer_line(id, wire.error_frame(code, why))


def disconnected() -> Frame:
    """Return the answer to a request whose client has disconnected."""
    return wire.error_frame(INTERNAL_ERROR, "the client has disconnected")


def to_answer(method: str, exc: DynamicMcpError) -> Frame:
    """Convert an error to MCP: on `tools/call` to a result that the model can read, else to a JSON-RPC error."""
    if isinstance(exc, MissingScope):  # the client itself can handle it
        return wire.error_frame(exc.rpc_code, str(exc), {"scopes": exc.scopes})
    data = {APPROVAL: _status(exc)} if isinstance(exc, ApprovalPending) else None
    if method == "tools/call":
        result = {"content": [{"type": "text", "text": str(exc)}], "isError": True}
        return wire.result_frame({**result, "_meta": data} if data else result)
    return wire.error_frame(exc.rpc_code, str(exc), data)


def _status(exc: ApprovalPending) -> dict[str, str]:
    """Return what a program needs to know about a call that waits for approval."""
    expires = datetime.fromtimestamp(exc.expires, UTC).isoformat(timespec="seconds")
    return {"id": exc.id, "status": "pending", "expires": expires.replace("+00:00", "Z")}
