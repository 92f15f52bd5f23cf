"""What is shown of a group, and that no sequence of events leads it astray."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dynamic_mcp.errors import UpstreamError
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.lifecycle import DOWN, TRANSITIONS, State
from tests.examples import examples
from tests.fake_parties import LoneGroup, Watcher
from tests.fakes import BOUND_S, FakeClock, FakeUpstream, Json, Opener, group_config, settled
from tests.groups.lives import list_changed, refusal, scene, serving

# --- what is shown ---------------------------------------------------------------------------------------


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


def welcome(title: str = "", instructions: str = "") -> Json:
    info = {"name": "srv", "version": "1", "title": title}
    return {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info, "instructions": instructions}


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


# --- any life --------------------------------------------------------------------------------------------


EVENTS = st.sampled_from(
    ["call", "die", "deaf", "change", "reread", "1 s", "30 s", "1 h", "break", "mend", "a moment"]
)


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(EVENTS, max_size=30))
async def test_whatever_happens_the_table_is_kept_and_everybody_gets_an_answer(events: list[str]) -> None:
    opener, clock, watcher = Opener(up=[serving()]), FakeClock(), EveryState()
    group = LoneGroup(group_config("up", idle_after_s=600), watcher, opener=opener, clock=clock, jitter=lambda: 0.5)
    waiting: list[asyncio.Task[object]] = []
    group.begin()
    for event in events:
        match event:
            case "call":
                waiting.append(asyncio.create_task(group.send("tools/call", None, timeout_s=5)))
            case "reread":
                waiting.append(asyncio.create_task(group.read_again()))
            case "die" if group.state is State.READY:
                opener.upstreams[-1].die()
            case "deaf" if group.state is State.READY:
                opener.upstreams[-1].deaf = "the server has stopped reading its input"
            case "change" if group.state is State.READY:
                list_changed(opener.upstreams[-1], "other")
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

    def group_changed(self, group: Group) -> None:
        super().group_changed(group)
        if not self.seen or self.seen[-1] is not group.state:
            self.seen.append(group.state)
