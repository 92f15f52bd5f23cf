"""A journal of changed files for undoing changes: backup and note are written before each change."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dynamic_mcp.errors import DynamicMcpError, NotFound, NothingToUndo
from dynamic_mcp.importer.formats import files
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.file_store import DictCodec, FileStore, NewerFile, StoreError
from dynamic_mcp.system.text import os_reason

_NOTE = "entry.json"
MOST_ENTRIES = 200


@dataclass(frozen=True)
class FileChange:
    """One file's bytes before and after; None for no file."""

    file: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    is_private: bool = False


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


class ChangedSince(DynamicMcpError):
    """A file has changed since the journal's entry, which can no longer be undone."""


@dataclass(frozen=True)
class Restoration:
    """The effect of an undo on one file: it has the bytes `now`, and had those of `before`."""

    file: Path
    now: bytes | None = field(repr=False)
    before: bytes | None = field(repr=False)
    note: _FileNote = field(repr=False)

    @property
    def is_needed(self) -> bool:
        """Return whether the file still has the content of the change."""
        return self.now is not None and self.now != self.before

    def describe(self, *, is_done: bool) -> str:
        """Describe the planned or completed restoration."""
        if not self.is_needed:
            is_deleted = self.now is None and self.before is not None
            return f"`{self.file}` " + (
                "no longer exists and stays deleted" if is_deleted else "is already as it was before"
            )
        verb = "removed" if self.before is None else "restored"
        return f"`{self.file}` {'was' if is_done else 'will be'} {verb}"

    def apply(self) -> None:
        """Restore the file. Raises FileError."""
        if not self.is_needed:
            return
        if self.before is None:
            files.remove(self.file, [Path(directory) for directory in self.note.directories])
            return
        files.write_bytes(self.file, self.before, expected=self.now)
        if self.note.mode is not None and sys.platform != "win32":
            self.file.chmod(self.note.mode)


class ChangeJournal:
    """The entries in one folder, by number. `command` is set for a command whose changes belong together."""

    def __init__(self, folder: Path, command: str = "") -> None:
        self._folder = folder
        self._command = command
        self._run = ""

    def apply(self, title: str, subject: str, when: str, changes: Sequence[FileChange]) -> JournalEntry:
        """Record the changes with backups, and make them. Raises FileError, and then nothing has changed."""
        entry, folder = self._record(title, subject, when, changes)
        done: list[FileChange] = []
        try:
            for number, change in enumerate(changes):
                directories = files.write_bytes(
                    change.file, change.after, expected=change.before, is_private=change.is_private
                )
                done.append(change)
                _record_directories(folder, number, directories)
        except DynamicMcpError:
            note = _load(folder)
            for number, change in reversed(list(enumerate(done))):
                Restoration(change.file, change.after, change.before, note.changes[number]).apply()
            self._mark_undone(entry.id)
            raise
        return entry

    def entries(self) -> list[JournalEntry]:
        """Return all entries that can be read, the latest first."""
        return [entry for entry, _ in self._read() if entry is not None]

    def unreadable(self) -> list[str]:
        """Return why entries are missing from `entries`, except those of commands that were killed early."""
        return [reason for _, reason in self._read() if reason]

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

    def plan_undo(self, entries: Iterable[JournalEntry]) -> list[list[Restoration]]:
        """Return the effects of undoing these entries, in this order.

        Raises ChangedSince if a file has changed since its entry, and FileError.
        """
        contents: dict[Path, bytes | None] = {}
        return [list(self._plan_restorations(entry, contents)) for entry in entries]

    def undo(self, entry: JournalEntry) -> list[Restoration]:
        """Undo an entry. Raises ChangedSince, and then nothing was changed, and FileError."""
        (restorations,) = self.plan_undo([entry])
        for restoration in restorations:
            restoration.apply()
        self._mark_undone(entry.id)
        return restorations

    def _plan_restorations(self, entry: JournalEntry, contents: dict[Path, bytes | None]) -> Iterator[Restoration]:
        """Yield the restorations of an entry; `contents` are those of the files restored by earlier ones."""
        folder = self._folder / entry.id
        for number, note in reversed(list(enumerate(_load(folder).changes))):
            file = Path(note.file)
            now = contents[file] if file in contents else files.read_bytes(file)
            before = _read_copy(folder / f"{number}.before") if note.has_before else None
            if now not in (None, before):
                after = _read_copy(folder / f"{number}.after")
                if now != after:
                    raise _make_refusal(entry, file, _describe_difference(after, now or b""), folder, number, before)
            contents[file] = before if now is not None else None
            yield Restoration(file, now, before, note)

    def _record(
        self, title: str, subject: str, when: str, changes: Sequence[FileChange]
    ) -> tuple[JournalEntry, Path]:
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
                paths.write_private(folder / f"{place}.after", change.after)
            _save(folder, _Note(title, subject, when, [_make_note(change) for change in changes], self._run))
        except OSError as exc:
            raise files.FileError(folder, f"cannot make a backup: {os_reason(exc)}") from exc
        for old in list(self._folders())[:-MOST_ENTRIES]:
            shutil.rmtree(old, ignore_errors=True)
        names = tuple(change.file for change in changes)
        return JournalEntry(str(number), title, subject, when, names, run=self._run), folder

    def _mark_undone(self, id: str) -> None:
        folder = self._folder / id
        _save(folder, msgspec.structs.replace(_load(folder), is_undone=True))

    def _folders(self) -> Iterator[Path]:
        if self._folder.is_dir():
            names = [each.name for each in self._folder.iterdir() if re.fullmatch(r"[1-9]\d{0,8}", each.name)]
            yield from (self._folder / name for name in sorted(names, key=int))

    def _read(self) -> Iterator[tuple[JournalEntry | None, str]]:
        """Yield each entry, the latest first, or the reason why it cannot be read."""
        for folder in reversed(list(self._folders())):
            if not (folder / _NOTE).exists():  # the command was killed before it changed anything
                continue
            try:
                note = _load(folder)
            except files.FileError as exc:
                yield None, f"change {folder.name} is skipped: {exc.message}"
                continue
            changed = tuple(Path(change.file) for change in note.changes)
            yield (
                JournalEntry(
                    folder.name, note.title, note.subject, note.when, changed, is_undone=note.is_undone, run=note.run
                ),
                "",
            )


