"""A group's life: one attempt for all who ask, retries that back off, and a link that is there when it is needed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.config.resolved import Broken, Features, Program, ToolFilter
from dynamic_mcp.errors import LinkLost, TimedOut, Unreachable, UpstreamError
from dynamic_mcp.group import Group
from dynamic_mcp.states import DOWN, TRANSITIONS, State
from dynamic_mcp.upstream.open import Greeting
from dynamic_mcp.wire import Frame
from tests.fakes import (
    BOUND_S,
    FakeCaller,
    FakeClock,
    FakeUpstream,
    Json,
    Opener,
    Watcher,
    frame,
    group_config,
    settled,
    tool,
)


@dataclass
class Scene:
    """A started group and all that surrounds it."""

    group: Group
    opener: Opener
    clock: FakeClock
    watcher: Watcher

    def call(self) -> asyncio.Task[Frame]:
        """Begin a call; the answer is the task's result."""
        return asyncio.create_task(self.group.request("tools/call", {"name": Raw(b'"echo"')}, timeout_s=5))

    def is_(self, state: State) -> bool:
        return self.group.state is state

    async def until(self, state: State) -> None:
        await self.watcher.until(lambda: self.is_(state))


@contextlib.asynccontextmanager
async def scene(*plan: FakeUpstream | UpstreamError, start: bool = True, **changes: Json) -> AsyncIterator[Scene]:
    """Start a group whose attempts to connect end as planned, the last of the plan again and again."""
    opener, clock, watcher = Opener(up=[*plan]), FakeClock(), Watcher()
    group = Group(group_config("up", **changes), watcher, opener=opener, clock=clock, jitter=lambda: 0.5)
    if start:
        group.start(Greeting())
    try:
        async with asyncio.timeout(BOUND_S):
            yield Scene(group, opener, clock, watcher)
    finally:
        async with asyncio.timeout(BOUND_S):
            await group.close()


def serving(**answers: Json) -> FakeUpstream:
    """Return an upstream that answers calls."""
    return FakeUpstream({"tools/call": {"content": []}, **answers})


def refusal(reason: str = "the server exited with code 1", *, final: bool = False) -> Unreachable:
    return Unreachable("up", reason, hint="look at it", final=final)


# --- connecting ----------------------------------------------------------------------------------------


async def test_a_group_connects_in_the_background_to_learn_what_it_offers() -> None:
    async with scene(FakeUpstream(tools=["b", "a"])) as on:
        await on.until(State.READY)

        assert on.watcher.states == ["CONNECTING", "READY"]
        assert list((await on.group.catalog()).tools) == ["b", "a"]


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
        catalog = asyncio.create_task(on.group.catalog())
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

        assert list((await on.group.catalog()).tools) == ["c"]


# --- retrying ------------------------------------------------------------------------------------------


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
            await on.group.catalog()

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


async def test_an_upstream_that_never_answers_is_a_failed_attempt() -> None:
    async with scene(TimedOut("up", "initialize was not answered within 30 s")) as on:
        await on.until(State.WAITING)

        assert on.group.reason == "initialize was not answered within 30 s"


# --- a lost link ---------------------------------------------------------------------------------------


async def test_a_lost_link_fails_its_calls_and_the_next_use_reconnects_at_once() -> None:
    silent, fresh = serving(), serving()
    async with scene(silent, fresh) as on:
        await on.call()
        del silent.answers["tools/call"]
        call = on.call()
        await silent.hears("tools/call", times=2)

        silent.die("the server exited with code 1")
        with pytest.raises(LinkLost, match="may have run"):
            await call
        assert (on.group.state, on.group.reason) == (State.WAITING, "the server exited with code 1")
        await on.call()

        assert on.is_(State.READY)
        assert silent.closed
        assert [len(each.heard("tools/call")) for each in (silent, fresh)] == [2, 1]


