"""Changes of foreign files as values: the state before and after, so that each change can be undone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dynamic_mcp.config.keys import Keys


@dataclass(frozen=True)
class Edit:
    """One value that was added, replaced or removed; NOTHING stands for no value.

    An entry that `is_ours` is removed on undo even if somebody has changed it since. `order` are the keys of the
    object that the value was removed from, so that it can return to its place.
    """

    path: Keys
    before: object = field(repr=False)
    after: object = field(repr=False)
    is_ours: bool = False
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """One file's bytes before and after, None for no file, and the edits in between.

    A file that `is_silent` belongs to our own state and is not mentioned to users.
    """

    file: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    edits: tuple[Edit, ...] = field(default=(), repr=False)
    is_private: bool = False
    is_silent: bool = False
