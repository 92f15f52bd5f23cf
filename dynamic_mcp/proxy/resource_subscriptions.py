"""Who is subscribed to which resource, counted for each upstream: the first subscribes, the last unsubscribes."""

from __future__ import annotations

from collections.abc import Iterator

from dynamic_mcp.groups.audience import Client
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame


class ResourceSubscriptions:
    """For each resource, by its group and its URI there, the clients and the URI as each one wrote it."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], dict[Client, str]] = {}

    def add(self, client: Client, group: Group, uri: str, written: str) -> None:
        """Subscribe a client."""
        self._clients.setdefault((group.name, uri), {})[client] = written
        self._keep_open(group)

    def remove(self, client: Client, group: Group, uri: str) -> None:
        """Unsubscribe a client."""
        clients = self._clients.get((group.name, uri), {})
        clients.pop(client, None)
        if not clients:
            self._clients.pop((group.name, uri), None)
        self._keep_open(group)

    def of_client(self, client: Client) -> list[tuple[str, str]]:
        """Return a client's subscriptions: each a group and a URI there."""
        return [key for key, clients in self._clients.items() if client in clients]

    def uris(self, group: Group, instance: Instance) -> list[str]:
        """Return what the clients of an instance are subscribed to."""
        own = ((uri, clients) for (name, uri), clients in self._clients.items() if name == group.name)
        return [uri for uri, clients in own if any(client in clients for client in instance.users)]

    def has_other(self, client: Client, instance: Instance, group: Group, uri: str) -> bool:
        """Tell whether another client of the same instance is subscribed."""
        clients = self._clients.get((group.name, uri), {})
        return any(other is not client and other in clients for other in instance.users)

    def pass_update_on(self, group: Group, instance: Instance, frame: Frame) -> None:
        """Tell those who subscribed, by the URI that each wrote; a part of a resource goes to all subscribers."""
        uri = wire.text(wire.member(frame.params, "uri")) or ""
        exact = self._clients.get((group.name, uri))
        if exact is None:
            for client in dict.fromkeys(self._subscribers(group, instance)):
                client.notify(frame)
            return
        for client in instance.users:
            written = exact.get(client)
            if written is not None:
                params = frame.params if written == uri else wire.with_member(frame.params, written, "uri")
                client.notify(Frame(method=frame.method, params=params))

    def _subscribers(self, group: Group, instance: Instance) -> Iterator[Client]:
        users = set(instance.users)
        for (name, _), clients in self._clients.items():
            if name == group.name:
                yield from (client for client in clients if client in users)

    def _keep_open(self, group: Group) -> None:
        """Keep the links open that somebody waits for updates on."""
        for instance in group.instances.values():
            instance.activity.is_subscribed = bool(self.uris(group, instance))
