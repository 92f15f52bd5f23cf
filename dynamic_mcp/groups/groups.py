"""All groups, in the order of the config."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

from dynamic_mcp.config.resolved import Config, GroupConfig, Program
from dynamic_mcp.groups.audience import Client
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.group import Group, Observer
from dynamic_mcp.groups.instance import OpenLink
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.open import open_link

log = logging.getLogger(__name__)

# How long the calls of a group that was changed or removed may take to end.
DRAIN_S = 5.0


class Groups:
    """The groups of one config, and of each that takes its place."""

    def __init__(
        self,
        config: Config,
        observer: Observer,
        *,
        opener: OpenLink = open_link,
        catalog_store: CatalogStore | None = None,
    ) -> None:
        self._observer = observer
        self._opener = opener
        self._catalog_store = catalog_store
        self._presentations = config.presentations
        self._groups = {each.name: self._create(each, _lists(config, each.name)) for each in config.groups}
        self._clients: dict[Client, None] = {}
        self._retiring: dict[asyncio.Task[None], Group] = {}
        self._is_closed = False

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __getitem__(self, name: str) -> Group:
        """Return the group of this name. Raises KeyError; clients are answered from a view."""
        return self._groups[name]

    def start(self, client: Client) -> None:
        """Begin to serve a client; nothing is waited for."""
        self._clients[client] = None
        for group in self:
            group.start(client)

    def release(self, client: Client) -> None:
        """Serve a client no longer."""
        self._clients.pop(client, None)
        for group in (*self, *self._retiring.values()):
            group.release(client)

    def apply(self, config: Config) -> None:
        """Take the place of the config before, by difference; nothing is waited for.

        A group whose upstream stays keeps its process, its calls and its catalog. One whose upstream changed
        starts anew, and the old one ends once its calls have, within DRAIN_S; so does a group that is gone.
        """
        if self._is_closed:
            return
        before, after = dict(self._groups), dict[str, Group]()
        for each in config.groups:
            after[each.name] = self._succeed(before.pop(each.name, None), each, config)
        self._presentations = config.presentations
        self._groups = after  # another dict: whoever walks over the old one goes on undisturbed
        for group in before.values():
            group_logger(log, group.name).info("group %s is no longer in the config", group.name)
            self._retire(group, None)

    async def close(self) -> None:
        """End every group, all at once."""
        self._is_closed = True
        await asyncio.gather(*(group.close() for group in (*self, *self._retiring.values())))
        if self._retiring:
            await asyncio.wait([*self._retiring])

    def _succeed(self, old: Group | None, config: GroupConfig, whole: Config) -> Group:
        lists = _lists(whole, config.name)
        if old is None:
            group_logger(log, config.name).info("group %s is new in the config%s", config.name, _starting(config))
        elif (old.config.upstream, old.config.share) != (config.upstream, config.share):
            group_logger(log, config.name).info("group %s changed in the config%s", config.name, _starting(config))
        else:
            if (old.config, self._presentations[old.name]) != (config, whole.presentations[old.name]):
                group_logger(log, config.name).info("group %s changed in the config and keeps running", config.name)
                old.reconfigure(config, lists)
            return old
        group = self._create(config, lists)
        if old is not None:
            self._retire(old, group)
        for client in self._clients:
            group.start(client)
        return group

    def _create(self, config: GroupConfig, lists: frozenset[ListKind]) -> Group:
        return Group(config, self._observer, lists=lists, opener=self._opener, catalog_store=self._catalog_store)

    def _retire(self, group: Group, successor: Group | None) -> None:
        group.retire(successor)
        task = asyncio.create_task(self._end(group), name=f"end of group {group.name}")
        self._retiring[task] = group
        task.add_done_callback(self._retiring.pop)

    async def _end(self, group: Group) -> None:
        if not await group.drain(DRAIN_S):
            group_logger(log, group.name).warning(
                "group %s: %s calls did not end within %g s", group.name, group.in_flight, DRAIN_S
            )
        await group.close()


def _starting(config: GroupConfig) -> str:
    """Say what a reload brings to be started, so that nothing starts unseen; but for secrets."""
    program = config.upstream
    if not isinstance(program, Program):
        return ""
    mask = mask_of(program)
    return f"; it starts {json.dumps([*map(mask, (program.command, *program.args))])}"


def _lists(config: Config, group: str) -> frozenset[ListKind]:
    """Return the lists of a group that clients may be shown; the others are not read."""
    features = config.presentations[group].features
    return frozenset(kind for kind in ListKind if features.allows(kind.capability))
