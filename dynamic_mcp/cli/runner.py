"""Runs a command in an event loop that Ctrl-C ends cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import TypeVar

from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.upstream.process.child import kill_all

T = TypeVar("T")
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def run(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine and return its result. Raises KeyboardInterrupt after Ctrl-C.

    The first Ctrl-C cancels the coroutine, which tells the upstreams; the second ends the process at once.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_run_interruptible(work))


async def _run_interruptible(work: Coroutine[object, object, T]) -> T:
    task = asyncio.ensure_future(work)
    is_interrupted = False

    def interrupt() -> None:
        nonlocal is_interrupted
        if is_interrupted:
            _end_now()
        is_interrupted = True
        task.cancel("interrupted at the terminal")

    with _handling_interrupts(interrupt):
        try:
            return await task
        except asyncio.CancelledError:
            if is_interrupted:
                raise KeyboardInterrupt from None
            raise


@contextlib.contextmanager
def _handling_interrupts(interrupt: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":  # where a loop has no handlers of signals, but wakes up for one
        before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(interrupt))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
    else:
        loop.add_signal_handler(signal.SIGINT, interrupt)
        yield


def _end_now() -> None:
    kill_all()
    if sys.platform == "win32":
        os._exit(_INTERRUPTED)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
