"""Changes of foreign files as values: what was there before and after, so that each can be taken back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dynamic_mcp.config.keys import Keys


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
