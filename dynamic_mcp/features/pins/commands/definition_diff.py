"""Compares two definitions, such as those of a tool before and after an update, as a person reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynamic_mcp.cli.json_diff import diff_json, format_json, is_same
from dynamic_mcp.cli.text_diff import DiffLine, Sign, diff_text, reveal

# What is read as a text, and not as JSON.
_TEXTS = frozenset({"name", "uriTemplate", "title", "description", "text", "mimeType"})
# White space that cannot be seen at the end of a line and does no harm.
_SPACE = " \t\r"
# The order in which members are shown; others follow by name.
_ORDER = ("name", "uriTemplate", "title", "description", "text", "mimeType", "annotations", "arguments")


@dataclass(frozen=True)
class MemberDiff:
    """How one member of a definition differs."""

    member: str
    lines: tuple[DiffLine, ...]


def diff_definitions(before: str, after: str) -> list[MemberDiff]:
    """Return how two definitions, as JSON, differ member by member; an empty one is one that there is not."""
    try:
        found = _diff_members(_members(before), _members(after))
    except (RecursionError, ValueError):  # nested too deeply to be indented, or no JSON
        found = []
    if found or before == after:
        return found
    return [MemberDiff("definition", tuple(diff_text(before, after)))]


def _diff_members(old: Mapping[str, object], new: Mapping[str, object]) -> list[MemberDiff]:
    names = sorted({*old, *new}, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    return [
        MemberDiff(reveal(name), tuple(_diff_member(name, old, new)))
        for name in names
        if name not in old or name not in new or not is_same(old[name], new[name])
    ]


def _members(definition: str) -> Mapping[str, object]:
    value = json.loads(definition, object_pairs_hook=_with_all) if definition else {}
    return value if isinstance(value, dict) else {"text": value}


def _with_all(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object in which a name that comes twice is there twice, as readers differ in which one they take."""
    found: dict[str, object] = {}
    for name, value in pairs:
        while name in found:
            name += " (again)"
        found[name] = value
    return found


def _diff_member(name: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[DiffLine]:
    if name not in new:
        return _one_sided(Sign.OLD, name, old[name])
    if name not in old:
        return _one_sided(Sign.NEW, name, new[name])
    before, after = old[name], new[name]
    if name in _TEXTS and isinstance(before, str) and isinstance(after, str):
        return diff_text(before, after)
    return diff_json(before, after)


def _one_sided(sign: Sign, name: str, value: object) -> Iterator[DiffLine]:
    if name in _TEXTS and isinstance(value, str):
        lines = [reveal(line.rstrip(_SPACE)) for line in value.split("\n") if line.strip(_SPACE)]
    else:
        lines = format_json(value)
    return (DiffLine(sign, line) for line in lines or ["<empty>"])
