"""What the core of the HTTP face and its ways in say to each other. A way in moves bytes; the core decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from dynamic_mcp.identity import Authentication

# The peer of a connection that has ended before anybody asked for its address; it is nobody's address.
GONE = "gone"


class HeadNotes(Struct):
    """What a handler has found out about a head that may come again, whatever the length of its body."""

    checked: object = None


class RequestHead(Struct, frozen=True, gc=False):
    """The head of an HTTP request.

    `target` is the path and the query as they were sent. Names of headers are lower case; the values of one that was
    sent several times are joined by `, `, and its name is among the `repeated`. `peer` is the address at the other
    end of the socket, empty over a Unix socket, or `GONE`, and `port` the port there. `root_path` is what the way in
    knows to stand before our own paths. `notes` are there if the same head may come again on its connection.
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

    The way in adds Date and what frames the body: Content-Length, Transfer-Encoding, Connection.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


class Exchange(Protocol):
    """One request and the way to answer it: with `respond`, or with `start`, any number of `write`, and `end`.

    No call raises or blocks, and what is written to a client that has gone is dropped. `receiver.disconnected` is
    called once if the client goes before the answer has ended; never during a call to this exchange.
    """

    def respond(self, response: Response) -> None:
        """Send a whole response; it may be called in `Handler.begin` already, before the body was read."""
        ...

    def start(self, response: Response) -> None:
        """Send the head of a response whose body follows in pieces, until `end`; its own body is the first piece."""
        ...

    def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        ...

    def end(self) -> None:
        """End the body."""
        ...

    def buffered_bytes(self) -> int:
        """Return how much was written that the client has not taken yet."""
        ...

    def abort(self) -> None:
        """Close the connection at once; `disconnected` is not called."""
        ...


class Receiver(Protocol):
    """What takes the body of a request that was not answered by its head."""

    max_body_bytes: int
    """Beyond this the way in reads no further and calls `refuse_body`."""

    @property
    def sender(self) -> Authentication | None:
        """Who sent the request; None as long as that is not known."""
        ...

    @property
    def needs_client(self) -> bool:
        """Whether nobody wants the answer once the client sends nothing more; else it may still read it a while."""
        ...

    def receive_body(self, body: bytes) -> None:
        """Take the whole body, which may be empty; called once, unless the client goes before."""
        ...

    def refuse_body(self) -> None:
        """Answer a request whose body is longer than it may be."""
        ...

    def disconnected(self) -> None:
        """Take it that the client has gone."""
        ...


class Handler(Protocol):
    """The core: takes every request that is valid HTTP."""

    def begin(self, head: RequestHead, exchange: Exchange) -> Receiver | None:
        """Take the head of a request. None: it was answered, and its body is of no interest."""
        ...
