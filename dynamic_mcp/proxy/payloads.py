"""Arguments and results as they may be shown elsewhere: bounded, and without what looks like a secret."""

from __future__ import annotations

import json

from msgspec import Raw

from dynamic_mcp.config.masking import mask_value
from dynamic_mcp.mcp import wire

# What is longer is not read; of the rest, so many characters are shown.
MAX_BYTES = 64 << 10
MAX_SHOWN = 8 << 10


def masked_payload(data: Raw) -> str:
    """Return JSON with its secrets masked, or its size if it is too long or too deep to be read."""
    try:
        if len(data) <= MAX_BYTES:
            return json.dumps(mask_value(wire.value(data)), ensure_ascii=False)[:MAX_SHOWN]
    except RecursionError:
        pass
    return f"({len(data)} bytes)"
