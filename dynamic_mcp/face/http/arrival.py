"""A request with a known sender, as the core passes it to the parts that answer it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dynamic_mcp.face.http.exchange import Exchange, RequestHead
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.paths import Route
from dynamic_mcp.identity import Authentication


class Arrival(Struct, frozen=True):
    """The head of a request, its exchange, its route, its sender, and the proxies that it came through."""

    head: RequestHead
    exchange: Exchange
    route: Route
    authentication: Authentication
    forwarding: Forwarding

    @property
    def address(self) -> str:
        """The client's address; empty if it is unknown."""
        return self.forwarding.address_of(self.head)

    @property
    def port(self) -> int:
        """The client's port; 0 behind a reverse proxy."""
        return self.forwarding.port_of(self.head)


class Arrived:
    """Base class of receivers of a request with a known sender."""

    __slots__ = ("arrival",)

    arrival: Arrival

    @property
    def sender(self) -> Authentication:
        return self.arrival.authentication

    @property
    def address(self) -> str:
        return self.arrival.address

    @property
    def port(self) -> int:
        return self.arrival.port

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        return self.arrival.head.headers
