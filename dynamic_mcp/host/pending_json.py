"""Calls that wait for a person as JSON; of what looks like a secret, only its length."""

from __future__ import annotations

import json

from msgspec import Raw

from dynamic_mcp.config import secrets
from dynamic_mcp.observe.approvals import QueuedApproval


def to_json(pending: QueuedApproval, now: float, *, reveals: bool = False) -> dict[str, object]:
    """Return a call as JSON, and for how long it has waited and will wait."""
    fields: dict[str, object] = {name: getattr(pending, name) for name in pending.__struct_fields__}
    times = {"age_s": round(now - pending.since, 1), "expires_in_s": round(pending.expires - now, 1)}
    return {**fields, **times, "arguments": arguments_of(pending, reveals=reveals)}


def arguments_of(pending: QueuedApproval, *, reveals: bool = False) -> object:
    """Return the arguments of a call."""
    value = read_arguments(pending.arguments)
    return value if reveals else secrets.mask_values(value, mask=secrets.count_hidden)


def read_arguments(arguments: Raw) -> object:
    """Return arguments as values; as text if they are no JSON that can be read."""
    try:
        return json.loads(bytes(arguments))
    except (ValueError, RecursionError):
        return bytes(arguments).decode("utf-8", "replace")
