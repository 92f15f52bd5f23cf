"""All groups: for the proxy's own environment in the order of the config, for each workspace, and for each user.

There is one group for each name and what would be started for it, so places for which a server would start
identically share its group. Those that differ see nothing of each other's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import CommandLine, Config, GroupConfig, Presentation, Program
from dynamic_mcp.groups.assignment import Assignment, Place, Space, assign, find_match
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.catalog_store import CatalogStore
from dynamic_mcp.groups.group import Group, GroupObserver
from dynamic_mcp.groups.lifecycle import LinkCounts
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.upstream.mask import mask_of
from dynamic_mcp.upstream.open import OpenLink, open_link

log = logging.getLogger(__name__)

# The time that the calls of a changed or removed group have to end.
DRAIN_S = 5.0


class Groups:
    """The groups of one config, and of each that takes its place. `link_counts` are those of each name there was."""

    def __init__(
        self,
        config: Config,
        observer: GroupObserver,
        *,
        opener: OpenLink = open_link,
        catalog_store: CatalogStore | None = None,
    ) -> None:
        self._observer = observer
        self._opener = opener
        self._catalog_store = catalog_store
        self.link_counts: dict[str, LinkCounts] = {}
        self._spaces: dict[Place, Space] = {}
        self._clients: dict[Client, None] = {}
        self._retiring: dict[asyncio.Task[None], Group] = {}
        self._is_closed = False
        self.has_user_logins = config.has_user_logins
        self.add(None, config)

    def __iter__(self) -> Iterator[Group]:
        """Yield the groups of all places, each once."""
        return iter(dict.fromkeys(group for space in self._spaces.values() for group in space.groups.values()))

    def __getitem__(self, name: str) -> Group:
        """Return the group of this name for the proxy's own environment. Raises KeyError."""
        return self._spaces[None].groups[name]

    def place_of(self, client: Client) -> Place:
        """Return the place whose groups serve a client."""
        if client.workspace is not None or not self.has_user_logins:
            return client.workspace
        return self.place_for(client.authentication)

    def place_for(self, authentication: Authentication) -> Place:
        """Return the place whose groups serve a client without a workspace.

        A user without groups gets none of the proxy's own, which would act with the local user's logins.
        """
        return authentication.principal if self.has_user_logins and not authentication.is_local else None

    def of(self, place: Place) -> Mapping[str, Group]:
        """Return the groups of a place by name; none if it is not known."""
        space = self._spaces.get(place)
        return space.groups if space is not None else {}

    def start(self, client: Client) -> None:
        """Begin to serve a client, without waiting for any connection."""
        self._clients[client] = None
        for group in self._groups_for(client):
            group.start(client)

    def release(self, client: Client) -> None:
        self._clients.pop(client, None)
        retiring = (each for each in self._retiring.values() if each.config.person in (None, client.principal))
        for group in (*self.that_may_serve(client), *retiring):
            group.release(client)

    def that_may_serve(self, client: Client) -> Iterable[Group]:
        """Return the groups that a client may use or has used, except those about to end."""
        place = self.place_of(client)
        return dict.fromkeys((*self.of(place).values(), *self._neighbours(place)))

    def _neighbours(self, place: Place) -> Iterable[Group]:
        """Return the groups that a place may share: a user those of the proxy's environment, which are few."""
        return self.of(None).values() if isinstance(place, Principal) else self

    # --- places ----------------------------------------------------------------------------------------

    def add(self, place: Place, config: Config) -> None:
        """Add the groups of a place: shared ones that would start identically, and new ones."""
        candidates = [*self._neighbours(place)]
        groups: dict[str, Group] = {}
        for each in config.groups:
            namesakes = [group for group in candidates if group.name == each.name]
            group = find_match(each, namesakes)
            if group is None:
                group = self._create(each, config)
                if namesakes:
                    level = logging.DEBUG if isinstance(place, Principal) else logging.INFO
                    group_logger(log, each.name).log(level, "group %s: %r has its own", each.name, place)
            groups[each.name] = group
        self._spaces[place] = Space(config, groups)

    def remove(self, place: Place) -> list[Group]:
        """Forget a place, and close the groups that no other place uses; returns these."""
        groups = self.of(place)
        self._spaces.pop(place, None)
        used = set(self._neighbours(place))
        ended = [group for group in groups.values() if group not in used]
        for group in ended:
            self._retire(group)
        return ended

    def apply(self, configs: Mapping[Place, Config], on_change: Callable[[], object] = lambda: None) -> None:
        """Apply new configs by their difference from the former ones, without waiting.

        `on_change` is called once there are the new groups, before they start for the clients that see them now.
        A group whose upstream stays keeps its process, its calls and its catalog. One whose upstream changed
        restarts, and the old one ends once its calls have, within DRAIN_S; so does a removed group. If only
        some of a group's places change it, they get another one and the rest keep it.
        """
        if self._is_closed:
            return
        before, old, shown = self._spaces, list(self), self._presentations()
        known = {client: set(self._groups_for(client)) for client in self._clients}
        self.has_user_logins = configs[None].has_user_logins
        assignment = assign(before, configs, self._create)
        self._spaces = assignment.spaces
        self._log_difference(old, assignment)
        after = self._presentations()
        for group, config in assignment.kept.items():
            if (group.config, shown[group.name]) != (config, after[group.name]):
                group_logger(log, group.name).info("group %s changed in the config and keeps running", group.name)
                group.reconfigure(config, _lists(after[group.name]))
        for group in old:
            if group in assignment.kept:
                group.dismiss_strangers()
            else:
                self._retire(group)
        on_change()
        for client in self._clients:
            for group in self._groups_for(client):
                if group not in known[client]:
                    group.start(client)

    def _log_difference(self, old: list[Group], assignment: Assignment) -> None:
        names = {group.name for group in old}
        for group in assignment.created:
            what = "changed" if group.name in names else "is new"
            words = "group %s %s in the config%s"
            group_logger(log, group.name).info(words, group.name, what, _starting(group.config))
        for name in names - {group.name for group in self}:
            group_logger(log, name).info("group %s is no longer in the config", name)

    def _presentations(self) -> Mapping[str, Presentation]:
        """Return the presentation of each server, which depends on no environment."""
        return {name: each for space in self._spaces.values() for name, each in space.config.presentations.items()}

    async def close(self) -> None:
        """Close all groups at once."""
        self._is_closed = True
        await asyncio.gather(*(group.close() for group in (*self, *self._retiring.values())))
        if self._retiring:
            await asyncio.wait([*self._retiring])

    def _create(self, config: GroupConfig, whole: Config) -> Group:
        return Group(
            config,
            self._observer,
            lists=_lists(whole.presentations[config.name]),
            opener=self._opener,
            catalog_store=self._catalog_store,
            find_current=partial(self._find_current, config.name),
            link_counts=self.link_counts.setdefault(config.name, LinkCounts()),
        )

    def _groups_for(self, client: Client) -> list[Group]:
        groups = self.of(self.place_of(client)).values()
        return [each for each in groups if client.only in (None, each.name) and self._observer.shows(each, client)]

    def _find_current(self, name: str, client: Client) -> Group | None:
        return self.of(self.place_of(client)).get(name)

    def _retire(self, group: Group) -> None:
        group.retire()
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
    """Describe the programs that a reload starts, without secrets, so that nothing starts unseen."""
    match config.upstream:
        case Program(command=command, args=args) as program:
            return f"; it starts {json.dumps([*map(mask_of(program), (command, *args))])}"
        case CommandLine(command=command, commands=commands) as program:
            names = ", ".join(each.name for each in commands)
            return f"; calls start {json.dumps(mask_of(program)(command))} for {names}"
    return ""


def _lists(presentation: Presentation) -> frozenset[ListKind]:
    """Return the lists of a group that clients may see; the others are not read."""
    return frozenset(kind for kind in ListKind if presentation.features.allows(kind.capability))
