"""Tools that are listed by themselves, as `<group>__<tool>`, and what such a name stands for."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from weakref import ref

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.listed_names import Named, listed_names
from dynamic_mcp.proxy.lists import WAIT_S, learn
from dynamic_mcp.proxy.view import GroupView, View


class DirectListing:
    """The tools that the config lists directly, beside, or instead of, the two tools.

    They are remembered by their view, so they must not hold on to it.
    """

    def __init__(self, view: View) -> None:
        self._view = ref(view)
        self._catalogs: list[Catalog | None] = []
        self._by_name: dict[str, Named] = {}
        self._entries: list[Raw] = []

    def groups(self) -> list[GroupView]:
        """Return the groups that show some of their tools, or all."""
        return [group for group in self._offering() if group.presentation.direct.shows_some]

    def is_all(self) -> bool:
        """Return whether every tool is listed by itself, so that a search is not needed."""
        offering = self._offering()
        return bool(offering) and all(group.presentation.direct.is_all for group in offering)

    async def learn(self, client: Client) -> None:
        """Wait, within a bound, until the tools of the groups that show some are known."""
        await learn(client, self.groups(), [ListKind.TOOLS], WAIT_S)

    def entries(self) -> list[Raw]:
        """Return the listed tools: the upstream's bytes under another name."""
        self._look()
        return self._entries

    def find(self, name: str) -> Named | None:
        """Return the group and the tool that a listed name stands for."""
        self._look()
        return self._by_name.get(name)

    def missing(self) -> dict[str, str]:
        """Return which groups should show tools and cannot, and why."""
        return {group.name: why for group in self.groups() if (why := group.complaint([ListKind.TOOLS]))}

    def instructions(self) -> dict[str, str]:
        """Return what the upstreams of groups that show all their tools say to the model, by group."""
        return {
            group.name: group.catalog.instructions
            for group in self.groups()
            if group.presentation.direct.is_all and group.catalog and group.catalog.instructions
        }

    def _offering(self) -> list[GroupView]:
        view = self._view()
        assert view is not None, "only clients with a view ask"
        return view.offering("tools")

    def _look(self) -> None:
        """Name the tools again when the catalogs have changed."""
        catalogs = [group.catalog for group in self.groups()]
        if len(catalogs) == len(self._catalogs) and all(map(operator.is_, catalogs, self._catalogs)):
            return
        self._catalogs = catalogs
        self._by_name = listed_names(_direct_tools(self.groups()), self._offering())
        view = self._view()
        assert view is not None, "only clients with a view ask"
        self._entries = [wire.with_member(_entry(view, tool), name, "name") for name, tool in self._by_name.items()]


def _direct_tools(groups: Sequence[GroupView]) -> Iterator[Named]:
    for group in groups:
        for tool in group.catalog.model_tools if group.catalog else ():
            if group.presentation.direct.shows(group.own_name(tool)):
                yield group, tool


def _entry(view: View, tool: Named) -> Raw:
    group, name = tool
    assert group.catalog is not None, "only tools of known catalogs are named"
    if name not in group.catalog.app_tools:
        return group.catalog.tools[name]
    from dynamic_mcp.proxy.apps import links_of

    return links_of(view).show(group, name)
