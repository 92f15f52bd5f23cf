"""The subscribers of each resource, counted for each upstream: the first subscribes, the last unsubscribes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.system.task_set import TaskSet


class ResourceSubscriptions:
    """For each resource, by its group and its URI there, the clients and the URI as each one wrote it."""

    def __init__(self) -> None:
        self._background = TaskSet()
        self._clients: dict[tuple[str, str], dict[Client, str]] = {}
        self._in_flight: Counter[tuple[Instance, str]] = Counter()
        self._ending: dict[tuple[Instance, str], asyncio.Event] = {}

    def add(self, client: Client, group: Group, uri: str, written: str) -> None:
        """Subscribe a client."""
        self._clients.setdefault((group.name, uri), {})[client] = written
        self._keep_open(group)

    def remove(self, client: Client, group: Group, uri: str) -> bool:
        """Unsubscribe a client; return whether it was subscribed."""
        clients = self._clients.get((group.name, uri), {})
        was_subscribed = clients.pop(client, None) is not None
        if not clients:
            self._clients.pop((group.name, uri), None)
        self._keep_open(group)
        return was_subscribed

    @contextlib.contextmanager
    def note_request(self, instance: Instance, uri: str) -> Iterator[None]:
        """Record that an instance is being subscribed, so that no other client unsubscribes it."""
        self._in_flight[instance, uri] += 1
        try:
            yield
        finally:
            self._in_flight[instance, uri] -= 1
            self._in_flight += Counter()  # forgets what has come to zero

    @contextlib.contextmanager
    def note_end(self, instance: Instance, uri: str) -> Iterator[None]:
        ended = self._ending[instance, uri] = asyncio.Event()
        try:
            yield
        finally:
            ended.set()
            if self._ending.get((instance, uri)) is ended:
                del self._ending[instance, uri]

    async def wait_for_end(self, instance: Instance, uri: str) -> None:
        """Wait until an instance that is being unsubscribed is so.

        A new subscription waits for that: over HTTP, requests that are under way at the same time may arrive in any
        order.
        """
        while ended := self._ending.get((instance, uri)):
            await ended.wait()

    def release(self, client: Client, groups: Iterable[Group]) -> None:
        """Release all subscriptions of a disconnected client, whose groups these are."""
        for group in groups:
            for uri in self._uris_of(client, group):
                self.remove(client, group, uri)
                self.give_back(group, group.instance_for(client), uri)
        for key in [key for key, clients in self._clients.items() if client in clients]:  # of groups that are gone
            del self._clients[key][client]
            if not self._clients[key]:
                del self._clients[key]

    def reopen(self, find_new_group: Callable[[Client, str], Group | None]) -> None:
        """Have each group that takes the place of another one connect for those who are subscribed.

        `find_new_group` returns the group of a name that a client has, if it had another one before.
        """
        for client, name in {
            (client, name): None for (name, _), clients in self._clients.items() for client in clients
        }:
            group = find_new_group(client, name)
            if group is not None:
                self._open(group, group.instance_for(client))
                self._keep_open(group)

    def move(self, client: Client, group: Group, before: Instance) -> None:
        """Give back a client's subscriptions to the instance that it had `before`, and open its new one for them."""
        uris = self._uris_of(client, group)
        for uri in uris:
            self.give_back(group, before, uri)
        after = group.instance_for(client)
        if uris:
            self._open(group, after)
        self._keep_open(group)

    def withdraw(self, client: Client, group: Group, before: Instance) -> None:
        """Give back a client's subscriptions to an instance of a group that serves it no longer."""
        for uri in self._uris_of(client, group):
            self.give_back(group, before, uri)
        before.activity.is_subscribed = bool(self.uris(group, before))

    def renew(self, group: Group, instance: Instance) -> None:
        """Subscribe on a new link to all that the instance's clients want."""
        for uri in self.uris(group, instance):
            self._background.create(self._subscribe(group, instance, uri))

    def give_back(self, group: Group, instance: Instance, uri: str) -> None:
        """Unsubscribe an instance from what none of its clients wants."""
        if instance.is_connected and not self.is_wanted(instance, group, uri):
            self._background.create(self._unsubscribe(group, instance, uri))

    def close(self) -> None:
        """Stop sending requests to upstreams."""
        self._background.cancel_all()

    def uris_of(self, client: Client) -> tuple[str, ...]:
        """Return what a client is subscribed to, as it wrote that."""
        return tuple(clients[client] for clients in self._clients.values() if client in clients)

    def uris(self, group: Group, instance: Instance) -> list[str]:
        """Return what the clients of an instance are subscribed to."""
        subscriptions = ((uri, clients) for (name, uri), clients in self._clients.items() if name == group.name)
        return [uri for uri, clients in subscriptions if any(client in clients for client in instance.users)]

    def has_subscribers(self, instance: Instance, group: Group, uri: str) -> bool:
        """Return whether a client of an instance is subscribed."""
        clients = self._clients.get((group.name, uri), {})
        return any(client in clients for client in instance.users)

    def is_wanted(self, instance: Instance, group: Group, uri: str) -> bool:
        """Return whether a client of an instance is subscribed, or will be as soon as the upstream has answered."""
        return (instance, uri) in self._in_flight or self.has_subscribers(instance, group, uri)

    def pass_update_on(
        self, group: Group, instance: Instance, frame: Frame, may_read: Callable[[Client, str], bool]
    ) -> None:
        """Notify the subscribers that are still allowed, by the URI that each wrote.

        A part of a resource goes to all subscribers.
        """
        uri = wire.text(wire.member(frame.params, "uri")) or ""
        exact = self._clients.get((group.name, uri), {})
        if exact.keys().isdisjoint(instance.users):
            for client in dict.fromkeys(self._subscribers(group, instance)):
                if may_read(client, uri):
                    client.notify(frame)
            return
        for client in instance.users:
            written = exact.get(client)
            if written is not None and may_read(client, uri):
                params = frame.params if written == uri else wire.with_member(frame.params, written, "uri")
                client.notify(Frame(method=frame.method, params=params))

    def _open(self, group: Group, instance: Instance) -> None:
        if instance.is_connected:  # its link was opened before it had this client's subscriptions
            self.renew(group, instance)
        else:
            instance.start(wanted=True)

    def _uris_of(self, client: Client, group: Group) -> list[str]:
        return [uri for (name, uri), clients in self._clients.items() if name == group.name and client in clients]

    async def _subscribe(self, group: Group, instance: Instance, uri: str) -> None:
        await self.wait_for_end(instance, uri)
        await group.tell(instance, "resources/subscribe", {"uri": Raw(wire.encode(uri))})

    async def _unsubscribe(self, group: Group, instance: Instance, uri: str) -> None:
        """Unsubscribe, unless another client has begun to subscribe before this could be sent, or the server ends."""
        if not instance.is_retired and not self.is_wanted(instance, group, uri):
            with self.note_end(instance, uri):
                await group.tell(instance, "resources/unsubscribe", {"uri": Raw(wire.encode(uri))})

    def _subscribers(self, group: Group, instance: Instance) -> Iterator[Client]:
        users = set(instance.users)
        for (name, _), clients in self._clients.items():
            if name == group.name:
                yield from (client for client in clients if client in users)

    def _keep_open(self, group: Group) -> None:
        """Keep the links open on which clients await updates."""
        for instance in group.instances.values():
            instance.activity.is_subscribed = bool(self.uris(group, instance))
