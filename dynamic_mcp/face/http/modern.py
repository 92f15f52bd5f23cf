"""Modern requests over HTTP: each POST stands alone, without a session, and says in its headers what it is.

MCP 2026-07-28. Which revision a POST is of is decided by its `MCP-Protocol-Version` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.errors import HEADER_MISMATCH, INTERNAL_ERROR, UNSUPPORTED_VERSION
from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.exchange import Receiver, RequestHead, Response
from dynamic_mcp.face.http.header_checks import VERSION, Tools, find_mismatch
from dynamic_mcp.face.http.messages import parse_message
from dynamic_mcp.face.http.modern_post import Call, ModernPost
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.responses import RETRY_AFTER, Headers, refusal, with_headers
from dynamic_mcp.face.http.stream import ALIVE, Stream, event_of
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import RequestMembers
from dynamic_mcp.mcp.revisions import LEGACY, REVISIONS, SUPPORTED
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.parked_calls import Channel
from dynamic_mcp.session.client_connection import Origin

_LEGACY = frozenset(revision.name.encode() for revision in LEGACY)
_MODERN = frozenset(revision.name.encode() for revision in REVISIONS if revision.is_stateless)
# How much of a name that nobody knows is repeated.
_SHOWN = 100


def is_legacy(head: RequestHead) -> bool:
    """Tell whether a request is of a revision with sessions: those that name none are, too."""
    version = head.headers.get(VERSION)
    return version is None or version in _LEGACY


def is_modern(head: RequestHead) -> bool:
    """Tell whether a request is of a revision without sessions."""
    return head.headers.get(VERSION) in _MODERN


class Dispatcher(Protocol):
    """Whoever answers requests of modern clients."""

    @property
    def clients(self) -> int:
        """How many clients there are."""
        ...

    def configure(self, *, max_in_flight: int, max_clients: int, unused_for_s: float) -> None:
        """Go on with other bounds: requests of a client, clients, and seconds that an unused one is remembered."""
        ...

    def begin(
        self, frame: Frame, channel: Channel, origin: Origin, members: RequestMembers | None = None
    ) -> Call | None:
        """Start to answer a request, whose params may be split already. None: it is answered already."""
        ...

    def tick(self) -> None:
        """Forget the clients that nobody uses any more."""
        ...

    async def finish(self, within_s: float) -> None:
        """End what listens, let the rest end within a bound, and answer what is left with an error."""
        ...

    def close(self) -> None:
        """End everything at once."""
        ...


class ModernRequests:
    """The requests of modern clients that one face has in flight."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        tools: Tools,
        options: HttpOptions,
        now: Callable[[], float],
        lacks_scope: Callable[[tuple[str, ...]], Response],
    ) -> None:
        self.now = now
        self.lacks_scope = lacks_scope
        self._is_finishing = False
        self._dispatcher = dispatcher
        self._tools = tools
        self._in_flight: set[ModernPost] = set()
        self._last_origin: Origin | None = None
        self.configure(options)

    def __repr__(self) -> str:
        return f"<ModernRequests {self.in_flight} in flight>"

    @property
    def clients(self) -> int:
        """How many clients are known."""
        return self._dispatcher.clients

    @property
    def in_flight(self) -> int:
        """How many requests are being answered, those that listen among them."""
        return len(self._in_flight)

    def configure(self, options: HttpOptions) -> None:
        """Take requests with other options from now on."""
        self._options = options
        self._dispatcher.configure(
            max_in_flight=options.max_in_flight,
            max_clients=options.max_sessions,
            unused_for_s=options.session_timeout_s,
        )

    def receive(self, arrival: Arrival, *, cors: Headers) -> Receiver:
        """Take the head of a POST that names a revision which is not a legacy one."""
        most = self._options.max_body_bytes
        if is_modern(arrival.head):
            return ModernPost(self, arrival, cors=cors, max_body_bytes=most)
        return _UnknownVersion(arrival, cors=cors, max_body_bytes=most)

    def tick(self, is_valid: Callable[[Authentication], bool]) -> None:
        """Do what is due: turn slow answers into streams, keep streams alive, end those of expired credentials."""
        now = self.now()
        for post in [*self._in_flight]:
            post.end_expired(is_valid)
            post.check(now)
        self._dispatcher.tick()

    async def finish(self, within_s: float) -> None:
        """Take no new requests, end what listens, let the rest end within a bound, or answer it with an error."""
        self._is_finishing = True
        await self._dispatcher.finish(within_s)

    def close(self) -> None:
        """End everything at once."""
        self._dispatcher.close()
        for post in [*self._in_flight]:
            post.fail()

    # --- Requests --------------------------------------------------------------------------------------

    def refuse(self, post: ModernPost, frame: Frame) -> Response | None:
        """Return why a request is not taken; None if it is."""
        if self._is_finishing:
            return refusal(503, "the server is about to end", RETRY_AFTER, code=INTERNAL_ERROR, id=post.id)
        try:
            members = post.members = RequestMembers.of(frame)
        except wire.Malformed:  # it is refused for that
            return None
        why = find_mismatch(post.arrival, frame, members, self._tools)
        return refusal(400, why, code=HEADER_MISMATCH, id=post.id) if why else None

    def begin(self, post: ModernPost, frame: Frame) -> Call | None:
        """Start to answer a request. None: it is answered already."""
        self._in_flight.add(post)
        return self._dispatcher.begin(frame, post, self._origin_of(post.arrival), post.members)

    def _origin_of(self, arrival: Arrival) -> Origin:
        """Return where a request comes from; the same object as for the request before if it is the same place."""
        origin, authentication, route = self._last_origin, arrival.authentication, arrival.route
        if (
            origin is None
            or origin.authentication is not authentication
            or origin.only != route.only
            or origin.profile != route.profile
        ):
            origin = self._last_origin = Origin(authentication, "http", route.only, profile=route.profile)
        return origin

    def end(self, post: ModernPost) -> None:
        """Take it that nothing more comes of a request."""
        self._in_flight.discard(post)

    # --- Streams ---------------------------------------------------------------------------------------

    def open_stream(self, arrival: Arrival, cors: Headers, line: bytes = b"") -> Stream:
        """Answer with a stream that belongs to the request alone: no event has an id, and nobody comes back to it."""
        stream = Stream(self.now)
        stream.start(arrival.exchange, cors, event_of(line) if line else ALIVE)
        return stream


