"""What follows for the definitions of a server that are not as they were pinned. It decides, and touches nothing.

First sight is the baseline. What changes is accepted or held, as the policy says; hidden characters are always held.
A person's approval counts for the definition that was approved, whatever is found in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from dynamic_mcp.config.rules import Policy
from dynamic_mcp.groups.catalog import Catalog
from dynamic_mcp.policy.pins.changes import Change
from dynamic_mcp.policy.pins.definition import Key
from dynamic_mcp.policy.pins.findings import Finding
from dynamic_mcp.policy.pins.lock_file import Pin, PinnedServer


class Reason(Struct, frozen=True):
    """Why something is held, in words; `change` is None at first sight. `pin` is what to pin if it is approved."""

    text: str
    pin: Pin
    change: Change | None = None
    findings: tuple[Finding, ...] = ()


class PinJudgement(Struct, frozen=True):
    """What is held and why, and what else is not as it was pinned.

    `changes` has the held ones too. `additions` are first sights, held or not. `accepted` are the pins that are to be
    written: first sights, and changes that pass.
    """

    held: Mapping[Key, Reason] = {}
    changes: tuple[Change, ...] = ()
    additions: tuple[Key, ...] = ()
    findings: Mapping[Key, tuple[Finding, ...]] = {}
    accepted: Mapping[Key, Pin] = {}


def judge(
    pinned: PinnedServer | None, catalog: Catalog, policy: Policy, *, today: str, foreign: Collection[str] = ()
) -> PinJudgement:
    """Compare what a server offers with what is pinned of it; None is a server that was never seen.

    `today` is a date, as `2026-11-23`, and `foreign` are names of tools of other servers.
    """
    return PinJudgement()


def approve(pinned: PinnedServer, approved: Mapping[Key, Reason], by: str) -> PinnedServer:
    """Return the pins with these held definitions approved by a person."""
    return pinned.with_pins({key: with_former(pinned, key, reason.pin, by=by) for key, reason in approved.items()})


def with_former(pinned: PinnedServer | None, key: Key, pin: Pin, *, by: str = "") -> Pin:
    """Return a new pin that remembers the definitions before it, which may come back."""
    return pin
