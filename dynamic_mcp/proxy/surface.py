"""What a client makes of the tools that are listed to it. It decides which tools those are."""

from __future__ import annotations

from msgspec import Struct

from dynamic_mcp.client import ClientInfo
from dynamic_mcp.mcp.apps import may_render
from dynamic_mcp.proxy.known_clients import find_known


class Surface(Struct, frozen=True):
    """`searches_tools`: the client shows its model listed tools by a search of its own, not all at once.

    `renders_apps`: it renders the UI of listed tools that have one (MCP Apps).
    """

    searches_tools: bool = False
    renders_apps: bool = False


PLAIN = Surface()


def surface_of(hello: ClientInfo) -> Surface:
    """Return the surface of a client that has introduced itself like this."""
    known = find_known(hello.name, hello.version)
    return Surface(known is not None and known.searches_tools, may_render(hello.capabilities))
