"""Prints differences from pins at a terminal, and returns them as JSON."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Raw

from dynamic_mcp.cli.output import Output
from dynamic_mcp.features.pins.comparison import ServerComparison
from dynamic_mcp.features.pins.differences import (
    MOVED,
    describe,
    describe_counts,
    diff_of,
    is_plain,
    key_to_json,
    title,
)
from dynamic_mcp.features.pins.judgement import Difference, title_of
from dynamic_mcp.features.pins.lock_file import Pin
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.blank import reveal
from dynamic_mcp.system.text import one_line

_STYLES = {"-": "red", "+": "green", "@": "cyan"}
_LONGEST_SUMMARY = 160


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


def show_difference(out: Output, difference: Difference) -> None:
    """Print one difference: why it is held, its warnings, and all changes."""
    mark, style = ("error", "red") if difference.held else ("note", "")
    out.print_line(describe(difference), style, indent=2, margin=f"{out.mark(mark)} ")
    if difference.note and difference.note != difference.held:
        out.print_line(reveal(difference.note), "yellow", indent=4, margin=f"{out.mark('warning')} ")
    if difference.before is not None and not len(difference.before.definition):
        out.print_line("what is pinned was too large to be kept: all is shown as new", indent=6, margin="@ ")
    for line in diff_of(difference):
        out.print_line(line[1:], _STYLES.get(line[0], ""), indent=6, margin=f"{line[0]} ")


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
        "diff": diff_of(difference),
    }


def _pin_to_json(pin: Pin) -> dict[str, object]:
    return {"hash": pin.hash, "definition": pin.definition if len(pin.definition) else None}


def _description(form: Raw) -> str:
    found = wire.member(form, "description") if bytes(form).startswith(b"{") else form
    return one_line(reveal(wire.text(found) or ""), _LONGEST_SUMMARY)
