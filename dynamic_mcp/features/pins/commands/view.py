"""Shows how definitions differ from what is pinned. What a server has written can neither hide nor act in it."""

from __future__ import annotations

from collections.abc import Iterable

from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.text_diff import Sign, reveal
from dynamic_mcp.features.pins.commands.comparison import Comparison, Difference
from dynamic_mcp.features.pins.commands.definition_diff import MemberDiff, diff_definitions
from dynamic_mcp.features.pins.definition import Key
from dynamic_mcp.features.pins.lock_file import Pin
from dynamic_mcp.system.text import one_line, pluralize

_STYLES = {Sign.OLD: "red", Sign.NEW: "green", Sign.SAME: "", Sign.REMARK: "cyan"}
_LONGEST_SUMMARY = 160
# The names that one line has at most.
_MOST_NAMES = 20

MOVED = "it runs something else than what was pinned, so all of it counts as new"


def summarize(server: Comparison) -> str:
    """Return what differs in one line, such as `github 1.4 -> 1.5: 3 definitions changed, 2 new; held: a, b`."""
    return f"{title(server)}: {describe_counts(server)}"


def describe_counts(server: Comparison) -> str:
    """Return how many definitions differ, and which of them are held."""
    changed = sum(each.change is not None for each in server.differences)
    new = len(server.differences) - changed
    counts = [f"{pluralize(changed, 'definition')} changed"] * bool(changed) + [f"{new} new"] * bool(new)
    counts += [f"{len(server.gone)} gone"] * bool(server.gone)
    held = [reveal(each.name) for each in server.held]
    more = f" and {len(held) - _MOST_NAMES} more" if len(held) > _MOST_NAMES else ""
    what = ", ".join(counts) or "unchanged"
    return what + (f"; held: {', '.join(held[:_MOST_NAMES])}{more}" if held else "")


def title(server: Comparison) -> str:
    """Return the name of a server with its version, and the one that is pinned if it is another."""
    before = reveal(server.pinned.version) if server.pinned is not None else ""
    after = reveal(server.version)
    versions = f"{before} -> {after}" if before and after and before != after else after or before
    return f"{server.name} {one_line(versions)}".rstrip()


def show_server(out: Output, server: Comparison, chosen: Iterable[Difference], *, is_whole: bool) -> None:
    """Print what differs of one server; unless `is_whole`, new definitions without findings take one line."""
    out.print_line(summarize(server), "bold")
    if server.is_moved:
        out.print_line(MOVED, "red", indent=2, margin=f"{out.mark('warning')} ")
    for each in chosen:
        if is_plain(each) and not is_whole:
            out.print_line(
                f"{reveal(each.title)}: new: {_description(each)}".removesuffix(": "), "green", indent=2, margin="+ "
            )
        else:
            show_difference(out, each)
    for key in server.gone:
        out.print_line(f"{_name(key)}: gone; its pin stays", indent=2, margin=f"{out.mark('note')} ")


def is_plain(difference: Difference) -> bool:
    """Tell whether a definition is new, and nothing was found in it."""
    return difference.change is None and not difference.held and not difference.findings


def show_difference(out: Output, difference: Difference) -> None:
    """Print one definition that differs: why it is held, what was found in it, and all that changed."""
    mark, style = ("error", "red") if difference.held else ("note", "")
    out.print_line(describe(difference), style, indent=2, margin=f"{out.mark(mark)} ")
    for found in difference.findings:
        if found.is_hidden:  # it is why this is held
            continue
        where = f" in `{reveal(found.where)}`" if found.where else ""
        out.print_line(f"{reveal(found.text)}{where}", "yellow", indent=4, margin=f"{out.mark('warning')} ")
    if difference.before is not None and not len(difference.before.definition):
        out.print_line("what is pinned was too large to be kept: all is shown as new", indent=6, margin="@ ")
    for member in _diff(difference):
        out.print_line(member.member, "bold", indent=4)
        for line in member.lines:
            out.print_line(line.text, _STYLES[line.sign], indent=6, margin=f"{line.sign.value} ")


def describe(difference: Difference) -> str:
    """Return the name of a definition, what became of it and why it is held, in one line."""
    state = "new" if difference.change is None else "changed"
    if difference.held:
        state += f", held: {reveal(difference.held)}"
    elif difference.change is not None:
        state += f" ({', '.join(sorted(each.value for each in difference.change.classes))})"
    return f"{reveal(difference.title)}: {state}"


def difference_to_json(difference: Difference) -> dict[str, object]:
    """Return one definition that differs."""
    kind, name = difference.key
    change = difference.change
    return {
        "kind": kind.name.lower(),
        "name": name,
        "state": "new" if change is None else "changed",
        "held": bool(difference.held),
        "reason": difference.held,
        "classes": [] if change is None else sorted(each.value for each in change.classes),
        "findings": [
            {"text": each.text, "where": each.where, "hidden": each.is_hidden} for each in difference.findings
        ],
        "before": _pin_to_json(difference.before),
        "after": _pin_to_json(difference.pin),
        "diff": {
            each.member: [f"{line.sign.value} {line.text}" for line in each.lines] for each in _diff(difference)
        },
    }


def key_to_json(key: Key) -> dict[str, object]:
    """Return the kind and the name of a definition."""
    return {"kind": key[0].name.lower(), "name": key[1]}


def _pin_to_json(pin: Pin | None) -> dict[str, object] | None:
    if pin is None:
        return None
    return {"hash": pin.hash, "definition": pin.definition if len(pin.definition) else None}


def _diff(difference: Difference) -> list[MemberDiff]:
    before = b"" if difference.before is None else bytes(difference.before.definition)
    after = difference.pin.definition if difference.change is None else difference.change.after
    return diff_definitions(before.decode("utf-8", "replace"), bytes(after).decode("utf-8", "replace"))


def _description(difference: Difference) -> str:
    from dynamic_mcp.mcp import wire

    definition = difference.pin.definition
    found = wire.members(definition).get("description") if bytes(definition).startswith(b"{") else definition
    return one_line(reveal(wire.text(found) or ""), _LONGEST_SUMMARY)


def _name(key: Key) -> str:
    return reveal(f"{key[0].noun} {key[1]}".rstrip())