async def test_a_call_on_a_link_that_is_found_dead_is_sent_once_on_a_new_one() -> None:
    dead, fresh = serving(), serving()
    async with scene(dead, fresh) as on:
        await on.call()

        dead.deaf = "the server has stopped reading its input"
        await on.call()

        assert [len(each.heard("tools/call")) for each in (dead, fresh)] == [1, 1]
        assert on.opener.opened == ["up", "up"]


async def test_a_link_that_was_lost_is_replaced_even_if_nobody_asks() -> None:
    upstream = serving()
    async with scene(upstream, FakeUpstream()) as on:
        await on.call()

        upstream.die()
        await settled()
        assert on.is_(State.WAITING)
        await on.clock.pass_(2)

        assert on.is_(State.READY)


async def test_a_link_that_never_served_counts_as_a_failure() -> None:
    first = FakeUpstream()
    async with scene(first, serving()) as on:
        await on.until(State.READY)
        first.die("the server exited with code 1")
        await settled()

        with pytest.raises(Unreachable, match="exited with code 1"):
            await on.call()

        await on.clock.pass_(1.25)
        await on.call()
        assert on.opener.opened == ["up", "up"]


async def test_a_server_that_dies_after_every_handshake_is_started_ever_more_seldom() -> None:
    upstreams = [FakeUpstream() for _ in range(5)]
    async with scene(*upstreams) as on:
        for upstream, delay_s in zip(upstreams, [2, 4, 8, 30], strict=False):
            await on.until(State.READY)
            upstream.die()
            await settled()
            assert on.clock.sleeps() == [delay_s]
            await on.clock.pass_(delay_s)


async def test_a_group_that_has_served_has_all_its_retries_again() -> None:
    upstream = serving()
    async with scene(refusal(), refusal(), upstream, refusal(), idle_after_s=60) as on:
        await settled()
        await on.clock.pass_(2)
        await on.clock.pass_(4)
        await on.call()
        await on.clock.pass_(60)
        assert on.is_(State.COLD)

        with pytest.raises(Unreachable):
            await on.call()
        await settled()

        assert on.is_(State.WAITING)
        assert on.clock.sleeps() == [2]


# --- idle ----------------------------------------------------------------------------------------------


async def test_an_idle_group_closes_its_link_and_keeps_its_catalog() -> None:
    first, second = FakeUpstream(tools=["a"]), serving()
    async with scene(first, second, idle_after_s=60) as on:
        await on.until(State.READY)
        await on.clock.pass_(59)
        assert on.is_(State.READY)
        await on.clock.pass_(1)

        assert (on.group.state, first.closed) == (State.COLD, True)
        assert list((await on.group.catalog()).tools) == ["a"]
        assert on.opener.opened == ["up"]

        await on.call()
        assert on.opener.opened == ["up", "up"]


async def test_a_use_starts_the_idle_clock_anew() -> None:
    async with scene(serving(), idle_after_s=60) as on:
        await on.until(State.READY)
        await on.clock.pass_(50)
        await on.call()

        await on.clock.pass_(50)
        assert on.is_(State.READY)
        await on.clock.pass_(10)

        assert on.is_(State.COLD)


async def test_a_group_is_not_idle_while_a_call_is_in_flight() -> None:
    upstream = FakeUpstream()
    async with scene(upstream, idle_after_s=60) as on:
        call = on.call()
        id = (await upstream.hears("tools/call"))["id"]

        await on.clock.pass_(1000)
        assert (on.group.state, on.group.in_flight) == (State.READY, 1)
        upstream.say({"jsonrpc": "2.0", "id": id, "result": {}})
        await call

        await on.clock.pass_(59)
        assert (on.group.state, on.group.in_flight) == (State.READY, 0)
        await on.clock.pass_(1)
        assert on.is_(State.COLD)


async def test_a_group_is_not_idle_while_somebody_is_subscribed_and_is_afterwards() -> None:
    async with scene(serving(), idle_after_s=60) as on:
        await on.call()
        on.group.use.is_subscribed = True

        await on.clock.pass_(1000)
        assert on.is_(State.READY)
        on.group.use.is_subscribed = False

        await on.clock.pass_(60)
        assert on.is_(State.COLD)


