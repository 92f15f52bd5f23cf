"""A journal of changed files for undoing changes: backup and note are written before each change."""

from __future__ import annotations

import re
import shutil
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.errors import DynamicMcpError, NotFound, NothingToUndo
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.formats.documents import parse_document
from dynamic_mcp.importer.formats.tree import NOTHING, at, is_like
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
    """One change of some files: its `id`, a `title`, an ISO time, and the tool as `subject`, if it is about one."""

    id: str
    title: str
    subject: str
    when: str
    files: tuple[Path, ...]
    is_undone: bool = False


class ChangedSince(DynamicMcpError):
    """A file has changed since the journal's entry, which can no longer be undone."""


@dataclass(frozen=True)
class Restoration:
    """The effect of an undo on one file: it has the bytes `now`, and gets those of `before`; None for no file.

    If it `has_changed` since, `before` contains its later changes; it is `now` if they cannot be told apart.
    """

    file: Path
    now: bytes | None = field(repr=False)
    before: bytes | None = field(repr=False)
    note: _FileNote = field(repr=False)
    has_changed: bool = False

    @property
    def is_needed(self) -> bool:
        """Return whether the file still has the content of the change."""
        return self.now is not None and self.now != self.before

    def describe(self, *, is_done: bool) -> str:
        """Describe the planned or completed restoration."""
        if not self.is_needed and self.has_changed:
            return f"`{self.file}` has changed since, and stays as it is"
        if not self.is_needed:
            is_deleted = self.now is None and self.before is not None
            return f"`{self.file}` " + (
                "no longer exists and stays deleted" if is_deleted else "is already as it was before"
            )
        verb = "removed" if self.before is None else "restored"
        later = "; what has changed in it since stays" if self.has_changed else ""
        return f"`{self.file}` {'was' if is_done else 'will be'} {verb}{later}"

    def apply(self) -> None:
        """Restore the file. Raises FileError."""
        if not self.is_needed:
            return
        if self.before is None:
            files.remove(self.file, [Path(directory) for directory in self.note.directories])
            return
        files.write_bytes(self.file, self.before, expected=self.now)
        if self.note.mode is not None:
            self.file.chmod(self.note.mode)


