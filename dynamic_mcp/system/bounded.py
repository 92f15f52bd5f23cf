"""A dict that forgets its oldest entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class BoundedDict(MutableMapping[K, V]):
    """Holds at most `size` entries: a new one evicts the oldest. An entry that is set again keeps its age.

    `on_evict` is called with each evicted key and value, but not for entries that are deleted.
    """

    def __init__(self, size: int, *, on_evict: Callable[[K, V], object] | None = None) -> None:
        self._size = size
        self._on_evict = on_evict
        self._entries: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def get(self, key: K, default: T | None = None) -> V | T | None:  # type: ignore[override]  # fewer overloads
        """Return the value of a key; the inherited one is slow on the path of a call."""
        return self._entries.get(key, default)

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[key] = value
        while len(self._entries) > self._size:
            oldest = next(iter(self._entries))
            evicted = self._entries.pop(oldest)
            if self._on_evict is not None:
                self._on_evict(oldest, evicted)

    def __delitem__(self, key: K) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<BoundedDict {len(self)} of {self._size}>"
