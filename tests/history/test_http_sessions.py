"""Sessions over HTTP: nothing crosses between them, and nothing is lost or doubled on streams that break."""

from __future__ import annotations

import pytest

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import config_of
from tests.history.checker import show
from tests.history.harness import MemoryUpstream, group, memory_proxy
from tests.history.http_sessions import Habits, HttpSessions
from tests.history.http_upstream import NonceHttp
from tests.history.record import History
from tests.history.seeds import SEEDS
from tests.history.serve_http import serving_http
from tests.history.workload import ALL, Plan, Run

GROUPS = ("a", "b")
QUIET = tuple(each for each in ALL if each != "ask")


def _proxy(history: History, *, share: str = "") -> Proxy:
    def make(name: str, number: int) -> MemoryUpstream:
        return MemoryUpstream(name, number, history)

    return memory_proxy(make, *(group(name, share=share) for name in GROUPS), instances=60)


async def _check(plan: Plan, history: History, proxy: Proxy, habits: Habits | None = None) -> HttpSessions:
    async with serving_http(proxy) as url:
        host = HttpSessions(url, history, plan.seed, habits)
        violations = await Run(plan, history).judge(host) + host.violations
        await host.close()
        assert not violations, show(violations, history.events, plan.seed)
        return host


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_between_sessions_that_share_what_starts_identically(seed: int) -> None:
    history = History()
    await _check(Plan(seed, GROUPS), history, _proxy(history))


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_on_links_that_are_shared_as_long_as_nobody_asks(seed: int) -> None:
    history = History()
    await _check(Plan(seed, GROUPS, does=QUIET, must_update=True), history, _proxy(history))


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_session_with_instances_of_its_own_gets_every_log_line_and_every_question(seed: int) -> None:
    history = History()
    plan = Plan(seed, GROUPS, may_refuse=False, must_log=True, must_update=True)
    await _check(plan, history, _proxy(history, share="session"))


async def test_nothing_is_lost_before_a_remote_server() -> None:
    history = History()
    async with NonceHttp("a", history).listening() as url:
        proxy = Proxy(config_of(group("a", Remote(kind="http", url=url, headers={}))))
        plan = Plan(1, may_refuse=False, must_log=True, must_update=True, cancels_late=("a",))
        await _check(plan, history, proxy)


async def test_no_stream_loses_or_doubles_anything_that_is_cut_after_every_second_event() -> None:
    history = History()
    habits = Habits(cuts=0.5, listens_again=0.2)
    host = await _check(Plan(4, GROUPS, must_update=True, does=QUIET), history, _proxy(history), habits)
    assert host.counts["resumptions"] > host.counts["answers as JSON"] // 10
    assert host.counts["answers as streams"] > 0
