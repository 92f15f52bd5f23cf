"""Lists and undoes the changes that this program has made to the files of AI tools."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import click

from dynamic_mcp.cli.change_events import record_change
from dynamic_mcp.cli.change_lock import hold_change_lock
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.machine import open_journal, shorten_path
from dynamic_mcp.cli.respondent import find_respondent
from dynamic_mcp.config.location import identify
from dynamic_mcp.importer.journal import ChangeJournal, JournalEntry

# The title of the change that `init` makes, of all tools at once.
SETUP = "init"


def undo(context: Invocation, ids: Sequence[str], *, yes: bool, dry_run: bool) -> int:
    """Undo changes, the latest one only after confirmation; return the exit code."""
    journal = open_journal()
    _report_unreadable(context, journal)
    entries = [journal.find(id) for id in ids or (None,)]
    if not (ids or yes or dry_run) and not _confirm(context, journal, entries[0]):
        return report(context, ["nothing was undone"])
    if dry_run:
        return report(context, _describe(journal, entries, "would be undone"))
    with hold_change_lock():
        # another command may have undone them in the meantime
        entries = [journal.find(entry.id) for entry in entries]
        journal.plan_undo(entry for entry in entries if not entry.is_undone)  # all or none
        return report(context, [line for entry in entries for line in _undo(context, journal, entry)])


def _undo(context: Invocation, journal: ChangeJournal, entry: JournalEntry) -> list[str]:
    if entry.is_undone:
        return [f"{entry.id} ({entry.title}) is already undone"]
    restorations = journal.undo(entry)
    lines = [_title("undone", entry), *(each.describe(is_done=True) for each in restorations)]
    lines += _stop_daemons(each.file for each in restorations if each.before is None)
    if entry.subject or entry.title == SETUP:
        lines.append("restart the AI tools whose files these are")
    record_change(context, entry.files, "change.undone", {"command": "undo", "change": entry.id, "of": entry.title})
    return lines


def _stop_daemons(files: Iterable[Path]) -> list[str]:
    """Stop the daemons whose configs are gone; return what was done."""
    from dynamic_mcp.cli.daemon_control import stop_running

    stopped = [file for file in files if not file.exists() and stop_running(identify(file))]
    return [f"stopped the daemon of `{file}`" for file in stopped]


def _describe(journal: ChangeJournal, entries: Sequence[JournalEntry], verb: str) -> list[str]:
    """Describe the effect of undoing these entries. Raises ChangedSince."""
    plan = zip(entries, journal.plan_undo(entries), strict=True)
    return [
        line
        for entry, restorations in plan
        for line in (_title(verb, entry), *(each.describe(is_done=False) for each in restorations))
    ]


def _title(verb: str, entry: JournalEntry) -> str:
    return f"{verb}: {entry.title} ({entry.id}, {_format_time(entry.when)})"


def _confirm(context: Invocation, journal: ChangeJournal, latest: JournalEntry) -> bool:
    """Show the change to undo, and ask for confirmation. Raises UsageError without a terminal, and ChangedSince."""
    context.out.say(_title("the latest change", latest))
    for restoration in journal.plan_undo([latest])[0]:
        context.out.say(f"  {restoration.describe(is_done=False)}")
    if not find_respondent(
        context, may_ask=not context.out.is_json_requested and sys.stdin is not None and sys.stdin.isatty()
    ).is_terminal:
        raise click.UsageError(
            f"nothing was undone: `dynamic-mcp undo {latest.id}`, or `--yes`, undoes it without asking"
        )
    import questionary

    return questionary.confirm("Undo it?", default=False).ask() is True


def show_changes(context: Invocation) -> int:
    """List the changes; return the exit code."""
    journal = open_journal()
    _report_unreadable(context, journal)
    entries = journal.entries()
    rows = [_to_row(entry) for entry in entries]
    columns = ["ID", "WHEN", "WHAT", "STATE", "FILES"]
    facts = [_to_json(entry) for entry in entries]
    context.out.print_rows(facts, columns, rows, if_none="no command has changed a file yet")
    return 0


def _report_unreadable(context: Invocation, journal: ChangeJournal) -> None:
    for reason in journal.unreadable():
        context.out.say(f"warning: {reason}", "yellow")


def _to_row(entry: JournalEntry) -> list[str]:
    files = "\n".join(map(shorten_path, entry.files))
    return [entry.id, _format_time(entry.when), entry.title, "undone" if entry.is_undone else "", files]


def _format_time(when: str) -> str:
    try:
        return datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:  # the journal was edited
        return when


def _to_json(entry: JournalEntry) -> dict[str, object]:
    return {
        "id": entry.id,
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
