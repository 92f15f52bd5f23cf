"""The checker is worth something only if it sees what is broken, also where streams are cut and resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.history.broken_streams import (
    BREAKS,
    RESUMPTIONS,
    Break,
    BrokenStreams,
    change_nothing,
    lose_answers,
)
from tests.history.checker import Rule, show
from tests.history.harness import MemoryUpstream, group, memory_proxy
from tests.history.http_sessions import Habits, HttpSessions
from tests.history.record import History
from tests.history.serve_http import serving_http
from tests.history.workload import Plan, Run

# None of it waits for what most breaks take away.
PLAN = Plan(7, slots=4, operations=14, does=("echo", "work", "work"), may_refuse=False, must_log=True)
# For what waits in vain.
_SHORT_PATIENCE_S = 0.5


async def _rules(damage: Break, habits: Habits | None = None, plan: Plan = PLAN) -> set[Rule]:
    history = History()
    proxy = memory_proxy(
        lambda name, number: MemoryUpstream(name, number, history), group("a", share="session"), instances=20
    )
    async with serving_http(proxy) as url:
        host = HttpSessions(url, history, plan.seed, habits or Habits(cuts=0.5))
        violations = await Run(plan, history).judge(BrokenStreams(host, damage)) + host.violations
        await host.close()
    print(show(violations, history.events, plan.seed))
    return {violation.rule for violation in violations}


async def test_what_is_not_broken_is_not_reported() -> None:
    assert await _rules(change_nothing) == set()


@pytest.mark.parametrize("broken", BREAKS)
async def test_messages_that_come_otherwise_are_reported(broken: str) -> None:
    damage, rule = BREAKS[broken]
    plan = replace(PLAN, patience_s=_SHORT_PATIENCE_S) if damage is lose_answers else PLAN
    assert Rule[rule] in await _rules(damage, plan=plan)


@pytest.mark.parametrize("broken", RESUMPTIONS)
async def test_resumptions_that_are_not_exact_are_reported(broken: str) -> None:
    resumes_after, rule = RESUMPTIONS[broken]
    plan = replace(PLAN, patience_s=_SHORT_PATIENCE_S)
    assert Rule[rule] in await _rules(change_nothing, Habits(cuts=0.5, resumes_after=resumes_after), plan)
