"""Prints differences from pins. Texts of servers can neither hide nor control the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Raw

from dynamic_mcp.cli.output import Output
from dynamic_mcp.features.pins.commands.comparison import ServerComparison
from dynamic_mcp.features.pins.commands.diff import diff_definitions
from dynamic_mcp.features.pins.definition import Key
from dynamic_mcp.features.pins.judgement import Difference, title_of
from dynamic_mcp.features.pins.lock_file import Pin
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.blank import reveal
from dynamic_mcp.system.text import one_line, pluralize

_STYLES = {"-": "red", "+": "green", "@": "cyan"}
_LONGEST_SUMMARY = 160
# The most names on one line.
_MOST_NAMES = 20

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
