"""Moves what one machine keeps in files into the store that replicas share, or back: one kind of it at a time.

Nothing is deleted where it was, and each entry is written at once, so a move that was interrupted can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Place(Protocol[T]):
    """One kind of entries in files, or in the store.

    Both methods raise OSError, DynamicMcpError and StoreUnavailable.
    """

    async def load(self) -> dict[str, T]:
        """Return what there is, by its name."""
        ...

    async def write(self, name: str, value: T, before: T | None) -> bool:
        """Write an entry that was `before` when it was loaded; return False if it has changed, or need not."""
        ...


def _never(value: object) -> bool:
    return False


def _equal(one: object, other: object) -> bool:
    return one == other


@dataclass(frozen=True)
class Migration(Generic[T]):
    """One kind of entries, and its two places.

    What has ended for good, such as what was revoked, ends at both places, and never comes back. `is_same` says that
    two values need no decision.
    """

    label: str
    files: Place[T]
    shared: Place[T]
    describe: Callable[[str, T], str]
    is_same: Callable[[T, T], bool] = _equal
    has_ended: Callable[[T], bool] = _never
    note: str = ""


class Migrated(Struct, frozen=True):
    """What came of one kind: the numbers of entries, and the entries that the other place has in another form."""

    label: str
    found: int
    taken: int
    there: int
    ended: int = 0
    different: tuple[str, ...] = ()
    note: str = ""


@dataclass
class _Counts:
    taken: int = 0
    there: int = 0
    ended: int = 0
    different: list[str] = field(default_factory=list)


async def migrate(
    migration: Migration[Any], *, to_store: bool, overwrites: bool, is_dry: bool = False
) -> Migrated:  # Any: each kind has its own
    """Take entries into the store, or out of it. Those that differ there stay, unless this `overwrites` them.

    Raises OSError, DynamicMcpError and StoreUnavailable.
    """
    source, target = migration.files, migration.shared
    if not to_store:
        source, target = target, source
    found, there, counts = await source.load(), await target.load(), _Counts()
    for name, value in found.items():
        before = there.get(name)
        if not _is_wanted(migration, name, value, before, counts, overwrites=overwrites):
            continue
        if is_dry or await target.write(name, value, before):
            _count(migration, value, counts)
        else:
            counts.there += 1
    return Migrated(
        migration.label,
        sum(not migration.has_ended(each) for each in found.values()),
        counts.taken,
        counts.there,
        counts.ended,
        tuple(counts.different),
        migration.note if found else "",
    )


def _is_wanted(
    migration: Migration[Any], name: str, value: Any, before: Any, counts: _Counts, *, overwrites: bool
) -> bool:  # Any: values of the kind
    """Return whether an entry is to be written, and count it if not."""
    if before is None:
        return True
    if migration.has_ended(before):
        counts.ended += not migration.has_ended(value)
        return False
    if migration.has_ended(value) or (overwrites and not migration.is_same(value, before)):
        return True
    if migration.is_same(value, before):
        counts.there += 1
    else:
        counts.different.append(migration.describe(name, value))
    return False


def _count(migration: Migration[Any], value: Any, counts: _Counts) -> None:  # Any: a value of the kind
    if migration.has_ended(value):
        counts.ended += 1
    else:
        counts.taken += 1
