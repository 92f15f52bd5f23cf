"""The core of the HTTP face: finds the session of each request and the answer to it, without any I/O.

Streamable HTTP of MCP 2025-03-26, 2025-06-18 and 2025-11-25; the older transport of 2024-11-05 is in `old_transport`,
and requests without a session, from 2026-07-28 on, are in `modern`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.client import Transport
from dynamic_mcp.face.http import status
from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.authenticator import (
    Authenticator,
    AuthRejection,
    LocalAuthenticator,
    OpenPage,
    Outcome,
    Page,
)
from dynamic_mcp.face.http.cluster import PEER_PATH, PeerAuthentication, PeerRequest, ReplicaSet
from dynamic_mcp.face.http.deferred import DeferredRequest, PageReceiver
from dynamic_mcp.face.http.denials import DenialReporter
from dynamic_mcp.face.http.exchange import BodyReceiver, Exchange, RequestHead, Response
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.guard import BrowserGuard
from dynamic_mcp.face.http.header_checks import VERSION
from dynamic_mcp.face.http.headers import accepts_events, declared_bytes, is_json, parse_event_id, refuse_post
from dynamic_mcp.face.http.modern import Dispatcher, ModernRequests, is_legacy, is_modern, refuse_version
from dynamic_mcp.face.http.old_transport import OldPost
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.paths import Paths, Route, ServedEndpoint
from dynamic_mcp.face.http.post import Post
from dynamic_mcp.face.http.replay import KEEP_FOR_S, ReplayBudget
from dynamic_mcp.face.http.responses import (
    RETRY_AFTER,
    SESSION_NOT_FOUND,
    Headers,
    refusal,
    too_long,
    with_headers,
)
from dynamic_mcp.face.http.session import ENDED, HttpSession
from dynamic_mcp.face.http.stream import OldStream
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import ClientOrigin
from dynamic_mcp.session.modern import ModernDispatcher
from dynamic_mcp.session.shares import Shares
from dynamic_mcp.system.rate_limiter import RateLimiter
from dynamic_mcp.system.task_set import TaskSet

if TYPE_CHECKING:  # loaded with a public URL
    from dynamic_mcp.face.http.server_card import ServerCards
    from dynamic_mcp.face.http.session_moves import SessionMoves
    from dynamic_mcp.system.shared_store import SharedStore

log = logging.getLogger(__name__)

# No connection of a stream lasts longer than this.
_STREAM_FOR_S = 600.0
_MAX_INITIALIZE_BYTES = 1 << 20
_WARN_EVERY_S = 60.0
# At the limit of sessions, one that was not used for this long is ended to make room for a new one.
_ABANDONED_AFTER_S = 300.0

_MCP = ServedEndpoint.MCP  # reading a member from its class takes ten times as long
_METHODS: dict[ServedEndpoint, bytes] = {
    _MCP: b"GET, POST, DELETE, OPTIONS",
    ServedEndpoint.EVENTS: b"GET, OPTIONS",
    ServedEndpoint.MESSAGES: b"POST, OPTIONS",
    ServedEndpoint.READY: b"GET, HEAD, OPTIONS",
}
_MODERN_METHODS = b"POST, OPTIONS"
# The replica that passes a request on has looked through the proxies before it.
_DIRECT = Forwarding()


class _Checked(Struct, frozen=True):
    """The result of checking the head of a POST to an MCP path; valid while the options are the same."""

    guard: BrowserGuard
    route: Route
    cors: Headers
    is_legacy: bool


def _make_cards(options: HttpOptions) -> ServerCards | None:
    if options.public_url is None:
        return None
    from dynamic_mcp.face.http.server_card import ServerCards

    return ServerCards(
        options.public_url, path=options.path, root_path=options.root_path, needs_token=options.needs_token
    )


def _not_found() -> Response:
    return refusal(404, "not found")


class HttpFace:
    """Serves a proxy over HTTP. `tick` must be called about once a second."""

    def __init__(
        self,
        proxy: Proxy,
        options: HttpOptions,
        *,
        authenticator: Authenticator | None = None,
        now: Callable[[], float] | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self.is_draining = False
        self.cluster: ReplicaSet | None = None
        """The other replicas; None without any."""
        self.moves: SessionMoves | None = None
        """The sessions that others may go on with; None where replicas share nothing."""
        self._proxy = proxy
        self._options = options
        self._authenticator = authenticator or LocalAuthenticator()
        self._serve_peer = self._begin_for_peer
        self._now = now or asyncio.get_running_loop().time
        self._guard = BrowserGuard(options)
        self._forwarding = Forwarding(options.forwarders)
        self._paths = Paths(options.path, options.root_path, options.profile)
        self._cards = _make_cards(options)
        self._sessions: dict[bytes, HttpSession] = {}
        self._warnings = RateLimiter[None](1, _WARN_EVERY_S)  # of the limit of sessions
        self._shares = Shares()
        self._pages = TaskSet(log)
        self._budget = ReplayBudget()
        self._denials = DenialReporter(proxy.note, self._now)
        self._process = secrets.token_hex(8)
        dispatcher = ModernDispatcher(proxy, now=self._now) if dispatcher is None else dispatcher
        self._modern = ModernRequests(dispatcher, proxy, options, self._now, self.lacks_scope)

    def __repr__(self) -> str:
        load = f"{len(self._sessions)} sessions, {self._modern.in_flight} modern requests"
        return f"<HttpFace {load}{', draining' if self.is_draining else ''}>"

    def configure(self, options: HttpOptions, authenticator: Authenticator | None = None) -> None:
        """Set other options; existing sessions continue, for clients that still have access to them."""
        self._options = options
        self._authenticator = authenticator or LocalAuthenticator()
        self._guard = BrowserGuard(options)
        self._forwarding = Forwarding(options.forwarders)
        self._paths = Paths(options.path, options.root_path, options.profile)
        self._cards = _make_cards(options)
        self._modern.configure(options)

    def see_tokens_of_peers(self, *, is_wanted: bool) -> None:
        """Have the authenticator see requests that replicas pass on, too: a server exchanges the tokens in them."""
        self._serve_peer = self._authenticate_for_peer if is_wanted else self._begin_for_peer

    # --- Handler ---------------------------------------------------------------------------------------

    def begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver | None:
        return self._respond(self._begin(head, exchange), head, exchange)

    def _respond(self, answer: BodyReceiver | Response, head: RequestHead, exchange: Exchange) -> BodyReceiver | None:
        if not isinstance(answer, Response):
            return answer
        exchange.respond(with_headers(answer, self._guard.cors_headers(head.headers)))
        return None

    def _begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver | Response:
        checked = head.notes.checked if head.notes is not None else None
        if isinstance(checked, _Checked) and checked.guard is self._guard:
            return self._authenticate(head, exchange, checked.route, checked)
        path = head.target.partition(b"?")[0]
        route = self._paths.find(path, head.root_path)
        if route is not None and route.place is ServedEndpoint.HEALTH:
            return status.health(head.method)
        if route is None and self.cluster is not None and path.startswith(PEER_PATH + b"/"):
            return self._serve_peer(self.cluster.receive(head), exchange)
        if route is None or (self._cards is not None and self._cards.is_wanted(head, path)):
            return self._begin_page(head, exchange, path)
        refused = self._guard.check(head)
        if refused is not None:
            return self._record_refusal(head, refused)
        if head.method == "OPTIONS":
            return self._guard.preflight(head, _METHODS[route.place])
        if route.place is ServedEndpoint.READY and head.method in ("GET", "HEAD"):
            return self._report_ready()
        return self._authenticate(head, exchange, route, None)

    def _authenticate(
        self, head: RequestHead, exchange: Exchange, route: Route, checked: _Checked | None
    ) -> BodyReceiver | Response:
        outcome = self._authenticator.authenticate(head)
        if not isinstance(outcome, Future):
            return self._go_on(outcome, head, exchange, route, checked)

        def go_on(outcome: Outcome) -> BodyReceiver | None:
            return self._respond(self._go_on(outcome, head, exchange, route, checked), head, exchange)

        return DeferredRequest(exchange, outcome, go_on, self._options.max_body_bytes)

    def _go_on(
        self,
        outcome: Outcome,
        head: RequestHead,
        exchange: Exchange,
        route: Route,
        checked: _Checked | None,
        forwarding: Forwarding | None = None,
    ) -> BodyReceiver | Response:
        """Serve a request with a known sender, or send its refusal."""
        if isinstance(outcome, Response):
            return self._record_refusal(head, outcome)
        arrival = Arrival(head, exchange, route, outcome, forwarding or self._forwarding)
        if checked is None:
            return self.serve(arrival)
        if not self._is_accessible(head, route, outcome):
            return _not_found()
        return self._begin_post(arrival, checked)

    def _begin_for_peer(self, request: PeerRequest | Response, exchange: Exchange) -> BodyReceiver | Response:
        """Serve a request that another replica has passed on, after its own checks of the client."""
        if isinstance(request, Response):
            if request.status == 200:
                exchange.admit_peer()
            return request
        exchange.admit_peer()
        head = request.head
        checked = head.notes.checked if head.notes is not None else None
        if isinstance(checked, _Checked) and checked.guard is self._guard:
            return self._go_on(request.authentication, head, exchange, checked.route, checked, _DIRECT)
        path = head.target.partition(b"?")[0]
        route = self._paths.find(path, head.root_path)
        if route is not None:
            return self._go_on(request.authentication, head, exchange, route, None, _DIRECT)
        page = self._find_page(head, path)
        return _not_found() if page is None else self._receive_page(head, exchange, page)

    def _authenticate_for_peer(self, request: PeerRequest | Response, exchange: Exchange) -> BodyReceiver | Response:
        """Let the authenticator keep the client's own token, whatever it is worth, and then serve the request.

        The signature of a peer is not about this header, so its token is accepted here as that of its own subject.
        """
        if isinstance(request, Response):
            return self._begin_for_peer(request, exchange)
        outcome = self._authenticator.authenticate(request.head)
        if not isinstance(outcome, Future):
            return self._begin_for_peer(request, exchange)

        def go_on(_: Outcome) -> BodyReceiver | None:
            return self._respond(self._begin_for_peer(request, exchange), request.head, exchange)

        return DeferredRequest(exchange, outcome, go_on, self._options.max_body_bytes)

    def _begin_page(self, head: RequestHead, exchange: Exchange, path: bytes) -> BodyReceiver | Response:
        page = self._find_page(head, path)
        is_open = isinstance(page, OpenPage)
        refused = self._guard.check_host(head) if is_open else self._guard.check(head, may_navigate=True)
        if refused is not None:
            return self._record_refusal(head, refused)
        if page is None:
            return _not_found()
        receiver = self._receive_page(head, exchange, page)
        return receiver if self.cluster is None else self.cluster.watch_page(head, exchange, receiver)

    def _find_page(self, head: RequestHead, path: bytes) -> Page | None:
        return self._find_page_at(head.method, path) or self._find_page_at(
            head.method, head.root_path.encode() + path
        )

    def _find_page_at(self, method: str, path: bytes) -> Page | None:
        card = None if self._cards is None else self._cards.find_page(method, path)
        return card or self._authenticator.find_page(method, path)

    def _receive_page(self, head: RequestHead, exchange: Exchange, page: Page) -> BodyReceiver:
        cors = () if isinstance(page, OpenPage) else self._guard.cors_headers(head.headers)
        return PageReceiver(head, exchange, page, cors, self._pages, partial(self._record_refusal, head))

    def _record_refusal(self, head: RequestHead, response: Response) -> Response:
        if isinstance(response, AuthRejection) and self._proxy.observers is not None:
            self._denials.add(head, response, self._forwarding)
        return response

    def _report_ready(self) -> Response:
        modern = self._modern
        load: status.Load | None = None
        if self._authenticator.is_open:
            load = status.Load(len(self._sessions), modern.clients, modern.in_flight)
        return status.ready(self._proxy, load, is_draining=self.is_draining)

    def serve(self, arrival: Arrival) -> BodyReceiver | Response:
        head, route = arrival.head, arrival.route
        if not self._is_accessible(head, route, arrival.authentication):
            return _not_found()
        method = head.method
        if route.place is ServedEndpoint.MCP and method != "POST" and is_modern(head):
            why = f"MCP {MODERN.name} only uses POST: no sessions, and streams are answers to `subscriptions/listen`"
            return refusal(405, why, ((b"allow", _MODERN_METHODS),))
        match route.place:
            case ServedEndpoint.MCP if method == "POST":
                return self._begin_first_post(arrival)
            case ServedEndpoint.MCP if method == "GET":
                return self._listen(arrival)
            case ServedEndpoint.MCP if method == "DELETE":
                return self._delete(arrival)
            case ServedEndpoint.EVENTS if method == "GET":
                return self._open_old_stream(arrival)
            case ServedEndpoint.MESSAGES if method == "POST":
                return self._begin_old_post(arrival)
        allowed = (b"allow", _METHODS[route.place])
        return refusal(405, f"the method `{method[:50]}` is not allowed for this path", (allowed,))

    def _is_accessible(self, head: RequestHead, route: Route, authentication: Authentication) -> bool:
        """Return whether a path may be answered. A session about one group outlives the group."""
        if b"mcp-session-id" in head.headers and route.place is _MCP and not is_modern(head):
            return True
        is_default = route.profile == self._options.profile
        return self._proxy.has_place(authentication, route.only, route.profile, may_be_empty=is_default)

    # --- streamable HTTP -------------------------------------------------------------------------------

    def _begin_first_post(self, arrival: Arrival) -> BodyReceiver | Response:
        """Check the head of a POST, and store the result for later requests with the same head."""
        head = arrival.head
        refused = refuse_post(head.headers)
        if refused is not None:
            return refused
        cors = self._guard.cors_headers(head.headers)
        checked = _Checked(self._guard, arrival.route, cors, is_legacy(head))
        if head.notes is not None:
            head.notes.checked = checked
        return self._begin_post(arrival, checked)

    def _begin_post(self, arrival: Arrival, checked: _Checked) -> BodyReceiver | Response:
        headers = arrival.head.headers
        if declared_bytes(headers) > self._options.max_body_bytes:
            return too_long(self._options.max_body_bytes)
        if not checked.is_legacy:
            receiver = self._modern.receive(arrival, cors=checked.cors)
            if self.cluster is None or isinstance(arrival.authentication, PeerAuthentication):
                return receiver
            return self.cluster.watch(arrival, receiver, checked.cors)
        session: HttpSession | None = None
        if b"mcp-session-id" in headers:
            found = self._find(arrival)
            if not isinstance(found, HttpSession):
                return found
            session = found
        return Post(self, arrival, session=session, cors=checked.cors, max_body_bytes=self._most_bytes(session))

    def _most_bytes(self, session: HttpSession | None) -> int:
        """Return the size limit of a message; one that starts a session is short."""
        most = self._options.max_body_bytes
        return most if session is not None else min(most, _MAX_INITIALIZE_BYTES)

    def _listen(self, arrival: Arrival) -> BodyReceiver | Response:
        head = arrival.head
        if not accepts_events(head.headers):
            return refusal(406, "`Accept` must name `text/event-stream`")
        session = self._find(arrival)
        if not isinstance(session, HttpSession):
            return session
        cors = self._guard.cors_headers(head.headers)
        last = head.headers.get(b"last-event-id")
        if not last:
            return session.listen(arrival, cors)
        id = parse_event_id(last)
        stream = session.resume(*id, arrival, cors) if id is not None else None
        if stream is None:
            return refusal(400, "the events after this `Last-Event-ID` are no longer stored")
        return stream

    def _delete(self, arrival: Arrival) -> BodyReceiver | Response:
        session = self._find(arrival)
        if not isinstance(session, HttpSession):
            return session
        self.end(session)
        return Response(204)

    def _find(self, arrival: Arrival) -> HttpSession | BodyReceiver | Response:
        """Return the session of a request, or what passes the request on to another replica.

        The session of another user looks as if it did not exist.
        """
        head = arrival.head
        id = head.headers.get(b"mcp-session-id")
        if id is None:
            return refusal(400, "missing header `Mcp-Session-Id`; start a session with `initialize`")
        session = self._sessions.get(id)
        if session is None:
            return self._find_elsewhere(arrival, id) or SESSION_NOT_FOUND
        if session.is_old or not session.belongs_to(arrival):
            return SESSION_NOT_FOUND
        handed_over = self.moves.hand_over(session, arrival) if self.is_draining and self.moves is not None else None
        if handed_over is not None:
            return handed_over
        return session if is_legacy(head) else refuse_version(head.headers[VERSION])

    def _find_elsewhere(self, arrival: Arrival, id: bytes) -> BodyReceiver | None:
        """Return what takes a request of a session that this replica does not have, but another one may."""
        moves = self.moves
        if moves is not None and (moved := moves.find_moved(arrival, id)) is not None:
            return moved
        forwarded = self._forward(arrival, id)
        return forwarded if forwarded is not None or moves is None else moves.recover_later(arrival, id)

    def _forward(self, arrival: Arrival, id: bytes, *, is_old: bool = False) -> BodyReceiver | None:
        """Return what passes a request on to the replica that has its session, unless a replica has passed it on."""
        if self.cluster is None or isinstance(arrival.authentication, PeerAuthentication):
            return None
        return self.cluster.forward(arrival, id, self.cors_of(arrival), is_old=is_old)

    # --- the transport of 2024-11-05 -------------------------------------------------------------------

    def _open_old_stream(self, arrival: Arrival) -> BodyReceiver | Response:
        head = arrival.head
        if not accepts_events(head.headers):
            return refusal(406, "`Accept` must name `text/event-stream`")
        session = self._open_session(arrival, is_old=True)
        if isinstance(session, Response):
            return session
        stream = OldStream(session, on_end=partial(self.end, session))
        root = head.root_path or self._options.root_path
        stream.open(arrival, self._guard.cors_headers(head.headers), self._paths.messages(root, session.id))
        session.adopt(stream)
        return stream

    def _begin_old_post(self, arrival: Arrival) -> BodyReceiver | Response:
        head = arrival.head
        if not is_json(head.headers):
            return refusal(415, "`Content-Type` must be `application/json`")
        if declared_bytes(head.headers) > self._options.max_body_bytes:
            return too_long(self._options.max_body_bytes)
        _, _, query = head.target.partition(b"?")
        id = dict(part.partition(b"=")[::2] for part in query.split(b"&")).get(b"session_id", b"")
        session = self._sessions.get(id)
        if session is None and (forwarded := self._forward(arrival, id, is_old=True)) is not None:
            return forwarded
        if session is None or not session.is_old or session.principal != arrival.authentication.principal:
            return refusal(404, "session not found; open a stream at `/sse`")
        session.session.authentication = arrival.authentication
        session.session.address = arrival.address  # its messages have no channel with an address
        cors = self._guard.cors_headers(head.headers)
        return OldPost(self, session, arrival.exchange, cors, self._options.max_body_bytes)

    # --- sessions --------------------------------------------------------------------------------------

    def refuse_requests(self, session: HttpSession, requests: int) -> Response | None:
        """Return the refusal of so many requests in a session; None if they are accepted.

        Its answers and cancellations are always accepted.
        """
        if self.is_draining:  # another replica begins a new session
            return ENDED if self.cluster is not None else refusal(503, "the server is shutting down", RETRY_AFTER)
        most = self._options.max_in_flight
        if requests > most:
            return refusal(413, f"a batch may have at most {most} requests")
        if session.session.requests_in_flight + requests > most:
            return refusal(503, f"too many requests: {most} of this session are in flight", RETRY_AFTER)
        return None

    def begin_session(self, post: Post, *, is_initialize: bool) -> HttpSession | Response:
        """Start a session for its first message, or return a refusal."""
        if not is_initialize:
            return refusal(400, "missing header `Mcp-Session-Id`; start a session with `initialize`")
        return self._open_session(post.arrival)

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        return self._authenticator.lacks_scope(scopes)

    def _open_session(self, arrival: Arrival, *, is_old: bool = False) -> HttpSession | Response:
        if self.is_draining:
            return refusal(503, "the server is shutting down", RETRY_AFTER)
        refused = self.make_room(arrival.authentication)
        if refused is not None:
            return refused
        cluster = self.cluster
        id = secrets.token_urlsafe(24) if cluster is None else cluster.make_session_id(arrival, is_old=is_old)
        session = self.add_session(id, arrival, is_old=is_old)
        log.debug("started a session over HTTP for %s", arrival.address or "a Unix socket")
        return session

    def add_session(self, id: str, arrival: Arrival, *, is_old: bool = False, moves: int = 0) -> HttpSession:
        transport: Transport = "sse" if is_old else "http"
        route = arrival.route
        origin = ClientOrigin(arrival.authentication, transport, only=route.only, profile=route.profile)
        session = HttpSession(
            id,
            self._proxy,
            origin,
            address=arrival.address,
            route=route,
            now=self._now,
            budget=self._budget,
            is_old=is_old,
            is_movable=self.moves is not None,
            moves=moves,
        )
        self._sessions[id.encode()] = session
        self._shares.add(session)
        return session

    def make_room(self, authentication: Authentication) -> Response | None:
        """End a session if there is no room for another one; return a refusal if that is not possible."""
        most, sessions, shares = self._options.max_sessions, self._sessions.values(), self._shares
        is_used_up = shares.is_used_up(authentication, most)
        if len(sessions) < most and not is_used_up:
            return None
        abandoned = self._now() - _ABANDONED_AFTER_S
        ending = shares.choose_to_end(sessions, authentication, most, unused_since=abandoned)
        if ending is None:
            why = "your limit of sessions is reached" if is_used_up else f"the limit of {most} sessions is reached"
            self._warn_of_limit(authentication.principal.subject if is_used_up else "", most)
            return refusal(503, why, RETRY_AFTER)
        self.end(ending)
        return None

    def _warn_of_limit(self, subject: str, most: int) -> None:
        if not self._warnings.take(None, self._now()):
            return
        if subject:
            log.warning("`%s` has half of the %d sessions that there may be; refusing more for now", subject, most)
        else:
            log.warning("the limit of %d sessions is reached; refusing more for now", most)

    def end(self, session: HttpSession) -> None:
        if self._sessions.pop(session.id.encode(), None) is not None:
            if self.moves is not None:
                self.moves.forget(session)
            self._shares.remove(session)
            session.close()

    # --- sessions that replicas go on with -------------------------------------------------------------

    def share(self, store: SharedStore | None) -> None:
        """Let other replicas go on with sessions of this one by what this store has of them."""
        if self.moves is not None and self.moves.store is store:
            return
        if self.moves is not None:
            self.moves.end()
        self.moves = None
        if store is not None and self.cluster is not None:
            from dynamic_mcp.face.http.session_moves import SessionMoves

            kept_for_s = 1.5 * self._options.session_timeout_s
            self.moves = SessionMoves(
                self, self._proxy, self.cluster, store, process=self._process, kept_for_s=kept_for_s
            )
            for session in self._sessions.values():
                self.moves.record(session)

    def record(self, session: HttpSession) -> None:
        if self.moves is not None:
            self.moves.record(session)

    def find_session(self, id: bytes) -> HttpSession | None:
        return self._sessions.get(id)

    @property
    def max_body_bytes(self) -> int:
        return self._options.max_body_bytes

    def cors_of(self, arrival: Arrival) -> Headers:
        return self._guard.cors_headers(arrival.head.headers)

    async def recover(self, arrival: Arrival) -> BodyReceiver | Response | None:
        """Return what takes a request of a session whose replica has ended, or the refusal; None if it is lost."""
        if self.moves is None:
            return None
        return self.moves.pass_over(arrival) if self.is_draining else await self.moves.recover(arrival)

    # --- time, and the end -----------------------------------------------------------------------------

    def tick(self) -> None:
        """Turn slow answers into streams, keep streams alive, and end expired sessions."""
        now = self._now()
        is_valid = self._is_valid
        self._modern.tick(is_valid)
        if self.cluster is not None:
            self.cluster.tick(is_valid)
        self._denials.tick()
        moves = self.moves
        for session in [*self._sessions.values()]:
            session.end_expired(is_valid)
            for request in [*session.in_flight]:
                request.check(now)
            for stream in [*session.streams.values()]:
                if stream.is_connected and session.may_poll and now - stream.connected_at > _STREAM_FOR_S:
                    stream.pause()
                else:
                    stream.keep_alive(now)
            session.forget_older(now - KEEP_FOR_S)
            if moves is not None:
                moves.renew(session)
            if now - session.used_at > self._options.session_timeout_s and session.is_idle:
                self.end(session)

    def _is_valid(self, authentication: Authentication) -> bool:
        return isinstance(authentication, PeerAuthentication) or self._authenticator.is_valid(authentication)

    async def drain(self, within_s: float) -> None:
        """Accept no new requests, let those in flight finish within a bound, and answer the rest with an error.

        Then all streams end, and their clients reconnect.
        """
        self.is_draining = True
        if self.moves is not None:
            await self.moves.leave()
        sessions = (each.session.drain(within_s) for each in [*self._sessions.values()])
        forwarded = () if self.cluster is None else (self.cluster.drain(within_s),)
        await asyncio.gather(self._modern.drain(within_s), *sessions, *forwarded)
        for session in [*self._sessions.values()]:
            for stream in [*session.streams.values()]:
                stream.pause()

    def close(self) -> None:
        """End every session and every request at once."""
        self._modern.close()
        self._denials.close()
        if self.moves is not None:
            self.moves.end()
            self.moves = None
        self._pages.cancel_all()
        for session in [*self._sessions.values()]:
            self.end(session)
