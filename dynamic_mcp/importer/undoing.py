"""What becomes of one file when a change of it is taken back.

A file that nobody has changed since gets its bytes back. In one that has changed each edit is taken back where its
value is still there, in the manner of the file as it is now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.keys import format_path as shown
from dynamic_mcp.importer import files
from dynamic_mcp.importer.documents import Document, document
from dynamic_mcp.importer.journal import Change, Edit
from dynamic_mcp.importer.tree import NOTHING, is_like


@dataclass(frozen=True)
class Undoing:
    """A file's bytes `now` and `after`, None for no file; where they are not just restored, which values change."""

    file: Path
    now: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)
    is_exact: bool = False
    taken_out: tuple[str, ...] = ()
    put_back: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()
    staying: tuple[str, ...] = ()

    def planned(self) -> list[str]:
        """Say what is going to happen."""
        if self.is_exact:
            return [f"`{self.file}` " + ("is removed" if self.after is None else "gets its old content back")]
        return self._said("to be taken out", "to be put back", "to be set back")

    def done(self) -> list[str]:
        """Say what has happened."""
        if self.is_exact:
            return [f"`{self.file}` " + ("is removed" if self.after is None else "is as it was before")]
        return self._said("taken out", "put back", "set back")

    def _said(self, *verbs: str) -> list[str]:
        if self.now == self.after:
            reason = "is gone, and stays so" if self.now is None else "is as it was before"
            if not self.staying:
                return [f"`{self.file}` {reason}"]
        parts = [
            f"{verb}: {', '.join(f'`{each}`' for each in names)}"
            for verb, names in zip(verbs, (self.taken_out, self.put_back, self.reset), strict=True)
            if names
        ]
        told = "; ".join(parts) or "nothing is left to take back"
        return [
            f"`{self.file}` has changed since, and keeps its other changes; {told}",
            *(f"`{each}` is another by now, and stays" for each in self.staying),
        ]


def undoing(change: Change, digest: str) -> Undoing:
    """Work out how to take a change back; `digest` is the hash of what it made. Raises FileError."""
    now = files.read_bytes(change.file)
    if now == change.before or now is None:
        return Undoing(change.file, now, now)
    if sha256(now).hexdigest() == digest:
        return Undoing(change.file, now, change.before, is_exact=True)
    work = _Reversal(document(change.file, now))
    for edit in reversed(change.edits):
        work.reverse(edit)
    return Undoing(
        change.file,
        now,
        work.made.data(),
        taken_out=tuple(dict.fromkeys(work.taken_out)),
        put_back=tuple(reversed(work.put_back)),
        reset=tuple(dict.fromkeys(work.reset)),
        staying=tuple(dict.fromkeys(work.staying)),
    )


class _Reversal:
    """A document whose edits are taken back one after another, the latest first."""

    def __init__(self, made: Document) -> None:
        self.made = made
        self.taken_out: list[str] = []
        self.put_back: list[str] = []
        self.reset: list[str] = []
        self.staying: list[str] = []

    def reverse(self, edit: Edit) -> None:
        """Take one edit back where its value is still there; go into an object of which other parts have changed."""
        path = self._place(edit)
        now = self.made.get(path)
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
        self.staying.append(shown(path))

    def _take_back(self, path: Keys, edit: Edit) -> None:
        if edit.before is NOTHING:
            self._drop(path)
            return
        self.made = self.made.put(path, edit.before, order=edit.order)
        (self.put_back if edit.after is NOTHING else self.reset).append(shown(path))

    def _drop(self, path: Keys) -> None:
        if self.made.get(path) is not NOTHING:
            self.made = self.made.drop(path)
            self.taken_out.append(shown(path))

    def _reverse_inside(self, path: Keys, edit: Edit) -> None:
        before, after = (value if isinstance(value, dict) else {} for value in (edit.before, edit.after))
        for key in {**after, **before}:
            inner = Edit((*path, key), before.get(key, NOTHING), after.get(key, NOTHING), edit.is_ours)
            if inner.before != inner.after:
                self.reverse(inner)
        if edit.before is NOTHING and self.made.get(path) == {}:
            self.made = self.made.drop(path)

    def _place(self, edit: Edit) -> Keys:
        """Return where the value is by now: an item of a list may have moved."""
        items = self.made.get(edit.path[:-1]) if edit.path else NOTHING
        if isinstance(items, list) and edit.after in items:
            return (*edit.path[:-1], items.index(edit.after))
        return edit.path
