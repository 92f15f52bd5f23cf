"""What looks dangerous in a definition: characters that nobody sees, and words that are meant for a model only."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Raw, Struct

from dynamic_mcp.policy.pins.definition import PinKind


class Finding(Struct, frozen=True):
    """One thing that was found: what it is, in words, and where. What is `is_hidden` is held at first sight."""

    text: str
    where: str
    is_hidden: bool


def find_all(kind: PinKind, entry: Raw, foreign: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return what was found in an entry; `foreign` are names of tools of other servers."""
    return ()
