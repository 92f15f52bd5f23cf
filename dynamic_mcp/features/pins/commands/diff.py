"""Shows how a definition differs from its pin: as indented JSON, line by line.

Each line begins with a sign of ours, so that no text of a server can pass for an old or an unchanged one, and
characters that a screen does not show are written as escapes.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator

from dynamic_mcp.system.blank import format_json, reveal

# More lines are not compared one by one, as that takes long: all of them are shown as old and as new.
_MAX_COMPARED = 4000
# Empty lines stay with the one before, as many of them would move the rest out of sight.
_LINE_BREAK = re.compile(r"(?<=\\n)(?=(?: |\\t)*(?:[^\\ ]|\\[^nrt]))")


def diff_definitions(before: bytes, after: bytes) -> list[str]:
    """Return the lines of two definitions in JSON, each after its sign: `-`, `+`, a space, or `@` for a position.

    `before` is empty for what is new.
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
    except (RecursionError, ValueError):  # nested too deeply to be indented, or no JSON
        return [reveal(text)]
    return [part for line in lines for part in _break(line)]


def _break(line: str) -> Iterator[str]:
    """Yield the lines of a text within a line of JSON, so that a long description is compared line by line."""
    indent = len(line) - len(line.lstrip(" "))
    first, *rest = _LINE_BREAK.split(line)
    yield first
    for part in rest:
        yield f"{' ' * indent}  {part}"


def _with_all(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object in which a name that comes twice is there twice, as readers differ in which one they take."""
    found: dict[str, object] = {}
    for name, value in pairs:
        while name in found:
            name += " (again)"
        found[name] = value
    return found
