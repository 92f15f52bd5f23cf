"""`settled()` of the tests waits for all that runs by itself, however long that takes, and for nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading

import pytest

from tests.fakes import BOUND_S, settled
from tests.idle_loop import IdleLoop


async def test_what_takes_any_number_of_turns_is_over() -> None:
    done = asyncio.Event()

    async def take_turns() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)
        done.set()

    task = asyncio.create_task(take_turns())
    await settled()
    assert done.is_set()
    await task


async def test_what_runs_in_a_thread_is_over_and_what_follows_from_it() -> None:
    may_end, done = threading.Event(), asyncio.Event()

    async def work() -> None:
        await asyncio.to_thread(may_end.wait, BOUND_S)
        await asyncio.sleep(0)
        done.set()

    task = asyncio.create_task(work())
    waiting = asyncio.create_task(settled())
    asyncio.get_running_loop().call_later(0.01, may_end.set)
    await waiting
    assert done.is_set()
    await task


@pytest.mark.skipif(sys.platform == "win32", reason="the loop of Windows watches no descriptors")
async def test_what_can_be_read_has_been_read() -> None:
    reading, writing = os.pipe()
    chunks: list[bytes] = []
    loop = asyncio.get_running_loop()
    loop.add_reader(reading, lambda: chunks.append(os.read(reading, 10)))
    os.write(writing, b"here")
    await settled()
    loop.remove_reader(reading)
    os.close(reading)
    os.close(writing)
    assert chunks == [b"here"]


async def test_time_does_not_pass_meanwhile() -> None:
    rings = list[str]()
    timer = asyncio.get_running_loop().call_later(3600, rings.append, "too late")
    await settled()
    assert rings == []
    timer.cancel()


async def test_several_that_wait_all_go_on() -> None:
    await asyncio.gather(*(settled() for _ in range(3)))


@pytest.mark.skipif(sys.platform == "win32", reason="the loop of Windows reads no such pipes")
@pytest.mark.parametrize("ends", [True, False])
def test_a_pipe_that_is_left_open_fails_the_test_that_leaves_it(*, ends: bool) -> None:
    source, sink = os.pipe()
    with os.fdopen(sink, "wb", 0) as other_end, contextlib.ExitStack() as stack:
        loop = IdleLoop()
        pipe = os.fdopen(source, "rb", 0)  # which the loop closes
        loop.run_until_complete(loop.connect_read_pipe(asyncio.Protocol, pipe))
        if ends:
            other_end.close()
            loop.run_until_complete(loop.idle())
        else:
            stack.enter_context(pytest.raises(AssertionError, match="left pipes open"))
        loop.close()
