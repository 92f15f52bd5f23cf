"""Copies of entries of the shared store in this process, so that plain calls never ask the store.

Messages tell of changes at once. They may be lost, so what is old is asked for again, within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from dynamic_mcp.system.clock import Clock, LoopClock
from dynamic_mcp.system.shared_store import SharedStore, StoredEntry, StoreSpace, StoreUnavailable
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# How often a mirror asks whether anything has changed, and how old what it shows may be.
_LOOK_EVERY_S = 0.4
FRESH_FOR_S = 1.0
# How long an entry may be shown that has expired.
_LIST_EVERY_S = 30.0
# How soon a store that was emptied, and could not be filled, is tried again.
FILL_AGAIN_S = 0.5


class Mirror:
    """All entries of a listed space, looked up without waiting. The task of `run` keeps it up to date.

    `is_fresh` is False once the store has not answered for a second: a change elsewhere may be unknown then.
    """

    def __init__(self, store: SharedStore, space: StoreSpace, *, clock: Clock | None = None) -> None:
        self._store = store
        self._space = space
        self._clock = clock or LoopClock()
        self._entries: dict[str, StoredEntry] = {}
        self._changes = -1
        self._listed_at = float("-inf")
        self._confirmed_at = float("-inf")
        self._wake = asyncio.Event()
        self._listeners: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"<Mirror of {self._space.name}, {len(self._entries)} entries{'' if self.is_fresh else ', STALE'}>"

    @property
    def is_fresh(self) -> bool:
        return self._clock.now() - self._confirmed_at <= FRESH_FOR_S

    @property
    def entries(self) -> list[StoredEntry]:
        return [*self._entries.values()]

    def get(self, name: str) -> StoredEntry | None:
        return self._entries.get(name)

    def on_change(self, listener: Callable[[], object]) -> None:
        """Have a function called after entries have changed."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Keep up to date until cancelled."""
        unsubscribe = self._store.subscribe(self._space, lambda message: self._wake.set())
        try:
            while True:
                self._wake.clear()
                with contextlib.suppress(StoreUnavailable):
                    await self.refresh()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_EVERY_S):
                        await self._wake.wait()
        finally:
            unsubscribe()

    async def refresh(self) -> None:
        """Ask the store now. Raises StoreUnavailable."""
        began = self._clock.now()
        (changes,) = await self._store.count_changes((self._space,))
        if changes != self._changes or began - self._listed_at > _LIST_EVERY_S:
            entries = await self._store.list_entries(self._space)
            self._entries = {each.name: each for each in entries}
            self._changes = changes  # what changed meanwhile has another number
            self._listed_at = began
            for listener in self._listeners:
                listener()
        self._confirmed_at = began


class Refill:
    """Writes what is known here into a store that may have been emptied, until that works.

    `fill` raises StoreUnavailable where it has to be tried again; `what` says what the store may lack until then.
    `on_filled` is called afterwards.
    """

    def __init__(
        self, store: SharedStore, fill: Callable[[], Awaitable[object]], *, what: str,
        on_filled: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        self._fill = fill
        self._what = what
        self._on_filled = on_filled
        self._filling: asyncio.Task[None] | None = None
        self._tasks = TaskSet(log)
        self._forget_reset = store.on_reset(self._begin)

    def __repr__(self) -> str:
        return f"<Refill with {self._what}{', RUNNING' if self.is_running else ''}>"

    @property
    def is_running(self) -> bool:
        """Whether the store may lack what is known here."""
        return self._filling is not None

    async def close(self) -> None:
        self._forget_reset()
        self._tasks.cancel_all()
        await self._tasks.wait()

    def _begin(self) -> None:
        """Called when the store may have been emptied."""
        if self._filling is not None:
            self._filling.cancel()
        self._filling = self._tasks.create(self._run(), name=f"{self._what} for an emptied store")

    async def _run(self) -> None:
        while True:
            try:
                await self._fill()
                break
            except StoreUnavailable as exc:
                log.warning("%s may be missing in the shared store, which was emptied: %s", self._what, exc)
            await asyncio.sleep(FILL_AGAIN_S)
        self._filling = None
        self._on_filled()
