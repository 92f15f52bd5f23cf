"""A loop that can tell when it is idle: nothing is left to run until time passes, or something comes from outside.

Tests wait for that where nothing must happen, or where it does not matter how many turns something takes.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import Executor
from typing import IO, Any, TypeVar, TypeVarTuple, Unpack

if sys.platform == "win32":
    from asyncio import IocpProactor as Events
    from asyncio import ProactorEventLoop as SystemLoop
else:
    from asyncio import SelectorEventLoop as SystemLoop
    from selectors import DefaultSelector as Events

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


class _IdleEvents(Events):
    """Tells before it blocks."""

    def __init__(self, idle: Callable[[], bool]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> Any:  # Any: keys of descriptors, or what has completed
        """Return what is ready at once; before anything is waited for, whoever waits for that goes first."""
        ready = super().select(0)
        if ready or timeout == 0 or self._idle():
            return ready
        return super().select(timeout)


class IdleLoop(SystemLoop):
    """The loop of tests."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []
        self._in_threads = 0
        self._read_pipes = weakref.WeakSet[asyncio.ReadTransport]()
        super().__init__(_IdleEvents(self._wake))

    async def connect_read_pipe(
        self, protocol_factory: Callable[[], Any], pipe: IO[bytes]
    ) -> tuple[asyncio.ReadTransport, Any]:  # Any: as in asyncio
        """Read a pipe, which has ended or is closed before the loop is closed."""
        transport, protocol = await super().connect_read_pipe(protocol_factory, pipe)
        self._read_pipes.add(transport)
        return transport, protocol

    def close(self) -> None:
        """Close the loop. A pipe that is still open fails the test that left it, not one that collects garbage."""
        left = [] if self.is_closed() else [each for each in self._read_pipes if not each.is_closing()]
        for each in left:
            each.close()
        if left:
            self.run_until_complete(asyncio.sleep(0))  # in which they are closed
        super().close()
        assert left == [], "the test left pipes open, perhaps of a process whose end it does not wait for"

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Arguments]], _Result], *args: *_Arguments
    ) -> asyncio.Future[_Result]:
        """Run in a thread; until its result has come the loop is not idle."""
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._out_of_thread)
        return future

    async def idle(self) -> None:
        """Wait until everything has run that runs without time passing, in threads too."""
        waiter = self.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _out_of_thread(self, future: asyncio.Future[_Result]) -> None:
        self._in_threads -= 1

    def _wake(self) -> bool:
        """Let those go on that wait for the loop to be idle; tell whether there were any."""
        if self._in_threads or not self._waiters:
            return False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return True
