"""Prints differences from pins, as indented JSON, line by line.

Each line begins with a sign, so that a server's text cannot pass for an old or unchanged line, and invisible
characters are escaped: texts can neither hide nor control the terminal.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator

from msgspec import Raw

from dynamic_mcp.cli.output import Output
from dynamic_mcp.features.pins.commands.comparison import ServerComparison
from dynamic_mcp.features.pins.definition import Key
from dynamic_mcp.features.pins.judgement import Difference, title_of
from dynamic_mcp.features.pins.lock_file import Pin
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.blank import format_json, reveal
from dynamic_mcp.system.text import one_line, pluralize

_STYLES = {"-": "red", "+": "green", "@": "cyan"}
_LONGEST_SUMMARY = 160
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


def show_server(out: Output, server: ServerComparison, chosen: Iterable[Difference], *, is_whole: bool) -> None:
    """Print the differences of one server; unless `is_whole`, plain new definitions take one line."""
    out.print_line(f"{title(server)}: {describe_counts(server)}", "bold")
    if server.is_moved:
        out.print_line(MOVED, "red", indent=2, margin=f"{out.mark('warning')} ")
    for each in chosen:
        if is_plain(each) and not is_whole:
            line = f"{reveal(each.title)}: new: {_description(each.form)}".removesuffix(": ")
            out.print_line(line, "green", indent=2, margin="+ ")
        else:
            show_difference(out, each)
    for key in server.gone:
        out.print_line(f"{reveal(title_of(key))}: gone; its pin stays", indent=2, margin=f"{out.mark('note')} ")


def is_plain(difference: Difference) -> bool:
    """Return whether a definition is new and has no warnings."""
    return difference.before is None and not difference.held and not difference.note


def show_difference(out: Output, difference: Difference) -> None:
    """Print one difference: why it is held, its warnings, and all changes."""
    mark, style = ("error", "red") if difference.held else ("note", "")
    out.print_line(describe(difference), style, indent=2, margin=f"{out.mark(mark)} ")
    if difference.note and difference.note != difference.held:
        out.print_line(reveal(difference.note), "yellow", indent=4, margin=f"{out.mark('warning')} ")
    if difference.before is not None and not len(difference.before.definition):
        out.print_line("what is pinned was too large to be kept: all is shown as new", indent=6, margin="@ ")
    for line in _diff(difference):
        out.print_line(line[1:], _STYLES.get(line[0], ""), indent=6, margin=f"{line[0]} ")


def describe(difference: Difference) -> str:
    """Return the name of a definition, whether it is new, and why it is held, in one line."""
    held = f", held: {reveal(difference.held)}" if difference.held else ""
    return f"{reveal(difference.title)}: {'new' if difference.before is None else 'changed'}{held}"


def difference_to_json(difference: Difference) -> dict[str, object]:
    """Return a difference as JSON values."""
    return {
        **key_to_json(difference.key),
        "state": "new" if difference.before is None else "changed",
        "held": bool(difference.held),
        "reason": difference.held,
        "note": difference.note,
        "before": None if difference.before is None else _pin_to_json(difference.before),
        "after": _pin_to_json(difference.pin),
        "diff": _diff(difference),
    }


def key_to_json(key: Key) -> dict[str, object]:
    """Return the kind and the name of a definition."""
    return {"kind": key[0].name.lower(), "name": key[1]}


def _pin_to_json(pin: Pin) -> dict[str, object]:
    return {"hash": pin.hash, "definition": pin.definition if len(pin.definition) else None}


def _diff(difference: Difference) -> list[str]:
    before = b"" if difference.before is None else bytes(difference.before.definition)
    return diff_definitions(before, bytes(difference.form))


def _description(form: Raw) -> str:
    found = wire.member(form, "description") if bytes(form).startswith(b"{") else form
    return one_line(reveal(wire.text(found) or ""), _LONGEST_SUMMARY)


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
