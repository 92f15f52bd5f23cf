"""A journal of changed files, so that changes can be undone: backup and note are written before each change."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from dynamic_mcp.system.file_store import DictCodec, FileStore, StoreError
from dynamic_mcp.system.text import os_reason

_NOTE = "deed.json"
_CODEC = DictCodec(1)
MOST_ENTRIES = 200
# Of a note. What an edit of a settings file replaces is hardly nested at all.
_DEEPEST = 100
_TOO_DEEP = f"nested more than {_DEEPEST} levels deep"


@dataclass(frozen=True)
class JournalEntry:
    """One change: its `id`, a `title`, the tool as `subject`, an ISO time.

    The changes that one command made, if it made several, have the same `run`.
    """

    id: str
    title: str
    subject: str
    when: str
    files: tuple[Path, ...]
    is_undone: bool = False
    run: str = ""


class Journal:
    """The entries in one folder, by number. `command` is set for one whose changes belong together."""

    def __init__(self, folder: Path, command: str = "") -> None:
        self._folder = folder
        self._command = command
        self._run = ""

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
        """Return all entries that can be read, the latest first."""
        found = [self._load_entry(folder) for folder in self._folders()]
        return [entry for entry in reversed(found) if entry is not None]

    def find(self, id: str | None) -> list[JournalEntry]:
        """Return the entry with this id, those of this run, or the latest that are not undone; the latest first.

        Raises NotFound.
        """
        entries = self.entries()
        if id is None:
            latest = next((entry for entry in entries if not entry.is_undone), None)
            found = [entry for entry in entries if latest is not None and _belongs(entry, latest)]
        else:
            found = [entry for entry in entries if id in (entry.id, entry.run)]
        if found:
            return found
        known = ", ".join(dict.fromkeys(entry.run or entry.id for entry in entries if not entry.is_undone))
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
        if self._command and not self._run:
            self._run = f"{self._command}-{number}"
        try:
            paths.make_private_dir(self._folder)
            folder.mkdir(mode=0o700)
            for place, change in enumerate(changes):
                if change.before is not None:
                    paths.write_private(folder / f"{place}.before", change.before)
            note = {
                "what": title,
                "about": subject,
                "when": when,
                "run": self._run,
                "changes": [_encode(change) for change in changes],
            }
            if _is_deeper(note, _DEEPEST):
                raise files.FileError(folder, f"the change is {_TOO_DEEP} and could not be undone")
            _save(folder, note)
        except OSError as exc:
            raise files.FileError(folder, f"cannot make a backup: {os_reason(exc)}") from exc
        for old in list(self._folders())[:-MOST_ENTRIES]:
            shutil.rmtree(old, ignore_errors=True)
        return JournalEntry(str(number), title, subject, when, _listed_files(changes), run=self._run), folder

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
                folder.name,
                note["what"],
                note["about"],
                note["when"],
                places,
                note.get("is_undone", False),
                note.get("run", ""),
            )
        except (files.FileError, ValueError, KeyError, TypeError):
            return None  # the command was killed before it changed anything, or the note is not ours


def _belongs(entry: JournalEntry, latest: JournalEntry) -> bool:
    """Return whether an entry is undone together with the latest one."""
    return entry.id == latest.id or bool(latest.run and entry.run == latest.run and not entry.is_undone)


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
    """Raises FileError."""
    try:
        return _decode(folder, note)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise files.FileError(folder / _NOTE, "is not a note of this journal") from exc


def _decode(folder: Path, note: Mapping[str, Any]) -> list[Change]:
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
    """Raises FileError."""
    store = _store(folder)
    try:
        note = store.load()
    except (OSError, StoreError) as exc:
        raise files.FileError(store.file, f"cannot be read: {os_reason(exc)}") from exc
    if note is None:
        raise files.FileError(store.file, "is missing")
    if _is_deeper(note, _DEEPEST):
        raise files.FileError(store.file, f"is {_TOO_DEEP}")
    return note


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether JSON is nested deeper than so many levels; it never recurses."""
    layer = [value]
    for _ in range(levels):
        layer = [inner for outer in layer for inner in _members(outer)]
        if not layer:
            return False
    return True


def _members(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _save(folder: Path, note: dict[str, Any]) -> None:
    _store(folder).save(note)


def _store(folder: Path) -> FileStore[dict[str, Any]]:
    return FileStore(folder / _NOTE, _CODEC)
