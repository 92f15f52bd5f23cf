"""How a request of a client of either era is answered: by what it is refused, by a result, or by an error.

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
from dynamic_mcp.mcp.lines import Oversized, find_request_id
from dynamic_mcp.mcp.own_meta import APPROVAL
from dynamic_mcp.mcp.wire import NULL, Frame
from dynamic_mcp.observe.current_request import mark_request
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.request_state import StateRefused

log = logging.getLogger(__name__)

# Requests of one client that are served at once; those beyond are refused.
MAX_IN_FLIGHT = 4096


class Refused(Exception):
    """A request that is not served; `answer` says why."""

    def __init__(self, answer: Frame) -> None:
        super().__init__()
        self.answer = answer


# What a request may raise; anything else is a bug.
KNOWN_ERRORS = (DynamicMcpError, wire.Malformed, Refused, StateRefused)


async def answer_request(
    request: Request, serve: Callable[[Request], Awaitable[Frame]], deliver: Callable[[Request, Frame], None]
) -> None:
    """Deliver the answer to a request: what `serve` returns, or the error that it raises."""
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
    """Return what a request is answered that has raised one of the `KNOWN_ERRORS`."""
    match exc:
        case DynamicMcpError():
            return to_answer(method, exc)
        case Refused():
            return exc.answer
        case StateRefused():
            return wire.error_frame(INVALID_PARAMS, str(exc), {"reason": exc.reason})
    return wire.error_frame(INVALID_PARAMS, str(exc))


# --- refusals --------------------------------------------------------------------------------------------


def refuse_line(line: bytes, exc: wire.Malformed) -> bytes:
    """Return what a line is answered that is no message; nothing if it is empty."""
    if not line.strip():
        return b""
    if isinstance(line, Oversized):
        return error_line(find_request_id(line) or NULL, INVALID_REQUEST, too_long(line))
    return error_line(exc.id, exc.code, str(exc))


def too_long(line: Oversized) -> str:
    """Say that a message is too long."""
    return f"a message of {line.size} bytes is over `max_message_bytes`"


def refuse_request(
    frame: Frame, id: bytes, in_flight: Collection[bytes] = (), most: float = math.inf
) -> Frame | None:
    """Return the error for a request that is none, or one too many; None if it may be served.

    `id` is its own, and `in_flight` are those of the client's requests that are being served.
    """
    if frame.jsonrpc == "2.0" and id[0] in wire.ID_START and id not in in_flight and len(in_flight) < most:
        return None
    if frame.jsonrpc != "2.0":
        return wire.error_frame(INVALID_REQUEST, '`jsonrpc` is not "2.0"')
    if id[0] not in wire.ID_START:
        return wire.error_frame(INVALID_REQUEST, "`id` is neither a string nor a number")
    return duplicate_id() if id in in_flight else too_many(most)


def duplicate_id() -> Frame:
    """Return the error for a request whose id is that of another one in flight."""
    return wire.error_frame(INVALID_REQUEST, "a request with this `id` is in flight")


def too_many(most: float) -> Frame:
    """Return the error for a request beyond those that a client may have in flight."""
    return wire.error_frame(INTERNAL_ERROR, f"{most} requests are in flight: no more are accepted")


# --- answers ---------------------------------------------------------------------------------------------


def error_line(id: Raw, code: int, why: str) -> bytes:
    """Return the line that answers a request with an error."""
    return wire.answer_line(id, wire.error_frame(code, why))


def gone() -> Frame:
    """Return the answer to a question whose client is not there to answer it."""
    return wire.error_frame(INTERNAL_ERROR, "the client has gone")


def to_answer(method: str, exc: DynamicMcpError) -> Frame:
    """Give an error its MCP form: on `tools/call` a result that the model can read, else a JSON-RPC error."""
    if isinstance(exc, MissingScope):  # the client itself can act on it
        return wire.error_frame(exc.rpc_code, str(exc), {"scopes": exc.scopes})
    more = {APPROVAL: _status(exc)} if isinstance(exc, ApprovalPending) else None
    if method == "tools/call":
        result = {"content": [{"type": "text", "text": str(exc)}], "isError": True}
        return wire.result_frame({**result, "_meta": more} if more else result)
    return wire.error_frame(exc.rpc_code, str(exc), more)


def _status(exc: ApprovalPending) -> dict[str, str]:
    """Return what a program needs to know of a call that waits for a person."""
    expires = datetime.fromtimestamp(exc.expires, UTC).isoformat(timespec="seconds")
    return {"id": exc.id, "status": "pending", "expires": expires.replace("+00:00", "Z")}
