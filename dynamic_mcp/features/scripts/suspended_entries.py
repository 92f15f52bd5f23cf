"""Scripts that wait for their modern clients, in the store that replicas share.

Whoever goes on with a script takes its entry first: the replica that keeps it removes the entry, another one marks it
as used, and of both one succeeds. So none has to know whether the other is alive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from dynamic_mcp.mcp.envelope import StateRefused
from dynamic_mcp.proxy.parked_calls import PARKED_FOR_S
from dynamic_mcp.system.shared_store import ABSENT, SharedStore, StoreSpace, StoreUnavailable
from dynamic_mcp.system.store_writer import MOST_BYTES_OF_ONE

T = TypeVar("T")

SCRIPTS = StoreSpace("scripts")
# What a process has there at once.
MOST_BYTES = 16 << 20
_KEPT_FOR_S = PARKED_FOR_S + 60.0
_USED = b"used"
_USED_FOR_S = 3600.0
# In the place of an entry that was not there when its script went on, while a write of it may still come.
_GONE = b"gone"


class SuspendedEntries:
    """The entries that this replica writes to a store, and takes of others. All methods raise StoreUnavailable."""

    def __init__(self, store: SharedStore) -> None:
        self.store = store
        self._sizes: dict[str, tuple[float, int]] = {}  # until when an entry is kept, and its size
        self._unanswered: set[str] = set()  # entries whose writing may come late

    def __repr__(self) -> str:
        return f"<SuspendedEntries, {sum(size > 0 for _, size in self._sizes.values())} kept>"

    def has_room(self, id: str, size: int) -> bool:
        """Return whether a script of this size can be written: one that is too long cannot, nor one of too many."""
        now = time.monotonic()
        self._sizes = {name: each for name, each in self._sizes.items() if each[0] > now}
        self._unanswered &= self._sizes.keys()
        total = sum(each for name, (_, each) in self._sizes.items() if name != id) + size
        has_room = size <= MOST_BYTES_OF_ONE and total <= MOST_BYTES
        self._sizes[id] = now + _KEPT_FOR_S, size if has_room else 0
        return has_room

    async def write(self, id: str, sealed: bytes) -> bool:
        """Write a script, and return True, or False where there is no room for it."""
        if not self.has_room(id, len(sealed)):
            return False
        self._unanswered.add(id)
        try:
            version = await self.store.compare_and_set(SCRIPTS, id, sealed, _KEPT_FOR_S, expected=ABSENT)
        except StoreUnavailable as exc:
            if not exc.may_have_run:
                self._unanswered.discard(id)
            raise
        self._unanswered.discard(id)
        return version is not None

    async def forget(self, id: str) -> None:
        """Remove a script of this replica. Raises StateRefused if another one goes on with it."""
        while not await self._remove(id):
            pass  # it has changed meanwhile
        self._sizes.pop(id, None)
        self._unanswered.discard(id)

    async def _remove(self, id: str) -> bool:
        """Remove an entry, or see to it that none comes; return whether it is gone. Raises StateRefused."""
        entry = await self.store.get(SCRIPTS, id)
        if entry is None and id in self._unanswered:
            return await self.store.compare_and_set(SCRIPTS, id, _GONE, _KEPT_FOR_S, expected=ABSENT) is not None
        if entry is None and id not in self._sizes:  # it is in the store before this one, for others to take
            raise StateRefused("used")
        if entry is None or entry.value == _GONE:
            return True
        if entry.value == _USED:
            raise StateRefused("used")
        return await self.store.delete(SCRIPTS, id, expected=entry.version)

    async def take(self, id: str, read: Callable[[bytes], T]) -> T:
        """Return what `read` returns for a script; only once. Raises StateRefused."""
        entry = await self.store.get(SCRIPTS, id)
        if entry is None:
            raise StateRefused("restarted")
        if entry.value in (_USED, _GONE):
            raise StateRefused("used")
        script = read(entry.value)
        if await self.store.compare_and_set(SCRIPTS, id, _USED, _USED_FOR_S, expected=entry.version) is None:
            raise StateRefused("used")
        return script
