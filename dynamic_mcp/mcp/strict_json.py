"""Parses only JSON that all parsers read alike: no duplicate names in an object, no `NaN` or `Infinity`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn


class RepeatedName(ValueError):
    """An object has a `name` twice; parsers differ in which one counts (RFC 8259, section 4)."""

    def __init__(self, name: str) -> None:
        super().__init__("an object has a duplicate name")
        self.name = name


def loads(
    text: str | bytes,
    *,
    parse_int: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
) -> Any:  # Any: JSON
    """Return the value. Raises RepeatedName for duplicate names, and ValueError for any other error."""
    try:
        if isinstance(text, str) and parse_int is None and parse_float is None:
            return _decode(text)
        return json.loads(
            text,
            object_pairs_hook=_build_object,
            parse_constant=_refuse_constant,
            parse_int=parse_int,
            parse_float=parse_float,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def canonical(data: bytes) -> bytes:
    """Return JSON without insignificant differences: white space, the order of keys, and escapes.

    Numbers keep their spelling: `1`, `1.0` and `1e0` are three values. Raises ValueError, as `loads` does.
    """
    value = loads(data.decode(), parse_int=_Number, parse_float=_Number)
    try:
        return _write(value).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None


class _Number(str):
    """A number in its original spelling."""

    __slots__ = ()


def _write(value: object) -> str:
    match value:
        case _Number():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(key)}:{_write(value[key])}" for key in sorted(value)) + "}"
        case list():
            return "[" + ",".join(map(_write, value)) + "]"
        case _:
            return json.dumps(value)


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedName(next(name for name in members if names.count(name) > 1))
    return members


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"`{constant}` is not a number in JSON")


# Shared, because `json.loads` would build one per call, which takes as long as parsing a short text.
_decode = json.JSONDecoder(object_pairs_hook=_build_object, parse_constant=_refuse_constant).decode
