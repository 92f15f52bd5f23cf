"""Calls of modern clients to a server that asks: one at a time for each instance.

Over stdio nothing says whose call a question belongs to. A modern client has no session that could answer for all of
its calls, so a question is only answered while one call is running. A call whose client thinks gives its turn up, and
takes the next one to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from msgspec import structs

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import Busy
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp.envelope import MAY_ASK
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import ForwardingChannel, Request
from dynamic_mcp.proxy.view import GroupView

# What a call asks within this time of its first question is certainly its own; then the next call may run.
_QUESTIONS_WITHIN_S = 0.05


class Turns:
    """The calls that wait for each other."""

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[Instance, asyncio.Lock] = WeakKeyDictionary()

    def are_needed(self, group: GroupView, method: str) -> bool:
        """Return whether a request of a modern client has to wait for its turn."""
        return method in MAY_ASK and group.group.asks and not _says_whom(group)

    async def run(
        self,
        request: Request,
        group: GroupView,
        instance: Instance,
        timeout_s: float,
        send: Callable[[Request], Awaitable[Frame]],
    ) -> Frame:
        """Send a request when the calls before it are done. Raises Busy if that takes longer than its timeout."""
        turn = Turn(self._locks.setdefault(instance, asyncio.Lock()), request)
        try:
            async with asyncio.timeout(timeout_s):
                await turn.take()
        except TimeoutError:
            raise Busy(group.name, f"another call has been in progress for {timeout_s:g} s") from None
        try:
            return await send(structs.replace(request, channel=turn))
        finally:
            turn.give_up()


class Turn(ForwardingChannel):
    """The caller of a request that has its turn, but for the time in which its client thinks."""

    def __init__(self, lock: asyncio.Lock, caller: Request) -> None:
        super().__init__(caller)
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._taking = asyncio.Lock()
        self._is_held = False
        self._open_questions = 0

    async def take(self) -> None:
        """Wait for the calls that run now; a turn that is held stays so."""
        async with self._taking:  # two questions that are answered at once need one turn
            if not self._is_held:
                await self._lock.acquire()
                self._is_held = True

    def give_up(self) -> None:
        """Release the turn, so that the next call runs."""
        if self._is_held:
            self._is_held = False
            self._lock.release()

    @property
    def is_parked(self) -> bool:
        return not self._is_held

    async def ask(self, frame: Frame, on_status: Callable[[Frame], None]) -> Frame:
        """Ask the client, and give the turn up until it has answered."""
        self._open_questions += 1
        timer = self._loop.call_later(_QUESTIONS_WITHIN_S, self._give_up_while_asked)
        try:
            answer = await super().ask(frame, on_status)
        finally:
            self._open_questions -= 1
            timer.cancel()
        await self.take()
        return answer

    def _give_up_while_asked(self) -> None:
        if self._open_questions:
            self.give_up()


def _says_whom(group: GroupView) -> bool:
    """Return whether a server's questions come in the streams of the calls that they are about."""
    upstream = group.config.upstream
    return isinstance(upstream, Remote) and upstream.kind != "sse"
