"""The interface between the core of the HTTP face and its servers. A server moves bytes; the core decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from dynamic_mcp.identity import Authentication

# The peer of a connection that closed before its address was read.
GONE = "gone"


class HeadNotes(Struct):
    """Results of a handler about a head that may repeat, with any body length."""

    checked: object = None
    passage: object = None
    """Of a head that is passed on to another replica."""


class RequestHead(Struct, frozen=True, gc=False):
    """The head of an HTTP request.

    `target` is the path and the query as sent. Header names are lower case; the values of a repeated header are
    joined by `, `, and its name is in `repeated`. `peer` is the address at the other end of the socket, empty over a
    Unix socket, or `GONE`, and `port` its port. `root_path` is the prefix of our own paths, if the server knows one.
    `notes` is set if the same head may repeat on its connection.
    """

    method: str
    target: bytes
    headers: Mapping[bytes, bytes]
    repeated: frozenset[bytes] = frozenset()
    peer: str = ""
    is_secure: bool = False
    root_path: str = ""
    port: int = 0
    notes: HeadNotes | None = None


class Response(Struct, frozen=True, gc=False):
    """The head of an HTTP response, and its body unless it is streamed.

    The server adds Date and the framing: Content-Length, Transfer-Encoding, Connection.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


class Exchange(Protocol):
    """One request and its answer: either `respond`, or `start`, any number of `write`, and `end`.

    No call raises or blocks, and data for a disconnected client is dropped. `receiver.disconnected` is called once if
    the client disconnects before the answer has ended; never during a call to this exchange.
    """

    def respond(self, response: Response) -> None:
        """Send a whole response; `Handler.begin` may call it already, before the body was read."""
        ...

    def start(self, response: Response) -> None:
        """Send the head of a response that continues until `end`; its own body is the first piece."""
        ...

    def write(self, data: bytes) -> None: ...

    def end(self) -> None: ...

    def buffered_bytes(self) -> int:
        """Return how many written bytes the client has not received yet."""
        ...

    def abort(self) -> None:
        """Close the connection at once, without a call of `disconnected`."""
        ...

    def admit_peer(self) -> None:
        """Limit the connection no longer by its address: another replica has opened it for its clients."""
        ...


class BodyReceiver(Protocol):
    """Takes the body of a request that was not answered by its head."""

    max_body_bytes: int
    """Beyond this the way in reads no further and calls `refuse_body`."""

    @property
    def sender(self) -> Authentication | None:
        """The sender of the request; None if it is not known yet."""
        ...

    @property
    def needs_client(self) -> bool:
        """True if the answer is useless once the client's input has ended; else the client may still read it."""
        ...

    def receive_body(self, body: bytes) -> None:
        """Receive the whole body, which may be empty; called once, unless the client disconnects before."""
        ...

    def refuse_body(self) -> None:
        """Answer a request whose body is too long."""
        ...

    def disconnected(self) -> None: ...


class Handler(Protocol):
    """Takes every valid HTTP request; implemented by the core."""

    def begin(self, head: RequestHead, exchange: Exchange) -> BodyReceiver | None:
        """Receive the head of a request. Returns None if it is answered, and its body is not needed."""
        ...
