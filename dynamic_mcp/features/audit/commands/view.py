"""`dynamic-mcp audit`: shows lines of the audit log, the newest at the bottom, and follows it."""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.output import Output
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.commands.options import LineOptions, find_directory, open_index
from dynamic_mcp.features.audit.days import StoredLine
from dynamic_mcp.features.audit.query import LineFilter
from dynamic_mcp.system.text import escape, pluralize

_EVERY_S = 0.5
_COLUMNS = ("TIME", "WHO", "EVENT", "RESULT", "TOOK", "WHAT")
_STYLES = {"denied": "yellow", "failure": "red", "unknown": "red", "pending": "cyan", "cancelled": "dim"}


def show_lines(this: Invocation, options: LineOptions, *, directory: str | None, follows: bool) -> int:
    """Print the lines that are wanted, and with `follows` those that come; return the exit code."""
    place, wanted, most = find_directory(this, directory), options.parse(this), options.parse_count()
    with open_index(this, place) as index:
        lines = list(index.find(wanted, most))
        if follows:
            _print_each(this.out, lines)
            pause = _pause_for(this.out)
            for more in index.follow(wanted):
                _print_each(this.out, more)
                if not pause():
                    return 0
        _print_all(this.out, lines)
        if most is not None and len(lines) == most and (count := index.count(wanted)) > most:
            this.out.say(f"the last {most} of {count:,} lines; `-n all` shows all")
    if not lines:
        this.out.say(_describe_nothing(place, wanted))
    return 0


def _describe_nothing(directory: Path, wanted: LineFilter) -> str:
    if not directory.is_dir():
        return f"there is no audit log in `{directory}` yet\nhint: `settings.audit` in a config turns it on"
    return f"the audit log in `{directory}` has no {'such ' if wanted != LineFilter() else ''}lines"


def _print_all(out: Output, lines: list[StoredLine]) -> None:
    if out.is_json:
        _print_each(out, lines)
    elif lines:
        out.print_table(_COLUMNS, [_cells(each.known) for each in lines])


def _print_each(out: Output, lines: list[StoredLine]) -> None:
    for each in lines:
        if out.is_json:
            _print_json(out, each)
        else:
            out.print_line(_format(each.known), _STYLES.get(each.known.outcome, ""))


def _print_json(out: Output, stored: StoredLine) -> None:
    """Print a line as it is; a damaged one as a text."""
    try:
        value: object = json.loads(stored.data)
    except (ValueError, RecursionError):
        value = {"damaged": stored.data.decode(errors="backslashreplace")}
    out.print_json_line({**value, "damaged": True} if isinstance(value, dict) and stored.line is None else value)


def _format(line: AuditLine) -> str:
    when, who, event, result, took, what = _cells(line)
    return f"{when} {who or '-'} {event} {what or '-'}: {result}{took and ', '}{took}"


def _cells(line: AuditLine) -> list[str]:
    result = f"{line.outcome}: {line.error}" if line.error else line.outcome
    if line.outcome == "denied" and line.rule:
        result = f"denied by {line.rule}"
    elif line.approved_by:
        result = f"{result}, approved by {line.approved_by}"
    who = f"{line.subject} ({line.client})" if line.subject and line.client else line.subject or line.client
    what = " ".join(filter(None, (line.group, line.name)))
    took = format_ms(line.ms) if line.ms else ""
    # a line break in a name must not look like another line of the log
    return [format_time(line.at), *map(escape, (who, line.event, result, took, what))]


def format_time(at: str) -> str:
    """Return a time as it is here, with its distance to UTC."""
    try:
        return datetime.fromisoformat(at).astimezone().isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError):
        return "?"


def format_ms(ms: float) -> str:
    """Return a duration for a person."""
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 100_000 else f"{ms / 60_000:.0f} min"


def describe_count(lines: int) -> str:
    """Return a number of lines with its noun."""
    return pluralize(lines, "line") if lines < 1000 else f"{lines:,} lines"


def _pause_for(out: Output) -> Callable[[], bool]:
    """Return what waits for a moment, and tells whether anybody still reads what is printed."""

    def sleep() -> bool:
        time.sleep(_EVERY_S)
        return True

    if out.is_terminal or not hasattr(select, "poll"):
        return sleep
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors are always told
    return lambda: not poll.poll(_EVERY_S * 1000)
