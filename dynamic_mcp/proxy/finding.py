"""`get_dynamic_tools`: the tools of a group, or those of one or all groups that fit a query.

A search answers from what is known and connects to nothing. The first block of an answer is always one JSON
array; remarks follow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from dynamic_mcp import wire
from dynamic_mcp.catalog import one_line
from dynamic_mcp.detail import Detail, shown
from dynamic_mcp.embeddings import Meaning
from dynamic_mcp.errors import Disabled, InvalidArguments
from dynamic_mcp.group import Group
from dynamic_mcp.groups import Groups
from dynamic_mcp.proxy.calling import own_arguments
from dynamic_mcp.wire import NULL, Frame

if TYPE_CHECKING:
    from dynamic_mcp.search import Part  # its stemmer and tables are loaded with the first search, not at the start

# So many tools are shown in full when nothing else was asked for.
MAX_IN_FULL = 20

_HOW_TO_GET_MORE = "In brief. For an input schema, give a tool's name as `query`, or `detail`: `full`."


class _Known(Struct, frozen=True, dict=True):
    """The searchable form of a group, and what it was made from."""

    part: Part
    tools: Mapping[str, Raw]
    description: str

    @cached_property
    def summaries(self) -> list[str]:
        """What each tool is for, in the order of the part."""
        from dynamic_mcp.search import summary

        return [summary(name, tool) for name, tool in self.tools.items()]


class Finding:
    """Shows the tools of all groups, and finds among them."""

    def __init__(self, groups: Groups, meaning: Meaning) -> None:
        self._groups = groups
        self._meaning = meaning
        self._known: dict[str, _Known] = {}

    async def answer(self, params: Mapping[str, Raw]) -> Frame:
        """Answer a call of `get_dynamic_tools`. Raises InvalidArguments, NotFound, Disabled and UpstreamError."""
        arguments = own_arguments(params)
        group = self._group(arguments)
        query = _query(arguments)
        detail = _detail(arguments)
        if query:
            texts = await self._search(
                [group] if group else self._offering(), query, detail, is_one=group is not None
            )
        elif group is not None:
            texts = await _tools_of(group, detail)
        else:
            raise InvalidArguments("neither `group` nor `query` is given", hint=self._groups.all_named("tools"))
        return wire.result_frame({"content": [{"type": "text", "text": text} for text in texts]})

    def learn(self) -> None:
        """Let the meanings of all known tools be learnt in the background, where the config asks for that."""
        self._meaning.learn(self._summaries)

    # --- searching -------------------------------------------------------------------------------------

    async def _search(self, groups: list[Group], query: str, detail: Detail | None, *, is_one: bool) -> list[str]:
        from dynamic_mcp.search import rank

        known = await self._parts(groups)
        parts = [each.part for each in known]
        matches = rank(parts, query, closeness=await self._closeness(known, query))
        is_small = sum(map(len, parts)) <= MAX_IN_FULL
        details = [detail or (Detail.FULL if is_small or match.is_named else Detail.BRIEF) for match in matches]
        tools = {each.part.group: each.tools for each in known}
        rows = [
            shown(match.name, tools[match.group][match.name], each, group=None if is_one else match.group)
            for match, each in zip(matches, details, strict=True)
        ]
        remarks = [
            _HOW_TO_GET_MORE if Detail.BRIEF in details and detail is None else "",
            self._nothing(query) if parts and not matches else "",
            _unsearched([group for group in groups if group.known is None]),
        ]
        return [_array(rows), *filter(None, remarks)]

    async def _parts(self, groups: list[Group]) -> list[_Known]:
        """Return what can be searched of these groups; what has not changed since the last time is used again."""
        for name in self._known.keys() - set(self._groups.names()):
            del self._known[name]
        return [await self._part(group, group.known.tools) for group in groups if group.known is not None]

    async def _part(self, group: Group, tools: Mapping[str, Raw]) -> _Known:
        kept = self._known.get(group.name)
        if kept is not None and kept.tools is tools and kept.description == group.description:
            return kept
        from dynamic_mcp.search import Part

        description = group.description
        part = await asyncio.to_thread(Part, group.name, tools, description)
        made = self._known[group.name] = _Known(part, tools, description)
        return made

    async def _closeness(self, known: list[_Known], query: str) -> list[list[float | None]]:
        if not self._meaning.is_on:
            return []
        self.learn()
        return await self._meaning.closeness(query, [each.summaries for each in known])

    async def _summaries(self) -> list[str]:
        known = await self._parts(self._offering())
        return await asyncio.to_thread(lambda: [text for each in known for text in each.summaries])

    def _nothing(self, query: str) -> str:
        groups = self._groups.all_named("tools")
        return f"Nothing fits `{one_line(query)}`. Try one step in other words, or a group: {groups}."

    # --- arguments -------------------------------------------------------------------------------------

    def _offering(self) -> list[Group]:
        return [group for group in self._groups if group.config.features.tools]

    def _group(self, arguments: Mapping[str, Raw]) -> Group | None:
        given = arguments.get("group", NULL)
        name = wire.text(given)
        if name:
            group = self._groups[name]
            if not group.config.features.tools:
                raise Disabled("tools", name)
            return group
        if name is None and bytes(given) != b"null":
            raise InvalidArguments("`group` is not a name", hint=self._groups.all_named("tools"))
        return None


async def _tools_of(group: Group, detail: Detail | None) -> list[str]:
    """Return the tools of a group, connecting to learn them if need be, and what the upstream says of itself."""
    catalog = await group.catalog()
    chosen = detail or (Detail.FULL if len(catalog.tools) <= MAX_IN_FULL else Detail.BRIEF)
    if chosen is Detail.FULL:
        listed = catalog.tools_text
    else:
        listed = _array([shown(name, tool, chosen) for name, tool in catalog.tools.items()])
    more = _HOW_TO_GET_MORE if chosen is Detail.BRIEF and detail is None else ""
    return [listed, *filter(None, [catalog.instructions, more])]


def _array(rows: list[str]) -> str:
    return "[" + ",".join(rows) + "]"


def _unsearched(groups: list[Group]) -> str:
    if not groups:
        return ""
    told = ", ".join(f"`{group.name}`" + (f" ({group.reason})" if group.reason else "") for group in groups)
    return f"Not searched, as their tools are not known yet: {told}. Ask for one by `group` alone."


def _query(arguments: Mapping[str, Raw]) -> str:
    """Return the query without what cannot be seen; an empty one is none."""
    given = arguments.get("query", NULL)
    query = wire.text(given)
    if query is None and bytes(given) != b"null":
        raise InvalidArguments("`query` is not a text", hint='give a few words, as in {"query": "create issue"}')
    read = query or ""
    if not read:
        return ""
    from dynamic_mcp.search import MAX_END

    if len(read) > 2 * MAX_END:
        read = f"{read[:MAX_END]} {read[-MAX_END:]}"
    return " ".join("".join(c if c.isprintable() else " " for c in read).split())


def _detail(arguments: Mapping[str, Raw]) -> Detail | None:
    given = arguments.get("detail", NULL)
    if bytes(given) in (b"null", b'""'):
        return None
    try:
        return Detail(wire.text(given))
    except ValueError:
        raise InvalidArguments("`detail` is not one of `names`, `brief` and `full`") from None
