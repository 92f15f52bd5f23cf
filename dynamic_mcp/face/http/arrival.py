"""A request whose sender is known: what the core hands on to whatever answers it."""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.face.http.exchange import Exchange, RequestHead
from dynamic_mcp.face.http.paths import Route
from dynamic_mcp.groups.audience import Authentication


class Arrival(Struct, frozen=True):
    """The head of a request, the way to answer it, what its path means, and who sent it."""

    head: RequestHead
    exchange: Exchange
    route: Route
    authentication: Authentication
