"""The core of the HTTP face: which session each request belongs to and what it is answered, without any I/O.

Streamable HTTP of MCP 2025-03-26, 2025-06-18 and 2025-11-25; the older transport of 2024-11-05 is in `old_transport`,
and what has no session, from 2026-07-28 on, in `modern`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from asyncio import Future
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from dynamic_mcp.client import Transport
from dynamic_mcp.face.http import status
from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.authenticator import Authenticator, AuthRejection, LocalAuthenticator, OpenPage, Outcome
from dynamic_mcp.face.http.deferred import DeferredRequest, PageReceiver
from dynamic_mcp.face.http.denials import Denials
from dynamic_mcp.face.http.exchange import Exchange, Receiver, RequestHead, Response
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.guard import Guard
from dynamic_mcp.face.http.header_checks import VERSION
from dynamic_mcp.face.http.headers import accepts_events, declared_bytes, is_json, parse_event_id
from dynamic_mcp.face.http.modern import Dispatcher, ModernRequests, is_legacy, is_modern, refuse_version
from dynamic_mcp.face.http.old_transport import OldPost
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.paths import Paths, Place, Route
from dynamic_mcp.face.http.post import Post
from dynamic_mcp.face.http.post_checks import refuse_post
from dynamic_mcp.face.http.replay import KEEP_S, ReplayBudget
from dynamic_mcp.face.http.responses import RETRY_AFTER, Headers, refusal, too_long, with_headers
from dynamic_mcp.face.http.session import HttpSession
from dynamic_mcp.face.http.stream import OldStream
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp.revisions import MODERN
from dynamic_mcp.proxy.proxy import Proxy
from dynamic_mcp.session.client_connection import Origin
from dynamic_mcp.session.modern import ModernDispatcher
from dynamic_mcp.session.shares import Shares
from dynamic_mcp.system.task_set import TaskSet

log = logging.getLogger(__name__)

# No connection of a stream lasts longer than this.
_STREAM_FOR_S = 600.0
_MAX_HELLO_BYTES = 1 << 20
# Where there are as many sessions as there may be, one that nobody has used for this long makes room for a new one.
_ABANDONED_AFTER_S = 300.0

_MCP = Place.MCP  # reading a member from its class takes ten times as long
_METHODS: dict[Place, bytes] = {
    _MCP: b"GET, POST, DELETE, OPTIONS",
    Place.EVENTS: b"GET, OPTIONS",
    Place.MESSAGES: b"POST, OPTIONS",
    Place.READY: b"GET, HEAD, OPTIONS",
}
_MODERN_METHODS = b"POST, OPTIONS"


class _Checked(Struct, frozen=True):
    """What the head of a POST to the path of MCP says that is not refused, as long as the options are the same."""

    guard: Guard
    route: Route
    cors: Headers
    is_legacy: bool


def _nothing_there() -> Response:
    return refusal(404, "there is nothing at this path")


class HttpFace:
    """Serves a proxy over HTTP. `tick` is to be called about once a second."""

    def __init__(
        self,
        proxy: Proxy,
        options: HttpOptions,
        *,
        authenticator: Authenticator | None = None,
        now: Callable[[], float] | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self.is_finishing = False
        self._proxy = proxy
        self._options = options
        self._authenticator = authenticator or LocalAuthenticator()
        self._now = now or asyncio.get_running_loop().time
        self._guard = Guard(options)
        self._forwarding = Forwarding(options.forwarders)
        self._paths = Paths(options.path, options.root_path, options.profile)
        self._sessions: dict[bytes, HttpSession] = {}
        self._shares = Shares()
        self._pages = TaskSet(log)
        self._budget = ReplayBudget()
        self._denials = Denials(proxy.note, self._now)
        answering = ModernDispatcher(proxy, now=self._now) if dispatcher is None else dispatcher
        self._modern = ModernRequests(answering, proxy, options, self._now, self.lacks_scope)

    def __repr__(self) -> str:
        load = f"{len(self._sessions)} sessions, {self._modern.in_flight} modern requests"
        return f"<HttpFace {load}{', finishing' if self.is_finishing else ''}>"

    def configure(self, options: HttpOptions, authenticator: Authenticator | None = None) -> None:
        """Serve with other options from now on; the sessions that there are go on, for those who may have them."""
        self._options = options
        self._authenticator = authenticator or LocalAuthenticator()
        self._guard = Guard(options)
        self._forwarding = Forwarding(options.forwarders)
        self._paths = Paths(options.path, options.root_path, options.profile)
        self._modern.configure(options)

    # --- Handler ---------------------------------------------------------------------------------------

    def begin(self, head: RequestHead, exchange: Exchange) -> Receiver | None:
        """Take the head of a request. None: it was answered, and its body is of no interest."""
        return self._respond(self._begin(head, exchange), head, exchange)

    def _respond(self, answer: Receiver | Response, head: RequestHead, exchange: Exchange) -> Receiver | None:
        if not isinstance(answer, Response):
            return answer
        exchange.respond(with_headers(answer, self._guard.cors_headers(head.headers)))
        return None

    def _begin(self, head: RequestHead, exchange: Exchange) -> Receiver | Response:
        checked = head.notes.checked if head.notes is not None else None
        if isinstance(checked, _Checked) and checked.guard is self._guard:
            return self._authenticate(head, exchange, checked.route, checked)
        path = head.target.partition(b"?")[0]
        route = self._paths.find(path, head.root_path)
        if route is not None and route.place is Place.HEALTH:
            return status.health(head.method)
        if route is None:
            return self._begin_page(head, exchange, path)
        refused = self._guard.check(head)
        if refused is not None:
            return self._note_refusal(head, refused)
        if head.method == "OPTIONS":
            return self._guard.preflight(head, _METHODS[route.place])
        if route.place is Place.READY and head.method in ("GET", "HEAD"):
            return self._tell_load()
        return self._authenticate(head, exchange, route, None)

    def _authenticate(
        self, head: RequestHead, exchange: Exchange, route: Route, checked: _Checked | None
    ) -> Receiver | Response:
        outcome = self._authenticator.authenticate(head)
        if not isinstance(outcome, Future):
            return self._go_on(outcome, head, exchange, route, checked)

        def go_on(outcome: Outcome) -> Receiver | None:
            return self._respond(self._go_on(outcome, head, exchange, route, checked), head, exchange)

        return DeferredRequest(exchange, outcome, go_on, self._options.max_body_bytes)

    def _go_on(
        self, outcome: Outcome, head: RequestHead, exchange: Exchange, route: Route, checked: _Checked | None
    ) -> Receiver | Response:
        """Serve a request whose sender is known; one that is refused is answered with that."""
        if isinstance(outcome, Response):
            return self._note_refusal(head, outcome)
        arrival = Arrival(head, exchange, route, outcome, self._forwarding)
        if checked is None:
            return self._serve(arrival)
        if not self._may_be_there(head, route, outcome):
            return _nothing_there()
        return self._begin_post(arrival, checked)

    def _begin_page(self, head: RequestHead, exchange: Exchange, path: bytes) -> Receiver | Response:
        find = self._authenticator.find_page
        page = find(head.method, path) or find(head.method, head.root_path.encode() + path)
        is_for_any_origin = isinstance(page, OpenPage)
        refused = self._guard.check_host(head) if is_for_any_origin else self._guard.check(head, may_navigate=True)
        if refused is not None:
            return self._note_refusal(head, refused)
        if page is None:
            return _nothing_there()
        cors = () if is_for_any_origin else self._guard.cors_headers(head.headers)
        return PageReceiver(head, exchange, page, cors, self._pages, partial(self._note_refusal, head))

    def _note_refusal(self, head: RequestHead, response: Response) -> Response:
        if isinstance(response, AuthRejection) and self._proxy.observers is not None:
            self._denials.add(head, response, self._forwarding)
        return response

    def _tell_load(self) -> Response:
        modern = self._modern
        load: status.Load | None = None
        if self._authenticator.is_open:
            load = status.Load(len(self._sessions), modern.clients, modern.in_flight)
        return status.ready(self._proxy, load, is_finishing=self.is_finishing)

    def _serve(self, arrival: Arrival) -> Receiver | Response:
        """Serve a request of a known client."""
        head, route = arrival.head, arrival.route
        if not self._may_be_there(head, route, arrival.authentication):
            return _nothing_there()
        method = head.method
        if route.place is Place.MCP and method != "POST" and is_modern(head):
            why = f"MCP {MODERN.name} has POST only: no sessions, and streams are answers to `subscriptions/listen`"
            return refusal(405, why, ((b"allow", _MODERN_METHODS),))
        match route.place:
            case Place.MCP if method == "POST":
                return self._begin_first_post(arrival)
            case Place.MCP if method == "GET":
                return self._listen(arrival)
            case Place.MCP if method == "DELETE":
                return self._delete(arrival)
            case Place.EVENTS if method == "GET":
                return self._open_old(arrival)
            case Place.MESSAGES if method == "POST":
                return self._begin_old_post(arrival)
        allowed = (b"allow", _METHODS[route.place])
        return refusal(405, f"the method `{method[:50]}` is not for this path", (allowed,))

    def _may_be_there(self, head: RequestHead, route: Route, authentication: Authentication) -> bool:
        """Tell whether a path may be answered; a session about one group outlives the group, which may come back."""
        if b"mcp-session-id" in head.headers and route.place is _MCP and not is_modern(head):
            return True
        is_everybodys = route.profile == self._options.profile  # the one that the server serves at its own path
        return self._proxy.has_place(authentication, route.only, route.profile, may_be_empty=is_everybodys)

    # --- streamable HTTP -------------------------------------------------------------------------------

    def _begin_first_post(self, arrival: Arrival) -> Receiver | Response:
        """Check what the head of a POST says, and note it for those that come with the same head."""
        head = arrival.head
        refused = refuse_post(head.headers)
        if refused is not None:
            return refused
        cors = self._guard.cors_headers(head.headers)
        checked = _Checked(self._guard, arrival.route, cors, is_legacy(head))
        if head.notes is not None:
            head.notes.checked = checked
        return self._begin_post(arrival, checked)

    def _begin_post(self, arrival: Arrival, checked: _Checked) -> Receiver | Response:
        headers = arrival.head.headers
        if declared_bytes(headers) > self._options.max_body_bytes:
            return too_long(self._options.max_body_bytes)
        if not checked.is_legacy:
            return self._modern.receive(arrival, cors=checked.cors)
        session: HttpSession | None = None
        if b"mcp-session-id" in headers:
            found = self._find(arrival)
            if isinstance(found, Response):
                return found
            session = found
        return Post(self, arrival, session=session, cors=checked.cors, max_body_bytes=self._most_bytes(session))

    def _most_bytes(self, session: HttpSession | None) -> int:
        """Return how long a message may be; one that begins a session is never long."""
        most = self._options.max_body_bytes
        return most if session is not None else min(most, _MAX_HELLO_BYTES)

    def _listen(self, arrival: Arrival) -> Receiver | Response:
        head = arrival.head
        if not accepts_events(head.headers):
            return refusal(406, "`Accept` must name `text/event-stream`")
        session = self._find(arrival)
        if isinstance(session, Response):
            return session
        cors = self._guard.cors_headers(head.headers)
        last = head.headers.get(b"last-event-id")
        if not last:
            return session.listen(arrival, cors)
        id = parse_event_id(last)
        stream = session.resume(*id, arrival, cors) if id is not None else None
        if stream is None:
            return refusal(400, "what follows this `Last-Event-ID` is not known any more")
        return stream

    def _delete(self, arrival: Arrival) -> Response:
        session = self._find(arrival)
        if isinstance(session, Response):
            return session
        self.end(session)
        return Response(204)

    def _find(self, arrival: Arrival) -> HttpSession | Response:
        """Return the session of a request; one of somebody else cannot be told from none at all."""
        head = arrival.head
        id = head.headers.get(b"mcp-session-id")
        if id is None:
            return refusal(400, "the header `Mcp-Session-Id` is missing: a session begins with `initialize`")
        session = self._sessions.get(id)
        if session is None or session.is_old or not session.belongs_to(arrival):
            return refusal(404, "there is no such session: begin a new one with `initialize`")
        return session if is_legacy(head) else refuse_version(head.headers[VERSION])

    # --- the transport of 2024-11-05 -------------------------------------------------------------------

    def _open_old(self, arrival: Arrival) -> Receiver | Response:
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

    def _begin_old_post(self, arrival: Arrival) -> Receiver | Response:
        head = arrival.head
        if not is_json(head.headers):
            return refusal(415, "`Content-Type` must be `application/json`")
        if declared_bytes(head.headers) > self._options.max_body_bytes:
            return too_long(self._options.max_body_bytes)
        _, _, query = head.target.partition(b"?")
        id = dict(part.partition(b"=")[::2] for part in query.split(b"&")).get(b"session_id", b"")
        session = self._sessions.get(id)
        if session is None or not session.is_old or session.principal != arrival.authentication.principal:
            return refusal(404, "there is no such session: open a stream at `/sse`")
        session.session.authentication = arrival.authentication
        session.session.address = arrival.address  # there is no channel that could say it
        cors = self._guard.cors_headers(head.headers)
        return OldPost(self, session, arrival.exchange, cors, self._options.max_body_bytes)

    # --- sessions --------------------------------------------------------------------------------------

    def refuse_requests(self, session: HttpSession, requests: int) -> Response | None:
        """Return why so many requests of a session are not taken now; None if they are.

        Its answers and cancellations are always taken.
        """
        if self.is_finishing:
            return refusal(503, "the server is about to end", RETRY_AFTER)
        most = self._options.max_in_flight
        if requests > most:
            return refusal(413, f"a batch may have {most} requests at most")
        if session.session.requests_in_flight + requests > most:
            return refusal(503, f"{most} requests of this session are in flight: no more are taken", RETRY_AFTER)
        return None

    def begin_session(self, post: Post, *, is_initialize: bool) -> HttpSession | Response:
        """Begin a session for its first message, or say why there is none."""
        if not is_initialize:
            return refusal(400, "the header `Mcp-Session-Id` is missing: a session begins with `initialize`")
        return self._open_session(post.arrival)

    def lacks_scope(self, scopes: tuple[str, ...]) -> Response:
        """Return the refusal of a request whose token lacks these scopes."""
        return self._authenticator.lacks_scope(scopes)

    def _open_session(self, arrival: Arrival, *, is_old: bool = False) -> HttpSession | Response:
        if self.is_finishing:
            return refusal(503, "the server is about to end", RETRY_AFTER)
        refused = self._make_room(arrival.authentication)
        if refused is not None:
            return refused
        transport: Transport = "sse" if is_old else "http"
        route = arrival.route
        origin = Origin(arrival.authentication, transport, only=route.only, profile=route.profile)
        id = secrets.token_urlsafe(24)
        session = HttpSession(
            id,
            self._proxy,
            origin,
            address=arrival.address,
            route=route,
            now=self._now,
            budget=self._budget,
            is_old=is_old,
        )
        self._sessions[id.encode()] = session
        self._shares.add(session)
        log.debug("a session over HTTP has begun, for %s", arrival.address or "a Unix socket")
        return session

    def _make_room(self, authentication: Authentication) -> Response | None:
        """End a session where there is no room for another one; return why there is none."""
        most, sessions, shares = self._options.max_sessions, self._sessions.values(), self._shares
        is_used_up = shares.is_used_up(authentication, most)
        if len(sessions) < most and not is_used_up:
            return None
        abandoned = self._now() - _ABANDONED_AFTER_S
        ending = shares.choose_to_end(sessions, authentication, most, unused_since=abandoned)
        if ending is None:
            why = "you have your share of the sessions" if is_used_up else f"there are {most} sessions"
            return refusal(503, f"{why}: no more are taken", RETRY_AFTER)
        self.end(ending)
        return None

    def end(self, session: HttpSession) -> None:
        """End a session."""
        if self._sessions.pop(session.id.encode(), None) is not None:
            self._shares.remove(session)
            session.close()

    # --- time, and the end -----------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due: turn slow answers into streams, keep streams alive, end what is old."""
        now = self._now()
        is_valid = self._authenticator.is_valid
        self._modern.tick(is_valid)
        self._denials.tick()
        for session in [*self._sessions.values()]:
            session.end_expired(is_valid)
            for request in [*session.in_flight]:
                request.check(now)
            for stream in [*session.streams.values()]:
                if stream.is_connected and session.may_poll and now - stream.connected_at > _STREAM_FOR_S:
                    stream.pause()
                else:
                    stream.keep_alive(now)
            session.forget_older(now - KEEP_S)
            if now - session.used_at > self._options.session_timeout_s and session.is_idle:
                self.end(session)

    async def finish(self, within_s: float) -> None:
        """Take no new requests, let those in flight end within a bound, and answer the rest with an error.

        Then all streams end, and their clients are told to come back.
        """
        self.is_finishing = True
        sessions = (each.session.stop(within_s) for each in [*self._sessions.values()])
        await asyncio.gather(self._modern.finish(within_s), *sessions)
        for session in [*self._sessions.values()]:
            for stream in [*session.streams.values()]:
                stream.pause()

    def close(self) -> None:
        """End every session and every request at once."""
        self._modern.close()
        self._denials.close()
        self._pages.cancel_all()
        for session in [*self._sessions.values()]:
            self.end(session)
