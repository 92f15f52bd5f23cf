"""`get_dynamic_tools`: the tools of a group, or those of one or all groups that fit a query.

A search waits a moment for groups whose tools are not known yet, then answers from what is known. The first block of
an answer is always one JSON object, `{"tools": […]}`; remarks follow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from dynamic_mcp.embeddings import SemanticIndex
from dynamic_mcp.errors import Disabled, InvalidArguments
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.groups import Groups
from dynamic_mcp.groups.instance import Group
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import NULL, Frame
from dynamic_mcp.proxy.calls import own_arguments
from dynamic_mcp.proxy.lists import WAIT_S, learned
from dynamic_mcp.system.text import one_line
from dynamic_mcp.tools import results
from dynamic_mcp.tools.detail import Detail, listing, shown

if TYPE_CHECKING:
    from dynamic_mcp.search import (
        GroupIndex,  # its stemmer and tables are loaded with the first search, not at the start
    )

# So many tools are shown in full when nothing else was asked for.
MAX_IN_FULL = 20

_HOW_TO_GET_MORE = {
    Detail.BRIEF: "In brief. For an input schema, give a tool's name as `query`, or `detail`: `full`.",
    Detail.NAMES: "Names only, because there are so many tools. To find the right one, describe one step in `query`.",
}


class _Known(Struct, frozen=True, dict=True):
    """The searchable form of a group, and what it was made from."""

    part: GroupIndex
    tools: Mapping[str, Raw]
    description: str

    @cached_property
    def summaries(self) -> list[str]:
        """What each tool is for, in the order of the part."""
        from dynamic_mcp.search import summary

        return [summary(name, tool) for name, tool in self.tools.items()]


class ToolSearch:
    """Shows the tools of all groups, and finds among them."""

    def __init__(self, groups: Groups, semantic_index: SemanticIndex) -> None:
        self._groups = groups
        self._semantic_index = semantic_index
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
            raise InvalidArguments("`group` or `query` is required", hint=self._groups.all_named("tools"))
        return wire.result_frame({"content": [{"type": "text", "text": text} for text in texts]})

    def learn(self) -> None:
        """Let the meanings of all known tools be learnt in the background, where the config asks for that."""
        self._semantic_index.learn(self._summaries)

    # --- searching -------------------------------------------------------------------------------------

    async def _search(self, groups: list[Group], query: str, detail: Detail | None, *, is_one: bool) -> list[str]:
        from dynamic_mcp.search import rank

        await learned(groups, [ListKind.TOOLS], WAIT_S)
        known = await self._parts(groups)
        parts = [each.part for each in known]
        matches = rank(parts, query, similarity=await self._similarity(known, query))
        is_small = sum(map(len, parts)) <= MAX_IN_FULL
        details = [detail or (Detail.FULL if is_small or match.is_named else Detail.BRIEF) for match in matches]
        tools = {each.part.group: each.tools for each in known}
        rows = _within(
            max(group.config.answers.limit for group in groups),
            (
                shown(match.name, tools[match.group][match.name], each, group=None if is_one else match.group)
                for match, each in zip(matches, details, strict=True)
            ),
        )
        remarks = [
            _HOW_TO_GET_MORE[Detail.BRIEF] if Detail.BRIEF in details and detail is None else "",
            _cut(len(rows), len(matches)),
            self._nothing(query) if parts and not matches else "",
            _unsearched([group for group in groups if group.known is None]),
        ]
        return [listing(rows), *filter(None, remarks)]

    async def _parts(self, groups: list[Group]) -> list[_Known]:
        """Return what can be searched of these groups; what has not changed since the last time is used again."""
        for name in self._known.keys() - set(self._groups.names()):
            del self._known[name]
        return [await self._part(group, group.known.tools) for group in groups if group.known is not None]

    async def _part(self, group: Group, tools: Mapping[str, Raw]) -> _Known:
        kept = self._known.get(group.name)
        if kept is not None and kept.tools is tools and kept.description == group.description:
            return kept
        from dynamic_mcp.search import GroupIndex

        description = group.description
        part = await asyncio.to_thread(GroupIndex, group.name, tools, description)
        made = self._known[group.name] = _Known(part, tools, description)
        return made

    async def _similarity(self, known: list[_Known], query: str) -> list[list[float | None]]:
        if not self._semantic_index.is_on:
            return []
        self.learn()
        return await self._semantic_index.similarity(query, [each.summaries for each in known])

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
    chosen, rows = _fitting(catalog.tools, group.config.answers.limit, detail)
    remarks = [
        catalog.instructions,
        _HOW_TO_GET_MORE.get(chosen, "") if detail is None else "",
        _cut(len(rows), len(catalog.tools)),
    ]
    return [listing(rows), *filter(None, remarks)]


def _fitting(tools: Mapping[str, Raw], limit: int, detail: Detail | None) -> tuple[Detail, list[str]]:
    """Return tools in the detail that was asked for, else in the most detail that shows them all within the limit."""
    in_order = (Detail.FULL, Detail.BRIEF, Detail.NAMES)
    choices = (detail,) if detail else in_order[len(tools) > MAX_IN_FULL :]
    for chosen in choices:
        rows = _within(limit, (shown(name, tool, chosen) for name, tool in tools.items()))
        if len(rows) == len(tools):
            break
    return chosen, rows


def _within(limit: int, rows: Iterable[str]) -> list[str]:
    """Return the first rows, as many as fit into so many bytes, and one at least."""
    taken: list[str] = []
    for row in rows:
        limit -= results.size(row) + 1
        if limit < 0 and taken:
            break
        taken.append(row)
    return taken


def _cut(count: int, total: int) -> str:
    if count == total:
        return ""
    return f"Only the first {count} of {total} tools are shown. To find others, describe one step in `query`."


def _unsearched(groups: list[Group]) -> str:
    if not groups:
        return ""
    told = ", ".join(f"`{group.name}`" + (f" ({group.reason})" if group.reason else "") for group in groups)
    return f"Not searched, because their tools are not known yet: {told}. Ask for one by `group` alone."


def _query(arguments: Mapping[str, Raw]) -> str:
    """Return the query without what cannot be seen; an empty one is none."""
    given = arguments.get("query", NULL)
    query = wire.text(given)
    if query is None and bytes(given) != b"null":
        raise InvalidArguments("`query` is not a string", hint='give a few words, as in {"query": "create issue"}')
    read = query or ""
    if not read:
        return ""
    from dynamic_mcp.search import MAX_END

    if len(read) > 2 * MAX_END:
        read = f"{read[:MAX_END]} {read[-MAX_END:]}"
    return one_line(read, None)


def _detail(arguments: Mapping[str, Raw]) -> Detail | None:
    given = arguments.get("detail", NULL)
    if bytes(given) in (b"null", b'""'):
        return None
    try:
        return Detail(wire.text(given))
    except ValueError:
        raise InvalidArguments("`detail` is not one of `names`, `brief` and `full`") from None
