"""Lists and undoes the changes that this program has made to the files of AI tools."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import click

from dynamic_mcp.cli.change_events import record_change
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.machine import open_journal
from dynamic_mcp.cli.respondent import find_respondent
from dynamic_mcp.importer.journal import ChangeJournal, JournalEntry


def undo(context: Invocation, ids: Sequence[str], *, yes: bool, dry_run: bool) -> int:
    """Undo changes, the latest one only after confirmation; return the exit code."""
    journal = open_journal()
    _report_unreadable(context, journal)
    entries = [entry for id in ids or (None,) for entry in journal.find(id)]
    if not (ids or yes or dry_run) and not _confirm(context, journal, entries):
        return report(context, ["nothing is undone"])
    if dry_run:
        return report(context, _describe(journal, entries, "would be undone"))
    with hold_change_lock():
        # another command may have undone them in the meantime
        entries = [found for entry in entries for found in journal.find(entry.id)]
        journal.plan_undo(entry for entry in entries if not entry.is_undone)  # all or none
        return report(context, [line for entry in entries for line in _undo(context, journal, entry)])


def _undo(context: Invocation, journal: ChangeJournal, entry: JournalEntry) -> list[str]:
    if entry.is_undone:
        return [f"{entry.id} ({entry.title}) is already undone"]
    lines = [_title("undone", entry), *(each.describe(is_done=True) for each in journal.undo(entry))]
    record_change(context, entry.files, "change.undone", {"command": "undo", "change": entry.id, "of": entry.title})
    return lines


def _describe(journal: ChangeJournal, entries: Sequence[JournalEntry], verb: str) -> list[str]:
    """Describe the effect of undoing these entries. Raises ChangedSince."""
    plan = zip(entries, journal.plan_undo(entries), strict=True)
    return [
        line
        for entry, restorations in plan
        for line in (_title(verb, entry), *(each.describe(is_done=False) for each in restorations))
    ]


def _title(verb: str, entry: JournalEntry) -> str:
    return f"{verb}: {entry.title} ({entry.id}, {entry.when})"


def _confirm(context: Invocation, journal: ChangeJournal, entries: Sequence[JournalEntry]) -> bool:
    """Show the change to undo, and ask for confirmation. Raises UsageError without a terminal, and ChangedSince."""
    latest = entries[0]
    id = latest.run or latest.id
    titles = ", ".join(each.title for each in reversed(entries))
    context.out.say(f"the latest change is {id}: {titles} ({latest.when})")
    for restoration in (each for restorations in journal.plan_undo(entries) for each in restorations):
        context.out.say(restoration.describe(is_done=False))
    if not find_respondent(
        context, may_ask=not context.out.is_json_requested and sys.stdin is not None and sys.stdin.isatty()
    ).is_terminal:
        raise click.UsageError(f"nothing was undone: `dynamic-mcp undo {id}`, or `--yes`, undoes it without asking")
    import questionary

    return questionary.confirm("Undo it?", default=False).ask() is True


def show_changes(context: Invocation) -> int:
    """List the changes; return the exit code."""
    journal = open_journal()
    _report_unreadable(context, journal)
    entries = journal.entries()
    rows = [row for entry in entries for row in _rows(entry, entries)]
    columns = ["ID", "WHEN", "WHAT", "STATE", "FILES"]
    facts = [_to_json(entry) for entry in entries]
    context.out.print_rows(facts, columns, rows, if_none="no command has changed a file yet")
    return 0


def _report_unreadable(context: Invocation, journal: ChangeJournal) -> None:
    for reason in journal.unreadable():
        context.out.say(f"warning: {reason}", "yellow")


def _rows(entry: JournalEntry, entries: Sequence[JournalEntry]) -> Iterator[list[str]]:
    """Yield the row of a change, after a summary row if it is the first of several changes by one command."""
    together = [each for each in entries if entry.run and each.run == entry.run]
    if together and together[0] is entry:
        is_undone = all(each.is_undone for each in together)
        yield [
            entry.run,
            _format_time(entry.when),
            f"all of these {len(together)}",
            "undone" if is_undone else "",
            "",
        ]
    id = f"  {entry.id}" if together else entry.id
    files = "\n".join(map(_shorten, entry.files))
    yield [id, _format_time(entry.when), entry.title, "undone" if entry.is_undone else "", files]


def _format_time(when: str) -> str:
    try:
        return datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:  # the journal was edited
        return when


def _shorten(file: Path) -> str:
    home = Path.home()
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file)


def _to_json(entry: JournalEntry) -> dict[str, object]:
    return {
        "id": entry.id,
        **({"run": entry.run} if entry.run else {}),
        "when": entry.when,
        "what": entry.title,
        "undone": entry.is_undone,
        "files": [str(file) for file in entry.files],
    }


def report(context: Invocation, actions: Iterable[str]) -> int:
    """Print the actions; return the exit code."""
    for action in actions:
        context.out.say(action)
    if context.out.is_json_requested:
        context.out.print_json({"done": list(actions)})
    return 0
