"""Questions to users (MCP 2025-11-25, client/elicitation): the fastest possible answer, and errors that ask."""

from __future__ import annotations

from msgspec import Raw

from dynamic_mcp.errors import URL_ELICITATION_REQUIRED
from dynamic_mcp.mcp import wire

# A faster answer does not come from a user: some clients accept or decline automatically.
NO_PERSON_WITHIN_S = 1.0


def required_elicitations(error: Raw) -> list[Raw]:
    """Return the elicitations that an error requires (-32042); none for another error."""
    if not len(error) or wire.value(wire.member(error, "code")) != URL_ELICITATION_REQUIRED:
        return []
    try:
        return wire.elements(wire.member(error, "data", "elicitations"))
    except wire.Malformed:
        return []
