"""Containers that evict their oldest entries: a dict, and a cache for a function's results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
N = TypeVar("N", bound=str | None)

# The number of cached names, and their maximum length: a client may send any.
MOST_NAMES = 1000
LONGEST_NAME = 200


class BoundedDict(dict[K, V]):
    """Holds at most `size` entries: a new one evicts the oldest. Setting an existing key keeps its age.

    `on_evict` is called with each evicted key and value, but not for deleted entries. It is a real dict, because a
    `MutableMapping` reads slowly, and each call reads several.
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
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, entries: Mapping[K, V]) -> None:  # type: ignore[override]  # one form is enough
        for key, value in entries.items():
            self[key] = value

    __ior__ = None  # type: ignore[assignment]  # would add without evicting

    def __repr__(self) -> str:
        return f"<BoundedDict {len(self)} of {self._size}>"


class NameMemo(Generic[N, V]):
    """Caches a function's results by name, for names that clients send: a limited number, of limited length."""

    def __init__(self, make: Callable[[N], V], *, longest: int = LONGEST_NAME) -> None:
        self._make = make
        self._longest = longest
        self._found: BoundedDict[N, V] = BoundedDict(MOST_NAMES)

    def __call__(self, name: N) -> V:
        try:
            return self._found[name]
        except KeyError:
            value = self._make(name)
            if name is None or len(name) <= self._longest:
                self._found[name] = value
            return value
