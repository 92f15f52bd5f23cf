"""Pages leave room for calls: a piece of one page in a turn of the loop, and one thread for all of them."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Iterator
from time import perf_counter

import pytest

from dynamic_mcp.ui.page_turns import PageTurns


def slow_items(number: int) -> Iterator[int]:
    for item in range(number):
        until = perf_counter() + 0.002
        while perf_counter() < until:
            pass
        yield item


async def test_a_call_has_its_turn_between_two_pieces_of_any_pages() -> None:
    turns, order = PageTurns(), list[str]()

    async def show(name: str) -> None:
        async for _ in turns.split(slow_items(5)):
            order.append(name)

    async def call() -> None:
        while not all(page.done() for page in pages):
            order.append("call")
            await asyncio.sleep(0)

    pages = [asyncio.create_task(show(name)) for name in "ab"]
    await asyncio.gather(*pages, asyncio.create_task(call()))

    begun = order[2:]  # both begin in the turn in which they are opened
    pieces = [at for at, what in enumerate(begun) if what != "call"]
    assert len(pieces) == 8
    assert all(later - earlier > 1 for earlier, later in itertools.pairwise(pieces))


async def test_items_that_take_no_time_need_no_turn() -> None:
    turns, others = PageTurns(), 0

    async def count() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert [each async for each in turns.split("ab")] == ["a", "b"]
    assert others == 0
    counting.cancel()


async def test_slow_work_of_pages_is_done_in_one_thread_one_after_the_other() -> None:
    turns = PageTurns()
    names = await asyncio.gather(*(turns.run_apart(lambda: threading.current_thread().name) for _ in range(5)))
    assert len({*names}) == 1
    assert names[0] != threading.current_thread().name
    with pytest.raises(ZeroDivisionError):
        await turns.run_apart(divmod, 1, 0)


def test_threads_are_switched_as_before_once_no_page_is_made() -> None:
    turns, usual = PageTurns(), sys.getswitchinterval()
    with turns.keep_brisk():
        with turns.keep_brisk():
            brisk = sys.getswitchinterval()
            assert brisk < usual
        assert sys.getswitchinterval() == brisk
    assert sys.getswitchinterval() == usual
