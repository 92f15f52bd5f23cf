"""Errors that ask for URL elicitations (MCP 2025-11-25, client/elicitation)."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import URL_ELICITATION_REQUIRED
from dynamic_mcp.mcp import wire


def required_elicitations(error: Raw) -> list[Raw]:
    """Return the elicitations that an error asks for (-32042); none if it is another error, or empty."""
    if not len(error) or wire.value(wire.member(error, "code")) != URL_ELICITATION_REQUIRED:
        return []
    try:
        return wire.elements(wire.member(error, "data", "elicitations"))
    except wire.Malformed:
        return []
