"""The guards step: judges the arguments of calls."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from dynamic_mcp.errors import RefusedByGuard
from dynamic_mcp.features.guards.guards import GuardRules
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Services, Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest
from dynamic_mcp.system.workers import MAX_BYTES_IN_LOOP, Workers

if TYPE_CHECKING:
    from dynamic_mcp.policy.access import Decision
    from dynamic_mcp.proxy.view import GroupView


class JudgeArguments(Step):
    """Passes calls whose arguments no guard refuses, or that a user must be asked about.

    Long arguments are judged in a thread, so that other calls do not wait.
    """

    decides = True

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._workers = Workers("guards", count=2)

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        guards = group.find_rules("guards", GuardRules)
        return tool is not None and guards is not None and guards.judges(tool)

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        guards = group.find_rules("guards", GuardRules)
        return super().bind(group, tool, next) if guards is None else partial(self._judge, guards, next)

    def __call__(self, call: UpstreamRequest, next: Next) -> Awaitable[Frame]:
        """Judge a call. Raises RefusedByGuard."""
        guards = call.group.find_rules("guards", GuardRules)
        return next(call) if guards is None or call.tool is None else self._judge(guards, next, call)

    def _judge(self, guards: GuardRules, next: Next, call: UpstreamRequest) -> Awaitable[Frame]:
        arguments = None if call.params is None else call.params.get("arguments")
        if arguments is not None and len(arguments) > MAX_BYTES_IN_LOOP:
            return self._judge_in_thread(guards, call, next)
        try:
            decision = guards.judge(call.tool or "", arguments, shown_name=call.group.shown_name)
        except RefusedByGuard as exc:
            _record_refusal(call, exc)
            raise
        return next(call if decision is None else _with_decision(call, decision))

    async def _judge_in_thread(self, guards: GuardRules, call: UpstreamRequest, next: Next) -> Frame:
        tool, arguments = call.tool or "", (call.params or {}).get("arguments")
        shown = call.group.shown_name(tool)  # here, because views belong to the event loop
        try:
            decision = await self._workers.run(partial(guards.judge, tool, arguments, shown_name=lambda _: shown))
        except RefusedByGuard as exc:
            _record_refusal(call, exc)
            raise
        return await next(call if decision is None else _with_decision(call, decision))


def _with_decision(call: UpstreamRequest, guarded: Decision) -> UpstreamRequest:
    """Add a guard's question to a call that access rules allow; if both ask, their approvals stay distinct."""
    decision = call.decision
    if decision is not None:
        rule = f"{decision.rule}, {guarded.rule}" if decision.must_ask else guarded.rule
        guarded = structs.replace(guarded, rule=rule, allowed_by=decision.allowed_by)
    if call.request.observation is not None:
        call.request.observation.note_decision(guarded)
    return structs.replace(call, decision=guarded)


def _record_refusal(call: UpstreamRequest, exc: RefusedByGuard) -> None:
    if call.request.observation is not None:
        call.request.observation.note_refusal(exc.rule)
