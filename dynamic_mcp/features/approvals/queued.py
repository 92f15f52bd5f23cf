"""Calls that wait for a person: what a serving proxy says of them, what a person answers, and what becomes of that.

They are files in one folder of the user: `ApprovalServer` is the proxy's side of it, `ApprovalClient` a command's.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Literal

from msgspec import Raw, Struct

from dynamic_mcp.config.secrets import count_hidden, mask_values
from dynamic_mcp.system import paths

Verdict = Literal["allow", "deny"]
Scope = Literal["once", "hour", "session"]
Outcome = Literal["taken", "refused", "gone", "silent"]

# Crockford's base 32: no letter that looks like a digit.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOKALIKES = str.maketrans("ILO", "110")
_ID_LENGTH = 6
# Of all calls of this user that wait, in the folder of its state.
FOLDER = "approvals"


class QueuedApproval(Struct, frozen=True, kw_only=True):
    """A call that waits for a person. Times are seconds since 1970; the client gives up at `held_until`.

    `rule` is the one that wants a person asked, and `allowed_by` the one that lets the caller, who has these `roles`,
    make the call at all; it is empty where there are no access rules.

    `description` is what the tool says of itself, `notes` what was done to the arguments so that they fit, `offered`
    for how long it can be approved. `pid` is the proxy that the call waits in, and `config` what that serves.
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
    arguments: Raw = Raw(b"{}")
    notes: tuple[str, ...] = ()
    rule: str = ""
    roles: tuple[str, ...] = ()
    allowed_by: str = ""
    offered: tuple[Scope, ...] = ("once",)


class ApprovalDecision(Struct, frozen=True, kw_only=True):
    """What a person says of a pending call. `arguments` replace those of the call; empty leaves them."""

    id: str
    verdict: Verdict
    scope: Scope = "once"
    reason: str = ""
    by: str = ""
    arguments: Raw = Raw()


class ApprovalAnswer(Struct, frozen=True, kw_only=True):
    """What became of a decision: the proxy has taken it, or refuses it for a `reason`, or the call waits no more.

    A `silent` proxy has not answered in time; the decision does not count then.
    """

    outcome: Outcome
    reason: str = ""


def approvals_dir() -> Path:
    """Return the folder of all calls of this user that wait."""
    return paths.state_dir() / FOLDER


def make_id() -> str:
    """Return a new id: short enough to type, and never that of another call that waits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))


def parse_id(typed: str) -> str:
    """Return an id, or the beginning of one, as it is written; empty if it cannot be one."""
    typed = typed.strip()
    id = typed.upper().translate(_LOOKALIKES) if typed.isascii() else ""
    return id if len(id) <= _ID_LENGTH and set(id) <= set(_ALPHABET) else ""


def to_json(pending: QueuedApproval, now: float, *, reveals: bool = False) -> dict[str, object]:
    """Return a call as JSON, and how long it has waited and will wait; of secrets, only the length."""
    fields: dict[str, object] = {name: getattr(pending, name) for name in pending.__struct_fields__}
    times = {"age_s": round(now - pending.since, 1), "expires_in_s": round(pending.expires - now, 1)}
    return {**fields, **times, "arguments": arguments_of(pending, reveals=reveals)}


def arguments_of(pending: QueuedApproval, *, reveals: bool = False) -> object:
    """Return the arguments of a call."""
    value = read_arguments(pending.arguments)
    return value if reveals else mask_values(value, mask=count_hidden)


def read_arguments(arguments: Raw) -> object:
    """Return arguments as values; as text if they are no JSON that can be read."""
    try:
        return json.loads(bytes(arguments))
    except (ValueError, RecursionError):
        return bytes(arguments).decode("utf-8", "replace")
