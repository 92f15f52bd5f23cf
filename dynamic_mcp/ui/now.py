"""The first page: what needs this person, then what was used, then the groups."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence

from msgspec import Struct, structs

from dynamic_mcp.groups.lifecycle import State
from dynamic_mcp.observe.proxies import GroupStatus
from dynamic_mcp.proxy.status import iterate_groups
from dynamic_mcp.ui.rendering import draw_bars
from dynamic_mcp.ui.savings import SavingsMeter
from dynamic_mcp.ui.section import (
    Need,
    PageRedirect,
    PageSection,
    PageView,
    Reply,
    UiContext,
    Usage,
    Visit,
    find_page,
)

_ROWS = 50
_MOST_DOWN = 20
_SPANS = {"hour": (3600.0, 60), "day": (86400.0, 48)}
# What of a group with several copies is shown: what somebody has to look at, then what works.
_ORDER = (State.FAILED.value, State.WAITING.value, State.NEEDS_LOGIN.value, State.READY.value)
_DOWN = (State.FAILED.value, State.WAITING.value)
STATES_IN_WORDS = {
    State.COLD.value: "not started",
    State.CONNECTING.value: "connecting",
    State.READY.value: "ready",
    State.WAITING.value: "retrying",
    State.NEEDS_LOGIN.value: "needs a login",
    State.FAILED.value: "down",
    State.CLOSED.value: "closed",
}


class GroupLine(Struct, frozen=True):
    """A group as the list shows it."""

    name: str
    state: str
    words: str
    reason: str
    tools: int | None
    calls: int
    failures: int
    in_flight: int
    p50_ms: float | None
    person: str = ""


class NowSection(PageSection):
    """What there is now. A person sees the groups that their view has, and an operator all."""

    name = "now"
    title = "Now"
    icon = "now"
    rank = 0

    def __init__(self, context: UiContext) -> None:
        super().__init__(context)
        self._savings = SavingsMeter(context.turns)

    async def show(self, visit: Visit, *rest: str) -> Reply | None:
        if rest:
            return None
        turns = self.context.turns
        rows = await self._rows(visit)
        wanted = visit.query.get("q", "").lower()
        shown = [row for row in rows if wanted in row.name.lower()]
        pages = max(-(-len(shown) // _ROWS), 1)
        page = find_page(visit, pages)
        span = visit.query.get("span", "hour")
        span = span if span in _SPANS else "hour"
        await turns.take()
        found, usage = await asyncio.gather(self._find_needs(visit, rows), self._find_usage(visit, span))
        await turns.take()
        savings = await self._savings.measure(visit.client)
        await turns.take()
        values = {
            "needs": found,
            "usage": usage,
            "chart": None if usage is None else draw_bars((each.calls, each.errors) for each in usage.points),
            "span": span,
            "rows": shown[(page - 1) * _ROWS : page * _ROWS],
            "total": len(shown),
            "page": page,
            "pages": pages,
            "q": visit.query.get("q", ""),
            "tools": sum(row.tools or 0 for row in rows),
            "ready": sum(row.state == State.READY.value for row in rows),
            "calls": sum(row.calls for row in rows),
            "failures": sum(row.failures for row in rows),
            "groups": len(rows),
            "savings": savings,
            "clients": sum(
                not client.is_command and (visit.is_operator or client.principal == visit.authentication.principal)
                for client in self.context.proxy.clients
            ),
        }
        return PageView("now.html", "Now", values)

    async def act(self, visit: Visit, *rest: str) -> Reply | None:
        """Connect a group again: `now/retry/GROUP`."""
        if len(rest) != 2 or rest[0] != "retry":
            return None
        group = visit.client.group(rest[1])
        await group.connect_again()
        await group.read_catalog()
        return PageRedirect("", f"{rest[1]} is connected")

    def stamp(self, visit: Visit) -> Hashable:
        groups = self.context.proxy.groups
        return tuple((group.name, group.state, group.calls, group.in_flight) for group in groups)

    async def _find_needs(self, visit: Visit, rows: Sequence[GroupLine]) -> list[Need]:
        sections = [each for each in self.context.sections if each is not self and each.is_for(visit)]
        found = await asyncio.gather(*(each.find_needs(visit) for each in sections))
        needs = [need for each in found for need in each]
        down = [row for row in rows if row.state in _DOWN]
        if down:
            needs.append(Need(30, "need_down.html", {"rows": down[:_MOST_DOWN], "more": len(down) - _MOST_DOWN}))
        return sorted(needs, key=lambda need: -need.weight)

    async def _find_usage(self, visit: Visit, span: str) -> Usage | None:
        for section in self.context.sections:
            if section.is_for(visit) and (usage := await section.find_usage(visit, *_SPANS[span])) is not None:
                return usage
        return None

    async def _rows(self, visit: Visit) -> list[GroupLine]:
        visible = None if visit.is_operator else {group.name for group in visit.client.groups}
        rows: dict[tuple[str, str], GroupLine] = {}
        async for status in self.context.turns.split(iterate_groups(self.context.proxy)):
            if visible is not None and not (status.name in visible and _may_see(visit, status)):
                continue
            row = _row(status)
            known = rows.get((row.name, row.person))
            rows[row.name, row.person] = row if known is None else _join(known, row)
        return [*rows.values()]


def _may_see(visit: Visit, status: GroupStatus) -> bool:
    """Return whether a group is for everyone, or of this person."""
    return not status.person or visit.owns(status.person_issuer, status.person)


def _row(status: GroupStatus) -> GroupLine:
    medians = [each.p50_ms for each in status.instances if each.p50_ms is not None]
    return GroupLine(
        status.name,
        status.state,
        STATES_IN_WORDS.get(status.state, status.state),
        status.reason,
        status.tools,
        status.calls,
        status.failures,
        status.in_flight,
        medians[0] if medians else None,
        status.person,
    )


def _join(one: GroupLine, other: GroupLine) -> GroupLine:
    """Return a group of which there are several, since clients in different directories start it differently."""
    first, second = sorted((one, other), key=lambda row: _ORDER.index(row.state) if row.state in _ORDER else 99)
    return structs.replace(
        first,
        tools=first.tools if first.tools is not None else second.tools,
        calls=first.calls + second.calls,
        failures=first.failures + second.failures,
        in_flight=first.in_flight + second.in_flight,
        p50_ms=first.p50_ms if first.p50_ms is not None else second.p50_ms,
    )
