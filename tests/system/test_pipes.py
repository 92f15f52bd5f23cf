"""Pipes to and from the event loop, of every kind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.system.pipes import open_sink
from tests.program import BOUND_S

LOOPS = [loop_factory(), asyncio.new_event_loop]


@pytest.mark.parametrize("new_loop", LOOPS, ids=["ours", "asyncio"])
def test_what_is_written_after_the_reader_has_gone_is_dropped(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def write_to_nobody() -> None:
        ours, theirs = os.pipe()
        gone = asyncio.Event()
        sink = await open_sink(theirs, high=1, on_full=lambda: None, on_drain=lambda: None, on_end=gone.set)
        os.close(ours)
        async with asyncio.timeout(BOUND_S):
            sink.write(b"to nobody")
            await gone.wait()
            sink.write(b"to nobody")
            await sink.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(write_to_nobody())
