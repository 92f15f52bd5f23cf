"""Errors as a client is told them."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import INTERNAL_ERROR, DynamicMcpError, MissingScope
from dynamic_mcp.mcp import wire
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
    if frame.method == "tools/call":
        return wire.result_frame({"content": [{"type": "text", "text": str(exc)}], "isError": True})
    return wire.error_frame(exc.rpc_code, str(exc))
