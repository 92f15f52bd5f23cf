"""A session's connection to its client, and the origin of its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from dynamic_mcp.client import Transport
from dynamic_mcp.config.workspace import Workspace
from dynamic_mcp.identity import LOCAL_USER, Authentication

if TYPE_CHECKING:  # loaded where a daemon serves windows
    from dynamic_mcp.session.continuation import SessionJournal


class ClientOrigin(Struct, frozen=True, cache_hash=True):
    """The origin of requests: their authentication, transport, and scope."""

    authentication: Authentication = LOCAL_USER
    transport: Transport = "stdio"
    only: str | None = None
    workspace: Workspace | None = None
    profile: str | None = None


def _never() -> bool:
    return False


class ClientConnection(Struct, frozen=True):
    """A client as its face knows it. `send` writes a line; `is_congested` returns whether the client does not read.

    `journal` takes the notes that another process needs to continue the session; `first_id` is the id of the first
    request to the client. `shared_id` is what its session is to other replicas.
    """

    send: Callable[[bytes], None]
    is_congested: Callable[[], bool] = _never
    origin: ClientOrigin = ClientOrigin()
    address: str = ""
    shared_id: str = ""
    is_command: bool = False
    journal: SessionJournal | None = None
    first_id: int = 1
