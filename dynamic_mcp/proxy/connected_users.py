"""Counts connected users, where servers have a login of each: a user is known while it has a client.

Without such servers, users are not counted: all clients over HTTP use the same groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dynamic_mcp.client import Client
from dynamic_mcp.identity import Principal


class ConnectedUsers:
    """The users whose clients are connected. `on_arrival` and `on_end` are called with the first and the last."""

    def __init__(self, on_arrival: Callable[[Principal], None], on_end: Callable[[Principal], None]) -> None:
        self._on_arrival = on_arrival
        self._on_end = on_end
        self._clients: dict[Principal, set[Client]] = {}

    def note(self, client: Client) -> None:
        """Count a client over HTTP that is not the local user's, once; never one that has disconnected."""
        if client.workspace is not None or client.is_closed or client.authentication.is_local:
            return
        clients = self._clients.get(client.principal)
        if clients is None:
            clients = self._clients[client.principal] = set()
            self._on_arrival(client.principal)
        clients.add(client)

    def release(self, client: Client) -> None:
        """Remove a client."""
        clients = self._clients.get(client.principal)
        if clients is None or client not in clients:
            return
        clients.discard(client)
        if not clients:
            del self._clients[client.principal]
            self._on_end(client.principal)

    def adopt(self, clients: Iterable[Client]) -> list[Principal]:
        """Count clients that connected before there were such servers, and return all users; reports no arrival."""
        for client in clients:
            if client.workspace is None and not client.authentication.is_local:
                self._clients.setdefault(client.principal, set()).add(client)
        return [*self._clients]

    def forget(self) -> None:
        """Forget all users, since there are no such servers."""
        self._clients.clear()
