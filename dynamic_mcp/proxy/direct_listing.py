"""Tools that are listed by themselves, as `<group>__<tool>`, and what such a name stands for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from weakref import ref

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.listed_names import Named, listed_names
from dynamic_mcp.proxy.lists import WAIT_S, learn
from dynamic_mcp.proxy.surface import Surface
from dynamic_mcp.proxy.view import GroupView, View


class ListedTools:
    """The tools of a view that are listed to some client by themselves, beside, or instead of, the two tools.

    A name stands for the same tool with every client. They are remembered by their view, so they must not hold on
    to it.
    """

    def __init__(self, view: View) -> None:
        self._view = ref(view)
        self._catalogs: list[Catalog | None] = []
        self._by_name: dict[str, Named] = {}
        self._listings: dict[Surface, DirectListing] = {}

    def listing(self, surface: Surface) -> DirectListing:
        """Return those of them that clients with this surface are listed."""
        found = self._listings.get(surface)
        if found is None:
            found = self._listings[surface] = DirectListing(self, surface)
        return found

    def offering(self) -> list[GroupView]:
        """Return the groups of the view that have tools."""
        view = self._view()
        assert view is not None, "only clients with a view ask"
        return view.offering("tools")

    def groups(self) -> list[GroupView]:
        """Return the groups that show some of their tools, or all, to some client."""
        return [group for group in self.offering() if group.presentation.direct.shows_some]

    def find(self, name: str) -> Named | None:
        """Return the group and the tool that a listed name stands for."""
        return self.by_name().get(name)

    def by_name(self) -> dict[str, Named]:
        """Return all of them by their names: the same object as long as the tools are the same."""
        groups = self.groups()
        catalogs = [group.catalog for group in groups]
        if len(catalogs) != len(self._catalogs) or not all(map(operator.is_, catalogs, self._catalogs)):
            self._catalogs = catalogs
            self._by_name = listed_names(_tools_of(groups, _may_show), self.offering())
        return self._by_name


class DirectListing:
    """The tools that clients with one surface are listed by themselves."""

    def __init__(self, tools: ListedTools, surface: Surface) -> None:
        self._tools = tools
        self._surface = surface
        self._named: dict[str, Named] | None = None
        self._entries: list[Raw] = []

    def groups(self) -> list[GroupView]:
        """Return the groups that show some of their tools, or all."""
        return [group for group in self._tools.groups() if self._is_whole(group) or group.presentation.direct.globs]

    def rest(self) -> list[GroupView]:
        """Return the groups with tools that are not listed by themselves."""
        return [group for group in self._tools.offering() if not self._is_whole(group)]

    def is_all(self) -> bool:
        """Return whether every tool is listed by itself, so that a search is not needed."""
        return bool(self._tools.offering()) and not self.rest()

    async def learn(self, client: Client) -> None:
        """Wait, within a bound, until the tools of the groups that show some are known."""
        await learn(client, self.groups(), [ListKind.TOOLS], WAIT_S)

    def entries(self) -> list[Raw]:
        """Return the listed tools: the upstream's bytes under another name."""
        named = self._tools.by_name()
        if named is not self._named:
            self._named = named
            self._entries = [_entry(tool, name) for name, tool in named.items() if self._shows(*tool)]
        return self._entries

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

    def _is_whole(self, group: GroupView) -> bool:
        direct = group.presentation.direct
        return direct.is_all or (direct.is_auto and self._surface.searches_tools)

    def _shows(self, group: GroupView, tool: str) -> bool:
        return self._is_whole(group) or group.presentation.direct.shows(group.own_name(tool))


def _may_show(group: GroupView, tool: str) -> bool:
    """Return whether some client may be listed a tool."""
    direct = group.presentation.direct
    return direct.is_auto or direct.shows(group.own_name(tool))


def _tools_of(groups: Sequence[GroupView], is_shown: Callable[[GroupView, str], bool]) -> Iterator[Named]:
    for group in groups:
        for tool in group.catalog.tools if group.catalog else ():
            if is_shown(group, tool):
                yield group, tool


def _entry(tool: Named, name: str) -> Raw:
    group, own_name = tool
    assert group.catalog is not None, "only tools of known catalogs are named"
    return wire.with_member(group.catalog.tools[own_name], name, "name")
