"""Tools that are listed by themselves, as `<group>__<tool>`, and what such a name stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Raw

from dynamic_mcp.config.resolved import GroupConfig
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.mcp import names, wire
from dynamic_mcp.proxy.lists import WAIT_S, learned

Tool = tuple[Group, str]


class ExposedTools:
    """The tools that the config exposes beside, or instead of, the two tools."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._seen: list[tuple[GroupConfig, Catalog | None]] = []
        self._by_name: dict[str, Tool] = {}
        self._entries: list[Raw] = []

    def groups(self) -> list[Group]:
        """Return the groups that show some of their tools, or all."""
        return [
            group
            for group in self._groups
            if group.config.features.tools and (group.config.exposure.direct or group.config.exposure.pinned)
        ]

    def is_all(self) -> bool:
        """Tell whether every tool is listed by itself, so that there is nothing to find."""
        offering = [group for group in self._groups if group.config.features.tools]
        return bool(offering) and all(group.config.exposure.direct for group in offering)

    async def learned(self) -> None:
        """Wait, within a bound, until the groups that show tools have told which they have."""
        await learned(self.groups(), [ListKind.TOOLS], WAIT_S)

    def entries(self) -> list[Raw]:
        """Return the tools as they are listed: the upstream's bytes under another name."""
        self._look()
        return self._entries

    def find(self, name: str) -> Tool | None:
        """Return the group and the tool that a listed name stands for."""
        self._look()
        return self._by_name.get(name)

    def missing(self) -> dict[str, str]:
        """Say which groups should show tools and cannot, and why."""
        return {group.name: why for group in self.groups() if (why := group.complaint([ListKind.TOOLS]))}

    def instructions(self) -> dict[str, str]:
        """Return what the upstreams of groups that show all their tools say to the model, by group."""
        return {
            group.name: group.known.instructions
            for group in self.groups()
            if group.config.exposure.direct and group.known and group.known.instructions
        }

    def _look(self) -> None:
        """Name the tools anew when the groups or their catalogs are others than before."""
        seen = [(group.config, group.known) for group in self.groups()]
        if len(seen) == len(self._seen) and all(a[0] is b[0] and a[1] is b[1] for a, b in zip(seen, self._seen)):  # noqa: B905
            return
        self._seen = seen
        self._by_name = _named(self.groups())
        self._entries = [wire.with_member(_entry(tool), name, "name") for name, tool in self._by_name.items()]


def _named(groups: Sequence[Group]) -> dict[str, Tool]:
    """Give each tool its name; one that reads as another group's, or that clients do not take, gets its short form.

    Whose name it is does not depend on which group has told its tools first: a name must not change its meaning.
    """
    shown = [(group, tool, _is_plain(group, tool, groups)) for group, tool in _shown(groups)]
    short = {names.hashed_name(group.name, tool) for group, tool, is_plain in shown if not is_plain}
    found: dict[str, Tool] = {}
    for group, tool, is_plain in shown:
        full = names.qualified_name(group.name, tool)
        found[full if is_plain and full not in short else names.hashed_name(group.name, tool)] = (group, tool)
    return found


def _is_plain(group: Group, tool: str, groups: Sequence[Group]) -> bool:
    """Tell whether clients take `<group>__<tool>`, and it reads as this group's."""
    full = f"{group.name}__{tool}"
    longest = max((each.name for each in groups if full.startswith(f"{each.name}__")), key=len)
    return longest == group.name and names.qualified_name(group.name, tool) == full


def _shown(groups: Sequence[Group]) -> Iterator[Tool]:
    for group in groups:
        for tool in group.known.tools if group.known else ():
            if group.config.exposure.shows(tool):
                yield group, tool


def _entry(tool: Tool) -> Raw:
    group, name = tool
    assert group.known is not None, "only tools of known catalogs are named"
    return group.known.tools[name]
