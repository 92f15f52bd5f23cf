"""A session over HTTP: its id, its owner, its requests in flight, and its streams.

Messages that a request causes go over the stream that answers it. All others go over the stream that the client has
opened by GET, and wait while there is none. No message goes over two streams.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from dynamic_mcp.face import limits
from dynamic_mcp.face.http.arrival import Arrival
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.paths import Route
from dynamic_mcp.face.http.replay import ReplayBudget, ReplayStore
from dynamic_mcp.face.http.responses import Headers, refusal
from dynamic_mcp.face.http.stream import SessionStream
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.session.client_connection import ClientConnection, ClientOrigin
from dynamic_mcp.session.legacy import Session
from dynamic_mcp.session.server import Server

# The limits of messages that wait for the client to open a stream.
_MAX_WAITING = 1000
_MAX_WAITING_BYTES = 1 << 20
# The limit for log messages and progress, if the client has never opened one.
_MAX_WAITING_UNHEARD_BYTES = 16 << 10

ENDED = refusal(404, "the session has ended; start a new one with `initialize`")

# Numbers of streams, of which each replica that goes on with a session has its own; those for messages without a
# request are even, so that another replica knows them.
_STREAMS_OF_REPLICA = 1_000_000


def _is_standalone(number: int) -> bool:
    return number % 2 == 0


class InFlight(Protocol):
    """A request in flight, or a batch of them, and its answer."""

    def check(self, now: float) -> None:
        """Start a stream if the answer takes long."""
        ...

    def fail(self, response: Response) -> None:
        """Answer a request that will have no result."""
        ...


class HttpSession:
    """One session over HTTP; `has_listened` once its client has opened a stream by GET."""

    __slots__ = (
        "_budget",
        "_first_stream",
        "_last_stream",
        "_standalone",
        "_store",
        "_waiting",
        "_waiting_bytes",
        "has_listened",
        "id",
        "in_flight",
        "is_movable",
        "is_old",
        "moves",
        "now",
        "route",
        "session",
        "streams",
        "used_at",
    )

    def __init__(
        self,
        id: str,
        server: Server,
        origin: ClientOrigin,
        *,
        address: str,
        route: Route,
        now: Callable[[], float],
        budget: ReplayBudget,
        is_old: bool = False,
        is_movable: bool = False,
        moves: int = 0,
    ) -> None:
        self.id = id
        self.route = route
        self.is_old = is_old
        self.now = now
        self.used_at = now()
        self.in_flight: set[InFlight] = set()
        self.streams: dict[int, SessionStream] = {}  # unfinished streams
        connection = ClientConnection(self.send, self._is_congested, origin, address, shared_id=id)
        self.session = Session(connection, server)
        self._budget = budget
        self._store: ReplayStore | None = None
        self.is_movable = is_movable  # another replica may go on with it, as has happened so often
        self.moves = moves
        self._first_stream = self._last_stream = moves * _STREAMS_OF_REPLICA
        self._standalone: SessionStream | None = None
        self.has_listened = False
        self._waiting: deque[bytes] | None = None
        self._waiting_bytes = 0

    def __repr__(self) -> str:
        return f"<HttpSession {len(self.in_flight)} in flight, {len(self.streams)} streams>"

    @property
    def principal(self) -> Principal:
        """The owner of the session; for others it does not exist."""
        return self.session.principal

    def belongs_to(self, arrival: Arrival) -> bool:
        """Return whether a request has the owner and the path of this session."""
        return self.route == arrival.route and self.principal == arrival.authentication.principal

    @property
    def is_idle(self) -> bool:
        """True if no stream is connected, and requests in flight, if any, wait for the client."""
        if any(each.is_connected for each in self.streams.values()):
            return False
        return not self.in_flight or self.session.is_being_asked

    @property
    def is_busy(self) -> bool:
        """True if requests are in flight that do not wait for the client."""
        return bool(self.in_flight) and not self.session.is_being_asked

    # --- streams ---------------------------------------------------------------------------------------

    @property
    def id_header(self) -> Headers:
        """The header that names the session in the answer to its first request."""
        return ((b"mcp-session-id", self.id.encode()),)

    def open_stream(
        self, arrival: Arrival, cors: Headers, line: bytes = b"", *, is_standalone: bool = False
    ) -> SessionStream:
        """Answer with a new stream, which starts with this message if there is one."""
        self._last_stream += 1
        if self.is_movable and _is_standalone(self._last_stream) != is_standalone:
            self._last_stream += 1
        stream = self.streams[self._last_stream] = SessionStream(self, self._last_stream)
        stream.connect(arrival, cors if b"mcp-session-id" in arrival.head.headers else self.id_header + cors)
        if line:
            stream.send(line)
        return stream

    def listen(self, arrival: Arrival, headers: Headers = ()) -> SessionStream:
        """Open the stream for messages that no request has caused; an older one is finished."""
        if self._standalone is not None:
            self.finish_stream(self._standalone)
        self._standalone = self.open_stream(arrival, headers, is_standalone=True)
        self._listen()
        return self._standalone

    def adopt(self, stream: SessionStream) -> None:
        """Use this stream for messages that no request has caused."""
        self.streams[stream.number] = self._standalone = stream
        self._listen()

    def resume(self, number: int, last: int, arrival: Arrival, headers: Headers = ()) -> SessionStream | None:
        """Continue a stream after a message; None if later messages are no longer stored."""
        stream = self.streams.get(number)
        if stream is not None and stream.last_number == last:
            missed: list[bytes] | None = []
        else:
            missed = self._store.after(number, last) if self._store is not None else None
        if missed is None and 0 < number <= self._first_stream and _is_standalone(number):
            return self.listen(arrival, headers)  # what was sent by the replica before is lost
        if missed is None or (stream is not None and last > stream.last_number):
            return None
        if stream is None:  # it was finished meanwhile: send the rest
            stream = SessionStream(self, number)
            stream.last_number = last + len(missed)
            stream.connect(arrival, headers, missed)
            stream.finish()
            return stream
        stream.connect(arrival, headers, missed)
        if stream is self._standalone:
            self._listen()
        return stream

    def finish_stream(self, stream: SessionStream) -> None:
        stream.finish()
        self.streams.pop(stream.number, None)
        self.used_at = self.now()

    def end_expired(self, is_valid: Callable[[Authentication], bool]) -> None:
        """End the streams whose client's credential is no longer valid.

        A stream that answers a request continues to its answer, unless the client would reconnect for the rest.
        """
        for stream in [*self.streams.values()]:
            may_end = stream is self._standalone or self.may_poll
            if may_end and stream.is_connected and not is_valid(stream.authentication):
                stream.expire()

    def _listen(self) -> None:
        self.has_listened = True
        waiting, self._waiting, self._waiting_bytes = self._waiting, None, 0
        for line in waiting or ():
            self.send(line)

    # --- to the client ---------------------------------------------------------------------------------

    def send(self, line: bytes) -> None:
        """Send a message that no request has caused, once the client listens."""
        stream = self._standalone
        if stream is not None and stream.is_connected:
            stream.send(line)
        else:
            self._wait(line)

    def _wait(self, line: bytes) -> None:
        if self._waiting is None:
            self._waiting = deque()
        if line in self._waiting:  # one notification of a changed list is enough
            return
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        while len(self._waiting) > _MAX_WAITING or self._waiting_bytes > _MAX_WAITING_BYTES:
            self._waiting_bytes -= len(self._waiting.popleft())

    def _is_congested(self) -> bool:
        """Return whether the client does not read, so that progress and log messages should be dropped."""
        stream = self._standalone
        if stream is not None and stream.is_connected:
            return stream.buffered_bytes() > limits.FLOOD_BYTES
        return self._waiting_bytes > (limits.FLOOD_BYTES if self.has_listened else _MAX_WAITING_UNHEARD_BYTES)

    # --- Owner -----------------------------------------------------------------------------------------

    @property
    def may_poll(self) -> bool:
        return not self.is_old and self.session.is_initialized and self.session.hello.revision.has_polling

    def store(self, stream: int, number: int, event: bytes) -> None:
        if self._store is None:
            self._store = ReplayStore(self._budget)
        self._store.add(stream, number, event, self.now())

    def stream_disconnected(self, stream: SessionStream) -> None:
        self.used_at = self.now()

    # --- the end ---------------------------------------------------------------------------------------

    def forget_older(self, than: float) -> None:
        """Remove events that were sent before this time."""
        if self._store is not None:
            self._store.evict_older(than)
            if not len(self._store):
                self._store = None

    def close(self) -> None:
        """End the session, its requests in flight and its streams."""
        self.session.close()
        for request in [*self.in_flight]:
            request.fail(ENDED)
        self.in_flight.clear()
        for stream in [*self.streams.values()]:
            stream.finish()
        self.streams.clear()
        self._standalone = self._waiting = None
        if self._store is not None:
            self._store.clear()
