"""Keeps what a section has computed of large things for as long as those are the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """The value that was computed last. It may be used by several threads, of which each may compute it."""

    def __init__(self) -> None:
        self._last: tuple[Sequence[object], Hashable, T] | None = None

    def find(self, objects: Sequence[object], version: Hashable, compute: Callable[[], T]) -> T:
        """Return the value for these objects, which are compared by identity, and this version of what else it is of.

        Raises what `compute` raises.
        """
        last = self._last
        if last is not None and last[1] == version and are_same(last[0], objects):
            return last[2]
        value = compute()
        self._last = objects, version, value
        return value


def are_same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Return whether two sequences have the very same objects."""
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
