"""Tools that are listed by themselves, as `<group>__<tool>`, and what such a name stands for."""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import ref

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import DirectLimit, SkillFolders
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.listed_names import Named, listed_names
from dynamic_mcp.proxy.lists import WAIT_S, learn
from dynamic_mcp.proxy.surface import Surface
from dynamic_mcp.proxy.view import GroupView, View

if TYPE_CHECKING:  # loaded with the first tool that has a UI
    from dynamic_mcp.proxy.apps import AppLinks

log = logging.getLogger(__name__)

# How often tools were called, by group and the server's name.
ToolUses = Mapping[str, Mapping[str, int]]
# An estimate.
_TOKEN_BYTES = 4
# The number of tools of a group that are listed because of its UIs. The others are found by a search.
MAX_OF_APPS = 64
_RESOURCES = (ListKind.RESOURCES, ListKind.TEMPLATES)


class ListedTools:
    """The tools of a view that are listed to some client by themselves, beside, or instead of, the two tools.

    A name stands for the same tool with every client. They are remembered by their view, so they must not hold on
    to it.
    """

    def __init__(self, view: View, read_uses: Callable[[], ToolUses]) -> None:
        self.limit = view.scope.max_direct
        self.read_uses = read_uses
        self._view = ref(view)
        self._catalogs: dict[GroupView, Catalog | None] = {}
        self._by_name: dict[str, Named] = {}
        self._app_links: AppLinks | None = None
        self._listings: dict[Surface, DirectListing] = {}

    def listing(self, surface: Surface) -> DirectListing:
        """Return those of them that clients with this surface are listed."""
        found = self._listings.get(surface)
        if found is None:
            found = self._listings[surface] = DirectListing(self, surface)
        return found

    def offering(self) -> list[GroupView]:
        """Return the groups of the view that have tools."""
        return self._find_view().offering("tools")

    def groups(self) -> list[GroupView]:
        """Return the groups that show some of their tools, or all, to some client."""
        return [group for group in self.offering() if group.presentation.direct.shows_some]

    def find(self, name: str) -> Named | None:
        """Return the group and the tool that a listed name stands for."""
        found = self._by_name.get(name)
        if found is not None and found[0].catalog is self._catalogs.get(found[0]):
            return found  # whatever has changed in other groups
        return self.by_name().get(name)

    def by_name(self) -> dict[str, Named]:
        """Return all of them by their names: the same object as long as the tools are the same."""
        groups = self.offering()
        catalogs = {group: group.catalog for group in groups}
        if any(catalog is not None and catalog.app_tools for catalog in catalogs.values()):
            # by what these have, links are shown
            catalogs |= {group: group.catalog for group in self._find_view().offering("resources")}
        if len(catalogs) != len(self._catalogs) or not all(
            map(operator.is_, catalogs.values(), self._catalogs.values())
        ):
            self._catalogs = catalogs
            self._app_links = None
            self._by_name = listed_names(_tools_of(groups), groups)
        return self._by_name

    def define(self, tool: Named, name: str, catalog: Catalog | None = None) -> Raw:
        """Return the definition of a tool under a name, with the links to its UI that clients know.

        `catalog` is the one that the tool was found in, which need not be that of its group any more.
        """
        group, own_name = tool
        catalog = catalog or group.catalog
        assert catalog is not None, "only tools of known catalogs are named"
        entry = catalog.tools[own_name]
        if own_name in catalog.app_tools:
            entry = self._find_app_links().show(group, own_name, catalog)
        return wire.with_member(entry, name, "name")

    def is_of_app(self, tool: Named) -> bool:
        """Return whether clients that show UIs are listed a tool because of one."""
        group, name = tool
        if group.catalog is None or name not in group.catalog.app_tools:
            return False
        return self._find_app_links().is_of_app(group, name)

    def _find_app_links(self) -> AppLinks:
        """Return whose the links of tools are: looked at once for all tools, and again when `by_name` has changed."""
        if self._app_links is None:
            from dynamic_mcp.proxy.apps import links_of

            self._app_links = links_of(self._find_view())
        return self._app_links

    def _find_view(self) -> View:
        view = self._view()
        assert view is not None, "only clients with a view ask"
        return view


