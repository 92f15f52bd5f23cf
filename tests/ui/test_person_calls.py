"""Calls of people at the page run in the background; each is for its own person, and kept within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from msgspec import Raw

from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.identity import Authentication, Principal
from dynamic_mcp.mcp import wire
from dynamic_mcp.ui.person_calls import KEPT_FOR_S, MOST_OF_PERSON, MOST_RUNNING, PersonCall, PersonCalls
from dynamic_mcp.ui.section import Visit
from tests.fakes import BOUND_S
from tests.ui.test_connect import Nobody


def visit_of(subject: str) -> Visit:
    who = Authentication(Principal("issuer", subject), "issuer")
    return Visit(who, (), is_operator=True, is_approver=True, client=Nobody(), base="/ui", now=0.0)


ANN, EVE = visit_of("ann"), visit_of("eve")


class Calls:
    """The calls of the page, at a time that is set."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.kept = PersonCalls(lambda: self.now)

    def start(self, ask: Coroutine[Any, Any, Raw], visit: Visit = ANN, path: str = "tools/a/b") -> PersonCall:
        return self.kept.start(visit, ask, path=path, arguments=wire.EMPTY_OBJECT, typed={})

    async def done(self, ask: Coroutine[Any, Any, Raw], visit: Visit = ANN) -> PersonCall:
        call = self.start(ask, visit)
        await self.kept.wait(call, BOUND_S)
        assert not call.is_running
        return call


async def answer(text: bytes = b'{"content": []}') -> Raw:
    return Raw(text)


async def refuse() -> Raw:
    raise InvalidArguments("no such thing", hint="look again")


async def break_down() -> Raw:
    raise ZeroDivisionError


async def test_a_result_is_found_by_its_person_at_its_page_alone() -> None:
    calls = Calls()
    call = await calls.done(answer())

    assert calls.kept.find(ANN, call.id, "tools/a/b") is call
    assert calls.kept.find(ANN, call.id, "tools/a/c") is None
    assert calls.kept.find(EVE, call.id, "tools/a/b") is None


async def test_a_call_ends_with_a_result_an_error_or_a_fault_of_ours() -> None:
    calls = Calls()
    good, bad, said = (
        await calls.done(answer()),
        await calls.done(refuse()),
        await calls.done(answer(b'{"isError":true}')),
    )
    broken = await calls.done(break_down())

    assert [each.is_error for each in (good, bad, said, broken)] == [False, True, True, True]
    assert (bad.error and bad.error.hint, broken.error and broken.error.hint) == ("look again", "its log says what")


async def test_a_call_that_is_stopped_has_no_result_also_before_it_begins() -> None:
    calls, never = Calls(), asyncio.Event()

    async def wait() -> Raw:
        await never.wait()
        return wire.EMPTY_OBJECT

    running, at_once = calls.start(wait()), calls.start(answer())
    calls.kept.stop(at_once)
    before = calls.kept.stamp(ANN)
    await asyncio.sleep(0)
    calls.kept.stop(running)
    for call in (running, at_once):
        await calls.kept.wait(call, BOUND_S)

    assert running.is_stopped
    assert at_once.is_stopped
    assert running.result is None
    assert calls.kept.stamp(ANN) != before
    assert calls.kept.stamp(EVE) == ()


async def test_one_person_has_so_many_calls_at_once_and_no_more() -> None:
    calls, never = Calls(), asyncio.Event()

    async def wait() -> Raw:
        await never.wait()
        return wire.EMPTY_OBJECT

    for _ in range(MOST_RUNNING):
        calls.start(wait())
    with pytest.raises(DynamicMcpError, match="still running"):
        calls.start(wait())
    assert calls.start(wait(), EVE).is_running
    await calls.kept.close()


async def test_results_are_kept_for_a_while_and_so_many_of_each_person() -> None:
    calls = Calls()
    ids = [(await calls.done(answer())).id for _ in range(MOST_OF_PERSON + 5)]
    other = await calls.done(answer(), EVE)
    assert [calls.kept.find(ANN, id, "tools/a/b") is None for id in ids][:6] == [True] * 4 + [False] * 2

    calls.now += KEPT_FOR_S + 1
    await calls.done(answer())
    assert calls.kept.find(EVE, other.id, "tools/a/b") is None
