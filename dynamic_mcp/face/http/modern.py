"""Modern requests over HTTP: each POST is independent of others, has no session, and describes itself in headers.

MCP 2026-07-28. `MCP-Protocol-Version` alone decides the revision of a POST.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Raw

from dynamic_mcp.errors import HEADER_MISMATCH, INTERNAL_ERROR, UNSUPPORTED_VERSION
from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.cluster import PeerAuthentication
from dynamic_mcp.face.http.exchange import BodyReceiver, RequestHead, Response
from dynamic_mcp.face.http.header_checks import VERSION, ToolParameters, find_mismatch
from dynamic_mcp.face.http.messages import parse_message
from dynamic_mcp.face.http.modern_post import ModernPost, PendingCall
from dynamic_mcp.face.http.options import HttpOptions
from dynamic_mcp.face.http.responses import RETRY_AFTER, Headers, refusal, with_headers
from dynamic_mcp.face.http.stream import ALIVE, Stream, event_of
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.envelope import RequestMembers
from dynamic_mcp.mcp.revisions import LEGACY, REVISIONS, SUPPORTED
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.parked_calls import ModernChannel
from dynamic_mcp.session.client_connection import ClientOrigin

_LEGACY = frozenset(revision.name.encode() for revision in LEGACY)
_MODERN = frozenset(revision.name.encode() for revision in REVISIONS if revision.is_stateless)
# The maximum length of an unknown version in a message.
_MAX_SHOWN = 100


def is_legacy(head: RequestHead) -> bool:
    """Return whether a request is of a revision with sessions, or names no revision."""
    version = head.headers.get(VERSION)
    return version is None or version in _LEGACY


def is_modern(head: RequestHead) -> bool:
    """Return whether a request is of a revision without sessions."""
    return head.headers.get(VERSION) in _MODERN


class Dispatcher(Protocol):
    """Answers the requests of modern clients."""

    @property
    def clients(self) -> int:
        """The number of clients."""
        ...

    def configure(self, *, max_in_flight: int, max_clients: int, unused_for_s: float) -> None:
        """Set the limits: requests per client, clients, and seconds until an unused client is removed."""
        ...

    def begin(
        self, frame: Frame, channel: ModernChannel, origin: ClientOrigin, members: RequestMembers | None = None
    ) -> PendingCall | None:
        """Start answering a request, whose params may be split already. Returns None if it is already answered."""
        ...

    def tick(self) -> None:
        """Remove unused clients."""
        ...

    async def drain(self, within_s: float) -> None:
        """End listening streams, let the rest finish within a bound, and answer what is left with an error."""
        ...

    def close(self) -> None: ...


class ModernRequests:
    """The requests of modern clients that one face has in flight."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        tools: ToolParameters,
        options: HttpOptions,
        now: Callable[[], float],
        lacks_scope: Callable[[tuple[str, ...]], Response],
    ) -> None:
        self.now = now
        self.lacks_scope = lacks_scope
        self._is_draining = False
        self._dispatcher = dispatcher
        self._tools = tools
        self._in_flight: set[ModernPost] = set()
        self._last_origin: ClientOrigin | None = None
        self._last_sender: Authentication | None = None
        self.configure(options)

    def __repr__(self) -> str:
        return f"<ModernRequests {self.in_flight} in flight>"

    @property
    def clients(self) -> int:
        """The number of known clients."""
        return self._dispatcher.clients

    @property
    def in_flight(self) -> int:
        """The number of requests that are being answered, including listening streams."""
        return len(self._in_flight)

    def configure(self, options: HttpOptions) -> None:
        self._options = options
        self._dispatcher.configure(
            max_in_flight=options.max_in_flight,
            max_clients=options.max_sessions,
            unused_for_s=options.session_timeout_s,
        )

    def receive(self, arrival: Arrival, *, cors: Headers) -> BodyReceiver:
        """Receive the head of a POST that names a revision which is not a legacy one."""
        most = self._options.max_body_bytes
        if is_modern(arrival.head):
            return ModernPost(self, arrival, cors=cors, max_body_bytes=most)
        return _UnknownVersion(arrival, cors=cors, max_body_bytes=most)

    def tick(self, is_valid: Callable[[Authentication], bool]) -> None:
        """Turn slow answers into streams, keep streams alive, and end those with expired credentials."""
        now = self.now()
        for post in [*self._in_flight]:
            post.end_expired(is_valid)
            post.check(now)
        self._dispatcher.tick()

    async def drain(self, within_s: float) -> None:
        """Accept no new requests, end listening streams, and let the rest finish within a bound."""
        self._is_draining = True
        await self._dispatcher.drain(within_s)

    def close(self) -> None:
        """End everything at once."""
        self._dispatcher.close()
        for post in [*self._in_flight]:
            post.fail()

    # --- Requests --------------------------------------------------------------------------------------

    def refuse(self, post: ModernPost, frame: Frame) -> Response | None:
        if self._is_draining:
            return refusal(503, "the server is shutting down", RETRY_AFTER, code=INTERNAL_ERROR, id=post.id)
        try:
            members = post.members = RequestMembers.of(frame)
        except wire.Malformed:  # `begin` refuses it
            return None
        why = find_mismatch(post.arrival, frame, members, self._tools)
        return refusal(400, why, code=HEADER_MISMATCH, id=post.id) if why else None

    def begin(self, post: ModernPost, frame: Frame) -> PendingCall | None:
        self._in_flight.add(post)
        return self._dispatcher.begin(frame, post, self._origin_of(post.arrival), post.members)

    def _origin_of(self, arrival: Arrival) -> ClientOrigin:
        """Return the origin of a request; the same object as for the last request if it is equal.

        It is the same whether or not another replica has passed the request on.
        """
        origin, authentication, route = self._last_origin, arrival.authentication, arrival.route
        if (
            origin is None
            or self._last_sender is not authentication
            or origin.only != route.only
            or origin.profile != route.profile
        ):
            self._last_sender = authentication
            sender = authentication.of_client if isinstance(authentication, PeerAuthentication) else authentication
            origin = self._last_origin = ClientOrigin(sender, "http", route.only, profile=route.profile)
        return origin

    def end(self, post: ModernPost) -> None:
        self._in_flight.discard(post)

    # --- Streams ---------------------------------------------------------------------------------------

    def open_stream(self, arrival: Arrival, cors: Headers, line: bytes = b"") -> Stream:
        """Answer with a stream that belongs to one request: its events have no ids, and are not stored."""
        stream = Stream(self.now)
        stream.start(arrival.exchange, cors, event_of(line) if line else ALIVE)
        return stream


