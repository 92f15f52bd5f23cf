"""A run waits for what upstreams hear late, however long the machine stands still meanwhile, and not for ever."""

from __future__ import annotations

import asyncio
import time

from tests.history.checker import Rule, judge
from tests.history.record import Expect, History, Nonce
from tests.history.story import Story, message
from tests.history.workload import settle

URI = "a://x"


def _left() -> History:
    """Return the history of a session that has left a subscription behind."""
    nonce = Nonce("one", 2)
    story = Story().asks(nonce, method="resources/subscribe", params={"uri": URI}, expect=Expect.RESULT)
    history = History()
    history.events = story.is_answered(nonce, {}).closes("one").events
    return history


def _unsubscribe(history: History) -> None:
    history.get("up", message(id=9, method="resources/unsubscribe", params={"uri": URI}))


async def test_time_in_which_the_loop_stands_still_does_not_count() -> None:
    history, within_s = _left(), 0.2

    async def hear_late() -> None:
        time.sleep(2 * within_s)  # noqa: ASYNC251 - as a collection of garbage, or the machine, stops the loop
        for _ in range(10):
            await asyncio.sleep(0)
        _unsubscribe(history)

    hearing = asyncio.create_task(hear_late())
    await settle(history, within_s)
    assert judge(history.events) == []
    await hearing


async def test_what_upstreams_never_hear_is_not_waited_for_for_ever() -> None:
    history = _left()
    await settle(history, 0.3)
    assert [violation.rule for violation in judge(history.events)] == [Rule.NOT_UNSUBSCRIBED]
