"""Skills in the answers of `get_dynamic_tools`: those that fit a query or are of a group, and how to read them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import Raw, Struct

from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy import skill_uris
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.tools.detail import Detail, first_sentence

if TYPE_CHECKING:  # loaded with the first search
    from dynamic_mcp.search import GroupIndex

# A skill is for a whole task, so few of them fit.
MAX_SKILLS = 3
HOW_TO_READ = "A skill says how to go about a task: read its `uri` as a resource before you use the tools."


class _Indexed(Struct, frozen=True):
    """The searchable form of a group's skills, the list that it was made from, and the URIs by indexed name."""

    index: GroupIndex
    entries: Mapping[str, Raw]
    uris: Mapping[str, str]


class SkillSearch:
    """Finds skills by their names, paths and descriptions."""

    def __init__(self) -> None:
        self._indexed: WeakKeyDictionary[GroupView, _Indexed] = WeakKeyDictionary()

    async def find(
        self, view: View, groups: Sequence[GroupView], query: str, *, detail: Detail | None, shows_group: bool
    ) -> list[str]:
        """Return the skills that fit a query, best first, each as one compact JSON object."""
        from dynamic_mcp.search import rank

        indexed = {group.name: (group, await self._index(group)) for group in groups}
        matches = rank([each.index for _, each in indexed.values()], query, limit=MAX_SKILLS)
        beside = view.offering("resources")
        rows: list[str] = []
        for match in matches:
            group, each = indexed[match.group]
            entry = each.entries[each.uris[match.name]]
            rows.append(_format(beside, group, entry, detail or Detail.BRIEF, shows_group=shows_group))
        return rows

    async def _index(self, group: GroupView) -> _Indexed:
        entries, indexed = skills_of(group), self._indexed.get(group)
        if indexed is not None and indexed.entries is entries:
            return indexed
        indexed = self._indexed[group] = await asyncio.to_thread(_build_index, group.name, entries)
        return indexed


def _build_index(group: str, entries: Mapping[str, Raw]) -> _Indexed:
    from dynamic_mcp.search import GroupIndex

    uris = {_name(uri): uri for uri in entries}
    texts = {name: _searched(entries[uri]) for name, uri in uris.items()}
    return _Indexed(GroupIndex(group, texts, ""), entries, uris)


def skills_of(group: GroupView) -> Mapping[str, Raw]:
    """Return the known skills of a group by URI."""
    return group.catalog.entries(ListKind.SKILLS) if group.catalog is not None else {}


def list_skills(view: View, group: GroupView, detail: Detail) -> Iterator[str]:
    """Yield the skills of a group, each as one compact JSON object."""
    beside = view.offering("resources")
    for entry in skills_of(group).values():
        yield _format(beside, group, entry, detail, shows_group=False)


def _format(beside: Sequence[GroupView], group: GroupView, entry: Raw, detail: Detail, *, shows_group: bool) -> str:
    front_matter = wire.member(entry, "frontmatter")
    uri = wire.text(wire.member(skill_uris.listed_skill(beside, group, entry), "uri")) or ""
    members = {"group": group.name} if shows_group else {}
    members |= {"name": wire.text(wire.member(front_matter, "name")) or _name(uri)}
    description = wire.text(wire.member(front_matter, "description")) or ""
    if description and detail is not Detail.NAMES:
        members["description"] = description if detail is Detail.FULL else first_sentence(description)
    return wire.encode({**members, "uri": uri}).decode()


def _name(uri: str) -> str:
    """Return what a query finds a skill by: its path."""
    return uri.removeprefix("skill://").removesuffix("/SKILL.md")


def _searched(entry: Raw) -> Raw:
    description = wire.text(wire.member(entry, "frontmatter", "description")) or ""
    return Raw(wire.encode({"description": description}))
