"""Calls that wait for a person, as files: a serving proxy writes one for each, and commands answer them.

The folder is private to the user. A proxy keeps in it what waits with it; what a dead proxy has left is removed.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

Verdict = Literal["allow", "deny"]
Scope = Literal["once", "hour", "session"]


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A call that waits for a person. Times are seconds since 1970; `rule` is the one that wants a person asked.

    `description` is what the tool says of itself, `notes` what was done to the arguments so that they fit, `offered`
    for how long it can be approved. `pid` is the proxy that the call waits in, and `config` what that serves.
    """

    id: str
    pid: int
    config: str = ""
    since: float = 0.0
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
    offered: tuple[Scope, ...] = ("once",)


class ApprovalDecision(Struct, frozen=True, kw_only=True):
    """What a person says of a pending call. `arguments` replace those of the call; empty leaves them."""

    id: str
    verdict: Verdict
    scope: Scope = "once"
    reason: str = ""
    by: str = ""
    arguments: Raw = Raw()
