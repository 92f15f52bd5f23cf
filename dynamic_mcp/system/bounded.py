"""What forgets its oldest entries: a dict, and a memory of what a function has returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
N = TypeVar("N", bound=str | None)

# Names that are remembered, and how long they may be: a client may write any.
MOST_NAMES = 1000
LONGEST_NAME = 200


class BoundedDict(dict[K, V]):
    """Holds at most `size` entries: a new one evicts the oldest. An entry that is set again keeps its age.

    `on_evict` is called with each evicted key and value, but not for entries that are deleted. It is a dict, because
    one that only behaves like a dict reads slowly, and calls read several.
    """

    def __init__(self, size: int, *, on_evict: Callable[[K, V], object] | None = None) -> None:
        self._size = size
        self._on_evict = on_evict

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self._size:
            oldest = next(iter(self))
            evicted = self.pop(oldest)
            if self._on_evict is not None:
                self._on_evict(oldest, evicted)

    def setdefault(self, key: K, default: V) -> V:
        """Return the value of a key, which is `default` from now on if it had none."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, entries: Mapping[K, V]) -> None:  # type: ignore[override]  # one form is enough
        """Set each of these entries."""
        for key, value in entries.items():
            self[key] = value

    __ior__ = None  # type: ignore[assignment]  # would add without evicting

    def __repr__(self) -> str:
        return f"<BoundedDict {len(self)} of {self._size}>"


class NameMemo(Generic[N, V]):
    """Remembers what a function has returned for names that clients write: for so many, none of them longer."""

    def __init__(self, make: Callable[[N], V], *, longest: int = LONGEST_NAME) -> None:
        self._make = make
        self._longest = longest
        self._found: BoundedDict[N, V] = BoundedDict(MOST_NAMES)

    def __call__(self, name: N) -> V:
        """Return what the function returns."""
        try:
            return self._found[name]
        except KeyError:
            value = self._make(name)
            if name is None or len(name) <= self._longest:
                self._found[name] = value
            return value
