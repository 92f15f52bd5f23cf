"""Who changed what since the last import, field by field: what one side alone changed is taken, no edit is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.importer.convert.memory import Fingerprint, Memory, Record
from dynamic_mcp.importer.formats.tree import NOTHING


@dataclass(frozen=True)
class Sides:
    """One value of a server: as it stands in our config, as its source has it, and as it would be written."""

    mine: object
    theirs: object
    written: object


@dataclass(frozen=True)
class MergeResult:
    """What becomes of a value: with my side or with theirs where both changed it, and where that is."""

    mine: object
    theirs: object
    conflicts: tuple[Keys, ...]

    def is_settled(self) -> bool:
        """Tell whether no field was changed on both sides."""
        return not self.conflicts


def merge_three_way(sides: Sides, record: Record | None, memory: Memory) -> MergeResult:
    """Merge one server. Without a record nobody knows who changed what, so that every difference is a conflict."""
    known = record or Record("", None, None)
    return _merge_value(sides, known.read, known.written, memory, (), is_known=record is not None)


def update_fingerprint(result: object, sides: Sides, before: Fingerprint, memory: Memory) -> Fingerprint:
    """Return the hashes of what the import has written; of a field that the user keeps, those of the last time."""
    if isinstance(result, Mapping) and isinstance(sides.written, Mapping):
        old = before if isinstance(before, Mapping) else {}
        return {
            key: update_fingerprint(_member(result, key), _sides_at(sides, key), old.get(key), memory)
            for key in _all_keys(result, sides.written, old)
        }
    return memory.print_of(result) if result == sides.written else before


def _merge_value(
    sides: Sides, read: Fingerprint, written: Fingerprint, memory: Memory, at: Keys, *, is_known: bool
) -> MergeResult:
    values = (sides.mine, sides.theirs, sides.written)
    if any(isinstance(value, Mapping) and value for value in values) and all(map(_is_object, values)):
        return _merge_object(sides, read, written, memory, at, is_known=is_known)
    if _is_equal(sides.mine, sides.written) or _is_equal(sides.mine, sides.theirs):
        return MergeResult(sides.written, sides.written, ())
    if sides.theirs is NOTHING if not is_known else memory.print_of(sides.theirs) == read:
        return MergeResult(sides.mine, sides.mine, ())
    if is_known and memory.print_of(sides.mine) == written:
        return MergeResult(sides.written, sides.written, ())
    return MergeResult(sides.mine, sides.written, (at,))


def _merge_object(
    sides: Sides, read: Fingerprint, written: Fingerprint, memory: Memory, at: Keys, *, is_known: bool
) -> MergeResult:
    old_read = read if isinstance(read, Mapping) else {}
    old_written = written if isinstance(written, Mapping) else {}
    mine: dict[str, object] = {}
    theirs: dict[str, object] = {}
    conflicts: list[Keys] = []
    for key in _all_keys(sides.mine, sides.written, sides.theirs):
        inner = (*at, key)
        part = _merge_value(
            _sides_at(sides, key), old_read.get(key), old_written.get(key), memory, inner, is_known=is_known
        )
        conflicts += part.conflicts
        if part.mine is not NOTHING:
            mine[key] = part.mine
        if part.theirs is not NOTHING:
            theirs[key] = part.theirs
    return MergeResult(_or_nothing(mine, sides), _or_nothing(theirs, sides), tuple(conflicts))


def _or_nothing(value: dict[str, object], sides: Sides) -> object:
    # an object whose last field is gone goes too, unless somebody wrote it down empty
    return value if value or {} in (sides.mine, sides.theirs) else NOTHING


def _is_object(value: object) -> bool:
    return value is NOTHING or isinstance(value, Mapping)


def _is_equal(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _sides_at(sides: Sides, key: str) -> Sides:
    return Sides(_member(sides.mine, key), _member(sides.theirs, key), _member(sides.written, key))


def _member(value: object, key: str) -> object:
    return value.get(key, NOTHING) if isinstance(value, Mapping) else NOTHING


def _all_keys(*values: object) -> Iterable[str]:
    return dict.fromkeys(str(key) for value in values if isinstance(value, Mapping) for key in value)
