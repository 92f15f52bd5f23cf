"""Arguments that a person changes: parsed, and compared with those of the call."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Literal

from dynamic_mcp.config import secrets
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.system.blank import format_json
from dynamic_mcp.tools import typed_json

MOST_BYTES = 8 << 20

Sign = Literal[" ", "-", "+"]


def parse_arguments(text: str) -> dict[str, object]:
    """Return the arguments that a person has typed. Raises InvalidArguments."""
    if len(text) > MOST_BYTES:
        raise InvalidArguments("the arguments are too large")
    try:
        value = typed_json.loads(text)
    except ValueError as exc:
        raise InvalidArguments(f"the arguments are not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise InvalidArguments("the arguments must be a JSON object")
    return value


def compare(old: object, new: object) -> list[tuple[Sign, str]]:
    """Return how arguments differ, in lines with the equal ones around, secrets masked; empty if they do not."""
    lines = format_json(old), format_json(new)
    # a secret takes one line, like its mask
    hidden = [secrets.mask_values(each, mask=secrets.count_hidden) for each in (old, new)]
    return [*_compare(lines, (format_json(hidden[0]), format_json(hidden[1])))]


def _compare(
    lines: tuple[Sequence[str], Sequence[str]], shown: tuple[Sequence[str], Sequence[str]]
) -> Iterator[tuple[Sign, str]]:
    for changes in difflib.SequenceMatcher(None, *lines).get_grouped_opcodes(3):
        for kind, start, end, new_start, new_end in changes:
            if kind == "equal":
                yield from ((" ", line) for line in shown[0][start:end])
                continue
            yield from (("-", line) for line in shown[0][start:end])
            yield from (("+", line) for line in shown[1][new_start:new_end])
