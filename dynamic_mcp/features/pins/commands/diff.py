"""Shows the difference between a definition and its pin: as indented JSON, line by line.

Each line begins with a sign, so that a server's text cannot pass for an old or unchanged line, and invisible
characters are escaped.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator

from dynamic_mcp.system.blank import format_json, reveal

# Longer texts are not compared, since that is slow: all their lines are shown as old and as new.
_MAX_COMPARED = 4000
# Empty lines stay with the line before, since many of them would move the rest out of sight.
_LINE_BREAK = re.compile(r"(?<=\\n)(?=(?: |\\t)*(?:[^\\ ]|\\[^nrt]))")


def diff_definitions(before: bytes, after: bytes) -> list[str]:
    """Return the lines of two definitions in JSON, each after its sign: `-`, `+`, a space, or `@` for a position.

    `before` is empty for a new definition.
    """
    old, new = _lines(before), _lines(after)
    if max(len(old), len(new)) > _MAX_COMPARED:
        return [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    _, _, *lines = difflib.unified_diff(old, new, lineterm="") if old != new else ("", "")
    return [f"@{line.strip('@ ')}" if line.startswith("@") else line for line in lines]


def _lines(definition: bytes) -> list[str]:
    text = definition.decode("utf-8", "replace")
    if not text:
        return []
    try:
        lines = format_json(json.loads(text, object_pairs_hook=_with_all))
    except (RecursionError, ValueError):  # nested too deeply to indent, or not JSON
        return [reveal(text)]
    return [part for line in lines for part in _break(line)]


def _break(line: str) -> Iterator[str]:
    """Yield the lines of a text in a line of JSON, so that a long description is compared line by line."""
    indent = len(line) - len(line.lstrip(" "))
    first, *rest = _LINE_BREAK.split(line)
    yield first
    for part in rest:
        yield f"{' ' * indent}  {part}"


def _with_all(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object that keeps duplicate names, since readers differ in which one they use."""
    found: dict[str, object] = {}
    for name, value in pairs:
        while name in found:
            name += " (again)"
        found[name] = value
    return found
