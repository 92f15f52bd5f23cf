"""Undo one change of a file.

A file that nobody has changed since then gets its old bytes back. In any other file each edit is undone if its value
is still there, in the style that the file has now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.keys import format_path as shown
from dynamic_mcp.importer.formats import files
from dynamic_mcp.importer.formats.changes import Change, Edit
from dynamic_mcp.importer.formats.documents import Document, parse_document
from dynamic_mcp.importer.formats.tree import NOTHING, is_like


@dataclass(frozen=True)
class Reversal:
    """A file's bytes `now` and `after` the undo, None for no file, and the paths of the values that change.

    `is_exact` restores the old bytes as they were. `conflicts` are values that have changed since then and are kept.
    """

    file: Path
    now: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)
    is_exact: bool = False
    removals: tuple[str, ...] = ()
    restorations: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()

    def describe_plan(self) -> list[str]:
        """Describe what is going to happen."""
        if self.is_exact:
            return [f"`{self.file}` " + ("will be removed" if self.after is None else "will be restored")]
        return self._describe("to remove", "to restore", "to reset")

    def describe_result(self) -> list[str]:
        """Describe what has happened."""
        if self.is_exact:
            return [f"`{self.file}` " + ("was removed" if self.after is None else "was restored")]
        return self._describe("removed", "restored", "reset")

    def _describe(self, *verbs: str) -> list[str]:
        if self.now == self.after:
            reason = "no longer exists and stays deleted" if self.now is None else "is already as it was before"
            if not self.conflicts:
                return [f"`{self.file}` {reason}"]
        parts = [
            f"{verb}: {', '.join(f'`{each}`' for each in names)}"
            for verb, names in zip(verbs, (self.removals, self.restorations, self.resets), strict=True)
            if names
        ]
        summary = "; ".join(parts) or "nothing is left to undo"
        return [
            f"`{self.file}` has changed since then; its other changes are kept; {summary}",
            *(f"`{each}` has changed and is kept" for each in self.conflicts),
        ]


def plan_reversal(change: Change, digest: str) -> Reversal:
    """Work out how to undo a change; `digest` is the hash of the content it wrote. Raises FileError."""
    now = files.read_bytes(change.file)
    if now == change.before or now is None:
        return Reversal(change.file, now, now)
    if sha256(now).hexdigest() == digest:
        return Reversal(change.file, now, change.before, is_exact=True)
    work = _Reverter(parse_document(change.file, now))
    for edit in reversed(change.edits):
        work.reverse(edit)
    return Reversal(
        change.file,
        now,
        work.document.encode(),
        removals=tuple(dict.fromkeys(work.removals)),
        restorations=tuple(reversed(work.restorations)),
        resets=tuple(dict.fromkeys(work.resets)),
        conflicts=tuple(dict.fromkeys(work.conflicts)),
    )


class _Reverter:
    """A document whose edits are undone one by one, the latest first."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.removals: list[str] = []
        self.restorations: list[str] = []
        self.resets: list[str] = []
        self.conflicts: list[str] = []

    def reverse(self, edit: Edit) -> None:
        """Undo an edit if its value is unchanged; of an object that has changed, undo the unchanged parts."""
        path = self._find_path(edit)
        now = self.document.get(path)
        if is_like(now, edit.after):
            self._take_back(path, edit)
            return
        if isinstance(now, dict) and isinstance(edit.after, dict):
            is_entry = edit.before is NOTHING and any(key in edit.after for key in ("command", "cmd", "url"))
            if is_entry and edit.is_ours and now.get("name") == edit.after.get("name"):
                self._drop(path)
                return
            if not is_entry:
                self._reverse_inside(path, edit)
                return
        self.conflicts.append(shown(path))

    def _take_back(self, path: Keys, edit: Edit) -> None:
        if edit.before is NOTHING:
            self._drop(path)
            return
        self.document = self.document.put(path, edit.before, order=edit.order)
        (self.restorations if edit.after is NOTHING else self.resets).append(shown(path))

    def _drop(self, path: Keys) -> None:
        if self.document.get(path) is not NOTHING:
            self.document = self.document.drop(path)
            self.removals.append(shown(path))

    def _reverse_inside(self, path: Keys, edit: Edit) -> None:
        before, after = (value if isinstance(value, dict) else {} for value in (edit.before, edit.after))
        for key in {**after, **before}:
            inner = Edit((*path, key), before.get(key, NOTHING), after.get(key, NOTHING), edit.is_ours)
            if inner.before != inner.after:
                self.reverse(inner)
        if edit.before is NOTHING and self.document.get(path) == {}:
            self.document = self.document.drop(path)

    def _find_path(self, edit: Edit) -> Keys:
        """Return the current path of an edit's value: an item of a list may have moved."""
        items = self.document.get(edit.path[:-1]) if edit.path else NOTHING
        if isinstance(items, list) and edit.after in items:
            return (*edit.path[:-1], items.index(edit.after))
        return edit.path
