"""Converts answers for modern clients: adds a type and cache hints, and replaces retired error codes."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, URL_ELICITATION_REQUIRED
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.cache_hints import CacheHint

# Codes of earlier revisions, with their replacements (MCP 2026-07-28, basic, error codes).
_RETIRED = {RESOURCE_NOT_FOUND: INVALID_PARAMS, URL_ELICITATION_REQUIRED: INTERNAL_ERROR}


def to_modern(answer: Frame, method: str, server_info: Raw, hint: CacheHint | None) -> Frame:
    """Return an answer for a modern client. `hint` is for results that may be cached."""
    if len(answer.error):
        return _with_current_code(answer)
    if bytes(answer.result)[:1] != b"{":
        return answer
    members = None
    if hint is not None and envelope.result_type(answer.result) == envelope.COMPLETE:
        members = hint.members
    return Frame(result=envelope.as_modern(answer.result, server_info, members))


def _with_current_code(answer: Frame) -> Frame:
    code = wire.value(wire.member(answer.error, "code"))
    if isinstance(code, int) and code in _RETIRED:
        return Frame(error=wire.with_member(answer.error, _RETIRED[code], "code"))
    return answer
