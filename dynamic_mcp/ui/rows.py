"""The part of a long list that one page shows: as many rows as there is space for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from dynamic_mcp.ui.byte_budget import ByteBudget

MOST_ROWS = 50
_SPACE = 26_000
# The HTML of a row without its texts, in bytes.
_FRAME = 330

T = TypeVar("T")
R = TypeVar("R")


class Steps(Struct, frozen=True):
    """Which part of a list is shown: from one number on, to before another one, of so many."""

    start: int
    end: int
    total: int

    @property
    def before(self) -> int | None:
        return max(self.start - MOST_ROWS, 0) if self.start else None

    @property
    def after(self) -> int | None:
        return self.end if self.end < self.total else None


def fit_rows(
    items: Sequence[T], start: int, build: Callable[[T, ByteBudget], R], *, frame: int = _FRAME
) -> tuple[list[R], Steps]:
    """Return the rows from one on, as many as a page has space for, and one at least.

    `build` takes the space of its texts; `frame` is what each row takes besides.
    """
    space, rows = ByteBudget(_SPACE), list[R]()
    start = start if start < len(items) else 0
    for item in items[start : start + MOST_ROWS]:
        if not space.spend(frame):
            break
        row = build(item, space)
        if rows and space.left < 0:
            break
        rows.append(row)
    return rows, Steps(start, start + len(rows), len(items))


def read_start(query: Mapping[str, str]) -> int:
    """Return the number of the row that a page begins with."""
    text = query.get("from", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
