"""How a definition has changed, and how much that matters."""

from __future__ import annotations

from enum import Enum

from msgspec import Raw, Struct

from dynamic_mcp.policy.pins.definition import PinKind
from dynamic_mcp.policy.pins.lock_file import Pin


class ChangeClass(Enum):
    """What a change does: to words, to what a tool takes, and to what it says that it does."""

    COSMETIC = "cosmetic"
    TEXT = "text"
    NARROWING = "narrowing"
    WIDENING = "widening"
    EFFECTS = "effects"


class Change(Struct, frozen=True):
    """A definition that is another one than the pinned. `after` is its canonical form, `hash` its fingerprint."""

    kind: PinKind
    name: str
    before: Pin
    after: Raw
    hash: str
    classes: frozenset[ChangeClass]


def classify(kind: PinKind, before: Raw, after: Raw) -> frozenset[ChangeClass]:
    """Say what a change does; `before` and `after` are canonical forms that differ."""
    return frozenset((ChangeClass.TEXT,))
