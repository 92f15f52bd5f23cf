"""Calls that wait for a user, decisions about them, and answers to decisions.

They are files in one folder of the user: `ApprovalServer` is the proxy's side, `ApprovalClient` the command's.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Literal

from msgspec import Struct

from dynamic_mcp.config.secrets import count_hidden, mask_values
from dynamic_mcp.system import paths

Scope = Literal["once", "hour", "session"]

# Crockford's base 32: no letter that looks like a digit.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOKALIKES = str.maketrans("ILO", "110")
_ID_LENGTH = 6
# In the state directory.
FOLDER = "approvals"


class QueuedApproval(Struct, frozen=True, kw_only=True):
    """A call that waits for a user. Times are seconds since 1970; the client gives up at `held_until`.

    `rule` is the rule that asks, and `allowed_by` the one that allows the caller, who has these `roles`, to make the
    call at all; it is empty without access rules. `description` is the tool's own, `notes` are the repairs of the
    arguments, and `offered` lists the scopes that can be approved. `pid` is the proxy's, and `config` its config.
    """

    id: str
    pid: int
    config: str = ""
    since: float = 0.0
    held_until: float = 0.0
    expires: float = 0.0
    subject: str = ""
    issuer: str = ""
    client: str = ""
    group: str = ""
    kind: str = "tool"
    name: str = ""
    access: str = ""
    description: str = ""
    arguments: bytes = b"{}"
    notes: tuple[str, ...] = ()
    rule: str = ""
    roles: tuple[str, ...] = ()
    allowed_by: str = ""
    offered: tuple[Scope, ...] = ("once",)


class ApprovalDecision(Struct, frozen=True, kw_only=True):
    """A user's decision about a call. `arguments` replace those of the call, unless empty."""

    id: str
    verdict: Literal["allow", "deny"]
    scope: Scope = "once"
    reason: str = ""
    by: str = ""
    arguments: bytes = b""


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    """The outcome of a decision: accepted, refused for a `reason`, or too late because the call has ended.

    A `silent` proxy has not answered in time; the decision does not count then.
    """

    outcome: Literal["taken", "refused", "gone", "silent"]
    reason: str = ""


def approvals_dir() -> Path:
    """Return the folder of all waiting calls of this user."""
    return paths.state_dir() / FOLDER


def make_id() -> str:
    """Return a new id, short enough to type."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))


def parse_id(typed: str) -> str:
    """Return a typed id or id prefix in its normal form; empty if it is not one."""
    typed = typed.strip()
    id = typed.upper().translate(_LOOKALIKES) if typed.isascii() else ""
    return id if len(id) <= _ID_LENGTH and set(id) <= set(_ALPHABET) else ""


def to_json(pending: QueuedApproval, now: float, *, reveals: bool = False) -> dict[str, object]:
    """Return a call as JSON, with its age and remaining time; secrets show only their length."""
    fields: dict[str, object] = {name: getattr(pending, name) for name in pending.__struct_fields__}
    times = {"age_s": round(now - pending.since, 1), "expires_in_s": round(pending.expires - now, 1)}
    return {**fields, **times, "arguments": arguments_of(pending, reveals=reveals)}


def arguments_of(pending: QueuedApproval, *, reveals: bool = False) -> object:
    """Return the arguments of a call."""
    value = read_arguments(pending.arguments)
    return value if reveals else mask_values(value, mask=count_hidden)


def read_arguments(arguments: bytes) -> object:
    """Return decoded arguments, or their text if they are not valid JSON."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments.decode("utf-8", "replace")
