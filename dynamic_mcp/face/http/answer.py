"""One request on a connection of our server, and its answer as bytes."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from dynamic_mcp.face.http import heads
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.parser import ParsedRequest

# Up to this length, copying a body behind its head costs less than writing twice.
_JOINED_BYTES = 64 << 10


class Wire(Protocol):
    """A connection as an answer uses it."""

    def send(self, data: bytes) -> None:
        """Write bytes, unless the client has disconnected."""
        ...

    def date_line(self) -> bytes: ...

    def may_stay_open(self) -> bool:
        """Return whether another request may follow the current one."""
        ...

    def end_exchange(self) -> None:
        """Called when the answer has ended."""
        ...

    def unread_bytes(self) -> int:
        """Return how many sent bytes the client has not received."""
        ...

    def abort_exchange(self) -> None:
        """Close the connection without calling `disconnected`."""
        ...

    def admit_peer(self) -> None:
        """Limit the connection no longer by its address."""
        ...


class AnswerState(Enum):
    """The progress of an answer."""

    WAITING = auto()
    STREAMING = auto()
    ENDED = auto()


# Reading a member from its class takes ten times as long.
WAITING, STREAMING, ENDED = AnswerState


class HttpExchange:
    """The `Exchange` of our server. It does nothing after its answer has ended.

    Without a request, it answers invalid input, and is the last exchange of its connection.
    """

    __slots__ = ("_has_body", "_is_chunked", "_is_http10", "_wire", "is_keep_alive", "state")

    def __init__(self, wire: Wire, request: ParsedRequest | None = None) -> None:
        self.state = WAITING
        self.is_keep_alive = request is not None and request.is_keep_alive
        self._wire = wire
        self._has_body = request is None or request.head.method != "HEAD"
        self._is_http10 = request is not None and request.is_http10
        self._is_chunked = False

    def respond(self, response: Response) -> None:
        if self.state is not WAITING:
            return
        wire, body = self._wire, response.body
        self.is_keep_alive = self.is_keep_alive and wire.may_stay_open()
        framing = b""
        if not self.is_keep_alive or self._is_http10:
            framing = heads.connection_line(is_keep_alive=self.is_keep_alive, is_http10=self._is_http10)
        if heads.has_body(response.status):
            framing = heads.length_line(len(body)) + framing
        else:
            self._has_body = False
        head = heads.response_head(response, wire.date_line(), framing)
        self.state = ENDED
        if not self._has_body:
            wire.send(head)
        elif len(body) <= _JOINED_BYTES:
            wire.send(head + body)
        else:
            wire.send(head)
            wire.send(body)
        wire.end_exchange()

    def start(self, response: Response) -> None:
        if self.state is not WAITING:
            return
        self.state = STREAMING
        wire = self._wire
        framing = heads.UNTIL_CLOSE
        if not heads.has_body(response.status):
            self._has_body = False
        elif not self._is_http10:
            framing, self._is_chunked = heads.CHUNKED, self._has_body
        elif self._has_body:
            self.is_keep_alive = False
        self.is_keep_alive = self.is_keep_alive and wire.may_stay_open()
        framing += heads.connection_line(is_keep_alive=self.is_keep_alive, is_http10=self._is_http10)
        wire.send(heads.response_head(response, wire.date_line(), framing) + self._piece(response.body))

    def write(self, data: bytes) -> None:
        if self.state is STREAMING and (piece := self._piece(data)):
            self._wire.send(piece)

    def end(self) -> None:
        if self.state is STREAMING:
            self.state = ENDED
            if self._is_chunked:
                self._wire.send(heads.LAST_CHUNK)
            self._wire.end_exchange()

    def buffered_bytes(self) -> int:
        return self._wire.unread_bytes() if self.state is not ENDED else 0

    def abort(self) -> None:
        if self.state is not ENDED:
            self.state = ENDED
            self._wire.abort_exchange()

    def admit_peer(self) -> None:
        self._wire.admit_peer()

    def drop(self) -> None:
        """Send nothing more: the client disconnected, or the connection itself has answered."""
        self.state = ENDED

    def _piece(self, data: bytes) -> bytes:
        if not data or not self._has_body:
            return b""
        return heads.chunk(data) if self._is_chunked else data
