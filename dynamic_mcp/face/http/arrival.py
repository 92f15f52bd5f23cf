"""A request whose sender is known: what the core hands on to whatever answers it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dynamic_mcp.face.http.exchange import Exchange, RequestHead
from dynamic_mcp.face.http.forwarding import Forwarding
from dynamic_mcp.face.http.paths import Route
from dynamic_mcp.identity import Authentication


class Arrival(Struct, frozen=True):
    """The head of a request, the way to answer it, what its path means, who sent it, and through which proxies."""

    head: RequestHead
    exchange: Exchange
    route: Route
    authentication: Authentication
    forwarding: Forwarding

    @property
    def address(self) -> str:
        """The address that the request came from; empty if nobody knows it."""
        return self.forwarding.address_of(self.head)

    @property
    def port(self) -> int:
        """The port that the request came from; 0 if that is the port of a reverse proxy."""
        return self.forwarding.port_of(self.head)


class Arrived:
    """Where one request is answered, by how it has arrived."""

    __slots__ = ("arrival",)

    arrival: Arrival

    @property
    def sender(self) -> Authentication:
        """Who sent the request."""
        return self.arrival.authentication

    @property
    def address(self) -> str:
        """The address that the request came from."""
        return self.arrival.address

    @property
    def port(self) -> int:
        """The port that it came from."""
        return self.arrival.port

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers of the POST."""
        return self.arrival.head.headers
