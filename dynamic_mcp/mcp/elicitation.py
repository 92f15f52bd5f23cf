"""What is asked of persons (MCP 2025-11-25, client/elicitation): how fast they answer, and errors that ask."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import URL_ELICITATION_REQUIRED
from dynamic_mcp.mcp import wire

# An answer that comes sooner is not a reader's: some clients accept or decline by themselves.
NO_PERSON_WITHIN_S = 1.0


def required_elicitations(error: Raw) -> list[Raw]:
    """Return the elicitations that an error asks for (-32042); none if it is another error, or empty."""
    if not len(error) or wire.value(wire.member(error, "code")) != URL_ELICITATION_REQUIRED:
        return []
    try:
        return wire.elements(wire.member(error, "data", "elicitations"))
    except wire.Malformed:
        return []
