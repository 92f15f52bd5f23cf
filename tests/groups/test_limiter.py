"""Places: never more at once than there are, in the order of asking, and none is ever lost."""

from __future__ import annotations

import asyncio

from dynamic_mcp.groups.limiter import Limiter
from tests.fakes import settled


async def test_no_more_are_in_at_once_than_there_are_places_and_the_queue_is_fair() -> None:
    places, order = Limiter(2, 10), list[int]()

    async def acquire(number: int) -> None:
        await places.acquire()
        order.append(number)

    waiting = [asyncio.create_task(acquire(number)) for number in range(4)]
    await settled()
    assert (order, places.taken) == ([0, 1], 2)
    places.release()
    await settled()
    assert (order, places.taken) == ([0, 1, 2], 2)
    places.release()
    await asyncio.gather(*waiting)
    for _ in range(2):
        places.release()
    assert (order, places.taken) == ([0, 1, 2, 3], 0)


async def test_it_is_full_when_the_queue_is() -> None:
    places = Limiter(1, 1)
    await places.acquire()
    assert not places.is_full()
    queued = asyncio.create_task(places.acquire())
    await settled()
    assert places.is_full()
    queued.cancel()


async def test_who_leaves_the_queue_takes_no_place_with_them() -> None:
    places = Limiter(1, 10)
    await places.acquire()
    first, second = (asyncio.create_task(places.acquire()) for _ in range(2))
    await settled()
    first.cancel()
    places.release()
    await settled()
    assert second.done()
    places.release()
    assert places.taken == 0


async def test_a_place_that_comes_together_with_a_cancellation_goes_on_to_the_next() -> None:
    places = Limiter(1, 10)
    await places.acquire()
    first, second = (asyncio.create_task(places.acquire()) for _ in range(2))
    await settled()
    places.release()
    first.cancel()
    await settled()
    assert first.cancelled()
    assert second.done()
    assert places.taken == 1
