"""Errors as a client is told them."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Raw

from dynamic_mcp.errors import INTERNAL_ERROR, ApprovalPending, DynamicMcpError, MissingScope
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.own_meta import APPROVAL
from dynamic_mcp.mcp.wire import Frame


def error_line(id: Raw, code: int, why: str) -> bytes:
    """Return the line that answers a request with an error."""
    return wire.answer_line(id, wire.error_frame(code, why))


def gone() -> Frame:
    """Return the answer to a question whose client is not there to answer it."""
    return wire.error_frame(INTERNAL_ERROR, "the client has gone")


def to_answer(frame: Frame, exc: DynamicMcpError) -> Frame:
    """Give an error its MCP form: on `tools/call` a result that the model can read, else a JSON-RPC error."""
    if isinstance(exc, MissingScope):  # the client itself can act on it
        return wire.error_frame(exc.rpc_code, str(exc), {"scopes": exc.scopes})
    more = {APPROVAL: _status(exc)} if isinstance(exc, ApprovalPending) else None
    if frame.method == "tools/call":
        result = {"content": [{"type": "text", "text": str(exc)}], "isError": True}
        return wire.result_frame({**result, "_meta": more} if more else result)
    return wire.error_frame(exc.rpc_code, str(exc), more)


def _status(exc: ApprovalPending) -> dict[str, str]:
    """Return what a program needs to know of a call that waits for a person."""
    expires = datetime.fromtimestamp(exc.expires, UTC).isoformat(timespec="seconds")
    return {"id": exc.id, "status": "pending", "expires": expires.replace("+00:00", "Z")}
