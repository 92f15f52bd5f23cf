"""Modern clients beside legacy ones on one proxy, which are asked in the middle of calls: nothing crosses."""

from __future__ import annotations

import pytest

from dynamic_mcp.proxy.proxy import Proxy
from tests.history.checker import show
from tests.history.harness import MemoryUpstream, Shared, group, memory_proxy, remote
from tests.history.modern_client import Mixed, ModernShared
from tests.history.record import History
from tests.history.workload import Plan, Run

SEEDS = (1, 2, 3)
GROUPS = ("a", "b")
# A modern client has no tasks of legacy servers.
DOES = ("echo", "work", "ask", "late", "big", "subscribe", "prompt", "complete", "search", "cancel")
# What a server over stdio must not do for its clients to go on sharing it.
QUIET = tuple(each for each in DOES if each not in ("ask", "late"))


def _proxy(history: History, *, share: str = "", has_streams: bool = False) -> Proxy:
    def make(name: str, number: int) -> MemoryUpstream:
        return MemoryUpstream(name, number, history, has_streams=has_streams)

    upstream = remote() if has_streams else None
    return memory_proxy(make, *(group(name, upstream, share=share) for name in GROUPS), instances=60)


async def _check(plan: Plan, history: History, proxy: Proxy) -> None:
    modern = ModernShared(proxy)
    host = Mixed(Shared(proxy), modern)
    try:
        wrong = await Run(plan, history).judge(host) + modern.violations
    finally:
        await host.close()
    assert not wrong, show(wrong, history.events, plan.seed)


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_crosses_between_clients_of_both_eras_that_share_what_starts_identically(seed: int) -> None:
    history = History()
    await _check(Plan(seed, GROUPS, does=QUIET, must_update=True), history, _proxy(history))


@pytest.mark.parametrize("seed", SEEDS)
async def test_servers_that_ask_over_stdio_get_the_answers_of_those_whom_they_ask(seed: int) -> None:
    history = History()
    does = tuple(each for each in DOES if each != "cancel")
    plan = Plan(seed, GROUPS, does=does, must_update=True, leaves_calls=False)
    await _check(plan, history, _proxy(history, share="session"))


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_comes_in_the_stream_of_a_call_belongs_to_that_call(seed: int) -> None:
    history = History()
    plan = Plan(seed, GROUPS, does=DOES, may_refuse=False, must_log=True, must_update=True)
    await _check(plan, history, _proxy(history, has_streams=True))
