"""Describes differences from pins, as indented JSON, line by line.

Each line begins with a sign, so that a server's text cannot pass for an old or unchanged line, and invisible
characters are escaped: texts can neither hide nor control what shows them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator

from dynamic_mcp.features.pins.comparison import ServerComparison
from dynamic_mcp.features.pins.definition import Key
from dynamic_mcp.features.pins.judgement import Difference
from dynamic_mcp.system.blank import format_json, reveal
from dynamic_mcp.system.text import one_line, pluralize

# The most names on one line.
_MOST_NAMES = 20
# Longer texts are not compared, since that is slow: all their lines are shown as old and as new.
_MAX_COMPARED = 4000
# Empty lines stay with the line before, since many of them would move the rest out of sight.
_LINE_BREAK = re.compile(r"(?<=\\n)(?=(?: |\\t)*(?:[^\\ ]|\\[^nrt]))")

MOVED = "it runs something else than what was pinned, so all of it counts as new"


def describe_counts(server: ServerComparison) -> str:
    """Return the number of differences, and which are held: `3 definitions changed, 2 new; held: a, b`."""
    changed = sum(each.before is not None for each in server.differences)
    new = len(server.differences) - changed
    counts = [f"{pluralize(changed, 'definition')} changed"] * bool(changed) + [f"{new} new"] * bool(new)
    counts += [f"{len(server.gone)} gone"] * bool(server.gone)
    held = [reveal(each.name) for each in server.held]
    more = f" and {len(held) - _MOST_NAMES} more" if len(held) > _MOST_NAMES else ""
    what = ", ".join(counts) or "unchanged"
    return what + (f"; held: {', '.join(held[:_MOST_NAMES])}{more}" if held else "")


def title(server: ServerComparison) -> str:
    """Return the name of a server with its version, and with the pinned version if it differs."""
    before = reveal(server.pinned.version) if server.pinned is not None else ""
    after = reveal(server.version)
    versions = f"{before} -> {after}" if before and after and before != after else after or before
    return f"{server.name} {one_line(versions)}".rstrip()


def is_plain(difference: Difference) -> bool:
    """Return whether a definition is new and has no warnings."""
    return difference.before is None and not difference.held and not difference.note


def describe(difference: Difference) -> str:
    """Return the name of a definition, whether it is new, and why it is held, in one line."""
    held = f", held: {reveal(difference.held)}" if difference.held else ""
    return f"{reveal(difference.title)}: {'new' if difference.before is None else 'changed'}{held}"


def key_to_json(key: Key) -> dict[str, object]:
    """Return the kind and the name of a definition."""
    return {"kind": key[0].name.lower(), "name": key[1]}


def diff_of(difference: Difference) -> list[str]:
    """Return the lines of a difference, as `diff_definitions` does."""
    before = b"" if difference.before is None else bytes(difference.before.definition)
    return diff_definitions(before, bytes(difference.form))


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
