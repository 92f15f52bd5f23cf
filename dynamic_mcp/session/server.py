"""What a session needs of whoever answers its client."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

from dynamic_mcp.groups.audience import Client
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import View


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