async def test_a_group_is_not_idle_while_its_upstream_waits_for_the_client() -> None:
    upstream = serving()
    async with scene(upstream, start=False, idle_after_s=60) as on:
        client = FakeCaller()
        on.group.start(Greeting(home=client))
        await on.call()
        upstream.say({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create"})

        await on.clock.pass_(1000)
        assert on.is_(State.READY)
        client.answer.set_result(frame(result=b"{}"))
        await upstream.hears("an answer")

        await on.clock.pass_(1)
        assert on.is_(State.COLD)


async def test_without_an_idle_timeout_a_link_stays() -> None:
    async with scene(FakeUpstream(), idle_after_s=None) as on:
        await on.until(State.READY)

        await on.clock.pass_(1e9)

        assert on.is_(State.READY)


# --- the catalog ---------------------------------------------------------------------------------------


def _list_changed(upstream: FakeUpstream, *names: str) -> None:
    upstream.answers["tools/list"] = {"tools": [tool(name) for name in names]}
    upstream.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


async def test_a_changed_list_is_read_again() -> None:
    upstream = FakeUpstream(tools=["old"])
    async with scene(upstream) as on:
        await on.until(State.READY)

        _list_changed(upstream, "new")
        await settled()

        assert list((await on.group.catalog()).tools) == ["new"]


async def test_a_storm_of_changes_is_one_reading_a_second() -> None:
    upstream = FakeUpstream()
    async with scene(upstream) as on:
        await on.until(State.READY)
        for n in range(100):
            _list_changed(upstream, f"tool_{n}")
            await settled()
        assert len(upstream.heard("tools/list")) == 2

        await on.clock.pass_(1)

        assert len(upstream.heard("tools/list")) == 3
        assert list((await on.group.catalog()).tools) == ["tool_99"]


async def test_reading_again_on_demand_returns_the_new_list() -> None:
    upstream = FakeUpstream(tools=["old"])
    async with scene(upstream) as on:
        await on.until(State.READY)
        upstream.answers["tools/list"] = {"tools": [tool("new")]}

        catalog = await on.group.reread()

        assert list(catalog.tools) == ["new"]


async def test_a_list_that_cannot_be_read_again_stays_as_it_was() -> None:
    upstream = FakeUpstream(tools=["old"])
    async with scene(upstream) as on:
        await on.until(State.READY)
        upstream.answers["tools/list"] = "not an object"

        catalog = await on.group.reread()

        assert list(catalog.tools) == ["old"]
        assert on.is_(State.READY)


async def test_whoever_waits_for_a_reading_is_not_left_waiting_when_the_link_is_lost() -> None:
    upstream = serving()
    async with scene(upstream, FakeUpstream()) as on:
        await on.call()
        await on.group.reread()
        again = asyncio.create_task(on.group.reread())  # comes a second after the first one at the earliest
        await settled()

        upstream.die()
        await settled()

        assert again.done()
        assert list((await again).tools) == ["echo"]


async def test_whoever_waits_for_a_reading_is_not_left_waiting_when_the_group_goes_idle() -> None:
    upstream = FakeUpstream()
    async with scene(upstream, idle_after_s=60) as on:
        await on.until(State.READY)
        await on.clock.pass_(59.5)
        await on.group.reread()
        again = asyncio.create_task(on.group.reread())
        await settled()

        await on.clock.pass_(0.75)
        await on.clock.pass_(0.75)

        assert again.done()
        assert list((await again).tools) == ["echo"]


async def test_the_tools_of_all_pages_are_there_but_for_those_that_the_config_excludes() -> None:
    pages = {
        None: {"tools": [tool("a_1"), tool("b_1")], "nextCursor": "2"},
        "2": {"tools": [tool("a_2"), tool("a_x")]},
    }
    upstream = FakeUpstream({"tools/list": lambda params: pages[(params or {}).get("cursor")]})
    async with scene(upstream, tools=ToolFilter(include=("a_*",), exclude=("*_x",))) as on:
        await on.until(State.READY)

        assert list((await on.group.catalog()).tools) == ["a_1", "a_2"]


@pytest.mark.parametrize(
    ("capabilities", "features"),
    [
        ({}, Features(tools=True, resources=True, prompts=True)),
        ({"prompts": {}}, Features(tools=True, resources=True, prompts=True)),
        ({"tools": {}}, Features(tools=False, resources=True, prompts=True)),
    ],
    ids=["no capability", "other capabilities", "switched off"],
)
async def test_an_upstream_is_not_asked_for_tools_that_it_has_not_or_that_nobody_wants(
    capabilities: Json, features: Features
) -> None:
    upstream = FakeUpstream({"initialize": {"protocolVersion": "2025-11-25", "capabilities": capabilities}})
    async with scene(upstream, features=features) as on:
        await on.until(State.READY)

        assert (await on.group.catalog()).tools == {}
        assert upstream.heard("tools/list") == []


async def test_other_notifications_of_the_upstream_pass_to_the_observer() -> None:
    upstream = FakeUpstream()
    async with scene(upstream) as on:
        await on.until(State.READY)

        upstream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}})
        await settled()

        assert [frame.method for frame in on.watcher.frames] == ["notifications/message"]


