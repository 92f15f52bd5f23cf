"""Prints calls that wait for a person. What a client or a server has written can neither hide nor act in it."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Iterator, Sequence

from dynamic_mcp.cli.output import Output
from dynamic_mcp.config import secrets
from dynamic_mcp.config.access import DEFAULT
from dynamic_mcp.features.approvals.queued import QueuedApproval, arguments_of
from dynamic_mcp.identity import LOCAL
from dynamic_mcp.system.blank import BLANK
from dynamic_mcp.system.shell import format_command
from dynamic_mcp.system.text import cut_values, escape, one_line

COLUMNS = ("ID", "AGE", "WHO", "GROUP", "TOOL", "CLASS", "ARGUMENTS")
# What a terminal shows of one call before a person decides, unless the person wants all of it.
_MOST_CHARACTERS = 20_000
_LONGEST_VALUE = 2000
_LONGEST_CELL = 200
_WRITTEN_BLANK = {ord(each): each.encode("unicode_escape").decode() for each in BLANK}
_STYLES = {"+": "green", "-": "red"}
_NO_RULE = "default, as no rule is about it"


def to_row(waiting: QueuedApproval, now: float) -> list[str]:
    """Return the cells of a call by `COLUMNS`."""
    return [
        waiting.id,
        format_seconds(now - waiting.since),
        who(waiting),
        _printable(waiting.group),
        _printable(waiting.name),
        _printable(waiting.access),
        one_line(_printable(json.dumps(arguments_of(waiting), ensure_ascii=False)), _LONGEST_CELL),
    ]


def show_details(
    out: Output, pending: QueuedApproval, now: float, *, reveals: bool = False, is_short: bool = False
) -> bool:
    """Print all of one call; of long arguments less, if it is to be short. Return whether it was all."""
    out.print_line(f"{pending.id}  {_printable(pending.name)} of group {_printable(pending.group)}", "bold")
    for name, value in facts_of(pending, now):
        if value:
            out.print_line(f"{name}: {_printable(value)}", indent=2)
    out.print_line("arguments:", indent=2)
    arguments = arguments_of(pending, reveals=reveals)
    lines = format_arguments(arguments)
    shown = _shorten(format_arguments(cut_values(arguments, _LONGEST_VALUE))) if is_short else lines
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


def format_arguments(value: object) -> list[str]:
    """Return indented JSON in lines, with escapes for what could not be seen."""
    return ["".join(map(_in_json, line)) for line in json.dumps(value, indent=2, ensure_ascii=False).split("\n")]


def show_difference(out: Output, old: object, new: object) -> bool:
    """Print how arguments differ, without what looks like a secret; return whether they do."""
    lines = format_arguments(old), format_arguments(new)
    # a secret is one line, as what is shown for it is
    hidden = [secrets.mask_values(each, mask=secrets.count_hidden) for each in (old, new)]
    shown = format_arguments(hidden[0]), format_arguments(hidden[1])
    for changes in difflib.SequenceMatcher(None, *lines).get_grouped_opcodes(3):
        for kind, start, end, new_start, new_end in changes:
            if kind == "equal":
                _show_lines(out, " ", shown[0][start:end])
                continue
            _show_lines(out, "-", shown[0][start:end])
            _show_lines(out, "+", shown[1][new_start:new_end])
    return lines[0] != lines[1]


def _show_lines(out: Output, sign: str, lines: Sequence[str]) -> None:
    for line in lines:
        out.print_line(f"{sign} {line}", _STYLES.get(sign, ""))


def who(pending: QueuedApproval) -> str:
    """Return who makes a call."""
    is_local = pending.issuer == LOCAL.issuer or not pending.subject
    person = "you" if is_local else pending.subject
    return _printable(f"{person} with {pending.client}" if pending.client else person)


def format_seconds(seconds: float) -> str:
    """Return a duration as people say it: `40 s`, `3 min`, `2 h`."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"


def facts_of(pending: QueuedApproval, now: float) -> Iterator[tuple[str, str]]:
    """Yield what is known of a call, by name; empty for what is not."""
    yield "who", who(pending)
    if pending.issuer and pending.issuer != LOCAL.issuer:
        yield "identified by", pending.issuer
    yield "roles", ", ".join(pending.roles) or ("none" if pending.allowed_by else "")
    yield "allowed by", _NO_RULE if pending.allowed_by == DEFAULT else pending.allowed_by
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
    """Return the first lines, which together are not too long."""
    shown: list[str] = []
    room = _MOST_CHARACTERS
    for line in lines:
        if len(line) > room:
            return [*shown, line[:room] + " …"]
        shown.append(line)
        room -= len(line) + 1
    return shown


def _printable(text: str) -> str:
    """Return text on one line, with escapes for all that shows nothing or that a terminal acts on."""
    return escape(text).translate(_WRITTEN_BLANK)


def _in_json(character: str) -> str:
    if character.isprintable() and character not in BLANK:
        return character
    return json.dumps(character)[1:-1]
