"""Shows how definitions differ from what is pinned. What a server has written can neither hide nor act in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dynamic_mcp.cli.output import Output
from dynamic_mcp.features.pins.commands.comparison import Comparison, Difference
from dynamic_mcp.features.pins.commands.json_diff import diff_json, format_json, is_same
from dynamic_mcp.features.pins.commands.text_diff import DiffLine, Sign, diff_text, reveal
from dynamic_mcp.features.pins.definition import Key
from dynamic_mcp.features.pins.lock_file import Pin
from dynamic_mcp.system.text import one_line, pluralize

_STYLES = {Sign.OLD: "red", Sign.NEW: "green", Sign.SAME: "", Sign.REMARK: "cyan"}
_LONGEST_SUMMARY = 160
# The names that one line has at most.
_MOST_NAMES = 20

# What is read as a text, and not as JSON.
_TEXTS = frozenset({"name", "uriTemplate", "title", "description", "text", "mimeType"})
# White space that cannot be seen at the end of a line and does no harm.
_SPACE = " \t\r"
# The order in which members are shown; others follow by name.
_ORDER = ("name", "uriTemplate", "title", "description", "text", "mimeType", "annotations", "arguments")

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


# --- how two definitions differ, as a person reads them -----------------------------------------------------


@dataclass(frozen=True)
class MemberDiff:
    """How one member of a definition differs."""

    member: str
    lines: tuple[DiffLine, ...]


def diff_definitions(before: str, after: str) -> list[MemberDiff]:
    """Return how two definitions, as JSON, differ member by member; an empty one is one that there is not."""
    try:
        found = _diff_members(_members(before), _members(after))
    except (RecursionError, ValueError):  # nested too deeply to be indented, or no JSON
        found = []
    if found or before == after:
        return found
    return [MemberDiff("definition", tuple(diff_text(before, after)))]


def _diff_members(old: Mapping[str, object], new: Mapping[str, object]) -> list[MemberDiff]:
    names = sorted({*old, *new}, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    return [
        MemberDiff(reveal(name), tuple(_diff_member(name, old, new)))
        for name in names
        if name not in old or name not in new or not is_same(old[name], new[name])
    ]


def _members(definition: str) -> Mapping[str, object]:
    value = json.loads(definition, object_pairs_hook=_with_all) if definition else {}
    return value if isinstance(value, dict) else {"text": value}


def _with_all(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object in which a name that comes twice is there twice, as readers differ in which one they take."""
    found: dict[str, object] = {}
    for name, value in pairs:
        while name in found:
            name += " (again)"
        found[name] = value
    return found


def _diff_member(name: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[DiffLine]:
    if name not in new:
        return _one_sided(Sign.OLD, name, old[name])
    if name not in old:
        return _one_sided(Sign.NEW, name, new[name])
    before, after = old[name], new[name]
    if name in _TEXTS and isinstance(before, str) and isinstance(after, str):
        return diff_text(before, after)
    return diff_json(before, after)


def _one_sided(sign: Sign, name: str, value: object) -> Iterator[DiffLine]:
    if name in _TEXTS and isinstance(value, str):
        lines = [reveal(line.rstrip(_SPACE)) for line in value.split("\n") if line.strip(_SPACE)]
    else:
        lines = format_json(value)
    return (DiffLine(sign, line) for line in lines or ["<empty>"])
