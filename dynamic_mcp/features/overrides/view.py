"""The tools of one group as overrides show them, and which of the server's tools a shown name means."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.overrides.config import overrides_of
from dynamic_mcp.features.overrides.overrides import Overrides
from dynamic_mcp.features.overrides.shown_tool import ShownTool
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.policy.call_rules import ToolRules

log = logging.getLogger(__name__)


def compile_rules(presentation: Presentation, server: str) -> OverriddenTools:
    """Return how tools of a server are shown."""
    return OverriddenTools(Overrides(overrides_of(presentation)), server)


class OverriddenTools(ToolRules):
    """Shows the tools of catalogs, after what is hidden from the client has been taken out.

    A list that is the same as before stays the same object. Names are those of the last list that was shown.
    """

    def __init__(self, overrides: Overrides, group: str) -> None:
        self._overrides = overrides
        self._group = group
        self._source: Listing | None = None
        self._shown = Listing()
        self._by_name: Mapping[str, ShownTool] = {}
        self._names: Mapping[str, str] = {}
        self._complaints: tuple[str, ...] = ()

    def show(self, catalog: Catalog) -> Catalog:
        """Return a catalog with the tools as they are shown."""
        listing = catalog.lists.get(ListKind.TOOLS)
        if listing is None:
            return catalog
        if listing is not self._source:
            self._shown = self._show(listing)
            self._source = listing
        return catalog if self._shown is listing else catalog.with_lists({ListKind.TOOLS: self._shown})

    def find(self, name: str) -> ShownTool | None:
        """Return the tool that is shown by this name."""
        return self._by_name.get(name)

    def shown_name(self, own_name: str) -> str:
        """Return by which name a tool of the server is shown; its own if it is not."""
        return self._names.get(own_name, own_name)

    def own_names(self, shown: str) -> Sequence[str]:
        """Return the names by which the server may have a tool that is shown by this one."""
        return self._overrides.own_names(shown)

    def _show(self, listing: Listing) -> Listing:
        shown = self._overrides.show(listing.entries)
        self._by_name = shown.by_name
        self._names = {tool.own_name: name for name, tool in shown.by_name.items()}
        if shown.complaints and shown.complaints != self._complaints:
            for complaint in shown.complaints:
                group_logger(log, self._group).warning("group %s: %s", self._group, complaint)
        self._complaints = shown.complaints
        if shown.entries is listing.entries and not shown.complaints:
            return listing
        return replace(listing, entries=shown.entries, complaints=(*listing.complaints, *shown.complaints))
