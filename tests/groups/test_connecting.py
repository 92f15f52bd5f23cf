"""A group connects once for all who ask, and tries again when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from dynamic_mcp.errors import TimedOut, Unreachable
from dynamic_mcp.groups.catalog import ListKind
from dynamic_mcp.groups.lifecycle import State
from tests.fakes import FakeUpstream, Json, settled, tool
from tests.groups.lives import refusal, scene, serving

# --- connecting ------------------------------------------------------------------------------------------


async def test_a_group_connects_in_the_background_to_learn_what_it_offers() -> None:
    async with scene(FakeUpstream(tools=["b", "a"])) as on:
        await on.until(State.READY)

        assert on.watcher.states == ["CONNECTING", "READY"]
        assert list((await on.group.read_catalog()).tools) == ["b", "a"]


async def test_nine_callers_share_one_connect() -> None:
    async with scene(serving()) as on:
        on.opener.gate.clear()
        calls = [on.call() for _ in range(9)]
        await settled()
        assert on.is_(State.CONNECTING)

        on.opener.gate.set()
        await asyncio.gather(*calls)

        assert on.opener.opened == ["up"]


async def test_a_caller_that_gives_up_while_connecting_takes_nobody_with_it() -> None:
    async with scene(serving()) as on:
        on.opener.gate.clear()
        hasty, patient = on.call(), on.call()
        await settled()

        hasty.cancel()
        await settled()
        on.opener.gate.set()

        assert bytes((await patient).result) == b'{"content": []}'
        assert hasty.cancelled()
        assert on.opener.opened == ["up"]


async def test_all_who_wait_for_a_failing_attempt_hear_why() -> None:
    async with scene(refusal("the command `x` was not found")) as on:
        on.opener.gate.clear()
        calls = [on.call() for _ in range(3)]
        catalog = asyncio.create_task(on.group.read_catalog())
        await settled()

        on.opener.gate.set()

        for waiting in (*calls, catalog):
            with pytest.raises(Unreachable, match="the command `x` was not found") as raised:
                await waiting
            assert raised.value.hint == "look at it"
        assert on.opener.opened == ["up"]


async def test_an_upstream_that_dies_before_its_list_was_read_fails_the_attempt() -> None:
    upstream = FakeUpstream()
    del upstream.answers["tools/list"]
    async with scene(upstream) as on:
        await upstream.hears("tools/list")

        upstream.die("the server exited with code 3")
        await on.until(State.WAITING)

        assert on.group.reason == "the server exited with code 3"
        assert upstream.closed


async def test_an_upstream_that_dies_right_after_the_handshake_fails_the_attempt() -> None:
    upstream = FakeUpstream()

    def welcome(params: Json) -> Json:
        asyncio.get_running_loop().call_soon(upstream.die, "the server exited with code 4")
        return {"protocolVersion": "2025-11-25", "capabilities": {}}

    upstream.answers["initialize"] = welcome
    async with scene(upstream) as on:
        await on.until(State.WAITING)

        assert on.group.reason == "the server exited with code 4"
        assert upstream.closed


async def test_a_list_that_changes_while_it_is_first_read_is_read_again() -> None:
    upstream = FakeUpstream()
    pages: Iterator[Json] = iter([{"tools": [tool("a")], "nextCursor": "2"}, {"tools": [tool("b")]}])

    def page(params: Json) -> Json:
        if params is not None:
            upstream.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return next(pages, {"tools": [tool("c")]})

    upstream.answers["tools/list"] = page
    async with scene(upstream) as on:
        await on.until(State.READY)
        await settled()

        assert list((await on.group.read_catalog()).tools) == ["c"]


# --- retrying --------------------------------------------------------------------------------------------


async def test_retries_come_after_2_4_and_8_seconds_then_the_group_fails_and_is_revived_ever_more_seldom() -> None:
    async with scene(refusal()) as on:
        for attempt, (delay_s, state) in enumerate(
            [
                (2, State.WAITING),
                (4, State.WAITING),
                (8, State.WAITING),
                (30, State.FAILED),
                (60, State.FAILED),
                (120, State.FAILED),
                (240, State.FAILED),
                (300, State.FAILED),
                (300, State.FAILED),
            ],
            start=1,
        ):
            await settled()
            assert (len(on.opener.opened), on.group.state) == (attempt, state)
            await on.clock.pass_(delay_s - 0.5)
            assert len(on.opener.opened) == attempt
            await on.clock.pass_(0.5)


async def test_a_group_without_retries_fails_at_once() -> None:
    async with scene(refusal(), attempts=0) as on:
        await on.until(State.FAILED)

        assert on.opener.opened == ["up"]
        assert on.clock.sleeps() == []


async def test_how_often_is_tried_again_can_change_while_a_group_is_down() -> None:
    async with scene(refusal(), attempts=3) as on:
        await on.until(State.WAITING)

        on.group.reconfigure(replace(on.group.config, attempts=0), frozenset({ListKind.TOOLS}))
        await on.clock.pass_(30)

        await on.until(State.FAILED)


async def test_a_group_that_failed_comes_back_by_itself() -> None:
    async with scene(refusal(), FakeUpstream()) as on:
        await on.until(State.WAITING)

        await on.clock.pass_(2)

        assert on.is_(State.READY)
        assert on.group.reason == ""


async def test_a_use_just_after_a_failure_hears_why_and_tries_nothing() -> None:
    async with scene(refusal("no licence"), FakeUpstream()) as on:
        await on.until(State.WAITING)
        await on.clock.pass_(0.75)

        with pytest.raises(Unreachable, match="no licence"):
            await on.call()
        with pytest.raises(Unreachable, match="no licence"):
            await on.group.read_catalog()

        assert len(on.opener.opened) == 1


@pytest.mark.parametrize(("attempts", "state"), [(3, State.WAITING), (0, State.FAILED)], ids=lambda value: str(value))
async def test_a_use_after_the_cool_down_tries_at_once(attempts: int, state: State) -> None:
    async with scene(refusal(), serving(), attempts=attempts) as on:
        await on.until(state)
        await on.clock.pass_(1.25)
        assert on.is_(state)

        await on.call()

        assert on.watcher.states[-2:] == ["CONNECTING", "READY"]


async def test_a_final_error_is_not_tried_again_and_every_use_hears_it() -> None:
    async with scene(refusal("`TOKEN` is not defined", final=True)) as on:
        await on.until(State.FAILED)
        await on.clock.pass_(1_000_000)

        with pytest.raises(Unreachable, match="`TOKEN` is not defined"):
            await on.call()

        assert on.opener.opened == ["up"]


@pytest.mark.parametrize("final", [False, True])
async def test_a_person_who_asks_for_it_connects_at_once_after_any_failure(*, final: bool) -> None:
    async with scene(refusal(final=final), refusal("still not"), serving()) as on:
        await on.until(State.FAILED if final else State.WAITING)

        with pytest.raises(Unreachable, match="still not"):
            await on.group.connect_again(on.group.client)
        await on.group.connect_again(on.group.client)

        await on.until(State.READY)


async def test_an_upstream_that_never_answers_is_a_failed_attempt() -> None:
    async with scene(TimedOut("up", "initialize was not answered within 30 s")) as on:
        await on.until(State.WAITING)

        assert on.group.reason == "initialize was not answered within 30 s"
