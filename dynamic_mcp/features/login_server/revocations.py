"""The logins that were revoked at any replica. Each replica has a copy, and keeps what it has once known."""

from __future__ import annotations

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
from dynamic_mcp.system.store_copies import Mirror, Refill
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# Entries of about 100 bytes, each as long as the access tokens of its login.
REVOKED = StoreSpace("login-revoked", most_listed=20_000)


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
        self._refill = Refill(store, self._fill, what="what was revoked")
        self._tasks = TaskSet(log)
        self._tasks.create(self._mirror.run(), name="logins that were revoked")

    @property
    def is_fresh(self) -> bool:
        """Return whether a login that was revoked more than a second ago is known to be."""
        return self._mirror.is_fresh and not self._refill.is_running

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
        self._tasks.cancel_all()
        await self._tasks.wait()
        await self._refill.close()

    def _refuse_while_restoring(self) -> None:
        if self._refill.is_running:
            raise StoreUnavailable(StoreFailure.DOWN, "what was revoked is being written again")

    def _read(self) -> None:
        now = self._now()
        found = {}
        for each in self._mirror.entries:
            with contextlib.suppress(ValueError):
                found[each.name] = float(each.value)
        self._known = {login: until for login, until in (self._known | found).items() if until > now}

    async def _fill(self) -> None:
        """Write what the store lacks. Raises StoreUnavailable."""
        there = {each.name for each in await self._store.list_entries(REVOKED)}
        for login, until in [*self._known.items()]:
            left_s = until - self._now()
            if login not in there and left_s > 0:
                await self._store.compare_and_set(REVOKED, login, b"%.0f" % until, left_s, expected=ABSENT)
        await self._restore_more(set(self._known))
        await self._mirror.refresh()
