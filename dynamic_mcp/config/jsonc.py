"""Parses JSON with comments and trailing commas, and nothing else that JSON forbids.

Positions in errors refer to the original text. Parsing takes linear time.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from json import JSONDecodeError
from typing import NoReturn

from dynamic_mcp.config.keys import Keys

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+'
_COMMENT = rf"(?s:{_STRING}|(?P<line>//[^\r\n]*+)|(?P<block>/\*.*?(?P<end>\*/|\Z)))"
_COMMA = rf"(?s:{_STRING}|[\[{{:,][ \t\r\n]*+,|(?P<trailing>,(?=[ \t\r\n]*+[\]}}])))"
_CONSTANT = rf"(?s:{_STRING}|(?P<constant>NaN|-?Infinity))"
_HALF = r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)|\\."
_LONGEST_INTEGER = 400


class DuplicateKeyError(ValueError):
    """Some objects have the same key twice; `paths` are these keys, in document order."""

    def __init__(self, paths: list[Keys]) -> None:
        super().__init__(f"{len(paths)} duplicate keys")
        self.paths = paths


def loads(text: str) -> object:
    """Parse `text`. Raises JSONDecodeError with line and column, or DuplicateKeyError."""
    value, duplicates = parse(text)
    if duplicates:
        raise DuplicateKeyError(duplicates)
    return value


def parse(text: str) -> tuple[object, list[Keys]]:
    """Parse `text`, and return the value and the paths of duplicate keys, of which the last one counts.

    Raises JSONDecodeError with line and column.
    """
    try:
        return _parse(text)
    except JSONDecodeError:
        return _parse(blank_extensions(text))


def blank_extensions(text: str) -> str:
    """Replace comments and trailing commas by spaces; lines and columns stay the same."""
    return re.sub(_COMMA, _blank_comma, blank_comments(text))


def blank_comments(text: str) -> str:
    """Replace comments by spaces. Raises JSONDecodeError for an unterminated comment."""
    return re.sub(_COMMENT, _blank_comment, text)


def find_comments(text: str) -> list[tuple[int, int]]:
    """Return the positions of all comments: where each starts and ends."""
    return [match.span() for match in re.finditer(_COMMENT, text) if match["block"] or match["line"]]


def _blank_comment(match: re.Match[str]) -> str:
    if match["block"] is not None and not match["end"]:
        raise JSONDecodeError("Unterminated comment", match.string, match.start())
    if match["block"] is None and match["line"] is None:
        return match[0]
    return re.sub(r"[^\r\n]", " ", match[0])


def _blank_comma(match: re.Match[str]) -> str:
    return " " if match["trailing"] else match[0]


def _parse(text: str) -> tuple[object, list[Keys]]:
    duplicates: list[tuple[object, str]] = []

    def build(pairs: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(pairs)
        if len(value) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            duplicates.extend((value, key) for key, count in counts.items() if count > 1)
        return value

    def refuse(name: str) -> NoReturn:
        positions = (match.start() for match in re.finditer(_CONSTANT, text) if match["constant"])
        raise JSONDecodeError(f"`{name}`", text, next(positions))

    try:
        value: object = json.loads(text, object_pairs_hook=build, parse_constant=refuse, parse_int=_integer)
    except RecursionError:
        raise JSONDecodeError("Nested too deeply", text, 0) from None
    _refuse_lone_surrogates(text)
    return value, _find_paths(value, duplicates) if duplicates else []


def _find_paths(root: object, duplicates: list[tuple[object, str]]) -> list[Keys]:
    keys_of: dict[int, list[str]] = {}
    for value, key in duplicates:
        keys_of.setdefault(id(value), []).append(key)
    return [(*path, key) for value, path in _walk(root) for key in keys_of.get(id(value), ())]


def _refuse_lone_surrogates(text: str) -> None:
    # the json module accepts a lone surrogate, but programs, files and terminals do not
    for escape in re.finditer(_HALF, text) if "\\u" in text else ():
        if escape["half"]:
            raise JSONDecodeError("Half of a surrogate pair", text, escape.start())


def _integer(digits: str) -> int | float:
    # int() takes quadratic time, and raises ValueError for thousands of digits
    return int(digits) if len(digits) < _LONGEST_INTEGER else float(digits)


def _walk(root: object) -> Iterator[tuple[object, Keys]]:
    stack: list[tuple[object, Keys]] = [(root, ())]
    while stack:
        value, path = stack.pop()
        yield value, path
        if isinstance(value, (dict, list)):
            children = value.items() if isinstance(value, dict) else enumerate(value)
            stack.extend(reversed([(child, (*path, key)) for key, child in children]))
