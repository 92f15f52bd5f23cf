"""What sessions need of whoever answers their clients, and what faces need of sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import View

if TYPE_CHECKING:  # loaded with the first modern client
    from dynamic_mcp.proxy.cache_hints import CacheHint
    from dynamic_mcp.proxy.parked_calls import ParkedCalls


class Server(Protocol):
    """Whoever answers: the proxy."""

    def view_for(self, client: Client) -> View:
        """Return what a client may see."""
        ...

    def greet(self, client: Client) -> Awaitable[Mapping[str, object]]:
        """Begin to serve a client that has said what it is; returns the members of the `initialize` result.

        Raises DynamicMcpError.
        """
        ...

    def answer(self, request: Request) -> Awaitable[Frame]:
        """Answer a request. Raises DynamicMcpError and wire.Malformed."""
        ...

    def notify(self, request: Request) -> None:
        """Take a notification."""
        ...

    def release(self, client: Client) -> None:
        """Let go of a client that has gone."""
        ...


class ModernServer(Server, Protocol):
    """Whoever answers clients of both eras: the proxy."""

    @property
    def parked_calls(self) -> ParkedCalls:
        """The calls that wait for their modern clients, of all faces."""
        ...

    def admit(self, client: Client) -> None:
        """Begin to serve a modern client, which needs no greeting."""
        ...

    def discover(self, client: Client) -> Awaitable[Frame]:
        """Answer `server/discover`. Raises DynamicMcpError."""
        ...

    def server_info(self, client: Client) -> Raw:
        """Return the name and version of the server that a client sees."""
        ...

    def cache_hint(self, client: Client, method: str) -> CacheHint | None:
        """Return how long a client may keep the result of a method; None where that is not said."""
        ...

    def may_announce(self, client: Client, method: str) -> bool:
        """Tell whether a client may be sent a notification of this method that no request has caused."""
        ...

    def want_level(self, client: Client, level: str) -> None:
        """See to it that servers send log messages of this level, before the client's next request."""
        ...


class LineSession(Protocol):
    """A client at the other end of a stream of lines, as the faces and a resumption have it."""

    @property
    def receive(self) -> Callable[..., None]:
        """Take a line, and what takes its answer."""
        ...

    @property
    def is_command(self) -> bool:
        """Whether the client is a command."""
        ...

    @property
    def is_greeted(self) -> bool:
        """Whether a legacy client has said what it is."""
        ...

    def answer(self, frame: Frame) -> Awaitable[Frame]:
        """Answer a legacy request. Raises DynamicMcpError and wire.Malformed."""
        ...

    def notify(self, frame: Frame) -> None:
        """Send a legacy client a notification."""
        ...

    async def finish(self, within_s: float) -> None:
        """Let what is in flight end, within a bound; then cancel it."""
        ...

    async def stop(self, within_s: float) -> None:
        """Let what is in flight end, within a bound, and answer the rest with an error: it may have run."""
        ...

    def close(self) -> None:
        """End the session."""
        ...
