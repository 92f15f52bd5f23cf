"""Parses JSON typed by the user; refuses JSON that servers would interpret differently."""

from __future__ import annotations

import json
from typing import Any

from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.mcp import strict_json

# int() takes quadratic time, and its message about more digits is unclear to users.
_LONGEST_INTEGER = 4000


def loads(text: str | bytes) -> Any:  # Any: JSON
    """Return the value. Raises ValueError for text that is not JSON, and InvalidArguments for a repeated name."""
    try:
        return strict_json.loads(text, parse_int=_parse_integer)
    except strict_json.RepeatedName as exc:
        raise InvalidArguments(
            f"`{exc.name}` is given twice in one JSON object", hint="give each name once"
        ) from None
    except UnicodeDecodeError as exc:
        raise ValueError(f"byte {exc.start + 1} is not UTF-8") from exc


def dumps(value: object) -> bytes:
    """Return a value as ASCII JSON. Raises InvalidArguments for values that JSON cannot represent."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError as exc:
        raise InvalidArguments("a number in the arguments is larger than JSON readers accept") from exc
    except RecursionError as exc:
        raise InvalidArguments("the arguments are nested too deeply") from exc


def _parse_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)
