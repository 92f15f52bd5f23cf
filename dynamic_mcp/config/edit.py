"""Changes one value in a JSON text and keeps every other byte: comments, order, indentation, line ends, commas.

A text that cannot be parsed is refused, never changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dynamic_mcp.config import jsonc
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.keys import format_path as shown
from dynamic_mcp.config.source import Source

_BOM = "\ufeff"


class NoPlaceError(ValueError):
    """The path leads through a value that is no object or list, or past the end of a list."""

    def __init__(self, path: Keys) -> None:
        super().__init__(f"`{shown(path)}` is neither an object nor a list that could take it")


def put(text: str, path: Keys, value: object, *, order: Sequence[str] = ()) -> str:
    """Return the text with `value` at `path`: it replaces the value there, or is added after the last member.

    With an `order`, a new key goes after the nearest key that precedes it in that order, or else before the nearest
    that follows it. An object replaces another object member by member. Missing parents are created, and null counts
    as missing; an index may equal the length of its list, to append. Raises JSONDecodeError, jsonc.DuplicateKeyError
    or NoPlaceError.
    """
    bom, text = _split_bom(text)
    depth, there = _locate(text, path)
    if depth == len(path):
        return bom + _replace(text, path, there, value)
    key, inside = path[depth], _nest(path[depth + 1 :], value)
    if isinstance(there, dict) and isinstance(key, str):
        return bom + Source(text).insert(path[:depth], key, inside, at=_index(list(there), key, order))
    if isinstance(there, list) and key == len(there):
        return bom + Source(text).insert(path[:depth], key, inside)
    if there is None:
        return bom + Source(text).replace(path[:depth], _nest((key,), inside))
    raise NoPlaceError(path[:depth])


def drop(text: str, path: Keys) -> str:
    """Return the text without the value at `path`, its key and one comma; comments stay.

    If there is no such value, the text stays as it is. Raises JSONDecodeError or jsonc.DuplicateKeyError.
    """
    bom, text = _split_bom(text)
    depth, _ = _locate(text, path)
    if not path or depth < len(path):
        return bom + text
    return bom + Source(text).drop(path)


def _split_bom(text: str) -> tuple[str, str]:
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _locate(text: str, path: Keys) -> tuple[int, object]:
    """Return how many keys of the path exist, and the value at the last of them."""
    there = jsonc.loads(text)
    for depth, key in enumerate(path):
        match there, key:
            case dict(), str() if key in there:
                there = there[key]
            case list(), int() if 0 <= key < len(there):
                there = there[key]
            case _:
                return depth, there
    return len(path), there


def _index(keys: list[str], key: str, order: Sequence[str]) -> int:
    """Return the position of a new key."""
    if key in order:
        place = order.index(key)
        for before in reversed(order[:place]):
            if before in keys:
                return keys.index(before) + 1
        for behind in order[place + 1 :]:
            if behind in keys:
                return keys.index(behind)
    return len(keys)


def _nest(path: Keys, value: object) -> object:
    for key in reversed(path):
        value = [value] if isinstance(key, int) else {key: value}
    return value


def _replace(text: str, path: Keys, old: object, new: object) -> str:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return text if _is_same(old, new) else Source(text).replace(path, new)
    for key in [key for key in old if key not in new]:
        text = Source(text).drop((*path, key))
    for key, value in new.items():
        here = (*path, key)
        text = _replace(text, here, old[key], value) if key in old else Source(text).insert(path, key, value)
    return text


def _is_same(old: object, new: object) -> bool:
    # true is not 1, and 1 is not 1.0
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
