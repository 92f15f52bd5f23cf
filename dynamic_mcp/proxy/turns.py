"""Calls of modern clients to a server that asks: one at a time for each principal.

Over stdio nothing says whose call a question belongs to. A modern client has no session that could answer for all of
its calls, so a question is only answered while one call is in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from dynamic_mcp.config.resolved import Remote
from dynamic_mcp.errors import Busy
from dynamic_mcp.groups.audience import Principal
from dynamic_mcp.mcp.envelope import MAY_ASK
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.view import GroupView


class Turns:
    """The calls that wait for each other."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, Principal], asyncio.Lock] = WeakValueDictionary()

    def are_needed(self, group: GroupView, method: str) -> bool:
        """Tell whether a request of a modern client has to wait for its turn."""
        return method in MAY_ASK and group.group.asks and not _says_whom(group)

    async def run(
        self, request: Request, group: GroupView, timeout_s: float, send: Callable[[], Awaitable[Frame]]
    ) -> Frame:
        """Send a request when the calls before it are done. Raises Busy if that takes longer than its timeout."""
        key = (group.name, request.principal)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        try:
            async with asyncio.timeout(timeout_s):
                await lock.acquire()
        except TimeoutError:
            why = f"another call has been in progress for {timeout_s:g} s; it may wait for an answer of its client"
            raise Busy(group.name, why) from None
        try:
            return await send()
        finally:
            lock.release()


def _says_whom(group: GroupView) -> bool:
    """Tell whether a server's questions come in the streams of the calls that they are about."""
    upstream = group.config.upstream
    return isinstance(upstream, Remote) and upstream.kind != "sse"