# --- the end -------------------------------------------------------------------------------------------


async def test_closing_ends_the_link_and_the_calls_in_flight() -> None:
    upstream = FakeUpstream()
    async with scene(upstream) as on:
        call = on.call()
        await upstream.hears("tools/call")

        await on.group.close()

        with pytest.raises(LinkLost):
            await call
        assert (on.group.state, upstream.closed) == (State.CLOSED, True)


async def test_closing_during_an_attempt_ends_it_and_all_who_wait_hear_so() -> None:
    async with scene(serving()) as on:
        on.opener.gate.clear()
        calls = [on.call() for _ in range(3)]
        await settled()

        await on.group.close()

        for call in calls:
            with pytest.raises(Unreachable, match="shutting down"):
                await call


async def test_closing_during_the_first_reading_closes_the_link() -> None:
    upstream = FakeUpstream()
    del upstream.answers["tools/list"]
    async with scene(upstream) as on:
        await upstream.hears("tools/list")

        await on.group.close()

        assert upstream.closed


@pytest.mark.parametrize("start", [True, False], ids=["started", "never started"])
async def test_a_closed_group_stays_closed(*, start: bool) -> None:
    async with scene(serving(), start=start) as on:
        await on.group.close()
        await on.group.close()

        with pytest.raises(Unreachable):
            await on.call()
        with pytest.raises(Unreachable):
            await on.group.catalog()

        assert on.is_(State.CLOSED)
        assert on.opener.opened == []


async def test_closing_while_waiting_between_attempts_ends_the_group() -> None:
    async with scene(refusal()) as on:
        await on.until(State.WAITING)

        await on.group.close()

        assert (on.group.state, on.group.reason) == (State.CLOSED, "")
        assert on.clock.sleeps() == []


# --- what is shown -------------------------------------------------------------------------------------


async def test_the_repr_is_the_status_line() -> None:
    upstream = FakeUpstream()
    async with scene(refusal("no licence"), upstream, idle_after_s=60) as on:
        await on.until(State.WAITING)
        assert repr(on.group) == "<Group up WAITING, no licence>"

        await on.clock.pass_(2)
        assert repr(on.group) == "<Group up READY, 0 calls, idle in 60 s>"

        on.call()
        await upstream.hears("tools/call")
        assert repr(on.group) == "<Group up READY, 1 calls, idle in 60 s>"

        await on.group.close()
        assert repr(on.group) == "<Group up CLOSED>"


async def test_a_group_that_is_never_idle_says_nothing_of_it() -> None:
    async with scene(FakeUpstream(), idle_after_s=None) as on:
        await on.until(State.READY)

        assert repr(on.group) == "<Group up READY, 0 calls>"