class DirectListing:
    """The tools that clients with one surface are listed by themselves."""

    def __init__(self, tools: ListedTools, surface: Surface) -> None:
        self._tools = tools
        self._surface = surface
        self._named: dict[str, Named] | None = None
        self._entries: list[Raw] = []
        self._cut: set[GroupView] = set()

    def define(self, tool: Named, name: str, catalog: Catalog) -> Raw:
        """Return the definition of any tool of the view, as this listing would have it."""
        return self._tools.define(tool, name, catalog)

    def groups(self) -> list[GroupView]:
        """Return the groups that show some of their tools, or all."""
        return [group for group in self._tools.groups() if self._is_whole(group) or group.presentation.direct.globs]

    def rest(self) -> list[GroupView]:
        """Return the groups with tools that are not listed by themselves, or with skills, which need a search."""
        self._look()
        return [group for group in self._tools.offering() if group in self._cut or not self._is_found(group)]

    def is_all(self) -> bool:
        """Return whether everything is listed by itself, so that a search is not needed."""
        return bool(self._tools.offering()) and not self.rest()

    async def learn(self, client: Client) -> None:
        """Wait, within a bound, until the tools of the groups that show some are known.

        Any group may have apps, and what a tool links to depends on resources.
        """
        groups = self._tools.offering() if self._surface.renders_apps else self.groups()
        await learn(client, groups, [ListKind.TOOLS], WAIT_S)
        if self._surface.renders_apps:
            with_apps = [group for group in groups if group.catalog is not None and group.catalog.app_tools]
            await learn(client, filter(_offers_resources, with_apps), _RESOURCES, WAIT_S)

    def entries(self) -> list[Raw]:
        """Return the listed tools: the upstream's bytes under another name."""
        self._look()
        return self._entries

    def _find_shown(self, named: Mapping[str, Named]) -> dict[str, Named]:
        of_apps = Counter[str]()
        chosen: dict[str, Named] = {}
        for name, tool in named.items():
            group = tool[0]
            if self._shows(tool):
                chosen[name] = tool
            elif self._surface.renders_apps and of_apps[group.name] < MAX_OF_APPS and self._tools.is_of_app(tool):
                of_apps[group.name] += 1
                chosen[name] = tool
        return chosen

    def missing(self) -> dict[str, str]:
        """Return which groups should show tools and cannot, and why."""
        return {group.name: why for group in self.groups() if (why := group.complaint([ListKind.TOOLS]))}

    def instructions(self) -> dict[str, str]:
        """Return what the upstreams of groups that show all their tools say to the model, by group."""
        return {
            group.name: group.catalog.instructions
            for group in self.groups()
            if self._is_whole(group) and group.catalog and group.catalog.instructions
        }

    def _look(self) -> None:
        """List the tools again when they have changed: in the order of their groups, as many as the limit allows."""
        named = self._tools.by_name()
        if named is self._named:
            return
        self._named, before = named, self._entries
        shown = {name: self._tools.define(tool, name) for name, tool in self._find_shown(named).items()}
        limit = self._tools.limit
        listed = shown.keys() if limit is None else self._choose(shown, limit)
        self._cut = {named[name][0] for name in shown.keys() - listed}
        found = [entry for name, entry in shown.items() if name in listed]
        self._entries = before if found == before else found  # an equal list is no news for clients
        if self._cut:
            log.warning(
                "%d of %d tools are listed directly, and the others are behind the two tools; "
                "`settings.max_direct` is the limit",
                len(self._entries),
                len(shown),
            )

    def _choose(self, shown: Mapping[str, Raw], limit: DirectLimit) -> Collection[str]:
        """Return the names that are within the limit: named ones, those with UIs and the most used ones first."""
        if len(shown) <= limit.tools and sum(map(len, shown.values())) <= limit.tokens * _TOKEN_BYTES:
            return shown.keys()
        chosen: set[str] = set()
        left = limit.tokens * _TOKEN_BYTES
        for name in sorted(shown, key=self._rank):
            if len(chosen) == limit.tools:
                break
            if (size := len(shown[name])) <= left:  # one that is too large is in nobody's way
                left -= size
                chosen.add(name)
        return chosen

    def _rank(self, name: str) -> tuple[bool, int]:
        assert self._named is not None, "tools are named first"
        group, tool = self._named[name]
        own_name = group.own_name(tool)
        uses = self._tools.read_uses().get(group.name, {})
        is_of_app = self._surface.renders_apps and self._tools.is_of_app((group, tool))
        return not (is_of_app or group.presentation.direct.names(own_name)), -uses.get(own_name, 0)

    def _is_found(self, group: GroupView) -> bool:
        return self._is_whole(group) and not _has_skills(group)

    def _is_whole(self, group: GroupView) -> bool:
        direct = group.presentation.direct
        return direct.is_all or (direct.is_auto and self._surface.searches_tools)

    def _shows(self, tool: Named) -> bool:
        group, name = tool
        assert group.catalog is not None, "only tools of known catalogs are named"
        is_direct = self._is_whole(group) or group.presentation.direct.shows(group.own_name(name))
        return is_direct and name in group.catalog.model_tools


def _tools_of(groups: Sequence[GroupView]) -> Iterator[Named]:
    """Yield the tools that some client may be listed."""
    for group in groups:
        direct = group.presentation.direct
        if group.catalog is None or not (direct.shows_some or group.catalog.app_tools):
            continue
        for tool in group.catalog.tools:
            if direct.is_auto or direct.shows(group.own_name(tool)) or tool in group.catalog.app_tools:
                yield group, tool


def _has_skills(group: GroupView) -> bool:
    is_folder = isinstance(group.config.upstream, SkillFolders)  # known before it is read
    return is_folder or (group.catalog is not None and bool(group.catalog.entries(ListKind.SKILLS)))


def _offers_resources(group: GroupView) -> bool:
    return group.offers("resources")
