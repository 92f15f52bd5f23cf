"""`get_dynamic_tools`: the tools of a group, or those of one or all groups that fit a query.

A search waits a moment for groups whose tools are not known yet, then answers from what is known. The first block of
an answer is always one JSON object, `{"tools": […]}`; remarks follow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Raw, Struct

from dynamic_mcp.client import Client
from dynamic_mcp.config.types import NO_LIMIT
from dynamic_mcp.errors import InvalidArguments
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import NULL, Frame
from dynamic_mcp.proxy.lists import WAIT_S, learn
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView, View
from dynamic_mcp.system.text import one_line
from dynamic_mcp.tools import results
from dynamic_mcp.tools.detail import Detail, format_tool, format_tools
from dynamic_mcp.tools.meta_tools import own_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from dynamic_mcp.config.resolved import Embeddings
    from dynamic_mcp.embeddings import SemanticIndex  # loaded with the first endpoint
    from dynamic_mcp.proxy.skill_search import SkillSearch  # loaded with the first skill
    from dynamic_mcp.search import ExplainedMatch, GroupIndex  # its stemmer and tables come with the first search

M = TypeVar("M")

# So many tools are shown in full when nothing else was asked for.
MAX_IN_FULL = 20

_HOW_TO_GET_MORE = {
    Detail.BRIEF: "In brief. For an input schema, give a tool's name as `query`, or `detail`: `full`.",
    Detail.NAMES: "Names only, because there are so many tools. To find the right one, describe one step in `query`.",
}


class _Indexed(Struct, frozen=True, dict=True):
    """The searchable form of a group, and what it was made from."""

    index: GroupIndex
    tools: Mapping[str, Raw]
    description: str

    @cached_property
    def summaries(self) -> list[str]:
        """The summary of each tool, in the order of the index."""
        from dynamic_mcp.search import summarize

        return [summarize(name, tool) for name, tool in self.tools.items()]


class _Rank(Protocol[M]):
    def __call__(
        self, indexes: Sequence[GroupIndex], query: str, *, similarity: Sequence[Sequence[float | None]]
    ) -> list[M]: ...


class WordReason(Struct, frozen=True):
    """Why one word of a query counts for a tool: the word of the tool that it met, and in which of its texts.

    `kind` is `same` for the word itself or another form of it, else `synonym` or `similar`; `score` is what it adds.
    """

    word: str
    found: str
    fields: tuple[str, ...]
    kind: Literal["same", "synonym", "similar"]
    score: float


class ExplainedTool(Struct, frozen=True):
    """A tool that a query finds, and why. `score` orders tools that are named alike.

    `similarity` is that of the meanings, -1 to 1; None where it is not known. `naming` says how the query names the
    tool; empty if it does not.
    """

    group: str
    name: str
    tool: Raw
    score: float
    by_words: float
    similarity: float | None
    naming: str
    words: tuple[WordReason, ...]


class SearchExplanation(Struct, frozen=True):
    """What a query finds, best first; among how many tools; and which groups were not searched, and why, in words."""

    tools: tuple[ExplainedTool, ...] = ()
    searched: int = 0
    unsearched: str = ""
    compares_meanings: bool = False


class ToolSearch:
    """Shows the tools of a view's groups, and finds among them.

    `groups` returns those of all views. Vectors are kept in the folder `vectors`, if there is one.
    """

    def __init__(self, groups: Callable[[], Iterable[GroupView]], vectors: Path | None = None) -> None:
        self._groups = groups
        self._vectors = vectors
        self._semantic_index: SemanticIndex | None = None
        self._indexed: WeakKeyDictionary[GroupView, _Indexed] = WeakKeyDictionary()
        self._skills: SkillSearch | None = None

    async def answer(self, request: Request, params: Mapping[str, Raw]) -> Frame:
        """Answer a call of `get_dynamic_tools`. Raises InvalidArguments, NotFound, Disabled and UpstreamError."""
        arguments = own_arguments(params)
        group = _choose_group(request.view, arguments)
        query = _query(arguments)
        detail = _detail(arguments)
        if query:
            texts = await self._search(request, group, query, detail)
        elif group is not None:
            texts = await _list_tools(request, group, detail)
        else:
            hint = request.view.names_in_words("tools")
            raise InvalidArguments("`group` or `query` is required", hint=hint)
        return wire.result_frame({"content": [{"type": "text", "text": text} for text in texts]})

    def configure(self, config: Embeddings | None) -> None:
        """Search by this endpoint, too, from now on, or by words alone."""
        if self._semantic_index is None:
            if config is None:
                return
            from dynamic_mcp.embeddings import SemanticIndex

            self._semantic_index = SemanticIndex(self._vectors)
        self._semantic_index.configure(config)

    def learn(self) -> None:
        """Learn vectors for all known tools in the background, where the config asks for that."""
        if self._semantic_index is not None:
            self._semantic_index.update(self._summarize)

    async def close(self) -> None:
        """Stop learning vectors."""
        if self._semantic_index is not None:
            await self._semantic_index.close()

    # --- searching -------------------------------------------------------------------------------------

    async def explain(
        self, client: Client, view: View, query: str, *, group: GroupView | None = None
    ) -> SearchExplanation:
        """Return what the query of a model would find for a client, in the same order, and why."""
        from dynamic_mcp.search import explain

        query = _clean(query)
        groups = [group] if group else view.offering("tools")
        if not query or not groups:
            return SearchExplanation()
        indexed, matches, similarity = await self._rank(client, groups, query, explain)
        by_group = {each.index.group: each for each in indexed}
        return SearchExplanation(
            tuple(_explain(each, by_group[each.match.group]) for each in matches),
            sum(len(each.index) for each in indexed),
            _unsearched_remark([group for group in groups if group.catalog is None or _lacks_tools(group.catalog)]),
            compares_meanings=bool(similarity),
        )

    async def _search(
        self, request: Request, group: GroupView | None, query: str, detail: Detail | None
    ) -> list[str]:
        from dynamic_mcp.search import rank

        groups = [group] if group else request.view.offering("tools")
        if not groups:
            return [format_tools([]), f"There is nothing to search: {request.view.names_in_words('tools')}."]
        indexed, matches, _ = await self._rank(request.client, groups, query, rank)
        indexes = [each.index for each in indexed]
        is_small = sum(map(len, indexes)) <= MAX_IN_FULL
        details = [detail or (Detail.FULL if is_small or match.is_named else Detail.BRIEF) for match in matches]
        tools = {each.index.group: each.tools for each in indexed}
        rows = _within(
            max(group.presentation.answers.limit for group in groups),
            (
                format_tool(match.name, tools[match.group][match.name], each, group=None if group else match.group)
                for match, each in zip(matches, details, strict=True)
            ),
        )
        skills = await self._find_skills(request.view, group, query, detail)
        remarks = [
            _HOW_TO_GET_MORE[Detail.BRIEF] if Detail.BRIEF in details and detail is None else "",
            _cut_remark(len(rows), len(matches)),
            _no_match(request.view, query) if indexes and not matches and not skills else "",
            _how_to_read(skills),
            _unsearched_remark([group for group in groups if group.catalog is None or _lacks_tools(group.catalog)]),
        ]
        return [format_tools(rows, skills), *filter(None, remarks)]

    async def _rank(
        self, client: Client, groups: list[GroupView], query: str, rank: _Rank[M]
    ) -> tuple[list[_Indexed], list[M], list[list[float | None]]]:
        """Return what was searched, what fits the query best, and the similarity of each tool to it, if known."""
        await learn(client, groups, [ListKind.TOOLS], WAIT_S)
        indexed = await self._index_all(groups)
        indexes = [each.index for each in indexed]
        similarity = await self._similarity(indexed, query)
        ranking = partial(rank, indexes, query, similarity=similarity)
        is_large = any(each.is_large for each in indexes)
        return indexed, await asyncio.to_thread(ranking) if is_large else ranking(), similarity

    async def _find_skills(
        self, view: View, group: GroupView | None, query: str, detail: Detail | None
    ) -> Sequence[str]:
        """Return the skills that fit a query, if any group has skills."""
        groups = [each for each in view.offering("resources") if group in (None, each) and _has_skills(each)]
        if not groups:
            return ()
        if self._skills is None:
            from dynamic_mcp.proxy.skill_search import SkillSearch

            self._skills = SkillSearch()
        return await self._skills.find(view, groups, query, detail=detail, shows_group=group is None)

    async def _index_all(self, groups: list[GroupView]) -> list[_Indexed]:
        """Return what can be searched of these groups; what has not changed since the last time is used again."""
        return [await self._index(group, group.catalog.model_tools) for group in groups if group.catalog is not None]

    async def _index(self, group: GroupView, tools: Mapping[str, Raw]) -> _Indexed:
        indexed, description = self._indexed.get(group), group.description
        if indexed is not None and indexed.tools is tools and indexed.description == description:
            return indexed
        from dynamic_mcp.search import GroupIndex

        index = await asyncio.to_thread(GroupIndex, group.name, tools, description)
        indexed = self._indexed[group] = _Indexed(index, tools, description)
        return indexed

    async def _similarity(self, indexed: list[_Indexed], query: str) -> list[list[float | None]]:
        if self._semantic_index is None or not self._semantic_index.is_enabled:
            return []
        self.learn()
        return await self._semantic_index.similarity(query, [each.summaries for each in indexed])

    async def _summarize(self) -> list[str]:
        indexed = await self._index_all([group for group in self._groups() if group.offers("tools")])
        return await asyncio.to_thread(lambda: [text for each in indexed for text in each.summaries])


def _explain(explained: ExplainedMatch, indexed: _Indexed) -> ExplainedTool:
    from dynamic_mcp.search import MAX_GROUP_DESCRIPTION, FoundWord, find_words

    match = explained.match
    tool = indexed.tools[match.name]
    about = {"group": match.group, "description of the group": indexed.description[:MAX_GROUP_DESCRIPTION]}
    found = find_words(match.name, tool, about, (each.term for each in explained.words))
    reasons: list[WordReason] = []
    for each in explained.words:
        where = found.get(each.term, FoundWord(each.term.lstrip("="), ()))
        kind: Literal["same", "synonym", "similar"] = "synonym" if each.is_synonym else "similar"
        kind = "same" if each.likeness == 1 else kind
        reasons.append(WordReason(each.word, where.word, where.fields, kind, each.score))
    return ExplainedTool(
        match.group,
        match.name,
        tool,
        explained.score,
        explained.by_words,
        explained.similarity,
        _NAMINGS[explained.named],
        tuple(sorted(reasons, key=lambda each: -each.score)),
    )


_NAMINGS = ("", "its name is in the query", "its name, written in another way", "its exact name")


def _choose_group(view: View, arguments: Mapping[str, Raw]) -> GroupView | None:
    value = arguments.get("group", NULL)
    name = wire.text(value)
    if name:
        return view.group(name, "tools")
    if name is None and bytes(value) != b"null":
        raise InvalidArguments("`group` is not a name", hint=view.names_in_words("tools"))
    return None


def _no_match(view: View, query: str) -> str:
    groups = view.names_in_words("tools")
    return f"Nothing fits `{one_line(query)}`. Try one step in other words, or a group: {groups}."


async def _list_tools(request: Request, group: GroupView, detail: Detail | None) -> list[str]:
    """Return the tools of a group, connecting to learn them if need be, and what the upstream says of itself."""
    catalog = await group.learn_catalog(request.client)
    missing = group.complaint([ListKind.TOOLS]) if catalog.may_have_more(ListKind.TOOLS) else ""
    limit = group.presentation.answers.limit if request.parent is None else NO_LIMIT  # no model reads it
    chosen, rows = _fitting(catalog.model_tools, limit, detail)
    skills = _list_skills(request.view, group, limit - sum(map(results.size, rows)), detail)
    remarks = [
        catalog.instructions,
        _HOW_TO_GET_MORE.get(chosen, "") if detail is None else "",
        _cut_remark(len(rows), len(catalog.model_tools)),
        _how_to_read(skills),
        missing and f"Tools may be missing: {missing}. Those that you know may be called all the same.",
    ]
    return [format_tools(rows, skills), *filter(None, remarks)]


def _list_skills(view: View, group: GroupView, limit: int, detail: Detail | None) -> Sequence[str]:
    """Return the skills of a group, as many as fit into so many bytes."""
    if not group.offers("resources") or not _has_skills(group):
        return ()
    from dynamic_mcp.proxy.skill_search import list_skills

    return _within(limit, list_skills(view, group, detail or Detail.BRIEF))


def _has_skills(group: GroupView) -> bool:
    return group.catalog is not None and bool(group.catalog.entries(ListKind.SKILLS))


def _how_to_read(skills: Sequence[str]) -> str:
    if not skills:
        return ""
    from dynamic_mcp.proxy.skill_search import HOW_TO_READ

    return HOW_TO_READ


def _fitting(tools: Mapping[str, Raw], limit: int, detail: Detail | None) -> tuple[Detail, list[str]]:
    """Return tools in the detail that was asked for, else in the most detail that shows them all within the limit."""
    in_order = (Detail.FULL, Detail.BRIEF, Detail.NAMES)
    choices = (detail,) if detail else in_order[len(tools) > MAX_IN_FULL :]
    for chosen in choices:
        rows = _within(limit, (format_tool(name, tool, chosen) for name, tool in tools.items()))
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


def _cut_remark(count: int, total: int) -> str:
    if count == total:
        return ""
    return f"Only the first {count} of {total} tools are shown. To find others, describe one step in `query`."


def _lacks_tools(catalog: Catalog) -> bool:
    return not catalog.tools and catalog.may_have_more(ListKind.TOOLS)


def _unsearched_remark(groups: list[GroupView]) -> str:
    if not groups:
        return ""
    reasons = {group.name: group.reason or (group.catalog and group.complaint([ListKind.TOOLS])) for group in groups}
    names = ", ".join(f"`{name}`" + (f" ({reason})" if reason else "") for name, reason in reasons.items())
    return f"Not searched, because their tools are not known yet: {names}. Ask for one by `group` alone."


def _query(arguments: Mapping[str, Raw]) -> str:
    """Return the query without what cannot be seen; an empty one is none."""
    value = arguments.get("query", NULL)
    query = wire.text(value)
    if query is None and bytes(value) != b"null":
        raise InvalidArguments("`query` is not a string", hint='give a few words, as in {"query": "create issue"}')
    return _clean(query or "")


def _clean(query: str) -> str:
    if not query:
        return ""
    from dynamic_mcp.search import MAX_END

    if len(query) > 2 * MAX_END:
        query = f"{query[:MAX_END]} {query[-MAX_END:]}"
    return one_line(query, None)


def _detail(arguments: Mapping[str, Raw]) -> Detail | None:
    value = arguments.get("detail", NULL)
    if bytes(value) in (b"null", b'""'):
        return None
    try:
        return Detail(wire.text(value))
    except ValueError:
        raise InvalidArguments("`detail` is not one of `names`, `brief` and `full`") from None
