"""Small records of sessions in the store that replicas share, so that another one goes on when a replica has ended.

A record names the process that has the session, and only a compare-and-set changes that: a process that is alive
keeps what it has. It says that it is alive by an entry that expires soon, so plain calls ask the store for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec import Raw, Struct
from msgspec.structs import replace

from dynamic_mcp.face.http.paths import Route
from dynamic_mcp.identity import Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.system.clock import Clock, LoopClock
from dynamic_mcp.system.shared_store import ABSENT, SharedStore, StoreSpace, StoreUnavailable, Version
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger("dynamic_mcp")

SESSIONS = StoreSpace("sessions")
REPLICAS = StoreSpace("replicas")
# A session with a larger record is not moved.
MOST_BYTES = 2048
# A process that has not said for so long that it is alive has ended.
ALIVE_FOR_S = 3.0
_SAY_EVERY_S = 1.0
# What a process that ends says instead of its name, and how long that is there.
_ENDED = b""
_ENDED_FOR_S = 60.0
_LOOK_EVERY_S = 0.25
_WRITE_AGAIN_S = 1.0
_TRIES = 3


class SessionRecord(Struct, frozen=True, omit_defaults=True):
    """An entry: the replica and process that have a session, whose it is, and what its client has said.

    `moves` is how often another replica has gone on with it.
    """

    replica: str
    process: str
    issuer: str
    subject: str
    only: str | None
    profile: str | None
    revision: str
    client_info: Raw
    capabilities: Raw
    level: str = ""
    uris: tuple[str, ...] = ()
    moves: int = 0

    def is_of(self, principal: Principal, route: Route) -> bool:
        """Return whether a request with this sender and path is one of the session."""
        return (self.issuer, self.subject, self.only, self.profile) == (
            principal.issuer, principal.subject, route.only, route.profile,
        )  # fmt: skip


class _Written(Struct):
    """What this process has in the store for a session."""

    value: bytes
    version: Version
    at: float


class SessionRecords:
    """The records of this process, the replica `name`.

    `on_moved` is called with the id of a session that another replica has gone on with. Records expire after
    `kept_for_s`, unless they are written again.
    """

    def __init__(
        self, store: SharedStore, name: str, process: str, kept_for_s: float, on_moved: Callable[[str], object], *,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.store = store
        self.name = name
        self.process = process
        self.kept_for_s = kept_for_s
        self._on_moved = on_moved
        self._clock = clock or LoopClock()
        self._written: dict[str, _Written] = {}
        self._waiting: dict[str, bytes | None] = {}  # to be written; None is to be deleted
        self._tasks = TaskSet(log)
        self._writing: asyncio.Task[None] | None = None
        self._judging: dict[str, asyncio.Task[bool]] = {}
        self._presence: Version | None = None
        self._said_at = self._since = float("-inf")
        self._forget_reset = store.on_reset(self._restore)
        self._saying = self._tasks.create(self._say(), name="word that this replica is alive")

    def __repr__(self) -> str:
        return f"<SessionRecords of {self.name}, {len(self._written)} written, {len(self._waiting)} waiting>"

    # --- sessions of this process ------------------------------------------------------------------------

    def write(self, id: str, record: SessionRecord | None) -> None:
        """Write the record of a session in the background, or delete it, as what cannot be moved has none."""
        value = None if record is None else wire.encode(record)
        if value is not None and len(value) > MOST_BYTES:
            value = None
        if value is None and id not in self._written and id not in self._waiting:
            return
        self._waiting[id] = value
        self._write_soon()

    def adopt(self, id: str, record: SessionRecord, version: Version) -> None:
        """Keep the record of a session that this process has taken over."""
        self._written[id] = _Written(wire.encode(record), version, self._clock.now())

    def needs_renewal(self, id: str, used_at: float) -> bool:
        """Return whether the record of a session that was used then should be written again, to expire later."""
        written = self._written.get(id)
        return written is not None and written.at + self.kept_for_s / 4 < self._clock.now() and used_at > written.at

    def has(self, id: str) -> bool:
        return id in self._written

    def forget(self, id: str) -> None:
        """Leave the record of a session to the process that goes on with it."""
        self._written.pop(id, None)
        self._waiting.pop(id, None)

    def renew(self, id: str) -> None:
        """Write the record of a session again."""
        written = self._written.get(id)
        if written is not None and id not in self._waiting:
            self._waiting[id] = written.value
            self._write_soon()

    def _write_soon(self) -> None:
        if self._writing is None:
            self._writing = self._tasks.create(self._write(), name="records of sessions")

    async def _write(self) -> None:
        try:
            while self._waiting:
                id = next(iter(self._waiting))
                try:
                    await self._write_one(id, self._waiting[id])
                except StoreUnavailable as exc:
                    log.debug("the records of %d sessions wait: %s", len(self._waiting), exc)
                    await asyncio.sleep(_WRITE_AGAIN_S)
        finally:
            self._writing = None

    async def _write_one(self, id: str, value: bytes | None) -> None:
        written = self._written.get(id)
        expected = ABSENT if written is None else written.version
        if value is None:
            if written is not None:
                await self.store.delete(SESSIONS, id, expected=expected)
            self._written.pop(id, None)
        else:
            version = await self.store.compare_and_set(SESSIONS, id, value, self.kept_for_s, expected=expected)
            if version is None:  # another process has it, or an earlier write was not answered
                current = await self._find_own(id)
                if current is None:
                    self.forget(id)
                    self._on_moved(id)
                else:
                    self._written[id] = _Written(value, current, self._clock.now())  # and it is written again
                return
            self._written[id] = _Written(value, version, self._clock.now())
        if id in self._waiting and self._waiting[id] is value:
            del self._waiting[id]

    async def _find_own(self, id: str) -> Version | None:
        """Return the version of a record of this process; ABSENT if there is none, None if it is another's."""
        entry = await self.store.get(SESSIONS, id)
        if entry is None:
            return ABSENT
        record = entry.read(SessionRecord)
        return entry.version if record is not None and self._is_own(record) else None

    def _is_own(self, record: SessionRecord) -> bool:
        return (record.replica, record.process) == (self.name, self.process)

    def _restore(self) -> None:
        """Called when the store may have been emptied."""
        self._since = self._clock.now()
        for id, written in self._written.items():
            self._waiting.setdefault(id, written.value)
        if self._waiting:
            self._write_soon()

    # --- who is alive ------------------------------------------------------------------------------------

    async def _say(self) -> None:
        """Say that this process is alive, until cancelled."""
        while True:
            began = self._clock.now()
            try:
                self._presence = await self.store.put(REPLICAS, self.name, self.process.encode(), ALIVE_FOR_S)
            except StoreUnavailable as exc:
                log.debug("other replicas do not hear that this one is alive: %s", exc)
            else:
                if began - self._said_at > ALIVE_FOR_S:  # others may have gone on with its sessions
                    self._since = began
                    for id in [*self._written]:
                        self.renew(id)
                self._said_at = began
            await asyncio.sleep(_SAY_EVERY_S)

    async def _is_alive(self, record: SessionRecord) -> bool:
        """Return whether the process of a session says that it is alive; one that has fallen silent gets its time."""
        judging = self._judging.get(record.process)
        if judging is None:
            judging = self._tasks.create(self._judge(record), name="look whether a replica is alive")
            self._judging[record.process] = judging
            judging.add_done_callback(lambda task: self._judging.pop(record.process, None))
        return await asyncio.shield(judging)

    async def _judge(self, record: SessionRecord) -> bool:
        until = self._clock.now() + 2 * ALIVE_FOR_S
        while self._clock.now() < until:
            try:
                found = await self.store.get(REPLICAS, record.replica)
            except StoreUnavailable:
                return True
            if found is not None and found.value != record.process.encode():
                return False  # another process has its name
            if found is None and self._has_been_heard():
                return False
            await asyncio.sleep(_LOOK_EVERY_S)
        return True

    def _has_been_heard(self) -> bool:
        """Return whether this process could say that it is alive for so long that others could, too."""
        now = self._clock.now()
        return now - self._said_at <= ALIVE_FOR_S <= now - self._since

    # --- sessions of others ------------------------------------------------------------------------------

    async def claim(self, id: str, principal: Principal, route: Route) -> SessionRecord | str | None:
        """Take a session over from a process that has ended, and return its record, or the replica that has it.

        None if it cannot go on. Raises StoreUnavailable.
        """
        for _ in range(_TRIES):
            entry = await self.store.get(SESSIONS, id)
            record = None if entry is None else entry.read(SessionRecord)
            if entry is None or record is None or not record.is_of(principal, route) or self._is_own(record):
                return None
            if await self._is_alive(record):
                return record.replica if record.replica != self.name else None
            claimed = replace(record, replica=self.name, process=self.process, moves=record.moves + 1)
            value = wire.encode(claimed)
            version = await self.store.compare_and_set(SESSIONS, id, value, self.kept_for_s, expected=entry.version)
            if version is not None:
                self.adopt(id, claimed, version)
                return claimed
        return None

    # --- the end -----------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Say that this process has ended, so that others go on with its sessions; what waits is written first."""
        self._saying.cancel()
        self._forget_reset()
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_WRITE_AGAIN_S)
        try:
            if self._presence is not None:  # others need not wait until they would have heard of this process
                await self.store.compare_and_set(REPLICAS, self.name, _ENDED, _ENDED_FOR_S, expected=self._presence)
        except StoreUnavailable as exc:  # it expires
            log.debug("other replicas do not hear that this one ends: %s", exc)

    def end(self) -> None:
        """Write nothing any more."""
        self._forget_reset()
        self._waiting.clear()
        self._tasks.cancel_all()
