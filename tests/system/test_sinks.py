"""A reader that stalls or goes away, for sinks on the loop and in threads (on Windows, and for terminals)."""

from __future__ import annotations

import asyncio
import os

from dynamic_mcp.system.pipes import open_sink
from tests.program import BOUND_S

HIGH = 1 << 16
DATA = bytes(range(256)) * 4096  # 1 MiB with each kind of line end


async def test_a_sink_whose_reader_stalls_says_so_and_says_when_it_has_caught_up_without_a_lost_byte() -> None:
    reader, writer = os.pipe()
    full, drained = asyncio.Event(), asyncio.Event()
    sink = await open_sink(writer, high=HIGH, on_full=full.set, on_drain=drained.set, on_end=lambda: None)
    for begin in range(0, len(DATA), 1000):
        sink.write(DATA[begin : begin + 1000])
    async with asyncio.timeout(BOUND_S):
        await full.wait()
        assert sink.buffered_bytes() > HIGH
        assert not sink.try_write(b"too much", HIGH)
        assert not drained.is_set()

        assert await asyncio.to_thread(_read, reader, len(DATA)) == DATA

        await drained.wait()
        assert sink.try_write(b"more", HIGH)
        await sink.close()
        assert await asyncio.to_thread(_read, reader, 100) == b"more"
    os.close(reader)


async def test_a_sink_whose_reader_goes_away_ends_even_if_it_was_full() -> None:
    reader, writer = os.pipe()
    ended = asyncio.Event()
    sink = await open_sink(writer, high=HIGH, on_full=lambda: None, on_drain=lambda: None, on_end=ended.set)
    sink.write(DATA)
    os.close(reader)
    async with asyncio.timeout(BOUND_S):
        await ended.wait()
    assert sink.is_closing()
    await sink.close()


def _read(fd: int, most: int) -> bytes:
    parts: list[bytes] = []
    while most and (part := os.read(fd, most)):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
