"""Merges a new version of an entry into what a person has made of the old one: no edit of theirs is lost.

Objects are merged member by member, lists word by word. Where both sides changed the same, the person's side stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

import msgspec
from msgspec import Struct

from dynamic_mcp.config.keys import Keys

Json: TypeAlias = object


class _Nothing:
    """No value."""


NOTHING = _Nothing()


class Clash(Struct, frozen=True):
    """A place that both sides changed; None is no value."""

    at: Keys
    mine: Json
    theirs: Json


class Merged(Struct, frozen=True):
    """A merged value, and where the new version was not followed."""

    value: Json
    clashes: tuple[Clash, ...] = ()


def merge(base: Json, mine: Json, theirs: Json) -> Merged:
    """Merge two values that were both made of `base`; `NOTHING` stands for no value."""
    clashes: list[Clash] = []
    value = _merge(base, mine, theirs, (), clashes)
    return Merged(value, tuple(clashes))


def _merge(base: Json, mine: Json, theirs: Json, at: Keys, clashes: list[Clash]) -> Json:
    if _is_same(mine, base) or _is_same(mine, theirs):
        return theirs
    if _is_same(theirs, base):
        return mine
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return _merge_members(base if isinstance(base, Mapping) else {}, mine, theirs, at, clashes)
    if isinstance(base, list) and isinstance(mine, list) and isinstance(theirs, list):
        return list(_merge_items(base, mine, theirs, at, clashes))
    clashes.append(Clash(at, None if mine is NOTHING else mine, None if theirs is NOTHING else theirs))
    return mine


def _merge_members(
    base: Mapping[str, Json], mine: Mapping[str, Json], theirs: Mapping[str, Json], at: Keys, clashes: list[Clash]
) -> dict[str, Json]:
    merged: dict[str, Json] = {}
    for key in dict.fromkeys((*mine, *theirs)):
        one, other, third = (side.get(key, NOTHING) for side in (base, mine, theirs))
        merged[key] = _merge(one, other, third, (*at, key), clashes)
    return {key: value for key, value in merged.items() if value is not NOTHING}


def _merge_items(
    base: Sequence[Json], mine: Sequence[Json], theirs: Sequence[Json], at: Keys, clashes: list[Clash]
) -> Iterator[Json]:
    """Yield the merged items: what each side made of an item of the base, and what it put before it."""
    own, new = _changes(base, mine), _changes(base, theirs)
    for number in range(len(base) + 1):
        added = own.added[number]
        yield from added
        if not _is_same(list(added), list(new.added[number])):
            yield from new.added[number]
        if number < len(base):
            item = _merge(base[number], own.kept[number], new.kept[number], (*at, number), clashes)
            if item is not NOTHING:
                yield item


class _Changes(Struct):
    """What became of each item of a list, and what was put before each and at the end."""

    kept: list[Json]
    added: list[list[Json]]


def _changes(base: Sequence[Json], side: Sequence[Json]) -> _Changes:
    changes = _Changes(list(base), [[] for _ in range(len(base) + 1)])
    matcher = SequenceMatcher(None, [_key(each) for each in base], [_key(each) for each in side], autojunk=False)
    for _, start, end, side_start, side_end in matcher.get_opcodes():
        items = side[side_start:side_end]
        for offset, number in enumerate(range(start, end)):
            changes.kept[number] = items[offset] if offset < len(items) else NOTHING
        changes.added[end] += items[end - start :]
    return changes


def _is_same(one: Json, other: Json) -> bool:
    if one is NOTHING or other is NOTHING:
        return one is other
    return _key(one) == _key(other)


def _key(value: Json) -> bytes:
    # true is not 1, and the order of members means nothing
    return msgspec.json.encode(value, order="deterministic")
