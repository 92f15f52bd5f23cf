"""Passes one request on to the replica of its session, and the answer back, as it comes."""

from __future__ import annotations

import asyncio
import logging
import math
from enum import Enum, auto
from typing import Protocol

from msgspec import Raw, Struct

from dynamic_mcp.errors import INTERNAL_ERROR
from dynamic_mcp.face.http import limits
from dynamic_mcp.face.http.arrival import Arrival, Arrived
from dynamic_mcp.face.http.body_budget import BodyBudget, BodyHold
from dynamic_mcp.face.http.cluster import PEER_PATH
from dynamic_mcp.face.http.deferred import hand_body
from dynamic_mcp.face.http.exchange import BodyReceiver, RequestHead, Response
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.messages import parse_message
from dynamic_mcp.face.http.paths import Route
from dynamic_mcp.face.http.responses import (
    JSON,
    RETRY_AFTER,
    SESSION_NOT_FOUND,
    Headers,
    refusal,
    too_long,
    with_headers,
)
from dynamic_mcp.features.cluster.hop import FIELD
from dynamic_mcp.features.cluster.peer_connection import NoConnectionLeft, PeerConnection
from dynamic_mcp.features.cluster.peers import ReplicaFinder
from dynamic_mcp.identity import Authentication
from dynamic_mcp.mcp import wire

log = logging.getLogger("dynamic_mcp")

# An answer whose length is known is passed on as a whole up to this length.
_WHOLE_BYTES = 128 << 10
# While the client has not read this much, the answer is not read on, and is looked after so often.
_UNREAD_BYTES = 256 << 10
_UNREAD_EVERY_S = 0.01
# An owner streams an answer that takes 5 s, and sends something on each stream every 15 s. So a connection that is
# silent for this long is dead, even if the owner lives.
DEAD_AFTER_S = 45.0
# Fields of one connection, and those that our server adds itself (RFC 9110, section 7.6.1).
_OF_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
_NOT_SENT = _OF_CONNECTION | {b"content-length", b"expect", FIELD}
_NOT_ANSWERED = _OF_CONNECTION | {b"content-length", b"date", FIELD}
_BUSY = "too much waits to be passed on to the replica of this session"


class Passage(Struct):
    """What requests with one head have in common: the replica of their session, and the head that it gets.

    Valid for one sender at one path; `lines` is the head but for the length of the body, as it was at `signed_at`.
    """

    owner: str
    authentication: Authentication
    route: Route
    forwarding: Forwarding
    signer: object
    lines: bytes = b""
    signed_at: float = -math.inf  # seconds since the epoch
    connection: PeerConnection | None = None
    """The last one, at whose other end the head is known."""

    def is_of(self, arrival: Arrival, signer: object) -> bool:
        return (
            self.signer is signer
            and self.forwarding is arrival.forwarding
            and self.authentication == arrival.authentication
            and self.route == arrival.route
        )


class RelayEnd(Enum):
    """How a request ended that was for another replica."""

    ANSWERED = auto()
    """By that replica, by us in its place, or not at all since the client has gone."""
    LOST = auto()
    """It was passed on, and its answer never came."""
    TURNED_AWAY = auto()
    """It was not passed on, since too much was waiting, or no connection was left."""


class RelayOwner(Protocol):
    """This replica, which looks after the requests that are passed on."""

    peers: ReplicaFinder
    bodies: BodyBudget

    def sign(self, arrival: Arrival, passage: Passage) -> bytes | None:
        """Return the field with which the head is signed; None if the passage has one that is new enough."""
        ...

    def begin_search(self, relay: Relay) -> None:
        """Run `relay.search` in the background."""
        ...

    def begin_recovery(self, relay: Relay) -> None:
        """Run `relay.recover` in the background."""
        ...

    async def recover(self, relay: Relay) -> BodyReceiver | Response | None:
        """Return what takes a request of a session whose replica has ended, or the refusal; None if it is lost."""
        ...

    def end(self, relay: Relay, end: RelayEnd) -> None:
        """Called when a request has ended."""
        ...


