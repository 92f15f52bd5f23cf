"""Prints waiting calls. Texts of clients and servers can neither hide nor control the terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from dynamic_mcp.cli.output import Output
from dynamic_mcp.config.access import DEFAULT, DEFAULT_TEXT
from dynamic_mcp.features.approvals.edit import compare
from dynamic_mcp.features.approvals.store import QueuedApproval, arguments_of
from dynamic_mcp.identity import LOCAL
from dynamic_mcp.system.blank import format_json, reveal
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import cut_values, one_line

COLUMNS = ("ID", "AGE", "WHO", "GROUP", "TOOL", "CLASS", "ARGUMENTS")
# The limit on the text of one call before a decision, unless the user asks for all of it.
_MOST_CHARACTERS = 20_000
_LONGEST_VALUE = 2000
_LONGEST_CELL = 200
_STYLES = {"+": "green", "-": "red"}


def to_row(waiting: QueuedApproval, now: float) -> list[str]:
    """Return the cells of a call by `COLUMNS`."""
    return [
        waiting.id,
        format_seconds(now - waiting.since),
        who(waiting),
        reveal(waiting.group),
        reveal(waiting.name),
        reveal(waiting.access),
        one_line(reveal(json.dumps(arguments_of(waiting), ensure_ascii=False)), _LONGEST_CELL),
    ]


def show_details(
    out: Output, pending: QueuedApproval, now: float, *, reveals: bool = False, is_short: bool = False
) -> bool:
    """Print one call, with long arguments cut if `is_short`. Return whether all of it was printed."""
    out.print_line(f"{pending.id}  {reveal(pending.name)} of group {reveal(pending.group)}", "bold")
    for name, value in facts_of(pending, now):
        if value:
            out.print_line(f"{name}: {reveal(value)}", indent=2)
    out.print_line("arguments:", indent=2)
    arguments = arguments_of(pending, reveals=reveals)
    lines = format_json(arguments)
    shown = _shorten(format_json(cut_values(arguments, _LONGEST_VALUE))) if is_short else lines
    for line in shown:
        out.print_line(line, indent=4)
    if shown != lines:
        left_out = sum(map(len, lines)) - sum(map(len, shown))
        out.print_line(
            f"THESE ARE NOT ALL OF THE ARGUMENTS: about {left_out} characters are left out", "red", indent=2
        )
    if arguments != arguments_of(pending, reveals=True):
        command = format_command("approve", "show", pending.id, "--reveal")
        out.print_line(f"`{command}` shows what is hidden", indent=2)
    return shown == lines


def show_difference(out: Output, old: object, new: object) -> bool:
    """Print how arguments differ, with secrets masked; return whether they differ."""
    lines = compare(old, new)
    for sign, line in lines:
        out.print_line(f"{sign} {line}", _STYLES.get(sign, ""))
    return bool(lines)


def who(pending: QueuedApproval) -> str:
    """Return the user and client of a call."""
    is_local = pending.issuer == LOCAL.issuer or not pending.subject
    user = "you" if is_local else pending.subject
    return reveal(f"{user} with {pending.client}" if pending.client else user)


def format_seconds(seconds: float) -> str:
    """Return a duration such as `40 s`, `3 min` or `2 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"


def facts_of(pending: QueuedApproval, now: float) -> Iterator[tuple[str, str]]:
    """Yield the facts about a call, by name; unknown facts are empty."""
    yield "who", who(pending)
    if pending.issuer and pending.issuer != LOCAL.issuer:
        yield "identified by", pending.issuer
    yield "roles", ", ".join(pending.roles) or ("none" if pending.allowed_by else "")
    yield "allowed by", DEFAULT_TEXT if pending.allowed_by == DEFAULT else pending.allowed_by
    yield "the tool says" if pending.kind == "tool" else "it says", one_line(pending.description, 400)
    yield "counts as", pending.access
    yield "asked because of", pending.rule
    for note in pending.notes:
        yield "changed so that it fits", note
    if pending.offered != ("once",):
        yield "can be allowed", ", ".join(pending.offered)
    yield "config", pending.config
    yield "waiting", _describe_times(pending, now)


def _describe_times(pending: QueuedApproval, now: float) -> str:
    if now < pending.held_until:
        client = f"the client gives up in {format_seconds(pending.held_until - now)}"
    else:
        client = "the client was told to call again"
    until = time.strftime("%H:%M", time.localtime(pending.expires))
    return f"for {format_seconds(now - pending.since)}; {client}; you can decide until {until}"


def _shorten(lines: list[str]) -> list[str]:
    """Return the first lines, up to a total length."""
    shown: list[str] = []
    room = _MOST_CHARACTERS
    for line in lines:
        if len(line) > room:
            return [*shown, line[:room] + " …"]
        shown.append(line)
        room -= len(line) + 1
    return shown
