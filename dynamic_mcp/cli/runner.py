"""Runs a command in an event loop that Ctrl-C ends cleanly."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import TypeVar

from dynamic_mcp.system.event_loop import loop_factory
from dynamic_mcp.upstream.process.child import kill_all

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine and return its result. Raises KeyboardInterrupt after Ctrl-C.

    The first Ctrl-C cancels the coroutine, which tells the upstreams; the second ends the process at once.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        # asyncio's runner does the same on Windows
        return runner.run(work if sys.platform == "win32" else _run_interruptible(work))


async def _run_interruptible(work: Coroutine[object, object, T]) -> T:
    task = asyncio.ensure_future(work)
    is_interrupted = False

    def interrupt() -> None:
        nonlocal is_interrupted
        if is_interrupted:
            kill_all()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        is_interrupted = True
        task.cancel("interrupted at the terminal")

    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        if is_interrupted:
            raise KeyboardInterrupt from None
        raise
