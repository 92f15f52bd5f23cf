"""This replica among the others: the `ReplicaSet` of the HTTP face."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import MsgspecError

from dynamic_mcp import __version__
from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.body_budget import BodyBudget
from dynamic_mcp.face.http.cluster import PEER_PATH, OwnReplica, PeerRequest
from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, RequestHead, Response
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.paths import Route, ServedEndpoint
from dynamic_mcp.face.http.responses import JSON, Headers, refusal
from dynamic_mcp.features.cluster.client_ids import ClientIds
from dynamic_mcp.features.cluster.config import Cluster as Settings
from dynamic_mcp.features.cluster.hop import FIELD, HopRefused, HopSigner
from dynamic_mcp.features.cluster.login_links import find_sender, mark_of
from dynamic_mcp.features.cluster.modern import MaybeElsewhere, find_process, find_result, find_task
from dynamic_mcp.features.cluster.peer_connection import UNIX, Endpoint
from dynamic_mcp.features.cluster.peers import Introduction, ReplicaFacts, ReplicaFinder
from dynamic_mcp.features.cluster.relay import Passage, Relay, RelayEnd
from dynamic_mcp.features.cluster.session_ids import SessionIds
from dynamic_mcp.identity import LOCAL_USER, Authentication, Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.request import ReplicaStatus
from dynamic_mcp.system.decoding import decode_as
from dynamic_mcp.system.rate_limiter import RateLimiter
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger("dynamic_mcp")

_INTRODUCTION = b"/replica"
_DEPLOYMENT = b"/deployment"
_OPENED_APPS = b"/apps/"
# In a question for the name, whose answer is for any replica.
_ANYONE = ""
# Of a request for a page: no path of MCP, nobody who is authenticated, and the address of whoever is connected.
_PAGE, _NOBODY, _DIRECT = Route(ServedEndpoint.HEALTH), Authentication(Principal("", ""), ""), Forwarding()
_WARN_EVERY_S = 60.0
# A replica that says nothing for so long is asked whether it is alive.
_SILENT_FOR_S = 5.0
# A head is signed again after this time, which is short beside that for which a signature holds.
_SIGN_EVERY_S = 10.0


def settings_of_worker(name: str, sockets: Sequence[str], key: str) -> Settings:
    """Return the settings of one of several processes on this machine, which take requests at these Unix sockets."""
    return Settings(peers=tuple(f"{UNIX}://{quote(each, safe='')}" for each in sockets), keys=(key,), name=name)


def make_service(settings: Settings, max_body_bytes: int, own: OwnReplica) -> ClusterService:
    """Return this replica with these settings; `own` answers what others ask it."""
    return ClusterService(settings, max_body_bytes, own)


class ClusterService:
    """Passes requests on to the replicas of their sessions, and takes those that replicas pass on."""

    def __init__(
        self,
        settings: Settings,
        max_body_bytes: int,
        own: OwnReplica | None = None,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._max_body_bytes = max_body_bytes
        self._own = own or OwnReplica()
        self._clock = wall_clock
        self._ids = SessionIds(settings.replica, settings.keys)
        self._key = settings.keys[0].encode()
        self.task_ids = ClientIds(settings.replica, settings.keys, b"task ids")
        self.result_ids = ClientIds(settings.replica, settings.keys, b"result ids")
        self._signer = HopSigner(settings.replica, settings.keys, wall_clock)
        self.peers = ReplicaFinder(settings.peers, self._ask_name)
        self.bodies = BodyBudget()  # that the other replicas have not taken yet
        self._forwarded = self._lost = self._turned_away = self._refused = 0
        self._relays: set[Relay] = set()
        self._asked: set[str] = set()  # replicas that are being asked whether they are alive
        self._drained: asyncio.Event | None = None
        self._work = TaskSet(log)
        self._warnings = RateLimiter[None](1, _WARN_EVERY_S)

    def __repr__(self) -> str:
        return f"<ClusterService {self.settings.replica}, {len(self._relays)} passed on>"

    # --- ReplicaSet ---------------------------------------------------------------------------------------

    @property
    def link_mark(self) -> str:
        return mark_of(self.settings.replica)

    def make_session_id(self, arrival: Arrival, *, is_old: bool) -> str:
        return self._ids.make(arrival.authentication.principal, arrival.route, is_old=is_old)

    def forward(
        self, arrival: Arrival, session_id: bytes, cors: Headers, *, is_old: bool = False
    ) -> BodyReceiver | None:
        notes = arrival.head.notes
        passage = notes.passage if notes is not None else None
        if isinstance(passage, Passage) and passage.is_of(arrival, self._signer):
            return self._relay(arrival, passage, cors)
        principal = arrival.authentication.principal
        owner = self._ids.owner_of(session_id, principal, arrival.route, is_old=is_old)
        if owner is None or owner == self.settings.replica:
            return None
        passage = self._open_passage(arrival, owner)
        if notes is not None:
            notes.passage = passage
        return self._relay(arrival, passage, cors)

    def is_own_id(self, arrival: Arrival, session_id: bytes) -> bool:
        principal = arrival.authentication.principal
        return self._ids.owner_of(session_id, principal, arrival.route, is_old=False) is not None

    def pass_on(self, arrival: Arrival, replica: str, cors: Headers, *, is_last: bool) -> BodyReceiver:
        return self._relay(arrival, self._open_passage(arrival, replica), cors, is_last=is_last)

    def hand_over(self, arrival: Arrival, cors: Headers) -> BodyReceiver | None:
        others = [each for each in self.peers.names if each != self.settings.replica]
        return self.pass_on(arrival, others[self._forwarded % len(others)], cors, is_last=True) if others else None

    async def recover(self, relay: Relay) -> BodyReceiver | Response | None:
        return None if self._own.recover is None else await self._own.recover(relay.arrival)

    def _open_passage(self, arrival: Arrival, owner: str) -> Passage:
        return Passage(owner, arrival.authentication, arrival.route, arrival.forwarding, self._signer)

    def _relay(
        self,
        arrival: Arrival,
        passage: Passage,
        cors: Headers,
        *,
        needs_client: bool = False,
        is_last: bool = False,
    ) -> Relay:
        self._forwarded += 1
        may_recover = not needs_client and not is_last and self._own.recover is not None
        relay = Relay(
            self, arrival, passage, self._max_body_bytes,
            cors=cors, needs_client=needs_client, may_recover=may_recover,
        )  # fmt: skip
        self._relays.add(relay)
        return relay

    def watch(self, arrival: Arrival, receiver: BodyReceiver, cors: Headers) -> BodyReceiver:
        headers = arrival.head.headers
        task = find_task(headers)
        ids, id = (self.task_ids, task) if task else (self.result_ids, find_result(headers))
        owner = ids.owner_of(id, arrival.authentication.principal, arrival.route) if id else None
        if id and owner in (None, self.settings.replica):
            return receiver

        async def find(process: str) -> Relay | None:
            name = owner or await self._owner_of_process(process)
            if not name or await self.peers.find(name) is None or not await self.peers.is_alive(name):
                return None  # what has a server of its own is found there, and a retry is refused
            return self._relay(arrival, self._open_passage(arrival, name), cors, needs_client=True)

        def begin(body: bytes) -> Coroutine[Any, Any, Relay | None] | None:
            process = "" if owner else find_process(body)
            return find(process) if owner or process else None

        return MaybeElsewhere(receiver, begin, self._work.create)

    async def _owner_of_process(self, process: str) -> str:
        """Return the other replica whose process this is; empty if there is none."""
        owner = "" if process == self._own.process() else await self.peers.find_process(process)
        return "" if owner == self.settings.replica else owner

    def watch_page(self, head: RequestHead, exchange: Exchange, receiver: BodyReceiver) -> BodyReceiver:
        sender = find_sender(head.target)
        if not sender or sender == self.settings.replica:
            return receiver

        async def find() -> Relay | None:
            if await self.peers.find(sender) is None or not await self.peers.is_alive(sender):
                return None  # this page says that the link is no longer valid
            # the other one finds out who is at the browser, so it is told the same address as this one
            arrival = Arrival(head, exchange, _PAGE, _NOBODY, _DIRECT)
            return self._relay(arrival, self._open_passage(arrival, sender), ())

        return MaybeElsewhere(receiver, lambda _: find(), self._work.create)

    def receive(self, head: RequestHead) -> PeerRequest | Response:
        try:
            request = self._signer.read(head)
        except HopRefused as exc:
            self._refused += 1
            self._warn(str(exc))
            return refusal(403, str(exc), ((FIELD, b"refused"),))
        if request.head.target == _INTRODUCTION:
            said = Introduction(self.settings.replica, __version__, self._own.process())
            return Response(200, JSON, wire.encode(said))
        if request.head.target == _DEPLOYMENT:
            facts = ReplicaFacts(self.settings.replica, __version__, self._own.config(), self._clock())
            return Response(200, JSON, wire.encode(facts))
        if request.head.target.startswith(_OPENED_APPS):
            key = request.head.target.removeprefix(_OPENED_APPS).decode("ascii", "replace")
            return Response(200, JSON, wire.encode(self._own.find_opened_apps(key)))
        return request

    def derive_key(self, purpose: bytes) -> bytes:
        return hmac.digest(self._key, purpose, "sha256")

    def describe(self) -> ReplicaStatus:
        peers = self.peers
        return ReplicaStatus(
            self.settings.replica,
            tuple(peers.names),
            peers.unreachable,
            self._forwarded,
            in_flight=len(self._relays),
            lost=self._lost,
            turned_away=self._turned_away,
            refused=self._refused,
        )

    def tick(self, is_valid: Callable[[Authentication], bool]) -> None:
        for relay in [*self._relays]:
            if relay.is_stream and (self._drained is not None or not is_valid(relay.arrival.authentication)):
                relay.end_stream()
        now = asyncio.get_running_loop().time()
        for relay in [each for each in self._relays if each.is_dead(now)]:
            log.warning("a connection to the replica `%s` is dead", relay.owner)
            relay.fail()
        owners = {each.owner for each in self._relays if each.is_silent_since(now - _SILENT_FOR_S)}
        for owner in owners - self._asked:
            self._asked.add(owner)
            self._work.create(self._ask(owner), name="ask whether a replica is alive")

    async def _ask(self, owner: str) -> None:
        """End the requests to a replica that does not answer a question either: it hangs, or cannot be reached."""
        try:
            if await self.peers.is_alive(owner):
                for relay in self._relays_to(owner):
                    relay.hear()
                return
            self.peers.forget(owner)
            for relay in self._relays_to(owner):
                relay.fail()
        finally:
            self._asked.discard(owner)

    def _relays_to(self, owner: str) -> list[Relay]:
        return [each for each in self._relays if each.owner == owner]

    async def drain(self, within_s: float) -> None:
        self._drained = asyncio.Event()
        for relay in [*self._relays]:
            if relay.is_stream:
                relay.end_stream()
        if not self._relays:
            return
        try:
            async with asyncio.timeout(within_s):
                await self._drained.wait()
        except TimeoutError:
            for relay in [*self._relays]:
                relay.fail()

    async def open(self) -> None:
        self._work.create(self.look(), name="look for other replicas")

    async def look(self) -> None:
        """Ask all addresses for the names of the replicas there."""
        await self.peers.look()

    async def close(self) -> None:
        """End everything that is passed on."""
        for relay in [*self._relays]:
            relay.fail()
        self._work.cancel_all()
        await self._work.wait()
        await self.peers.close()

    # --- RelayOwner ------------------------------------------------------------------------------------

    def sign(self, arrival: Arrival, passage: Passage) -> bytes | None:
        now = self._clock()
        if passage.signed_at <= now < passage.signed_at + _SIGN_EVERY_S:
            return None
        passage.signed_at = now
        head, authentication = arrival.head, arrival.authentication
        return self._signer.sign(head, passage.owner, authentication, address=arrival.address, port=arrival.port)

    def begin_search(self, relay: Relay) -> None:
        self._work.create(relay.search(), name="look for the replica of a session")

    def begin_recovery(self, relay: Relay) -> None:
        self._work.create(relay.recover(), name="go on with the session of another replica")

    def end(self, relay: Relay, end: RelayEnd) -> None:
        self._relays.discard(relay)
        self._lost += end is RelayEnd.LOST
        self._turned_away += end is RelayEnd.TURNED_AWAY
        if not self._relays and self._drained is not None:
            self._drained.set()

    # --- peers -----------------------------------------------------------------------------------------

    def _ask_name(self, endpoint: Endpoint) -> bytes:
        """Return the head of the request that asks an address for its name."""
        return self._question(endpoint, _INTRODUCTION)

    def _question(self, endpoint: Endpoint, target: bytes) -> bytes:
        """Return the head of a question to the replica at an address."""
        field = self._signer.sign(RequestHead("GET", target, {}), _ANYONE, LOCAL_USER)
        return b"GET %s%s HTTP/1.1\r\nhost: %s\r\n%s: %s\r\n\r\n" % (
            PEER_PATH, target, str(endpoint).encode() or b"replica", FIELD, field,
        )  # fmt: skip

    async def ask_facts(self) -> dict[str, ReplicaFacts | str]:
        """Return what each address says of how it is run, or why it says nothing."""
        return await self.peers.ask_facts(lambda endpoint: self._question(endpoint, _DEPLOYMENT))

    async def find_opened_apps(self, key: str) -> list[str]:
        target = _OPENED_APPS + key.encode()
        answers = await self.peers.ask_others(
            self.settings.replica, lambda endpoint: self._question(endpoint, target)
        )
        return [*dict.fromkeys(group for each in answers for group in _read_names(each))]

    def _warn(self, why: str) -> None:
        if self._warnings.take(None, asyncio.get_running_loop().time()):
            log.warning("a request to %s is refused: %s", PEER_PATH.decode(), why)


def _read_names(answer: bytes) -> list[str]:
    try:
        return decode_as(answer, list[str])
    except (UnicodeDecodeError, MsgspecError):
        return []
