"""All groups, in the order of the config."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

from dynamic_mcp.config.resolved import Config, GroupConfig, Program
from dynamic_mcp.errors import NotFound
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.instance import Group, Observer, OpenLink
from dynamic_mcp.mcp.names import closest
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.open import ClientHello, open_link

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
        self._groups = {each.name: self._made(each) for each in config.groups}
        self._hello: ClientHello | None = None
        self._retiring: dict[asyncio.Task[None], Group] = {}
        self._is_closed = False

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __getitem__(self, name: str) -> Group:
        """Return the group of this name. Raises NotFound with the closest names and all that there are."""
        try:
            return self._groups[name]
        except KeyError:
            raise NotFound("group", name, closest(name, self.names()), hint=self.all_named()) from None

    def names(self) -> list[str]:
        """Return the names, in config order."""
        return list(self._groups)

    def all_named(self, feature: str = "") -> str:
        """Say which groups there are, or which of them offer a feature."""
        named = ", ".join(f"`{group.name}`" for group in self if group.config.features.allows(feature))
        return f"the groups are {named}" if named else "no group is configured"

    def start(self, hello: ClientHello) -> None:
        """Begin every group's life; none is waited for."""
        self._hello = hello
        for group in self:
            group.start(hello)

    def apply(self, config: Config) -> None:
        """Take the place of the config before, by difference; nothing is waited for.

        A group whose upstream stays keeps its process, its calls and its catalog. One whose upstream changed
        starts anew, and the old one ends once its calls have, within DRAIN_S; so does a group that is gone.
        """
        if self._is_closed:
            return
        before, after = dict(self._groups), dict[str, Group]()
        for each in config.groups:
            after[each.name] = self._succeeding(before.pop(each.name, None), each)
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

    def _succeeding(self, old: Group | None, config: GroupConfig) -> Group:
        if old is None:
            group_logger(log, config.name).info("group %s is new in the config%s", config.name, _starting(config))
        elif old.config.upstream != config.upstream:
            group_logger(log, config.name).info("group %s changed in the config%s", config.name, _starting(config))
        else:
            if old.config != config:
                group_logger(log, config.name).info("group %s changed in the config and keeps running", config.name)
                old.reconfigure(config)
            return old
        group = self._made(config)
        if old is not None:
            group.use.is_subscribed = old.use.is_subscribed
            self._retire(old, group)
        if self._hello is not None:
            group.start(self._hello)
        return group

    def _made(self, config: GroupConfig) -> Group:
        return Group(config, self._observer, opener=self._opener, catalog_store=self._catalog_store)

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
    return f"; it starts {json.dumps([program.command, *map(mask, program.args)])}"
