"""Modern clients beside legacy ones on one proxy, which are asked in the middle of calls: nothing crosses.

The last tests break something, and want the checker to see it.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dynamic_mcp.proxy.proxy import Proxy
from tests.history.checker import Rule, Violation, show
from tests.history.harness import MemoryUpstream, Shared, group, memory_proxy, remote
from tests.history.modern_client import BreakLine, Mixed, ModernShared, as_it_is
from tests.history.record import History, Json, parse
from tests.history.seeds import SEEDS
from tests.history.workload import EXTENSIONS, Plan, Run

GROUPS = ("a", "b")
# A modern client has no tasks of legacy servers.
DOES = ("echo", "work", "ask", "late", "big", "subscribe", "prompt", "complete", "search", "cancel", *EXTENSIONS)
# A name that is not known is looked for in lists that are read again, but not all the time.
DOES_AT_ONCE = tuple(each for each in DOES if each != "no app")
# What a server over stdio must not do for its clients to go on sharing it.
QUIET = tuple(each for each in DOES if each not in ("ask", "late"))


def _proxy(history: History, *, share: str = "", has_streams: bool = False) -> Proxy:
    def make(name: str, number: int) -> MemoryUpstream:
        return MemoryUpstream(name, number, history, has_streams=has_streams)

    upstream = remote() if has_streams else None
    return memory_proxy(make, *(group(name, upstream, share=share) for name in GROUPS), instances=60)


async def _judge(plan: Plan, history: History, proxy: Proxy, *, break_line: BreakLine = as_it_is) -> list[Violation]:
    modern = ModernShared(proxy, break_line)
    host = Mixed(Shared(proxy), modern)
    try:
        return await Run(plan, history).judge(host) + modern.violations
    finally:
        await host.close()


async def _check(plan: Plan, history: History, proxy: Proxy) -> None:
    wrong = await _judge(plan, history, proxy)
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


# --- what is broken ----------------------------------------------------------------------------------------

PLAN = Plan(7, GROUPS, slots=6, operations=14, does=DOES, may_refuse=False, must_log=True)
# None of it waits for what the breaks take away; what is late on a busy machine is reported beside what is broken.
BROKEN = replace(PLAN, does=DOES_AT_ONCE, patience_s=0.5)


_SWAPPED = 20


def _is(line: bytes, marker: bytes) -> bool:
    return marker in line and b"notifications/" not in line


def _swap_questions() -> BreakLine:
    """Give the first of the answers that ask the questions of the one before, whosever that was.

    With all of them, two calls may be asked each other's questions for ever, since neither gets its own answered.
    """
    kept: list[Json] = []

    def break_line(number: int, line: bytes) -> list[tuple[int, bytes]]:
        if len(kept) == _SWAPPED or not _is(line, b'"input_required"'):
            return [(number, line)]
        message = parse(line)
        kept.append(message["result"]["inputRequests"])
        message["result"]["inputRequests"] = kept[-2] if len(kept) > 1 else kept[-1]
        return [(number, json.dumps(message).encode())]

    return break_line


def _of_the_one_before(member: str) -> BreakLine:
    """Give each answer with this member to the next request that is answered with one."""
    kept: list[Json] = []

    def break_line(number: int, line: bytes) -> list[tuple[int, bytes]]:
        message = parse(line)
        if member not in message.get("result", {}):
            return [(number, line)]
        kept.append(message["result"])
        return [(number, json.dumps({**message, "result": kept[max(len(kept) - 2, 0)]}).encode())]

    return break_line


def _to_another(marker: bytes) -> BreakLine:
    """Send such lines to the modern client that got a line last among the others."""
    latest: list[int] = []

    def break_line(number: int, line: bytes) -> list[tuple[int, bytes]]:
        others = [each for each in latest if each != number]
        latest[:] = [*others, number]
        return [(others[-1] if others and marker in line else number, line)]

    return break_line


def _lose(marker: bytes) -> BreakLine:
    """Lose such lines."""

    def break_line(number: int, line: bytes) -> list[tuple[int, bytes]]:
        return [] if marker in line else [(number, line)]

    return break_line


BREAKAGES = {
    "questions of another call": (_swap_questions(), Rule.FOREIGN),
    "progress to another client": (_to_another(b"notifications/progress"), Rule.FOREIGN),
    "log messages to another client": (_to_another(b"notifications/message"), Rule.FOREIGN),
    "pages of another call": (_of_the_one_before("contents"), Rule.FOREIGN),
    "skills of another call": (_of_the_one_before("skill"), Rule.FOREIGN),
    "answers that ask are lost": (_lose(b'"input_required"'), Rule.UNANSWERED),
    "log messages are lost": (_lose(b"notifications/message"), Rule.LOST_LOG),
}


@pytest.mark.parametrize("broken", BREAKAGES)
async def test_what_is_broken_for_modern_clients_is_reported(broken: str) -> None:
    break_line, rule = BREAKAGES[broken]
    history = History()
    wrong = await _judge(BROKEN, history, _proxy(history, has_streams=True), break_line=break_line)
    assert rule in {violation.rule for violation in wrong}


async def test_what_is_not_broken_is_not_reported() -> None:
    history = History()
    wrong = await _judge(PLAN, history, _proxy(history, has_streams=True))
    assert not wrong, show(wrong, history.events, PLAN.seed)
