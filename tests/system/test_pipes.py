"""Pipes to and from the event loop, of every kind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.system.pipes import Sink, burst_of, enlarge, open_sink
from tests.program import BOUND_S

if sys.platform != "win32":
    import fcntl

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


@pytest.fixture(params=LOOPS, ids=["ours", "asyncio"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[tuple[Sink, Callable[[], bytes], asyncio.Event]]:
    """Open a sink; yield it with what reads all that is in its pipe, without waiting, and the event of its end."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    ended = asyncio.Event()
    sink = await open_sink(writer, high=1 << 20, on_full=lambda: None, on_drain=lambda: None, on_end=ended.set)

    def read() -> bytes:
        try:
            return os.read(reader, 1 << 20)
        except BlockingIOError:
            return b""

    try:
        yield sink, read, ended
    finally:
        await sink.close()
        os.close(reader)


async def read_until(end: bytes, read: Callable[[], bytes]) -> bytes:
    data = b""
    async with asyncio.timeout(BOUND_S):
        while not data.endswith(end):
            await asyncio.sleep(0)
            data += read()
    return data


def write_in_burst(sink: Sink, *messages: bytes) -> None:
    """Write messages as the answers to others that came together."""
    burst_of(asyncio.get_running_loop()).handle(sink.write, messages)


@pytest.mark.posix_only("a thread writes on Windows, and joins what waits for it")
def test_the_first_message_of_a_burst_is_written_at_once_and_the_rest_together_at_its_end(
    runner: asyncio.Runner,
) -> None:
    async def write_four() -> None:
        async with opened() as (sink, read, _):
            write_in_burst(sink, b"one\n", b"two\n", b"three\n")
            assert read() == b"one\n"
            assert sink.buffered_bytes() == len(b"two\nthree\n")
            assert await read_until(b"three\n", read) == b"two\nthree\n"
            assert sink.buffered_bytes() == 0
            sink.write(b"four\n")
            assert read() == b"four\n"

    runner.run(write_four())


@pytest.mark.posix_only("a thread writes on Windows, and joins what waits for it")
def test_a_message_that_is_in_no_burst_is_written_at_once(runner: asyncio.Runner) -> None:
    async def write_three() -> None:
        async with opened() as (sink, read, _):
            write_in_burst(sink, b"one\n")
            sink.write(b"two\n")
            write_in_burst(sink, b"three\n")
            assert read() == b"one\ntwo\nthree\n"

    runner.run(write_three())


@pytest.mark.posix_only("a thread writes on Windows, and joins what waits for it")
def test_a_burst_lasts_until_the_tasks_and_callbacks_of_its_messages_have_run(runner: asyncio.Runner) -> None:
    async def answer_in_tasks() -> None:
        loop = asyncio.get_running_loop()
        async with opened() as (sink, read, _):
            chunks: list[bytes] = []

            async def answer(message: bytes) -> None:
                sink.write(message)
                chunks.append(read())

            def receive(message: bytes) -> None:
                tasks.append(loop.create_task(answer(message)))

            tasks: list[asyncio.Task[None]] = []
            burst = burst_of(loop)
            burst.handle(receive, [b"one\n", b"two\n"])
            burst.handle(receive, [b"three\n", b"four\n"])  # of another source, in the same turn
            assert burst.is_open
            await asyncio.gather(*tasks)
            assert chunks == [b"one\n", b"", b"", b""]
            assert await read_until(b"four\n", read) == b"two\nthree\nfour\n"
            assert not burst.is_open

    runner.run(answer_in_tasks())


def test_a_burst_ends_where_a_message_raises(runner: asyncio.Runner) -> None:
    async def fail() -> None:
        def receive(message: bytes) -> None:
            raise LookupError

        burst = burst_of(asyncio.get_running_loop())
        with pytest.raises(LookupError):
            burst.handle(receive, [b"one", b"two"])
        await asyncio.sleep(0)
        assert not burst.is_open

    runner.run(fail())


def test_messages_keep_their_order_however_large_they_are(runner: asyncio.Runner) -> None:
    messages = [b"%d:%s\n" % (n, b"x" * size) for n, size in enumerate((1, 10, 200_000, 5, 70_000, 70_000, 1, 2))]

    async def write_all() -> None:
        async with opened() as (sink, read, _):
            write_in_burst(sink, *messages)
            sink.write(b"last")
            assert await read_until(b"last", read) == b"".join(messages) + b"last"

    runner.run(write_all())


@pytest.mark.posix_only("a thread writes on Windows, and joins what waits for it")
def test_a_message_that_is_large_is_not_held_until_the_end_of_the_burst(runner: asyncio.Runner) -> None:
    async def write_two() -> None:
        async with opened() as (sink, read, _):
            write_in_burst(sink, b"one\n", b"x" * 100_000)
            assert read().startswith(b"one\nx")

    runner.run(write_two())


def test_what_is_held_for_the_end_of_the_burst_is_written_before_the_sink_is_closed(runner: asyncio.Runner) -> None:
    async def write_and_close() -> None:
        async with opened() as (sink, read, _):
            write_in_burst(sink, b"one\n", b"two\n")
            await sink.close()
            assert read() == b"one\ntwo\n"

    runner.run(write_and_close())


@pytest.mark.posix_only("a thread writes on Windows, and joins what waits for it")
def test_what_is_held_is_dropped_when_the_reader_goes_meanwhile(runner: asyncio.Runner) -> None:
    async def write_and_go() -> None:
        ours, theirs = os.pipe()
        gone = asyncio.Event()
        sink = await open_sink(theirs, high=1, on_full=lambda: None, on_drain=lambda: None, on_end=gone.set)
        write_in_burst(sink, b"one\n", b"two\n")
        os.close(ours)
        async with asyncio.timeout(BOUND_S):
            await gone.wait()
        assert sink.is_closing()
        sink.write(b"three\n")
        await sink.close()
        assert sink.buffered_bytes() == 0

    runner.run(write_and_go())


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a pipe can be set on Linux only")
def test_a_pipe_is_enlarged_and_a_large_one_stays_as_it_is() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "wb"):
        enlarge(reader)
        assert fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) == 1 << 17
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
        enlarge(writer)
        assert fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ) == 1 << 20


def test_what_is_no_pipe_is_not_enlarged(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        enlarge(file.fileno())


def test_a_message_is_not_taken_by_a_reader_that_has_stopped_or_gone(runner: asyncio.Runner) -> None:
    async def write_until_full() -> None:
        async with opened() as (sink, read, _):
            assert sink.try_write(b"x" * 200_000, 0)  # more than the pipe holds
            assert not sink.try_write(b"y", 1000)
            assert sink.try_write(b"y", 1_000_000)
            assert await read_until(b"y", read) == b"x" * 200_000 + b"y"
            await sink.close()
            assert not sink.try_write(b"z", 1_000_000)

    runner.run(write_until_full())
