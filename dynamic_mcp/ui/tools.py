"""Tools, resources and prompts of all groups: to find them as a model does, and to use them by forms.

The lists are those that the proxy has at the moment; none is kept for the page.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

from msgspec import Raw, Struct

from dynamic_mcp.errors import NotFound
from dynamic_mcp.groups.catalog import Catalog, ListKind
from dynamic_mcp.groups.lifecycle import DOWN, State
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.client_group import ViewedGroup
from dynamic_mcp.proxy.search import ExplainedTool, SearchExplanation
from dynamic_mcp.system.text import one_line
from dynamic_mcp.tools.detail import first_sentence
from dynamic_mcp.ui.byte_budget import ByteBudget, measure
from dynamic_mcp.ui.now import STATES_IN_WORDS
from dynamic_mcp.ui.person_calls import PersonCalls
from dynamic_mcp.ui.primitive_page import PrimitivePage
from dynamic_mcp.ui.primitives import KINDS, PrimitiveKind, path_of
from dynamic_mcp.ui.rows import fit_rows, read_start
from dynamic_mcp.ui.section import PageRedirect, PageSection, PageView, Reply, UiContext, Visit

_FOUND_SPACE = 20_000
_LONGEST_NAME = 130
_LONGEST_LINE = 160
_KINDS: Sequence[tuple[PrimitiveKind, str]] = (
    ("tool", "Tools"),
    ("resource", "Resources"),
    ("template", "Templates"),
    ("prompt", "Prompts"),
)


class ListedGroup(Struct, frozen=True):
    """A group in the list of all. The counts are None while they are not known."""

    name: str
    description: str
    state: str
    words: str
    tools: int | None
    resources: int | None
    prompts: int | None


class EntryRow(Struct, frozen=True):
    """A tool, resource, template or prompt in a list; `path` is that of its page, below that of the section."""

    name: str
    path: str
    title: str
    description: str
    access: str = ""
    asks: bool = False


class FoundRow(Struct, frozen=True):
    """A tool that a search found: `share` is its score, of that of the best."""

    group: str
    path: str
    share: float
    description: str
    found: ExplainedTool


class ToolsSection(PageSection):
    """What there is to use. A person sees what their view has."""

    name = "tools"
    title = "Tools"
    icon = "tools"
    rank = 10

    def __init__(self, context: UiContext) -> None:
        super().__init__(context)
        self._calls = PersonCalls(time.time)

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        await visit.client.begin()
        if len(rest) == 2:
            page = self._find_page(visit, *rest)
            return await page.show()
        if len(rest) == 1:
            return PageRedirect(f"tools?group={_encode(rest[0])}")
        if rest:
            return None
        group = visit.client.group(visit.query["group"]) if visit.query.get("group") else None
        if visit.query.get("q", "").strip():
            return await self._search(visit, group)
        return self._list_groups(visit) if group is None else self._list_entries(visit, group)

    async def act(self, visit: Visit, *rest: str) -> Reply | None:
        """Use something: `GROUP/NAME`; or read the lists of a group again: `GROUP`."""
        await visit.client.begin()
        if len(rest) == 2:
            return await self._find_page(visit, *rest).act()
        if len(rest) != 1:
            return None
        group = visit.client.group(rest[0])
        await group.reread([kind for kind in ListKind if group.offers(kind.capability)])
        path = f"tools?group={_encode(group.name)}&kind={_encode(visit.form.get('kind', 'tool'))}"
        return PageRedirect(path, f"the lists of {group.name} are those of this moment")

    def stamp(self, visit: Visit) -> Hashable:
        groups = self.context.proxy.groups
        return self._calls.stamp(visit), tuple((group.name, group.state, group.catalog) for group in groups)

    async def close(self) -> None:
        await self._calls.close()

    def _find_page(self, visit: Visit, group: str, name: str) -> PrimitivePage:
        """Return the page of a tool; that of a resource, template or prompt has its name in the query."""
        query = visit.query
        kind: PrimitiveKind = "tool"
        match name:
            case "resource" if "uri" in query:
                kind, name = "resource", query["uri"]
            case "template" if "uri" in query:
                kind, name = "template", query["uri"]
            case "prompt" if "name" in query:
                kind, name = "prompt", query["name"]
        found = visit.client.group(group)
        if not found.offers(KINDS[kind].capability):
            raise NotFound(f"{kind} of `{group}`", name)
        splits_calls = self.context.config.split_calls
        return PrimitivePage(visit, found, kind, name, self._calls, splits_calls=splits_calls)

    # --- the search ------------------------------------------------------------------------------------

    async def _search(self, visit: Visit, group: ViewedGroup | None) -> PageView:
        query = visit.query["q"].strip()
        explanation = await visit.client.explain_search(query, group="" if group is None else group.name)
        values = {
            "q": visit.query["q"],
            "group": None if group is None else group.name,
            "explanation": explanation,
            "found": _list_found(explanation),
            "named": self._find_named_groups(visit, query) if group is None else [],
        }
        return PageView("tools_search.html", f"Tools: {one_line(query)}", values)

    def _find_named_groups(self, visit: Visit, query: str) -> list[str]:
        return [group.name for group in visit.client.groups if query.lower() in group.name.lower()][:5]

    # --- the lists -------------------------------------------------------------------------------------

    def _list_groups(self, visit: Visit) -> PageView:
        groups = visit.client.groups
        rows, steps = fit_rows(groups, read_start(visit.query), _build_group_row)
        values = {"q": "", "group": None, "rows": rows, "steps": steps}
        return PageView("tools.html", "Tools", values)

    def _list_entries(self, visit: Visit, group: ViewedGroup) -> PageView:
        kinds: dict[PrimitiveKind, str] = {
            kind: title for kind, title in _KINDS if group.offers(KINDS[kind].capability)
        }
        wanted = visit.query.get("kind", "tool")
        first: PrimitiveKind = next(iter(kinds), "tool")
        kind = next((each for each in kinds if each == wanted), first)
        entries = [*_entries(group.catalog, kind).items()]
        rows, steps = fit_rows(
            entries, read_start(visit.query), lambda entry, space: _build_entry_row(group, kind, entry, space)
        )
        values = {
            "q": "",
            "group": group.name,
            "kind": kind,
            "rows": rows,
            "steps": steps,
            "tabs": [(each, title, _count(group.catalog, each)) for each, title in kinds.items()],
            "state": group.state.value,
            "words": STATES_IN_WORDS[group.state.value],
            "is_down": group.state in DOWN,
            "is_connected": group.state is State.READY,
            "is_from_disk": group.is_from_disk,
            "is_known": group.catalog is not None and group.catalog.knows([KINDS[kind]]),
            "complaint": group.complaint([KINDS[kind]]) if group.catalog is not None else "",
            "description": one_line(group.description, 2 * _LONGEST_LINE),
            "instructions": group.catalog.instructions[:2000] if group.catalog is not None else "",
        }
        return PageView("tools_group.html", f"Tools of {group.name}", values)


def _encode(text: str) -> str:
    return path_of(text, "tool", "").rstrip("/")


def _build_group_row(group: ViewedGroup, space: ByteBudget) -> ListedGroup:
    description, _ = space.take(one_line(group.description, _LONGEST_LINE), _LONGEST_LINE)
    space.left -= measure(_encode(group.name)) + measure(group.name[:_LONGEST_NAME])
    counts = {kind: _count(group.catalog, kind) for kind, _ in _KINDS if group.offers(KINDS[kind].capability)}
    resources = [counts[kind] for kind in ("resource", "template") if kind in counts]
    known = [each for each in resources if each is not None]
    return ListedGroup(
        group.name,
        description,
        group.state.value,
        STATES_IN_WORDS[group.state.value],
        counts.get("tool"),
        sum(known) if known else None,
        counts.get("prompt"),
    )


def _build_entry_row(group: ViewedGroup, kind: PrimitiveKind, entry: tuple[str, Raw], space: ByteBudget) -> EntryRow:
    name, raw = entry
    path = path_of(group.name, kind, name)
    space.left -= measure(path) + measure(name[:_LONGEST_NAME])
    title = wire.text(wire.member(raw, "title")) or (
        wire.text(wire.member(raw, "name")) or "" if kind != "tool" else ""
    )
    title = "" if title == name else one_line(title, _LONGEST_LINE)
    description = first_sentence(wire.text(wire.member(raw, "description")) or "")
    judgement = group.judge(name) if kind == "tool" else None
    return EntryRow(
        name,
        path,
        space.take(title, _LONGEST_LINE)[0],
        space.take(description, _LONGEST_LINE)[0],
        group.classify(name).access if kind == "tool" else "",
        asks=judgement is not None and judgement.settled is not None and judgement.settled.must_ask,
    )


def _list_found(explanation: SearchExplanation) -> list[FoundRow]:
    best = max((each.score for each in explanation.tools), default=0.0) or 1.0
    space = ByteBudget(_FOUND_SPACE)
    rows: list[FoundRow] = []
    for each in explanation.tools:
        sentence = first_sentence(wire.text(wire.member(each.tool, "description")) or "")
        description, _ = space.take(sentence, _LONGEST_LINE)
        rows.append(
            FoundRow(each.group, path_of(each.group, "tool", each.name), each.score / best, description, each)
        )
    return rows


def _entries(catalog: Catalog | None, kind: PrimitiveKind) -> dict[str, Raw]:
    if catalog is None:
        return {}
    return dict(catalog.model_tools if kind == "tool" else catalog.entries(KINDS[kind]))


def _count(catalog: Catalog | None, kind: PrimitiveKind) -> int | None:
    """Return how many there are; None while that is not known."""
    if catalog is None or catalog.may_have_more(KINDS[kind]):
        return None
    return len(catalog.model_tools if kind == "tool" else catalog.entries(KINDS[kind]))
