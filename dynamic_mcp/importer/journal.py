"""A journal of changed files, so that changes can be undone: backup and note are written before each change."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dynamic_mcp.errors import DynamicMcpError, NotFound, NothingToUndo
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.formats.changes import Change, Edit
from dynamic_mcp.importer.formats.reversal import plan_reversal
from dynamic_mcp.importer.formats.tree import NOTHING
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_reader import read_bytes

FORM = 1
MOST_ENTRIES = 200


@dataclass(frozen=True)
class JournalEntry:
    """What one command changed: its `id`, the command's `title`, the tool as `subject`, an ISO time."""

    id: str
    title: str
    subject: str
    when: str
    files: tuple[Path, ...]
    is_undone: bool = False


class Journal:
    """The entries in one folder, by number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def apply(self, title: str, subject: str, when: str, changes: Sequence[Change]) -> JournalEntry:
        """Record the changes with backups, and make them. Raises FileError, and then nothing has changed."""
        entry, folder = self._record(title, subject, when, changes)
        done: list[Change] = []
        try:
            for number, change in enumerate(changes):
                directories = files.write_bytes(
                    change.file, change.after, expected=change.before, is_private=change.is_private
                )
                done.append(change)
                _record_directories(folder, number, directories)
        except DynamicMcpError:
            for number, change in reversed(list(enumerate(done))):
                _restore(change.file, change.before, change.after, _load(folder), number)
            self._mark_undone(entry.id)
            raise
        return entry

    def entries(self) -> list[JournalEntry]:
        """Return all entries, the latest first."""
        found = [self._load_entry(folder) for folder in self._folders()]
        return [entry for entry in reversed(found) if entry is not None]

    def find(self, id: str | None, subject: str | None = None) -> JournalEntry:
        """Return the entry with this id, or the latest that is not undone. Raises NotFound."""
        for entry in self.entries():
            if entry.id == id or (id is None and not entry.is_undone and subject in (None, entry.subject)):
                return entry
        known = ", ".join(entry.id for entry in self.entries() if not entry.is_undone)
        if not known and id is None:
            raise NothingToUndo
        hint = f"can be undone: {known}" if known else "there is nothing to undo"
        raise NotFound("change", id or "latest", hint=hint)

    def undo(self, entry: JournalEntry) -> list[str]:
        """Undo an entry and return lines that describe it. A file that has changed since then loses only our edits.

        Raises FileError, and then that file was not changed.
        """
        folder = self._folder / entry.id
        note = _load(folder)
        words: list[str] = []
        for number, change in reversed(list(enumerate(_load_changes(folder, note)))):
            reversal = plan_reversal(change, note["changes"][number]["after"])
            if reversal.is_exact:
                _restore(change.file, change.before, reversal.now or b"", note, number)
            elif reversal.after != reversal.now:
                files.write_bytes(change.file, reversal.after or b"", expected=reversal.now)
            words += [] if change.is_silent else reversal.describe_result()
        self._mark_undone(entry.id)
        return words

    def preview(self, entry: JournalEntry) -> list[str]:
        """Describe what undoing an entry would do to each file. Raises FileError."""
        folder = self._folder / entry.id
        note = _load(folder)
        return [
            word
            for number, change in reversed(list(enumerate(_load_changes(folder, note))))
            for word in (
                () if change.is_silent else plan_reversal(change, note["changes"][number]["after"]).describe_plan()
            )
        ]

    def _record(self, title: str, subject: str, when: str, changes: Sequence[Change]) -> tuple[JournalEntry, Path]:
        number = max((int(folder.name) for folder in self._folders()), default=0) + 1
        folder = self._folder / str(number)
        try:
            paths.make_private_dir(self._folder)
            folder.mkdir(mode=0o700)
            for place, change in enumerate(changes):
                if change.before is not None:
                    paths.write_private(folder / f"{place}.before", change.before)
            note = {
                "form": FORM,
                "what": title,
                "about": subject,
                "when": when,
                "changes": [_encode(change) for change in changes],
            }
            _save(folder, note)
        except OSError as exc:
            raise files.FileError(folder, f"cannot make a backup: {(exc.strerror or str(exc)).lower()}") from exc
        for old in list(self._folders())[:-MOST_ENTRIES]:
            shutil.rmtree(old, ignore_errors=True)
        return JournalEntry(str(number), title, subject, when, _listed_files(changes)), folder

    def _mark_undone(self, id: str) -> None:
        folder = self._folder / id
        _save(folder, {**_load(folder), "is_undone": True})

    def _folders(self) -> Iterator[Path]:
        if self._folder.is_dir():
            names = [each.name for each in self._folder.iterdir() if re.fullmatch(r"[1-9]\d{0,8}", each.name)]
            yield from (self._folder / name for name in sorted(names, key=int))

    def _load_entry(self, folder: Path) -> JournalEntry | None:
        try:
            note = _load(folder)
            places = tuple(Path(change["file"]) for change in note["changes"] if not change["is_silent"])
            return JournalEntry(
                folder.name, note["what"], note["about"], note["when"], places, note.get("is_undone", False)
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the command was killed before it changed anything


def _listed_files(changes: Sequence[Change]) -> tuple[Path, ...]:
    return tuple(change.file for change in changes if not change.is_silent)


def _restore(file: Path, before: bytes | None, now: bytes, note: Mapping[str, Any], number: int) -> None:
    written = note["changes"][number]
    if before is None:
        files.remove(file, [Path(directory) for directory in written.get("made", ())])
        return
    files.write_bytes(file, before, expected=now)
    if written["mode"] is not None and os.name == "posix":
        file.chmod(written["mode"])


def _encode(change: Change) -> dict[str, object]:
    mode = change.file.stat().st_mode & 0o7777 if change.before is not None else None
    return {
        "file": str(change.file.absolute()),
        "is_silent": change.is_silent,
        "has_before": change.before is not None,
        "mode": mode,
        "after": sha256(change.after).hexdigest(),
        "edits": [
            {"path": list(edit.path), "is_ours": edit.is_ours, "order": list(edit.order)}
            | ({} if edit.before is NOTHING else {"before": edit.before})
            | ({} if edit.after is NOTHING else {"after": edit.after})
            for edit in change.edits
        ],
    }


def _load_changes(folder: Path, note: Mapping[str, Any]) -> list[Change]:
    return [
        Change(
            Path(each["file"]),
            read_bytes(folder / f"{number}.before") if each["has_before"] else None,
            b"",
            tuple(
                Edit(
                    tuple(edit["path"]),
                    edit.get("before", NOTHING),
                    edit.get("after", NOTHING),
                    edit["is_ours"],
                    tuple(edit.get("order", ())),
                )
                for edit in each["edits"]
            ),
            is_silent=each["is_silent"],
        )
        for number, each in enumerate(note["changes"])
    ]


def _record_directories(folder: Path, number: int, directories: list[Path]) -> None:
    if directories:
        note = _load(folder)
        note["changes"][number]["made"] = [str(directory) for directory in directories]
        _save(folder, note)


def _load(folder: Path) -> dict[str, Any]:
    note: dict[str, Any] = json.loads(read_bytes(folder / "deed.json"))
    return note


def _save(folder: Path, note: Mapping[str, Any]) -> None:
    paths.write_private(folder / "deed.json", json.dumps(note, indent=1).encode())
