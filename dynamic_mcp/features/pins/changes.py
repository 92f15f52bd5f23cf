"""How a definition has changed, and how much that matters.

What only rearranges what was there is cosmetic. All that adds words for a model is a change of its text, wherever
they are: also in a title, and in the values of a schema. What is not understood counts as the worse.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from dynamic_mcp.features.pins.definition import PinKind, has_duplicates
from dynamic_mcp.features.pins.lock_file import Pin
from dynamic_mcp.features.pins.schema_changes import compare_schemas, is_same
from dynamic_mcp.features.pins.words import ChangeClass, Classes, compare_texts, compare_titles
from dynamic_mcp.mcp import wire


class Change(Struct, frozen=True):
    """A definition that is another one than the pinned. `after` is its canonical form, `hash` its fingerprint."""

    kind: PinKind
    name: str
    before: Pin
    after: Raw
    hash: str
    classes: frozenset[ChangeClass]

    @property
    def is_cosmetic(self) -> bool:
        """Whether it says the same as before."""
        return self.classes <= {ChangeClass.COSMETIC}


_MEMBERS_WITH_SCHEMAS = frozenset(("inputSchema", "outputSchema"))


def classify(kind: PinKind, before: Raw, after: Raw) -> frozenset[ChangeClass]:
    """Say what a change does; `before` and `after` are canonical forms that differ."""
    one, other = wire.value(before), wire.value(after)
    if kind is PinKind.INSTRUCTIONS:
        one, other = (each if isinstance(each, dict) else {"instructions": each} for each in (one, other))
    if not isinstance(one, dict) or not isinstance(other, dict) or has_duplicates(before) or has_duplicates(after):
        return frozenset((ChangeClass.TEXT, ChangeClass.WIDENING))
    said = " ".join(each for each in map(one.get, ("name", "title", "description")) if isinstance(each, str))
    found: Classes = set()
    for name in one.keys() | other.keys():
        if not is_same(one.get(name), other.get(name)):
            found |= _compare_members(name, one.get(name), other.get(name), said)
    return frozenset(found or (ChangeClass.TEXT,))


def _compare_members(name: str, before: object, after: object, said: str) -> Classes:
    if name in _MEMBERS_WITH_SCHEMAS:
        return compare_schemas(before, after, said)
    match name:
        case "annotations":
            return _compare_annotations(before, after, said)
        case "arguments":
            return _compare_arguments(before, after, said)
        case "title":
            return compare_titles(before, after, said)
        case "description" | "instructions":
            return compare_texts(before, after)
    return {ChangeClass.TEXT}


# --- what a tool says that it does -------------------------------------------------------------------------


def _compare_annotations(before: object, after: object, said: str) -> Classes:
    """Say what other annotations do; a hint that keeps people safe and is taken back is the worst."""
    one, other = (each if isinstance(each, dict) else {} for each in (before, after))
    found: Classes = set() if after is None or isinstance(after, dict) else {ChangeClass.TEXT}
    for name in one.keys() | other.keys():
        old, new = one.get(name), other.get(name)
        if is_same(old, new):
            continue
        match name:
            case "readOnlyHint":
                found.add(_compare_read_only(old, new))
            case "destructiveHint":
                found.add(_compare_destructive(old, new))
            case "title":
                found |= compare_titles(old, new, said)
            case _:
                found.add(ChangeClass.WIDENING)
    return found or {ChangeClass.COSMETIC}


def _compare_read_only(before: object, after: object) -> ChangeClass:
    if before is True:
        return ChangeClass.EFFECTS
    return ChangeClass.COSMETIC if after in (None, False) else ChangeClass.WIDENING


def _compare_destructive(before: object, after: object) -> ChangeClass:
    """Compare hints of which `false` is a promise, and `true` a warning: neither is taken back unseen."""
    if isinstance(before, bool):
        return ChangeClass.EFFECTS
    return ChangeClass.NARROWING if after is True else ChangeClass.WIDENING


# --- what a prompt takes -----------------------------------------------------------------------------------


def _compare_arguments(before: object, after: object, said: str) -> Classes:
    one, other = (_by_name(each) for each in (before, after))
    if one is None or other is None or one.keys() != other.keys():
        return {ChangeClass.WIDENING}
    found: Classes = set()
    for argument, old in one.items():
        for name in old.keys() | other[argument].keys():
            found |= _compare_argument(name, old.get(name), other[argument].get(name), f"{said} {argument}")
    return found or {ChangeClass.COSMETIC}


def _compare_argument(name: str, before: object, after: object, said: str) -> Classes:
    if is_same(before, after):
        return set()
    match name:
        case "required":
            return {ChangeClass.NARROWING if after is True else ChangeClass.WIDENING}
        case "title":
            return compare_titles(before, after, said)
    return compare_texts(before, after)


def _by_name(arguments: object) -> dict[str, dict[str, object]] | None:
    """Return the arguments of a prompt by name; None where they are not what they have to be."""
    if not isinstance(arguments, list | None):
        return None
    found: dict[str, dict[str, object]] = {}
    for each in arguments or ():
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = each
    return found
