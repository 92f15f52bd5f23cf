"""Reads JSON that all readers take in one way: no name twice in an object, no constants that JSON does not have."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn


class RepeatedName(ValueError):
    """An object has a `name` twice; readers differ in which of the two members counts (RFC 8259, section 4)."""

    def __init__(self, name: str) -> None:
        super().__init__("an object has a name twice")
        self.name = name


def loads(text: str | bytes, *, parse_int: Callable[[str], Any] | None = None) -> Any:  # Any: JSON
    """Return a value. Raises RepeatedName, and ValueError for all else that is wrong."""
    try:
        return json.loads(text, object_pairs_hook=_build_object, parse_constant=_refuse_constant, parse_int=parse_int)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedName(next(name for name in members if names.count(name) > 1))
    return members


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"`{constant}` is not a number in JSON")