class Relay(Arrived):
    """Takes the body of a request, and passes both on to the replica `owner`."""

    __slots__ = (
        "_answer",
        "_body",
        "_connection",
        "_cors",
        "_has_ended",
        "_head",
        "_heard_at",
        "_hold",
        "_id",
        "_is_moved",
        "_length",
        "_may_recover",
        "_passage",
        "_read_at",
        "_replica",
        "_successor",
        "max_body_bytes",
        "needs_client",
        "owner",
    )

    def __init__(
        self,
        replica: RelayOwner,
        arrival: Arrival,
        passage: Passage,
        max_body_bytes: int,
        *,
        cors: Headers,
        needs_client: bool,
        may_recover: bool = False,
    ) -> None:
        self.arrival = arrival
        self.owner = passage.owner
        self._passage = passage
        self.max_body_bytes = max_body_bytes
        self.needs_client = needs_client
        self._replica = replica
        self._cors = cors
        self._body = b""
        self._id: Raw | None = None  # of a request whose body is no longer held
        self._hold = BodyHold(replica.bodies, self)
        self._connection: PeerConnection | None = None
        self._has_ended = False
        self._may_recover = may_recover
        self._is_moved = False  # the session is elsewhere by now
        self._successor: BodyReceiver | None = None
        self._head: Response | None = None
        self._length: int | None = None
        self._answer = b""
        self._heard_at = self._read_at = asyncio.get_running_loop().time()

    def __repr__(self) -> str:
        return f"<Relay {self.arrival.head.method} to {self.owner}>"

    @property
    def is_stream(self) -> bool:
        """Whether the client only listens."""
        return self.arrival.head.method == "GET"

    def is_silent_since(self, time: float) -> bool:
        """Return whether the owner has said nothing since then; a stream says at least that it is alive."""
        return self._connection is not None and self._heard_at < time

    def is_dead(self, now: float) -> bool:
        """Return whether nothing comes over the connection, though we read it."""
        connection = self._connection
        return connection is not None and not connection.is_paused and now - self._read_at > DEAD_AFTER_S

    # --- BodyReceiver ----------------------------------------------------------------------------------

    def receive_body(self, body: bytes) -> None:
        if not self._hold.grow(len(body)):
            self._respond(refusal(503, _BUSY, RETRY_AFTER), RelayEnd.TURNED_AWAY)
            return
        self._body = body
        pool = self._replica.peers.known(self.owner)
        connection = None if pool is None else pool.take(self._passage.connection)
        if connection is None:
            self._replica.begin_search(self)
        else:
            self._send(connection)

    def refuse_body(self) -> None:
        self._respond(too_long(self.max_body_bytes))

    def disconnected(self) -> None:
        """Called when the client disconnects: so do we, and the owner decides what that means."""
        if self._successor is not None:
            self._successor.disconnected()
        self._end()

    # --- towards the owner -----------------------------------------------------------------------------

    async def search(self) -> None:
        """Find the owner, and connect to it. One that is gone or unknown has no sessions any more."""
        pool = await self._replica.peers.find(self.owner)
        if pool is None:
            await self.recover()
            return
        try:
            connection = await pool.connect()
        except NoConnectionLeft as exc:
            response = refusal(503, f"no connection to the replica of this session: {exc}", RETRY_AFTER)
            self._respond(response, RelayEnd.TURNED_AWAY)
            return
        except OSError:
            self._replica.peers.forget(self.owner)
            await self.recover()
            return
        if self._has_ended:
            pool.put(connection)
        else:
            self._send(connection)

    async def recover(self) -> None:
        """Have the request taken where its session goes on; it has not run."""
        found = await self._replica.recover(self) if self._may_recover else None
        if self._has_ended:
            return
        if found is None or isinstance(found, Response):
            self._respond(found or SESSION_NOT_FOUND)
            return
        body = self._body
        self._finish()
        self._successor = found
        hand_body(body, found)

    def _send(self, connection: PeerConnection) -> None:
        self._connection = connection
        self._read_at = asyncio.get_running_loop().time()
        passage = self._passage
        passage.connection = connection
        field = self._replica.sign(self.arrival, passage)
        if field is not None:
            passage.lines = _lines_of(self.arrival.head, field)
        connection.send(b"%scontent-length: %d\r\n\r\n" % (passage.lines, len(self._body)), self._body, self)
        if len(self._body) > limits.UNCOUNTED_BYTES and connection.has_sent:
            self.request_sent()

    # --- AnswerReceiver --------------------------------------------------------------------------------

    def request_sent(self) -> None:
        """Hold a long body no longer."""
        if self._body and not self._has_ended:
            self._id = self._request_id()
            self._body = b""
            self._hold.release()

    def hear(self) -> None:
        """Record that the owner is alive."""
        self._heard_at = asyncio.get_running_loop().time()

    def answer_begun(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._heard_at = self._read_at = asyncio.get_running_loop().time()
        if status == 403 and any(name == FIELD for name, _ in headers):  # it does not believe us, and has not read it
            log.warning("the replica `%s` refuses what is passed on to it; its log says why", self.owner)
            self._respond(SESSION_NOT_FOUND)
            if self._connection is not None:
                self._connection.abort()
            return
        self._is_moved = status == 404 and self._may_recover and any(name == FIELD for name, _ in headers)
        length = next((value for name, value in headers if name == b"content-length"), None)
        self._head = Response(status, tuple(each for each in headers if each[0] not in _NOT_ANSWERED))
        self._length = int(length) if length is not None and length.isdigit() else None
        if self._length is None or self._length > _WHOLE_BYTES:
            self._length = None
            self.arrival.exchange.start(self._head)

    def answer_continued(self, data: bytes) -> None:
        self._heard_at = self._read_at = asyncio.get_running_loop().time()
        if self._length is not None:
            self._answer += data
            return
        exchange = self.arrival.exchange
        exchange.write(data)
        connection = self._connection
        if connection is not None and not connection.is_paused and exchange.buffered_bytes() > _UNREAD_BYTES:
            connection.pause_reading()
            asyncio.get_running_loop().call_later(_UNREAD_EVERY_S, self._read_on)

    def answer_ended(self) -> None:
        self._connection = None
        head = self._head
        if self._has_ended or head is None:
            return
        if self._is_moved and (self._body or self.arrival.head.method != "POST"):
            self._replica.begin_recovery(self)
            return
        if self._is_moved:  # the body is no longer held
            self._respond(refusal(503, "the session was moved to another replica; try again", RETRY_AFTER))
            return
        self._finish()
        if self._length is None:
            self.arrival.exchange.end()
        else:
            self.arrival.exchange.respond(Response(head.status, head.headers, self._answer))

    def answer_lost(self) -> None:
        """Tell the client, which cannot know whether its call has run."""
        self._connection = None
        if self._has_ended:
            return
        if self._head is None or self._length is not None:
            self._respond(self._lost(), RelayEnd.LOST)
            return
        self._finish(RelayEnd.LOST)
        if not self.is_stream:
            self.arrival.exchange.write(b"event: message\ndata: %s\n\n" % self._lost().body.rstrip(b"\n"))
        self.arrival.exchange.end()

    def _lost(self) -> Response:
        if self.arrival.head.method != "POST":
            return SESSION_NOT_FOUND
        why = f"the replica `{self.owner}`, which had this session, ended or fell silent; the call may have run"
        id = self._request_id()
        if id is None:
            return refusal(502, why, code=INTERNAL_ERROR)
        return Response(200, JSON, wire.answer_line(id, wire.error_frame(INTERNAL_ERROR, why)))

    def _request_id(self) -> Raw | None:
        """Return the id of the request in the body; None if there is none."""
        if not self._body:
            return self._id
        try:
            frame = parse_message(self._body)
        except wire.Malformed:
            return None
        return wire.id_for_answer(frame) if frame.method and len(frame.id) else None

    # --- the end ---------------------------------------------------------------------------------------

    def end_stream(self) -> None:
        """End a stream, which its client may open again."""
        if not self._has_ended and self._head is not None and self._length is None:
            self._end()
            self.arrival.exchange.end()

    def fail(self) -> None:
        """End the request without its answer."""
        if not self._has_ended:
            connection = self._connection
            self.answer_lost()
            if connection is not None:
                connection.abort()

    def _read_on(self) -> None:
        """Read on once the client has read enough."""
        connection = self._connection
        if self._has_ended or connection is None:
            return
        if self.arrival.exchange.buffered_bytes() > _UNREAD_BYTES // 2:
            asyncio.get_running_loop().call_later(_UNREAD_EVERY_S, self._read_on)
        else:
            self._read_at = asyncio.get_running_loop().time()
            connection.resume_reading()

    def _respond(self, response: Response, end: RelayEnd = RelayEnd.ANSWERED) -> None:
        if not self._has_ended:
            self._finish(end)
            self.arrival.exchange.respond(with_headers(response, self._cors))

    def _end(self) -> None:
        if not self._has_ended:
            self._finish()
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.abort()

    def _finish(self, end: RelayEnd = RelayEnd.ANSWERED) -> None:
        self._has_ended = True
        self._hold.release()
        self._replica.end(self, end)


def _lines_of(head: RequestHead, field: bytes) -> bytes:
    """Return a head but for its last field, the length of the body, which alone differs between requests."""
    lines = [b"%s %s%s HTTP/1.1" % (head.method.encode(), PEER_PATH, head.target)]
    lines += [b"%s: %s" % each for each in head.headers.items() if each[0] not in _NOT_SENT]
    lines.append(b"%s: %s\r\n" % (FIELD, field))
    return b"\r\n".join(lines)
