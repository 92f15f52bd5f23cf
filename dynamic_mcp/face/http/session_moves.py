"""Sessions that another replica goes on with when theirs has ended, by what the store has of them.

Of a session, no more is known than its record says: what was in flight is lost, as is what was not sent yet.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.body_budget import BodyBudget
from dynamic_mcp.face.http.cluster import MOVED, PeerAuthentication, ReplicaSet
from dynamic_mcp.face.http.deferred import RecoveredRequest
from dynamic_mcp.face.http.exchange import BodyReceiver, Response
from dynamic_mcp.face.http.modern import is_legacy
from dynamic_mcp.face.http.responses import Headers
from dynamic_mcp.face.http.session import ENDED, HttpSession
from dynamic_mcp.face.http.session_records import SessionRecord, SessionRecords
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.system.bounded import BoundedDict
from dynamic_mcp.system.shared_store import LONGEST_S, SharedStore, StoreUnavailable
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger("dynamic_mcp")

# How many sessions that are elsewhere are remembered, and how long a server may take to be greeted again.
_MOST_MOVED = 10_000
_RESTORE_WITHIN_S = 10.0


class MovingSessions(Protocol):
    """The sessions of the HTTP face, some of which move."""

    @property
    def max_body_bytes(self) -> int: ...

    def find_session(self, id: bytes) -> HttpSession | None: ...

    def add_session(self, id: str, arrival: Arrival, *, moves: int) -> HttpSession:
        """Begin a session that has moved so often."""
        ...

    def end(self, session: HttpSession) -> None: ...

    def make_room(self, authentication: Authentication) -> Response | None:
        """End a session if there is no room for another one; return a refusal if that is not possible."""
        ...

    def serve(self, arrival: Arrival) -> BodyReceiver | Response: ...

    def cors_of(self, arrival: Arrival) -> Headers: ...

    async def recover(self, arrival: Arrival) -> BodyReceiver | Response | None:
        """Call `SessionMoves.recover`, or `pass_over` if this replica ends."""
        ...


class SessionMoves:
    """Keeps the records of this replica's sessions, and goes on with those of others."""

    def __init__(
        self, face: MovingSessions, proxy: Proxy, cluster: ReplicaSet, store: SharedStore, *,
        process: str, kept_for_s: float,
    ) -> None:  # fmt: skip
        self.store = store
        self._face = face
        self._proxy = proxy
        self._cluster = cluster
        self._recovering: dict[bytes, asyncio.Task[str | None]] = {}
        self._moved: BoundedDict[bytes, str] = BoundedDict(_MOST_MOVED)  # the replicas that have sessions now
        self._tasks = TaskSet(log)
        self._bodies = BodyBudget()  # that wait until their session is found
        name = cluster.describe().name
        self._records = SessionRecords(store, name, process, min(kept_for_s, LONGEST_S), self._end_moved)

    def __repr__(self) -> str:
        return f"<SessionMoves {self._records!r}, {len(self._moved)} elsewhere>"

    # --- sessions of this replica ------------------------------------------------------------------------

    def record(self, session: HttpSession) -> None:
        """Keep a record of what the client of a session has said by now."""
        if not session.is_old and session.session.is_initialized:
            self._records.write(session.id, self._describe(session))

    def renew(self, session: HttpSession) -> None:
        """Keep the record of a session for as long as that is used."""
        if self._records.needs_renewal(session.id, session.used_at):
            self.record(session)

    def forget(self, session: HttpSession) -> None:
        """Delete the record of a session that has ended."""
        self._records.write(session.id, None)

    def hand_over(self, session: HttpSession, arrival: Arrival) -> BodyReceiver | Response | None:
        """Let another replica go on with a session that has no request in flight, as this one ends."""
        if not self._records.has(session.id) or session.in_flight:
            return None
        self._records.forget(session.id)
        self._face.end(session)
        return self.pass_over(arrival) or ENDED

    def pass_over(self, arrival: Arrival) -> BodyReceiver | Response | None:
        """Let another replica take a request, as this one ends; None if there is no other."""
        if isinstance(arrival.authentication, PeerAuthentication):
            return MOVED
        return self._cluster.hand_over(arrival, self._face.cors_of(arrival))

    def _describe(self, session: HttpSession) -> SessionRecord | None:
        """Return the record of a session; None if no other replica can go on with it."""
        client = session.session
        wishes = self._proxy.find_wishes(client)
        if wishes is None:
            return None
        principal, hello, (level, uris) = client.principal, client.hello, wishes
        return SessionRecord(
            self._records.name,
            self._records.process,
            principal.issuer,
            principal.subject,
            session.route.only,
            session.route.profile,
            hello.revision.name,
            hello.client_info,
            hello.capabilities,
            level=level,
            uris=uris,
            moves=session.moves,
        )

    def _end_moved(self, id: str) -> None:
        """Called when another replica has gone on with a session of this one, which was silent for too long."""
        session = self._face.find_session(id.encode())
        if session is not None:
            log.warning("another replica has gone on with a session, since this one was silent")
            self._face.end(session)

    # --- sessions of others ------------------------------------------------------------------------------

    def find_moved(self, arrival: Arrival, id: bytes) -> BodyReceiver | None:
        """Return what passes a request on to the replica that has gone on with its session, as far as is known."""
        replica = self._moved.get(id)
        if replica is None or isinstance(arrival.authentication, PeerAuthentication):
            return None
        if not self._cluster.is_own_id(arrival, id):
            return None
        return self._cluster.pass_on(arrival, replica, self._face.cors_of(arrival), is_last=False)

    def recover_later(self, arrival: Arrival, id: bytes) -> BodyReceiver | None:
        """Return what takes a request of a session that an earlier process of this replica, or another one, had."""
        if not self._cluster.is_own_id(arrival, id):
            return None
        face = self._face
        return RecoveredRequest(
            arrival, face.recover, self._tasks, self._bodies,
            cors=face.cors_of(arrival), max_body_bytes=face.max_body_bytes,
        )  # fmt: skip

    async def recover(self, arrival: Arrival) -> BodyReceiver | Response | None:
        """Return what takes a request of a session whose replica has ended, or the refusal; None if it is lost."""
        id = arrival.head.headers.get(b"mcp-session-id")
        if id is None or not is_legacy(arrival.head):
            return None
        recovering = self._recovering.get(id)
        if recovering is None:
            recovering = self._recovering[id] = self._tasks.create(self._recover(id, arrival), name="a session")
            recovering.add_done_callback(lambda task: self._recovering.pop(id, None))
        replica = await asyncio.shield(recovering)
        if self._face.find_session(id) is not None:
            return self._face.serve(arrival)
        if replica is None:
            self._moved.pop(id, None)
            return None
        if isinstance(arrival.authentication, PeerAuthentication):
            return MOVED
        self._moved[id] = replica
        return self._cluster.pass_on(arrival, replica, self._face.cors_of(arrival), is_last=True)

    async def _recover(self, id: bytes, arrival: Arrival) -> str | None:
        """Go on with a session, or return the replica that does; None if it is here or lost."""
        if self._face.make_room(arrival.authentication) is not None:
            return None
        try:
            found = await self._records.claim(id.decode(), arrival.authentication.principal, arrival.route)
        except StoreUnavailable as exc:
            log.debug("a session of another replica cannot be found: %s", exc)
            return None
        if isinstance(found, SessionRecord):
            await self._restore(id.decode(), arrival, found)
            return None
        return found

    async def _restore(self, id: str, arrival: Arrival, record: SessionRecord) -> None:
        """Go on with the session of a record."""
        session = self._face.add_session(id, arrival, moves=record.moves)
        client = session.session
        client.restore(record.revision, record.capabilities, record.client_info)
        try:
            async with asyncio.timeout(_RESTORE_WITHIN_S):
                await self._proxy.initialize(client)
        except (DynamicMcpError, TimeoutError) as exc:
            log.debug("a session of another replica cannot go on here: %s", exc)
            self._face.end(session)
            return
        if self._proxy.find_wishes(client) is None:
            self._face.end(session)
            return
        log.info("goes on with a session of another replica for %s", arrival.address or "a Unix socket")
        self._tasks.create(self._restore_wishes(session, record), name="wishes of a session")

    async def _restore_wishes(self, session: HttpSession, record: SessionRecord) -> None:
        """Ask for what the client of a session wants to hear of."""
        wishes = [("resources/subscribe", {"uri": uri}) for uri in record.uris]
        if record.level:
            wishes.insert(0, ("logging/setLevel", {"level": record.level}))
        for method, params in wishes:
            try:
                await session.session.answer(Frame(method=method, params=Raw(wire.encode(params))))
            except (DynamicMcpError, wire.Malformed) as exc:
                log.debug("`%s` of a session of another replica is lost: %s", method, exc)

    # --- the end -----------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Let others go on with the sessions of this replica, which ends."""
        await self._records.leave()

    def end(self) -> None:
        """Keep the records as they are, for other replicas."""
        self._records.end()
        self._tasks.cancel_all()
