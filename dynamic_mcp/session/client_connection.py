"""What a face gives a session: the way back to its client, and where its requests come from."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from dynamic_mcp.client import Transport
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.identity import LOCAL_USER, Authentication
from dynamic_mcp.session.questions import Journal


class Origin(Struct, frozen=True, cache_hash=True):
    """Where requests come from, as far as it is not in them."""

    authentication: Authentication = LOCAL_USER
    transport: Transport = "stdio"
    only: str | None = None
    workspace: Workspace | None = None
    profile: str | None = None


def _has_room() -> bool:
    return False


class ClientConnection(Struct, frozen=True):
    """A client as its face knows it. `send` writes a line to it; `is_congested` says that it does not read them.

    `journal` takes what another process must know to go on with the session; `first_id` is that of the first request
    to the client.
    """

    send: Callable[[bytes], None]
    is_congested: Callable[[], bool] = _has_room
    origin: Origin = Origin()
    address: str = ""
    is_command: bool = False
    journal: Journal | None = None
    first_id: int = 1
