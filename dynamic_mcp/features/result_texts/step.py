"""The steps for texts of results: strip them, and mark those that no limit cuts afterwards.

Long results are stripped in a thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Raw, structs

from dynamic_mcp.features.result_texts.rules import ResultRules
from dynamic_mcp.mcp import envelope, wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Services, Step
from dynamic_mcp.proxy.request import Next, UpstreamRequest
from dynamic_mcp.system.workers import MAX_BYTES_IN_LOOP, Workers
from dynamic_mcp.tools.results import mark_texts

if TYPE_CHECKING:
    from dynamic_mcp.proxy.view import GroupView

# The scheme of pages of apps, which programs read.
_PAGE = "ui://"


class StripResults(Step):
    """Returns answers whose texts lack what the config has removed."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._workers = Workers("strip", count=2)

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        rules = group.find_rules("result_texts", ResultRules)
        return rules is not None and rules.strips

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        rules = group.find_rules("result_texts", ResultRules)
        return next if rules is None else partial(self._strip, rules, next)

    async def _strip(self, rules: ResultRules, next: Next, call: UpstreamRequest) -> Frame:
        answer = await next(call)
        payload = answer.error if len(answer.error) else answer.result
        if payload is answer.result and _is_for_programs(call):
            return answer
        if len(payload) <= MAX_BYTES_IN_LOOP:
            stripped = rules.strip(payload)
        else:
            stripped = await self._workers.run(partial(rules.strip, payload))
        if stripped is payload:
            return answer
        return structs.replace(answer, **{"error" if len(answer.error) else "result": stripped})


class MarkResults(Step):
    """Marks results that pass uncut: of tasks, and for clients of one group alone. All others are marked when cut."""

    def is_wanted(self, group: GroupView, tool: str | None) -> bool:
        rules = group.find_rules("result_texts", ResultRules)
        return rules is not None and rules.marks

    def bind(self, group: GroupView, tool: str | None, next: Next) -> Next:
        rules = group.find_rules("result_texts", ResultRules)
        return next if rules is None else partial(self._mark, rules, next)

    async def _mark(self, rules: ResultRules, next: Next, call: UpstreamRequest) -> Frame:
        answer = await next(call)
        if not len(answer.result):
            return answer
        result = _mark_uncut(call, answer.result, rules)
        return answer if result is answer.result else structs.replace(answer, result=result)


def _mark_uncut(call: UpstreamRequest, result: Raw, rules: ResultRules) -> Raw:
    """Return the marked result of a request; the same object if it is none of a tool, or is still to be cut."""
    match call.method:
        case "tools/call" if _is_cut_later(call, result):
            return result
        case "tools/call" | "tasks/result":
            return mark_texts(result, rules.mark_text)
        case "tasks/get":
            return _mark_task(result, rules)
        case _:
            return result


def _is_cut_later(call: UpstreamRequest, result: Raw) -> bool:
    if call.request.client.only is not None or "task" in (call.params or {}):
        return False
    is_stateless = call.request.client.hello.revision.is_stateless
    return not is_stateless or envelope.result_type(result) == envelope.COMPLETE


def _mark_task(task: Raw, rules: ResultRules) -> Raw:
    """Mark the result within a task of 2026-07-28."""
    result = wire.member(task, "result")
    marked = mark_texts(result, rules.mark_text) if len(result) else result
    return task if marked is result else wire.with_member(task, marked, "result")


def _is_for_programs(call: UpstreamRequest) -> bool:
    """Return whether a result is a skill or a file of one, whose digests are of its bytes, or a page of an app."""
    if call.is_about_skill:
        return True
    return call.method == "resources/read" and (wire.text((call.params or {}).get("uri")) or "").startswith(_PAGE)
