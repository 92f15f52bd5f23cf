"""The changes that this program has made to the files of tools, and how to undo them."""

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
from dynamic_mcp.importer.journal import Journal, JournalEntry


def undo(this: Invocation, ids: Sequence[str], *, yes: bool, dry_run: bool) -> int:
    """Undo changes, the latest one only after confirmation; return the exit code."""
    journal = open_journal()
    deeds = [deed for id in ids or (None,) for deed in journal.find(id)]
    if not (ids or yes or dry_run) and not _confirm(this, journal, deeds):
        return report(this, ["nothing is undone"])
    if dry_run:
        return report(
            this, [line for deed in deeds for line in (_title("would be undone", deed), *journal.preview(deed))]
        )
    with hold_change_lock():
        # another command may have undone them since they were looked up
        return report(this, [line for deed in deeds for line in _undo(this, journal, *journal.find(deed.id))])


def _undo(this: Invocation, journal: Journal, deed: JournalEntry) -> list[str]:
    if deed.is_undone:
        return [f"{deed.id} ({deed.title}) is already undone"]
    done = [_title("undone", deed), *journal.undo(deed)]
    record_change(this, deed.files, "change.undone", {"command": "undo", "change": deed.id, "of": deed.title})
    return done


def _title(verb: str, deed: JournalEntry) -> str:
    return f"{verb}: {deed.title} ({deed.id}, {deed.when})"


def _confirm(this: Invocation, journal: Journal, deeds: Sequence[JournalEntry]) -> bool:
    """Show what would be undone, and ask. Raises UsageError if nobody can answer."""
    deed = deeds[0]
    id = deed.run or deed.id
    titles = ", ".join(each.title for each in reversed(deeds))
    words = (word for each in deeds for word in journal.preview(each))
    for word in (f"the latest change is {id}: {titles} ({deed.when})", *words):
        this.out.say(word)
    if not find_respondent(
        this, may_ask=not this.out.is_json_requested and sys.stdin is not None and sys.stdin.isatty()
    ).is_terminal:
        raise click.UsageError(f"nothing was undone: `dynamic-mcp undo {id}`, or `--yes`, undoes it without asking")
    import questionary

    return questionary.confirm("Undo it?", default=False).ask() is True


def show_changes(this: Invocation) -> int:
    """List the changes; return the exit code."""
    deeds = open_journal().entries()
    rows = [row for deed in deeds for row in _rows(deed, deeds)]
    columns = ["ID", "WHEN", "WHAT", "STATE", "FILES"]
    this.out.print_rows(
        [_to_json(deed) for deed in deeds], columns, rows, if_none="no command has changed a file yet"
    )
    return 0


def _rows(deed: JournalEntry, deeds: Sequence[JournalEntry]) -> Iterator[list[str]]:
    """Yield the row of a change; before the first of those that one command has made, that of all of them."""
    together = [each for each in deeds if deed.run and each.run == deed.run]
    if together and together[0] is deed:
        is_undone = all(each.is_undone for each in together)
        yield [deed.run, _format_time(deed.when), f"all of these {len(together)}", "undone" if is_undone else "", ""]
    id = f"  {deed.id}" if together else deed.id
    files = "\n".join(map(_shorten, deed.files))
    yield [id, _format_time(deed.when), deed.title, "undone" if deed.is_undone else "", files]


def _format_time(when: str) -> str:
    """Return a time of the journal as a person at this place reads it."""
    try:
        return datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:  # of a journal that was edited
        return when


def _shorten(file: Path) -> str:
    home = Path.home()
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file)


def _to_json(deed: JournalEntry) -> dict[str, object]:
    return {
        "id": deed.id,
        **({"run": deed.run} if deed.run else {}),
        "when": deed.when,
        "what": deed.title,
        "undone": deed.is_undone,
        "files": [str(file) for file in deed.files],
    }


def report(this: Invocation, actions: Iterable[str]) -> int:
    """Print what was done; return the exit code."""
    for action in actions:
        this.out.say(action)
    if this.out.is_json_requested:
        this.out.print_json({"done": list(actions)})
    return 0