def _welcome(title: str = "", instructions: str = "") -> Json:
    info = {"name": "srv", "version": "1", "title": title}
    return {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info, "instructions": instructions}


@pytest.mark.parametrize(
    ("described", "welcome", "description"),
    [
        ("From the\n config", _welcome("Title", "Instructions."), "From the config"),
        (None, _welcome("The\nTitle", "Instructions."), "The Title"),
        ("", _welcome("The Title"), "The Title"),
        (None, _welcome(instructions="Finds files. And more."), "Finds files"),
        (None, _welcome(), "Tools from `server.py`"),
    ],
    ids=["config", "title", "empty in the config", "instructions", "label"],
)
async def test_a_description_comes_from_the_config_else_from_the_upstream_else_from_its_start(
    described: str | None, welcome: Json, description: str
) -> None:
    program = Program(command="/opt/x/server.py", args=(), env={}, cwd=None)
    async with scene(FakeUpstream({"initialize": welcome}), description=described, upstream=program) as on:
        await on.until(State.READY)

        assert on.group.description == description


def test_before_anything_is_known_the_description_says_where_the_tools_come_from() -> None:
    assert Group(group_config("up"), Watcher()).description == "Tools from `fake`"
    assert Group(group_config("up", upstream=Broken("why")), Watcher()).description == "Tools from `up`"


@pytest.mark.parametrize(
    "words",
    ["two\nlines", "bell \x07 and \x1b[2J", "a\u2028b\u202e", "x" * 100_000],
    ids=["lines", "control characters", "direction", "long"],
)
async def test_a_reason_in_foreign_words_is_one_line_of_bearable_length(words: str) -> None:
    async with scene(refusal(words)) as on:
        await on.until(State.WAITING)

        assert on.group.reason.isprintable()
        assert 0 < len(on.group.reason) <= 2000


# --- any life ------------------------------------------------------------------------------------------

EVENTS = st.sampled_from(
    ["call", "die", "deaf", "change", "reread", "1 s", "30 s", "1 h", "break", "mend", "a moment"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(EVENTS, max_size=30))
async def test_whatever_happens_the_table_is_kept_and_everybody_gets_an_answer(events: list[str]) -> None:
    opener, clock, watcher = Opener(up=[serving()]), FakeClock(), EveryState()
    group = Group(group_config("up", idle_after_s=600), watcher, opener=opener, clock=clock, jitter=lambda: 0.5)
    waiting: list[asyncio.Task[object]] = []
    group.start(Greeting())
    for event in events:
        match event:
            case "call":
                waiting.append(asyncio.create_task(group.request("tools/call", None, timeout_s=5)))
            case "reread":
                waiting.append(asyncio.create_task(group.reread()))
            case "die" if group.state is State.READY:
                opener.upstreams[-1].die()
            case "deaf" if group.state is State.READY:
                opener.upstreams[-1].deaf = "the server has stopped reading its input"
            case "change" if group.state is State.READY:
                _list_changed(opener.upstreams[-1], "other")
            case "1 s" | "30 s" | "1 h":
                await clock.pass_({"1 s": 1, "30 s": 30, "1 h": 3600}[event])
            case "break":
                opener.plan["up"] = [refusal()]
            case "mend":
                opener.plan["up"] = [serving()]
            case "a moment":
                await settled()

    async with asyncio.timeout(BOUND_S):
        await group.close()
        answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert all(not isinstance(answer, Exception) or isinstance(answer, UpstreamError) for answer in answers)
    assert all(after in TRANSITIONS[before] for before, after in pairwise(watcher.seen))
    assert watcher.seen[-1:] == [State.CLOSED]
    assert DOWN.isdisjoint({group.state})


class EveryState(Watcher):
    """Sees every state, also one that comes twice in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[State] = []

    def changed(self, group: Group) -> None:
        super().changed(group)
        if not self.seen or self.seen[-1] is not group.state:
            self.seen.append(group.state)
