"""The interfaces between sessions, the server that answers their clients, and their faces."""

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
    """Answers the requests of clients; implemented by `Proxy`."""

    def view_for(self, client: Client) -> View: ...

    def initialize(self, client: Client) -> Awaitable[Mapping[str, object]]:
        """Start serving a client; return the members of the `initialize` result. Raises DynamicMcpError."""
        ...

    def answer(self, request: Request) -> Awaitable[Frame]:
        """Answer a request. Raises DynamicMcpError and wire.Malformed."""
        ...

    def notify(self, request: Request) -> None:
        """Handle a notification."""
        ...

    def release(self, client: Client) -> None:
        """Release everything held for a disconnected client."""
        ...


class ModernServer(Server, Protocol):
    """Answers the requests of clients of both eras; implemented by `Proxy`."""

    @property
    def parked_calls(self) -> ParkedCalls:
        """The calls of all faces that wait for their modern clients."""
        ...

    def admit(self, client: Client) -> None:
        """Start serving a modern client, which does not initialize."""
        ...

    def discover(self, client: Client) -> Awaitable[Frame]:
        """Answer `server/discover`. Raises DynamicMcpError."""
        ...

    def server_info(self, client: Client) -> Raw:
        """Return the name and version of the server that a client sees."""
        ...

    def cache_hint(self, client: Client, method: str) -> CacheHint | None:
        """Return how long a client may cache the result of a method; None if that is not set."""
        ...

    def may_announce(self, client: Client, method: str) -> bool:
        """Return whether a client may receive notifications of this method that no request has caused."""
        ...

    def want_level(self, client: Client, level: str) -> None:
        """Have servers send log messages of this level before the client's next request."""
        ...


class LineSession(Protocol):
    """A client at the other end of a stream of lines, for faces and for `Resumption`."""

    @property
    def receive(self) -> Callable[..., None]: ...

    @property
    def is_command(self) -> bool: ...

    @property
    def is_initialized(self) -> bool:
        """True if a legacy client has sent `initialize`."""
        ...

    def answer(self, frame: Frame) -> Awaitable[Frame]:
        """Answer a legacy request. Raises DynamicMcpError and wire.Malformed."""
        ...

    def notify(self, frame: Frame) -> None:
        """Send a notification to a legacy client."""
        ...

    async def finish(self, within_s: float) -> None:
        """Wait for requests in flight, within a bound; then cancel them."""
        ...

    async def drain(self, within_s: float) -> None:
        """Wait for requests in flight, within a bound, and answer the rest with an error: they may have run."""
        ...

    def close(self) -> None: ...
