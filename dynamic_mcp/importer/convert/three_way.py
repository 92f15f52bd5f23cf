"""Find out field by field who has changed what since the last import: one-sided changes apply, no edit is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.importer.convert.memory import Fingerprint, Memory, Record
from dynamic_mcp.importer.formats.tree import NOTHING


@dataclass(frozen=True)
class Sides:
    """Three versions of a value: in our config, at its source, and the one that the import would write."""

    mine: object
    theirs: object
    proposal: object


@dataclass(frozen=True)
class MergeResult:
    """A merged value, with my side or theirs where both changed it, and the paths of those conflicts."""

    mine: object
    theirs: object
    conflicts: tuple[Keys, ...]

    def is_settled(self) -> bool:
        """Tell whether no field was changed on both sides."""
        return not self.conflicts


def merge_three_way(sides: Sides, record: Record | None, memory: Memory) -> MergeResult:
    """Merge one server. Without a record it is unknown who changed what, so every difference is a conflict."""
    known = record or Record("", None, None)
    return _merge_value(sides, known.source, known.output, memory, (), is_known=record is not None)


def update_fingerprint(result: object, sides: Sides, before: Fingerprint, memory: Memory) -> Fingerprint:
    """Return the fingerprint of what the import wrote; a field that the user kept retains the previous one."""
    if isinstance(result, Mapping) and isinstance(sides.proposal, Mapping):
        old = before if isinstance(before, Mapping) else {}
        return {
            key: update_fingerprint(_member(result, key), _sides_at(sides, key), old.get(key), memory)
            for key in _all_keys(result, sides.proposal, old)
        }
    return memory.fingerprint(result) if result == sides.proposal else before


def _merge_value(
    sides: Sides, source: Fingerprint, output: Fingerprint, memory: Memory, at: Keys, *, is_known: bool
) -> MergeResult:
    values = (sides.mine, sides.theirs, sides.proposal)
    if any(isinstance(value, Mapping) and value for value in values) and all(map(_is_object, values)):
        return _merge_object(sides, source, output, memory, at, is_known=is_known)
    if _is_equal(sides.mine, sides.proposal) or _is_equal(sides.mine, sides.theirs):
        return MergeResult(sides.proposal, sides.proposal, ())
    if sides.theirs is NOTHING if not is_known else memory.fingerprint(sides.theirs) == source:
        return MergeResult(sides.mine, sides.mine, ())
    if is_known and memory.fingerprint(sides.mine) == output:
        return MergeResult(sides.proposal, sides.proposal, ())
    return MergeResult(sides.mine, sides.proposal, (at,))


def _merge_object(
    sides: Sides, source: Fingerprint, output: Fingerprint, memory: Memory, at: Keys, *, is_known: bool
) -> MergeResult:
    old_source = source if isinstance(source, Mapping) else {}
    old_output = output if isinstance(output, Mapping) else {}
    mine: dict[str, object] = {}
    theirs: dict[str, object] = {}
    conflicts: list[Keys] = []
    for key in _all_keys(sides.mine, sides.proposal, sides.theirs):
        inner = (*at, key)
        part = _merge_value(
            _sides_at(sides, key), old_source.get(key), old_output.get(key), memory, inner, is_known=is_known
        )
        conflicts += part.conflicts
        if part.mine is not NOTHING:
            mine[key] = part.mine
        if part.theirs is not NOTHING:
            theirs[key] = part.theirs
    return MergeResult(_or_nothing(mine, sides), _or_nothing(theirs, sides), tuple(conflicts))


def _or_nothing(value: dict[str, object], sides: Sides) -> object:
    # an object without any field left is removed, unless it was written as an empty object
    return value if value or {} in (sides.mine, sides.theirs) else NOTHING


def _is_object(value: object) -> bool:
    return value is NOTHING or isinstance(value, Mapping)


def _is_equal(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _sides_at(sides: Sides, key: str) -> Sides:
    return Sides(_member(sides.mine, key), _member(sides.theirs, key), _member(sides.proposal, key))


def _member(value: object, key: str) -> object:
    return value.get(key, NOTHING) if isinstance(value, Mapping) else NOTHING


def _all_keys(*values: object) -> Iterable[str]:
    return dict.fromkeys(str(key) for value in values if isinstance(value, Mapping) for key in value)
