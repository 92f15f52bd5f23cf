"""The logins that were revoked at any replica. Each replica has a copy, and keeps what it has once known."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Set

from dynamic_mcp.system.shared_store import (
    ABSENT,
    LONGEST_S,
    SharedStore,
    StoreFailure,
    StoreSpace,
    StoreUnavailable,
)
from dynamic_mcp.system.store_copies import Mirror
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# Entries of about 100 bytes, each as long as the access tokens of its login.
REVOKED = StoreSpace("login-revoked", most_listed=20_000)
# How soon a store that was emptied, and could not be filled, is tried again.
_FILL_AGAIN_S = 0.5


class Revocations:
    """The revoked logins. `restore_more` writes what else an emptied store has to know."""

    def __init__(
        self, store: SharedStore, now: Callable[[], float], restore_more: Callable[[Set[str]], Awaitable[None]]
    ) -> None:
        self._store = store
        self._now = now
        self._restore_more = restore_more
        self._known: dict[str, float] = {}  # until when access tokens may be valid
        self._mirror = Mirror(store, REVOKED)
        self._mirror.on_change(self._read)
        self._restoring: asyncio.Task[None] | None = None  # until an emptied store has what is known here
        self._tasks = TaskSet(log)
        self._forget_reset = store.on_reset(self._on_reset)
        self._tasks.create(self._mirror.run(), name="logins that were revoked")

    @property
    def is_fresh(self) -> bool:
        """Return whether a login that was revoked more than a second ago is known to be."""
        return self._mirror.is_fresh and self._restoring is None

    @property
    def known(self) -> Set[str]:
        return self._known.keys()

    async def refresh(self) -> None:
        """Read what is new. Raises StoreUnavailable."""
        await self._mirror.refresh()
        self._refuse_while_restoring()

    async def has(self, login: str) -> bool:
        """Return whether a login was revoked, as the store knows now. Raises StoreUnavailable."""
        if login in self._known:
            return True
        self._refuse_while_restoring()
        return await self._store.get(REVOKED, login) is not None

    async def add(self, login: str, lasts_s: float) -> None:
        """Revoke a login; if that fails, it is refused here alone. Raises StoreUnavailable."""
        lasts_s = min(lasts_s, LONGEST_S)
        until = self._known[login] = self._now() + lasts_s
        await self._store.put(REVOKED, login, b"%.0f" % until, lasts_s)

    async def close(self) -> None:
        self._forget_reset()
        self._tasks.cancel_all()
        await self._tasks.wait()

    def _refuse_while_restoring(self) -> None:
        if self._restoring is not None:
            raise StoreUnavailable(StoreFailure.DOWN, "what was revoked is being written again")

    def _read(self) -> None:
        now = self._now()
        found = {}
        for each in self._mirror.entries:
            with contextlib.suppress(ValueError):
                found[each.name] = float(each.value)
        self._known = {login: until for login, until in (self._known | found).items() if until > now}

    def _on_reset(self) -> None:
        """Called when the store may have been emptied: it gets what is known here."""
        if self._restoring is not None:
            self._restoring.cancel()
        self._restoring = self._tasks.create(self._restore(), name="revoked logins for an emptied store")

    async def _restore(self) -> None:
        while True:
            try:
                await self._fill()
                await self._mirror.refresh()
                break
            except StoreUnavailable as exc:
                log.warning("what was revoked may be missing in the shared store, which was emptied: %s", exc)
            await asyncio.sleep(_FILL_AGAIN_S)
        self._restoring = None

    async def _fill(self) -> None:
        there = {each.name for each in await self._store.list_entries(REVOKED)}
        for login, until in [*self._known.items()]:
            left_s = until - self._now()
            if login not in there and left_s > 0:
                await self._store.compare_and_set(REVOKED, login, b"%.0f" % until, left_s, expected=ABSENT)
        await self._restore_more(set(self._known))
