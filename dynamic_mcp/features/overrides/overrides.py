"""Applies overrides to tools, and maps shown names back to the server's own.

Arguments are checked against the shown schema. A fixed value wins over the model's, and hidden tools and arguments
do not exist for the model.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from dynamic_mcp.config.resolved import Presentation
from dynamic_mcp.features.overrides.config import ArgumentOverride, Override, is_glob
from dynamic_mcp.features.overrides.overridden_tool import OverriddenTool, show_tool
from dynamic_mcp.features.overrides.schema import CannotShow
from dynamic_mcp.groups.catalog import Catalog, Listing, ListKind
from dynamic_mcp.observe.log_output import group_logger
from dynamic_mcp.policy.call_rules import ToolRules
from dynamic_mcp.policy.globs import Globs

T = TypeVar("T")
log = logging.getLogger(__name__)


def compile_rules(presentation: Presentation, server: str) -> OverrideRules:
    """Return the override rules of a server."""
    return OverrideRules(Overrides(presentation.rules_of("overrides", Override)), server)


class OverrideRules(ToolRules):
    """Applies overrides to catalogs, after entries hidden from the client have been removed.

    An unchanged list stays the same object. Names are those of the last list that was shown.
    """

    def __init__(self, overrides: Overrides, group: str) -> None:
        self._overrides = overrides
        self._group = group
        self._source: Listing | None = None
        self._shown = Listing()
        self._by_name: Mapping[str, OverriddenTool] = {}
        self._names: Mapping[str, str] = {}
        self._complaints: tuple[str, ...] = ()

    def show(self, catalog: Catalog) -> Catalog:
        """Return a catalog with overrides applied to its tools."""
        listing = catalog.lists.get(ListKind.TOOLS)
        if listing is None:
            return catalog
        if listing is not self._source:
            self._shown = self._show(listing)
            self._source = listing
        return catalog if self._shown is listing else catalog.with_lists({ListKind.TOOLS: self._shown})

    def find(self, name: str) -> OverriddenTool | None:
        return self._by_name.get(name)

    def shown_name(self, own_name: str) -> str:
        """Return the shown name of a server's tool, or its own name if it is not shown."""
        return self._names.get(own_name, own_name)

    def own_names(self, shown: str) -> Sequence[str]:
        """Return the names that a tool with this shown name may have at the server."""
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


class ShownTools(Struct, frozen=True):
    """The tools of one list: `entries` and `by_name` have shown names. `complaints` say why tools are left out."""

    entries: Mapping[str, Raw]
    by_name: Mapping[str, OverriddenTool]
    complaints: tuple[str, ...] = ()


class Overrides:
    """The overrides of one server."""

    def __init__(self, overrides: Sequence[Override]) -> None:
        self._exact = {each.tools: each for each in overrides if not is_glob(each.tools)}
        self._globs = [(Globs((each.tools,)), each) for each in overrides if is_glob(each.tools)]

    def show(self, tools: Mapping[str, Raw]) -> ShownTools:
        """Return a server's tools with overrides applied, in the same order; unchanged tools are the same objects."""
        found: list[OverriddenTool] = []
        complaints: list[str] = []
        for name, entry in tools.items():
            try:
                found.append(self._show_one(name, entry))
            except CannotShow as exc:
                complaints.append(_complain(name, str(exc)))
        found = _without_clashes(found, complaints)
        entries: Mapping[str, Raw] = {each.name: each.entry for each in found}
        if len(entries) == len(tools) and all(entries.get(name) is entry for name, entry in tools.items()):
            entries = tools
        return ShownTools(entries, {each.name: each for each in found}, tuple(complaints))

    def find(self, tool: str) -> Override | None:
        """Return the override of a tool, by the server's name for it; None if there is none.

        An exact name comes before globs, which keep the order of the config; later ones fill in what is missing.
        """
        found = self._matching(tool)
        return _merge(tool, found) if found else None

    def own_names(self, shown: str) -> list[str]:
        """Return the names that a tool with this shown name may have at the server."""
        renamed = [own_name for own_name, override in self._exact.items() if override.rename == shown]
        return [own_name for own_name in (*renamed, shown) if self._shown_name(own_name) == shown]

    def _shown_name(self, own_name: str) -> str:
        override = self.find(own_name)
        return own_name if override is None else override.rename or own_name

    def _show_one(self, name: str, entry: Raw) -> OverriddenTool:
        override = self.find(name)
        if override is None:
            return OverriddenTool(name, name, entry)
        exact = self._exact.get(name)
        return show_tool(name, entry, override, exact={} if exact is None else exact.arguments)

    def _matching(self, tool: str) -> list[Override]:
        exact = self._exact.get(tool)
        matching = [override for globs, override in self._globs if globs.matches(tool)]
        return matching if exact is None else [exact, *matching]


def _without_clashes(tools: Sequence[OverriddenTool], complaints: list[str]) -> list[OverriddenTool]:
    """Leave out tools whose new name is taken."""
    own_names = {each.name for each in tools if each.name == each.own_name}
    renamed = Counter(each.name for each in tools if each.name != each.own_name)
    kept: list[OverriddenTool] = []
    for each in tools:
        if each.name != each.own_name and (each.name in own_names or renamed[each.name] > 1):
            complaints.append(_complain(each.own_name, f"another one is named `{each.name}`"))
        else:
            kept.append(each)
    return kept


def _complain(tool: str, why: str) -> str:
    return f"the tool `{tool}` was left out, because of its override: {why}"


# --- several overrides of one tool -----------------------------------------------------------------------


def _merge(tool: str, overrides: Sequence[Override]) -> Override:
    arguments = dict.fromkeys(name for each in overrides for name in each.arguments)
    return Override(
        tool,
        rename=_first(each.rename for each in overrides),
        title=_first(each.title for each in overrides),
        description=_first(each.description for each in overrides),
        annotations={name: value for each in reversed(overrides) for name, value in each.annotations.items()},
        arguments={
            name: _merge_argument([each.arguments[name] for each in overrides if name in each.arguments])
            for name in arguments
        },
    )


def _merge_argument(overrides: Sequence[ArgumentOverride]) -> ArgumentOverride:
    """Return the merged override of an argument; `fixed` and `default` exclude each other."""
    valued = next((each for each in overrides if each.fixed is not None or each.default is not None), None)
    return ArgumentOverride(
        rename=_first(each.rename for each in overrides),
        description=_first(each.description for each in overrides),
        default=None if valued is None else valued.default,
        fixed=None if valued is None else valued.fixed,
        is_hidden=_first(each.is_hidden for each in overrides),
    )


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)
