"""Accesses plain values by path, regardless of their file format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynamic_mcp.config.keys import Keys


class Nothing:
    """The type of a missing value; null is a value."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


def at(value: object, path: Keys) -> object:
    """Return the value at a path, or NOTHING."""
    for key in path:
        match value, key:
            case dict(), str() if key in value:
                value = value[key]
            case list(), int() if 0 <= key < len(value):
                value = value[key]
            case _:
                return NOTHING
    return value


def with_value(value: object, path: Keys, new: object) -> object:
    """Return a copy with another value at a path; missing or null parents are created."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    match value, key:
        case list(), int() if 0 <= key <= len(value):
            return [*value[:key], with_value(at(value, (key,)), rest, new), *value[key + 1 :]]
        case ((None | Nothing()), 0):
            return [with_value(NOTHING, rest, new)]
        case ((dict() | None | Nothing()), str()):
            old: Mapping[str, Any] = value if isinstance(value, dict) else {}
            return {**old, key: with_value(old.get(key, NOTHING), rest, new)}
    raise ValueError("another value is in the way")


def without(value: object, path: Keys) -> object:
    """Return a copy without the value at a path, which must exist."""
    key, rest = path[0], path[1:]
    if isinstance(value, list):
        assert isinstance(key, int)
        return [*value[:key], *([without(value[key], rest)] if rest else []), *value[key + 1 :]]
    assert isinstance(value, dict)
    if not rest:
        return {each: inner for each, inner in value.items() if each != key}
    return {each: without(inner, rest) if each == key else inner for each, inner in value.items()}


def is_like(one: object, other: object) -> bool:
    """Return whether two values are equal; missing, null and empty values are equal to each other."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(is_like(one.get(key), other.get(key)) for key in one.keys() | other.keys())
    empty: tuple[object, ...] = (None, NOTHING, {}, [])
    return (any(one is each or one == each for each in empty) and any(other == each for each in empty)) or (
        type(one) is type(other) and one == other
    )
