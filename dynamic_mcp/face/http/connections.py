"""The connections of a server and their shared state: the handler, the time, and whether the server is closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from dynamic_mcp.face.http import heads
from dynamic_mcp.face.http.admission import ConnectionLimiter
from dynamic_mcp.face.http.body_budget import BodyBudget
from dynamic_mcp.face.http.exchange import Handler


class Connection(Protocol):
    """A connection as its server uses it."""

    def check(self, now: float) -> None:
        """Act if the client is too slow."""
        ...

    def close_when_idle(self) -> None:
        """Close now if no request is in progress, else after its answer."""
        ...

    def abort(self) -> None: ...


class Connections:
    """All connections of a server. They read the time from here, where it is at most a second old."""

    def __init__(self, handler: Handler, *, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        self.handler = handler
        self.clock = clock
        self.bodies = BodyBudget()
        self.admission = ConnectionLimiter(clock)
        self.is_closing = False
        self.are_retiring = False  # each closes after its next answer
        self.may_begin = False  # those without a request so far stay open for one when the server closes
        self.now = clock()
        self.date = heads.date_line(wall_clock())
        self._wall_clock = wall_clock
        self._members = set[Connection]()
        self._timer: asyncio.TimerHandle | None = None
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, connection: Connection) -> None:
        if self._timer is None:  # the time stood still without connections
            self._tick()
        self._members.add(connection)
        self._is_empty.clear()

    def remove(self, connection: Connection) -> None:
        self._members.discard(connection)
        if not self._members:
            self._is_empty.set()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def sweep(self) -> None:
        """Read the clocks, and check all connections; called once a second while there are any."""
        self.now = self.clock()
        self.date = heads.date_line(self._wall_clock())
        for connection in tuple(self._members):
            connection.check(self.now)

    def retire(self) -> None:
        """Close each connection after its next answer."""
        self.are_retiring = self.may_begin = True

    def close_idle(self) -> None:
        """Close idle connections now, and the others after their answers."""
        self.is_closing = self.are_retiring = True
        for connection in tuple(self._members):
            connection.close_when_idle()

    def abort(self) -> None:
        for connection in tuple(self._members):
            connection.abort()

    async def wait_until_empty(self) -> None:
        await self._is_empty.wait()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)
        self.sweep()