class _UnknownVersion:
    """Refuses a POST of an unsupported revision, with the id of the request in its body."""

    needs_client = False

    __slots__ = ("_cors", "_exchange", "_head", "max_body_bytes", "sender")

    def __init__(self, arrival: Arrival, *, cors: Headers, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.sender = arrival.authentication
        self._head = arrival.head
        self._exchange = arrival.exchange
        self._cors = cors

    def receive_body(self, body: bytes) -> None:
        try:
            id = wire.id_for_answer(parse_message(body))
        except wire.Malformed as exc:
            id = exc.id
        self._refuse(id)

    def refuse_body(self) -> None:
        self._refuse(wire.NULL)

    def disconnected(self) -> None:
        """Do nothing: nothing was started."""

    def _refuse(self, id: Raw) -> None:
        if VERSION in self._head.repeated:
            response = refusal(400, "duplicate header `MCP-Protocol-Version`", code=HEADER_MISMATCH, id=id)
        else:
            response = refuse_version(self._head.headers[VERSION], id)
        self._exchange.respond(with_headers(response, self._cors))


def refuse_version(version: bytes, id: Raw = wire.NULL) -> Response:
    """Return the refusal of an unsupported revision."""
    name = version[:_MAX_SHOWN].decode("utf-8", "replace")
    why = f"unsupported protocol version `{ascii(name)[1:-1]}`; supported: {', '.join(SUPPORTED)}"
    data = {"supported": SUPPORTED, "requested": name}
    return refusal(400, why, code=UNSUPPORTED_VERSION, id=id, data=data)