class _UnknownVersion:
    """Refuses a POST of a revision that is not spoken here, as the answer to the request in its body."""

    needs_client = False

    __slots__ = ("_cors", "_exchange", "_head", "max_body_bytes", "sender")

    def __init__(self, arrival: Arrival, *, cors: Headers, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.sender = arrival.authentication
        self._head = arrival.head
        self._exchange = arrival.exchange
        self._cors = cors

    def receive_body(self, body: bytes) -> None:
        """Take the message, for its id."""
        try:
            id = wire.id_for_answer(parse_message(body))
        except wire.Malformed as exc:
            id = exc.id
        self._refuse(id)

    def refuse_body(self) -> None:
        """Refuse the request without its id: it is too long to be read."""
        self._refuse(wire.NULL)

    def disconnected(self) -> None:
        """Take it that the client has gone: nothing was begun."""

    def _refuse(self, id: Raw) -> None:
        if VERSION in self._head.repeated:
            response = refusal(400, "the header `MCP-Protocol-Version` is there twice", code=HEADER_MISMATCH, id=id)
        else:
            response = refuse_version(self._head.headers[VERSION], id)
        self._exchange.respond(with_headers(response, self._cors))


def refuse_version(version: bytes, id: Raw = wire.NULL) -> Response:
    """Return the refusal of a revision that is not spoken here."""
    name = version[:_SHOWN].decode("utf-8", "replace")
    why = f"`MCP-Protocol-Version: {ascii(name)[1:-1]}` is not spoken here; these are: {', '.join(SUPPORTED)}"
    data = {"supported": SUPPORTED, "requested": name}
    return refusal(400, why, code=UNSUPPORTED_VERSION, id=id, data=data)
