"""Tells servers which log messages their clients want: of each instance, the most verbose level that one asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.subscriptions import Subscriptions
from dynamic_mcp.system.task_set import TaskSet


class LogLevels:
    """The levels that clients have asked for. `groups_of` returns the groups that may serve a client."""

    def __init__(self, subscriptions: Subscriptions, groups_of: Callable[[Client], Iterable[Group]]) -> None:
        self._subscriptions = subscriptions
        self._groups_of = groups_of
        self._background = TaskSet()

    async def set(self, request: Request) -> Frame:
        """Answer `logging/setLevel`: remember the client's level, and tell its servers."""
        self._subscriptions.set_level(request.client, wire.member(request.params, "level"))
        self._tell_all(request.client)
        return wire.result_frame(b"{}")

    def want(self, client: Client, level: str) -> None:
        """See to it that servers send log messages of this level, before the client's next request."""
        if self._subscriptions.want_level(client, level):
            self._tell_all(client)

    def renew(self, group: Group, instance: Instance) -> None:
        """Send a new link the level of the former one."""
        self._subscriptions.forget_level(instance)
        self.tell(group, instance)

    def tell(self, group: Group, instance: Instance) -> None:
        """Send an upstream the most verbose level that a client of its instance wants."""
        level = self._subscriptions.level_for(instance)
        if level is not None and instance.is_connected and group.catalog and group.catalog.may("logging"):
            self._subscriptions.note_level(instance)
            params = {"level": Raw(wire.encode(level))}
            self._background.create(group.tell(instance, "logging/setLevel", params))

    def instances_of(self, client: Client) -> list[tuple[Group, Instance]]:
        """Return the instances that serve a client."""
        return [
            (group, instance)
            for group in self._groups_of(client)
            for instance in group.instances.values()
            if client in instance.users
        ]

    def close(self) -> None:
        """Stop sending levels to upstreams."""
        self._background.cancel_all()

    def _tell_all(self, client: Client) -> None:
        for group, instance in self.instances_of(client):
            self.tell(group, instance)
