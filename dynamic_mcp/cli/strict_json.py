"""JSON as a person types it for a call: what servers would read in different ways is refused."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from dynamic_mcp.errors import InvalidArguments

# int() takes quadratic time, and refuses more digits with words for programmers.
_LONGEST_INTEGER = 4000


def loads(text: str | bytes) -> Any:  # Any: JSON
    """Return the value. Raises ValueError for what is not JSON, and InvalidArguments where a name is given twice."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse, parse_int=_integer)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeDecodeError as exc:
        raise ValueError(f"byte {exc.start + 1} is not UTF-8") from exc


def dumps(value: object) -> bytes:
    """Return a value as JSON, all ASCII. Raises InvalidArguments for what JSON cannot hold."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError as exc:
        raise InvalidArguments("a number among the arguments is larger than JSON readers take") from exc
    except RecursionError as exc:
        raise InvalidArguments("the arguments are nested too deeply") from exc


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise InvalidArguments(f"`{twice}` is given twice in one JSON object", hint="give each name once")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"`{constant}` is not a number there")


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)
