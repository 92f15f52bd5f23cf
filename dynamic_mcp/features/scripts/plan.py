"""Which of the calls that a script names a person is asked about, whatever their arguments are."""

from __future__ import annotations

from collections import Counter

from msgspec import Raw

from dynamic_mcp.config.access import AccessKind
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.features.scripts.names import ScriptNames
from dynamic_mcp.mcp import wire
from dynamic_mcp.proxy.request import CallPlan, PlannedCall, Request
from dynamic_mcp.proxy.view import GroupView, View

# So many tools fit in one question that a person reads; of a script with more, each call is asked about.
_MOST_TOOLS = 20


async def plan_calls(
    request: Request, view: View, code: str, names: ScriptNames, data: Raw, most: int
) -> CallPlan | None:
    """Return the calls of a script with these `names` that need an approval; None if there are none.

    Each may be made as often as it is written, or `most` times where it may be repeated.

    Only those count about which a rule asks without regard to their arguments: a person has to see others.
    """
    if all(group.rules is None for group in view):
        return None
    times: Counter[tuple[str, str]] = Counter()
    for each in names.calls:
        times[each.group, each.name] += most if each.repeats or names.redefines else 1
    found: dict[tuple[str, str], PlannedCall] = {}
    for (group_name, name), count in times.items():
        group = view.get(group_name)
        call = None if group is None else await _plan_call(request, group, name, min(count, most))
        if call is not None:
            found[call.group.name, call.tool] = call
    if not 0 < len(found) <= _MOST_TOOLS:
        return None
    tool = wire.text(wire.member(request.params, "name")) or ""
    return CallPlan(tool, [*found.values()], script=code, data=data)


async def _plan_call(request: Request, group: GroupView, name: str, most: int) -> PlannedCall | None:
    if group.rules is None:
        return None
    catalog = group.catalog
    try:
        if catalog is None or name not in catalog.model_tools:
            catalog = await group.reread(request.client)
    except DynamicMcpError:
        return None
    if name not in catalog.model_tools:
        return None
    tool = group.own_name(name)
    decision = group.judge(AccessKind.TOOL, tool).settled
    return PlannedCall(group, tool, decision, most) if decision is not None and decision.must_ask else None
