"""The checker is worth something only if it sees what is broken: each test breaks one thing and wants it reported.

The proxy that is broken has one session, so it keeps every promise whatever proxies with many sessions do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dynamic_mcp.proxy.proxy import Proxy
from tests.history.breakage import (
    MISROUTES,
    REWRITES,
    UPSTREAMS,
    GetsForeignReplies,
    HearsNoUnsubscribe,
    Hoarding,
    Misrouted,
    as_it_is,
    rename_client,
)
from tests.history.checker import Rule, show
from tests.history.harness import Apart, Host, MemoryUpstream, group, memory_proxy
from tests.history.record import History
from tests.history.workload import EXTENSIONS, Plan, Run

PLAN = Plan(7, slots=5, operations=14, may_refuse=False, must_log=True)
GROUPS = ("a", "b")
PLAN_OF_EXTENSIONS = replace(PLAN, groups=GROUPS, does=EXTENSIONS)
# For what waits in vain; what is late on a busy machine is reported beside what is broken.
_SHORT_PATIENCE_S = 0.5


def _proxies(
    history: History, upstream: type[MemoryUpstream] = MemoryUpstream, groups: tuple[str, ...] = ("a",)
) -> Callable[[], Proxy]:
    """Return what makes a proxy for one session, before one such upstream for each group."""
    numbers = iter(range(1000))

    def make_proxy() -> Proxy:
        number = next(numbers)
        return memory_proxy(lambda name, _: upstream(name, number, history), *map(group, groups), instances=1)

    return make_proxy


async def _rules(history: History, host: Host, patience_s: float = _SHORT_PATIENCE_S, plan: Plan = PLAN) -> set[Rule]:
    plan = replace(plan, patience_s=patience_s)
    try:
        violations = await Run(plan, history).judge(host)
    finally:
        await host.close()
    print(show(violations, history.events, plan.seed))
    return {violation.rule for violation in violations}


async def test_what_is_not_broken_is_not_reported() -> None:
    history = History()
    assert await _rules(history, Misrouted(Apart(_proxies(history)), as_it_is), PLAN.patience_s) == set()


@pytest.mark.parametrize("broken", MISROUTES)
async def test_lines_that_take_another_way_to_clients_are_reported(broken: str) -> None:
    route, rule = MISROUTES[broken]
    history = History()
    assert Rule[rule] in await _rules(history, Misrouted(Apart(_proxies(history)), route))


@pytest.mark.parametrize("broken", UPSTREAMS)
async def test_lines_that_are_changed_on_the_way_from_or_to_upstreams_are_reported(broken: str) -> None:
    upstream, rule = UPSTREAMS[broken]
    history = History()
    GetsForeignReplies.replies = []
    ends_upstreams_late = upstream is HearsNoUnsubscribe
    proxies = _proxies(history, upstream)
    host = Hoarding(proxies, keeps_sessions=False) if ends_upstreams_late else Apart(proxies)
    assert Rule[rule] in await _rules(history, host)


@pytest.mark.parametrize("broken", REWRITES)
async def test_answers_of_another_server_and_calls_without_an_app_are_reported(broken: str) -> None:
    rewrite, rule = REWRITES[broken]
    history = History()
    host = Misrouted(Apart(_proxies(history, groups=GROUPS)), as_it_is, rewrite=rewrite)
    assert Rule[rule] in await _rules(history, host, plan=PLAN_OF_EXTENSIONS)


async def test_extensions_that_are_not_broken_are_not_reported() -> None:
    history = History()
    host = Misrouted(Apart(_proxies(history, groups=GROUPS)), as_it_is)
    assert await _rules(history, host, PLAN.patience_s, PLAN_OF_EXTENSIONS) == set()


async def test_an_upstream_that_was_greeted_as_another_client_is_reported() -> None:
    history = History()
    host = Misrouted(Apart(_proxies(history)), as_it_is, rewrite=rename_client)
    assert await _rules(history, host, PLAN.patience_s) == {Rule.GREETING}


async def test_a_session_that_is_held_after_its_end_is_reported() -> None:
    history = History()
    assert Rule.REMEMBERED in await _rules(history, Hoarding(_proxies(history), keeps_sessions=True))