class ChangeJournal:
    """The entries in one folder, by number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def apply(self, title: str, subject: str, when: str, changes: Iterable[FileChange]) -> JournalEntry:
        """Record each change with a backup, make it, and only then ask for the next one.

        Raises FileError and what `changes` raises, and then nothing has changed.
        """
        folder = self._make_folder()
        note = _Note(title, subject, when, [])
        done: list[FileChange] = []
        try:
            for number, change in enumerate(changes):
                _back_up(folder, number, change)
                note.changes.append(_make_note(change))
                _save(folder, note)
                directories = files.write_bytes(
                    change.file, change.after, expected=change.before, is_private=change.is_private
                )
                done.append(change)
                if directories:
                    note.changes[-1].directories = [str(directory) for directory in directories]
                    _save(folder, note)
        except BaseException:
            for number, change in reversed(list(enumerate(done))):
                Restoration(change.file, change.after, change.before, note.changes[number]).apply()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return JournalEntry(folder.name, title, subject, when, tuple(change.file for change in done))

    def entries(self) -> list[JournalEntry]:
        """Return all entries that can be read, the latest first."""
        return [entry for entry, _ in self._read() if entry is not None]

    def unreadable(self) -> list[str]:
        """Return why entries are missing from `entries`, except those of commands that were killed early."""
        return [reason for _, reason in self._read() if reason]

    def find(self, id: str | None) -> JournalEntry:
        """Return the entry with this id, or the latest that is not undone. Raises NotFound and NothingToUndo."""
        entries = self.entries()
        for entry in entries:
            if entry.id == id or (id is None and not entry.is_undone):
                return entry
        if id is None:
            raise NothingToUndo
        known = ", ".join(entry.id for entry in entries if not entry.is_undone)
        raise NotFound("change", id, hint=f"can be undone: {known}" if known else "nothing to undo")

    def plan_undo(
        self, entries: Iterable[JournalEntry], only: Container[Path] | None = None
    ) -> list[list[Restoration]]:
        """Return the effects of undoing these entries, in this order; with `only`, on these files alone.

        Raises ChangedSince if what an entry wrote has changed since, and FileError.
        """
        contents: dict[Path, bytes | None] = {}
        return [self._plan_restorations(entry, contents, only) for entry in entries]

    def undo(self, entry: JournalEntry, only: Container[Path] | None = None) -> list[Restoration]:
        """Undo an entry, or its changes of the files in `only`. Raises ChangedSince and FileError.

        After ChangedSince, nothing was changed.
        """
        (restorations,) = self.plan_undo([entry], only)
        for restoration in restorations:
            restoration.apply()
        if only is None or all(file in only for file in entry.files):
            self._mark_undone(entry.id)
        return restorations

    def _plan_restorations(
        self, entry: JournalEntry, contents: dict[Path, bytes | None], only: Container[Path] | None
    ) -> list[Restoration]:
        """Return the restorations of an entry; `contents` are those of the files restored by earlier ones."""
        folder = self._folder / entry.id
        restorations: list[Restoration] = []
        refusals: list[ChangedSince] = []
        for number, note in reversed(list(enumerate(_load(folder).changes))):
            file = Path(note.file)
            if only is not None and file not in only:
                continue
            now = contents[file] if file in contents else files.read_bytes(file)
            before = _read_copy(folder / f"{number}.before") if note.has_before else None
            has_changed = False
            if now not in (None, before) and now != (after := _read_copy(folder / f"{number}.after")):
                has_changed = True
                refusal = _make_refusal(entry, file, _describe_difference(after, now or b""), folder, number, before)
                try:
                    before = _revert(file, before, after, now or b"")
                except _ConflictError:
                    if before is not None:
                        raise refusal from None
                    refusals.append(refusal)  # a file that the change created, and that others have edited since
                    before = now
            contents[file] = before if now is not None else None
            restorations.append(Restoration(file, now, before, note, has_changed=has_changed))
        if refusals and not any(each.is_needed for each in restorations):
            raise refusals[0]
        return restorations

    def _make_folder(self) -> Path:
        """Make the folder of the next entry, and remove the oldest ones. Raises FileError."""
        folder = self._folder / str(max((int(each.name) for each in self._folders()), default=0) + 1)
        try:
            paths.make_private_dir(self._folder)
            folder.mkdir(mode=0o700)
        except OSError as exc:
            raise files.FileError(folder, f"cannot make a backup: {os_reason(exc)}") from exc
        for old in list(self._folders())[:-MOST_ENTRIES]:
            shutil.rmtree(old, ignore_errors=True)
        return folder

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
                JournalEntry(folder.name, note.title, note.subject, note.when, changed, is_undone=note.is_undone),
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
    is_undone: bool = False


class _ConflictError(Exception):
    """A value that a change wrote has changed since, or the file cannot be parsed."""


def _revert(file: Path, before: bytes | None, after: bytes, now: bytes) -> bytes | None:
    """Return a file that has changed since with the old values of what the change wrote; None if nothing is left.

    Raises _ConflictError unless each of these values is as the change left it.
    """
    try:
        old, written, document = (parse_document(file, data) for data in (before, after, now))
        for path, value in _differing_values((), old.get(()), written.get(()), document.get(())):
            document = document.drop(path) if value is NOTHING else document.put(path, value)
        return None if before is None and is_like(document.get(()), {}) else document.encode()
    except files.FileError as exc:
        raise _ConflictError from exc


def _differing_values(path: Keys, old: object, new: object, now: object) -> Iterator[tuple[Keys, object]]:
    """Yield the paths at which a change wrote, with the old values. Raises _ConflictError if one has changed since.

    What the change has added is one value, unless it only contains objects, such as servers, and has others now.
    """
    is_added = old is NOTHING and isinstance(new, dict) and all(isinstance(each, dict) for each in new.values())
    if isinstance(new, dict) and (isinstance(old, dict) or (is_added and now != new)):
        for key in dict.fromkeys([*(old if isinstance(old, dict) else ()), *new]):
            values = (at(each, (key,)) for each in (old, new, now))
            yield from _differing_values((*path, key), *values)
    elif old != new:
        if not path or now != new:
            raise _ConflictError
        yield path, old


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


def _back_up(folder: Path, number: int, change: FileChange) -> None:
    """Store the contents before and after a change. Raises FileError."""
    try:
        if change.before is not None:
            paths.write_private(folder / f"{number}.before", change.before)
        paths.write_private(folder / f"{number}.after", change.after)
    except OSError as exc:
        raise files.FileError(folder, f"cannot make a backup: {os_reason(exc)}") from exc


def _load(folder: Path) -> _Note:
    """Raises FileError."""
    store = _store(folder)
    try:
        note = store.load()
    except NewerFile as exc:
        raise files.FileError(store.file, f"was {exc}", hint="upgrade dynamic-mcp to undo it") from exc
    except (OSError, StoreError) as exc:
        raise files.FileError(store.file, f"cannot be read: {os_reason(exc)}") from exc
    if note is None:
        raise files.FileError(store.file, "is missing")
    try:
        return msgspec.convert(note, _Note)
    except msgspec.ValidationError as exc:
        raise files.FileError(store.file, f"is not a note of this journal: {exc}") from exc


def _save(folder: Path, note: _Note) -> None:
    """Raises FileError."""
    try:
        _store(folder).save(msgspec.to_builtins(note))
    except OSError as exc:
        raise files.FileError(folder, f"cannot make a backup: {os_reason(exc)}") from exc


def _store(folder: Path) -> FileStore[dict[str, Any]]:
    # paths may not be UTF-8, which msgspec's JSON cannot represent; the values are those of the codec
    return FileStore(folder / _NOTE, DictCodec(1))