class _FileNote(Struct):
    """One changed file; `mode` is that before the change, and `directories` were created for the file."""

    file: str
    has_before: bool
    mode: int | None
    directories: list[str] = []


class _Note(Struct):
    """The note of one entry."""

    title: str
    subject: str
    when: str
    changes: list[_FileNote]
    run: str = ""
    is_undone: bool = False


def _belongs(entry: JournalEntry, latest: JournalEntry) -> bool:
    """Return whether an entry is undone together with the latest one."""
    return entry.id == latest.id or bool(latest.run and entry.run == latest.run and not entry.is_undone)


def _make_note(change: FileChange) -> _FileNote:
    mode = change.file.stat().st_mode & 0o7777 if change.before is not None else None
    return _FileNote(str(change.file.absolute()), change.before is not None, mode)


def _make_refusal(
    entry: JournalEntry, file: Path, difference: str, folder: Path, number: int, before: bytes | None
) -> ChangedSince:
    backup = f"; `{folder / f'{number}.before'}` is the file as it was before" if before is not None else ""
    tool = entry.title.removeprefix("install ")
    uninstall = f"; `dynamic-mcp uninstall {tool}` removes the entry alone" if tool != entry.title else ""
    return ChangedSince(
        f"`{file}` has changed since {entry.title} ({entry.id}), so nothing was undone",
        hint=f"{difference}{backup}{uninstall}",
    )


def _describe_difference(written: bytes, now: bytes) -> str:
    """Return the lines of a file that differ from the written ones."""
    old, new = written.splitlines(keepends=True), now.splitlines(keepends=True)
    same_before = _count_equal(old, new)
    same_after = _count_equal(old[same_before:][::-1], new[same_before:][::-1])
    first, last = same_before + 1, len(new) - same_after
    if last < first:
        return f"lines are missing before line {first}"
    return f"line {first} differs" if first == last else f"lines {first} to {last} differ"


def _count_equal(one: list[bytes], other: list[bytes]) -> int:
    """Return the number of equal lines at the beginning."""
    return next(
        (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


def _read_copy(file: Path) -> bytes:
    try:
        return read_bytes(file)
    except OSError as exc:
        raise files.FileError(file, f"cannot be read: {os_reason(exc)}") from exc


def _record_directories(folder: Path, number: int, directories: list[Path]) -> None:
    if directories:
        note = _load(folder)
        note.changes[number].directories = [str(directory) for directory in directories]
        _save(folder, note)


def _load(folder: Path) -> _Note:
    """Raises FileError."""
    store = _store(folder)
    try:
        note = store.load()
    except NewerFile as exc:
        raise files.FileError(store.file, "a newer version of dynamic-mcp has written it, and can undo it") from exc
    except (OSError, StoreError) as exc:
        raise files.FileError(store.file, f"cannot be read: {os_reason(exc)}") from exc
    if note is None:
        raise files.FileError(store.file, "is missing")
    try:
        return msgspec.convert(note, _Note)
    except msgspec.ValidationError as exc:
        raise files.FileError(store.file, f"is not a note of this journal: {exc}") from exc


def _save(folder: Path, note: _Note) -> None:
    _store(folder).save(msgspec.to_builtins(note))


def _store(folder: Path) -> FileStore[dict[str, Any]]:
    # paths may not be UTF-8, which msgspec's JSON cannot represent; the values are those of the codec
    return FileStore(folder / _NOTE, DictCodec(1))
