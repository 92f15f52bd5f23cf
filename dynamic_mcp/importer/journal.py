"""What was done to whose files, so that it can be taken back: a backup and a note of it come before each change."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.errors import DynamicMcpError, NotFound, NothingToUndo
from dynamic_mcp.importer import files
from dynamic_mcp.importer.tree import NOTHING
from dynamic_mcp.system import paths
from dynamic_mcp.system.file_reader import read_bytes

FORM = 1
MOST_DEEDS = 200


@dataclass(frozen=True)
class Edit:
    """One value that was put in, replaced or taken out; NOTHING stands for no value.

    An entry that `is_ours` goes even if somebody has changed it since. `order` are the keys of the object that the
    value was taken out of, so that it can go back among its neighbours.
    """

    path: Keys
    before: object = field(repr=False)
    after: object = field(repr=False)
    is_ours: bool = False
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """One file's bytes before and after, None for no file, and the edits that made the difference.

    A file that `is_silent` is a part of our own state, which nobody needs to hear of.
    """

    file: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    edits: tuple[Edit, ...] = field(default=(), repr=False)
    is_private: bool = False
    is_silent: bool = False


@dataclass(frozen=True)
class Deed:
    """What one command changed: `id` names it, `about` is the tool it was done to, `when` is an ISO time."""

    id: str
    what: str
    about: str
    when: str
    files: tuple[Path, ...]
    is_undone: bool = False


class Journal:
    """The deeds in one folder, by number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def do(self, what: str, about: str, when: str, changes: Sequence[Change]) -> Deed:
        """Note the changes, with backups, and make them. Raises FileError, and then nothing is changed."""
        deed, folder = self._noted(what, about, when, changes)
        done: list[Change] = []
        try:
            for number, change in enumerate(changes):
                made = files.write_bytes(
                    change.file, change.after, expected=change.before, is_private=change.is_private
                )
                done.append(change)
                _note_made(folder, number, made)
        except DynamicMcpError:
            for number, change in reversed(list(enumerate(done))):
                _restore(change.file, change.before, change.after, _note(folder), number)
            self._mark(deed.id)
            raise
        return deed

    def deeds(self) -> list[Deed]:
        """Return all deeds, the latest first."""
        found = [self._deed(folder) for folder in self._folders()]
        return [deed for deed in reversed(found) if deed is not None]

    def deed(self, id: str | None, about: str | None = None) -> Deed:
        """Return the deed with this id, or the latest that is not undone. Raises NotFound."""
        for deed in self.deeds():
            if deed.id == id or (id is None and not deed.is_undone and about in (None, deed.about)):
                return deed
        known = ", ".join(deed.id for deed in self.deeds() if not deed.is_undone)
        if not known and id is None:
            raise NothingToUndo
        hint = f"what can be undone: {known}" if known else "there is nothing to undo"
        raise NotFound("change", id or "latest", hint=hint)

    def undo(self, deed: Deed) -> list[str]:
        """Take a deed back; return what is to be said of it. A file that has changed since loses our edits only.

        Raises FileError, and then that file is as it was.
        """
        from dynamic_mcp.importer.undoing import undoing

        folder = self._folder / deed.id
        note = _note(folder)
        words: list[str] = []
        for number, change in reversed(list(enumerate(_changes(folder, note)))):
            made = undoing(change, note["changes"][number]["after"])
            if made.is_exact:
                _restore(change.file, change.before, made.now or b"", note, number)
            elif made.after != made.now:
                files.write_bytes(change.file, made.after or b"", expected=made.now)
            words += [] if change.is_silent else made.done()
        self._mark(deed.id)
        return words

    def preview(self, deed: Deed) -> list[str]:
        """Say what undoing a deed would do to each file. Raises FileError."""
        from dynamic_mcp.importer.undoing import undoing

        folder = self._folder / deed.id
        note = _note(folder)
        return [
            word
            for number, change in reversed(list(enumerate(_changes(folder, note))))
            for word in (() if change.is_silent else undoing(change, note["changes"][number]["after"]).planned())
        ]

    def _noted(self, what: str, about: str, when: str, changes: Sequence[Change]) -> tuple[Deed, Path]:
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
                "what": what,
                "about": about,
                "when": when,
                "changes": [_written(change) for change in changes],
            }
            _save(folder, note)
        except OSError as exc:
            raise files.FileError(folder, f"no backup can be made: {(exc.strerror or str(exc)).lower()}") from exc
        for old in list(self._folders())[:-MOST_DEEDS]:
            shutil.rmtree(old, ignore_errors=True)
        return Deed(str(number), what, about, when, _shown_files(changes)), folder

    def _mark(self, id: str) -> None:
        folder = self._folder / id
        _save(folder, {**_note(folder), "is_undone": True})

    def _folders(self) -> Iterator[Path]:
        if self._folder.is_dir():
            names = [each.name for each in self._folder.iterdir() if re.fullmatch(r"[1-9]\d{0,8}", each.name)]
            yield from (self._folder / name for name in sorted(names, key=int))

    def _deed(self, folder: Path) -> Deed | None:
        try:
            note = _note(folder)
            places = tuple(Path(change["file"]) for change in note["changes"] if not change["is_silent"])
            return Deed(folder.name, note["what"], note["about"], note["when"], places, note.get("is_undone", False))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # a command was killed before it did anything


def _shown_files(changes: Sequence[Change]) -> tuple[Path, ...]:
    return tuple(change.file for change in changes if not change.is_silent)


def _restore(file: Path, before: bytes | None, now: bytes, note: Mapping[str, Any], number: int) -> None:
    written = note["changes"][number]
    if before is None:
        files.remove(file, [Path(directory) for directory in written.get("made", ())])
        return
    files.write_bytes(file, before, expected=now)
    if written["mode"] is not None and os.name == "posix":
        file.chmod(written["mode"])


def _written(change: Change) -> dict[str, object]:
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


def _changes(folder: Path, note: Mapping[str, Any]) -> list[Change]:
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


def _note_made(folder: Path, number: int, made: list[Path]) -> None:
    if made:
        note = _note(folder)
        note["changes"][number]["made"] = [str(directory) for directory in made]
        _save(folder, note)


def _note(folder: Path) -> dict[str, Any]:
    note: dict[str, Any] = json.loads(read_bytes(folder / "deed.json"))
    return note


def _save(folder: Path, note: Mapping[str, Any]) -> None:
    paths.write_private(folder / "deed.json", json.dumps(note, indent=1).encode())
