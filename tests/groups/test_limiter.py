"""Places: never more at once than there are, in turns over the clients that wait, and none is ever lost."""

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
    assert (order, places.in_use) == ([0, 1], 2)
    places.release()
    await settled()
    assert (order, places.in_use) == ([0, 1, 2], 2)
    places.release()
    await asyncio.gather(*waiting)
    for _ in range(2):
        places.release()
    assert (order, places.in_use) == ([0, 1, 2, 3], 0)


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
    assert places.in_use == 0


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
    assert places.in_use == 1


async def test_clients_take_turns_whoever_asked_for_more_before() -> None:
    places, order = Limiter(1, 100), list[str]()
    await places.acquire("greedy")

    async def acquire(client: str) -> None:
        await places.acquire(client)
        order.append(client)

    waiting = [asyncio.create_task(acquire(client)) for client in ["greedy"] * 5 + ["ann"] * 2 + ["bob"]]
    await settled()
    for _ in waiting:
        places.release()
        await settled()

    assert order == ["greedy", "ann", "bob", "greedy", "ann", "greedy", "greedy", "greedy"]
    assert places.in_use == 1


async def test_one_clients_full_queue_is_not_anothers() -> None:
    places = Limiter(1, 2)
    await places.acquire("greedy")
    queued = [asyncio.create_task(places.acquire("greedy")) for _ in range(2)]
    await settled()

    assert places.is_full("greedy")
    assert not places.is_full("ann")
    for task in queued:
        task.cancel()
    await settled()
    assert not places.is_full("greedy")


async def test_more_places_are_taken_at_once_by_those_who_wait() -> None:
    places = Limiter(1, 10)
    await places.acquire("ann")
    queued = [asyncio.create_task(places.acquire(client)) for client in ("ann", "ann", "bob")]
    await settled()

    places.resize(3)
    await settled()

    assert places.in_use == 3
    assert [task.done() for task in queued] == [True, False, True]
    queued[1].cancel()
